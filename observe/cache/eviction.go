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

// evictions is what is known about whether the target can evict pods.
type evictions struct {
	asking chan struct{} // holds a value while somebody asks
	lack   atomic.Pointer[string]
}

// NoEviction returns why the target cluster of a namespace cannot evict pods by policy/v1; empty if it can. Discovery
// is asked at the first call, and its answer is kept. An error is no answer: the next call asks again. Calls at the
// same time wait for the answer to one question.
func (c *Cluster) NoEviction(ctx context.Context, namespace string) (why string, err error) {
	if known := c.evictions.lack.Load(); known != nil {
		return *known, nil
	}
	select {
	case c.evictions.asking <- struct{}{}:
		defer func() { <-c.evictions.asking }()
	case <-ctx.Done():
		return "", fmt.Errorf("wait until it is known whether the cluster can evict: %w", context.Cause(ctx))
	}
	if known := c.evictions.lack.Load(); known != nil {
		return *known, nil
	}
	if why, err = askEviction(ctx, c.Target(namespace)); err == nil {
		c.evictions.lack.Store(&why)
	}
	return why, err
}

// askEviction asks discovery what MCM asks: whether pods have the subresource eviction, and whether the group policy is
// served. Both must have the version of the requests of a drain.
func askEviction(ctx context.Context, target kubernetes.Interface) (why string, err error) {
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
		// the client returns an empty list after a 404, which a proxy in front of the API server may have sent
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
