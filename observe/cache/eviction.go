package cache

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// evictionSupport caches whether the target can evict pods.
type evictionSupport struct {
	discoverySlot chan struct{} // semaphore of one: full while a caller runs discovery
	missingReason atomic.Pointer[string]
}

// NoEvictionReason returns why the target cannot evict pods by policy/v1; empty if it can. The first call runs
// discovery, and NoEvictionReason caches the answer. NoEvictionReason does not cache an error: the next call runs
// discovery again. Concurrent calls wait for one discovery.
func (t *Target) NoEvictionReason(ctx context.Context) (why string, err error) {
	if known := t.evictionSupport.missingReason.Load(); known != nil {
		return *known, nil
	}
	select {
	case t.evictionSupport.discoverySlot <- struct{}{}:
		defer func() { <-t.evictionSupport.discoverySlot }()
	case <-ctx.Done():
		return "", fmt.Errorf("wait until it is known whether the cluster can evict: %w", context.Cause(ctx))
	}
	if known := t.evictionSupport.missingReason.Load(); known != nil {
		return *known, nil
	}
	if why, err = discoverEvictionSupport(ctx, t.client); err == nil {
		t.evictionSupport.missingReason.Store(&why)
	}
	return why, err
}

// discoverEvictionSupport checks the same two facts as MCM: pods have the subresource eviction, and the API server
// serves the group policy. The subresource and the group must have the version of a drain's eviction requests.
func discoverEvictionSupport(ctx context.Context, target kubernetes.Interface) (why string, err error) {
	version := policyv1.SchemeGroupVersion
	core, err := target.Discovery().ServerResourcesForGroupVersionWithContext(ctx, "v1")
	if err != nil {
		return "", fmt.Errorf("discover the resources of v1: %w", err)
	}
	names := func(name string, of ...string) bool {
		return slices.ContainsFunc(core.APIResources, func(r metav1.APIResource) bool {
			return r.Name == name && (len(of) == 0 || slices.Equal(of, []string{r.Group, r.Version, r.Kind}))
		})
	}
	switch {
	case !names("pods"):
		// The client returns an empty list after a 404. A proxy in front of the API server may have sent the 404.
		return "", fmt.Errorf("discover the resources of v1: the answer does not name pods")
	case !names("pods/eviction", version.Group, version.Version, "Eviction"):
		return fmt.Sprintf("the API server has no subresource pods/eviction of %s", version), nil
	}
	switch _, err = target.Discovery().ServerResourcesForGroupVersionWithContext(ctx, version.String()); {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("the API server does not serve %s", version), nil
	case err != nil:
		return "", fmt.Errorf("discover the resources of %s: %w", version, err)
	}
	return "", nil
}
