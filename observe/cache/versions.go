package cache

import (
	"context"
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// MinVersions contains, for each resource, the resource version that a cache must have reached before a decision may
// read the cache. Each version is the newest of the versions that woke the workflow and the versions that the workflow
// wrote. Versions are comparable only within one resource.
type MinVersions map[Resource]string

// RaiseVersion records a version if it is newer than the recorded version of the resource. RaiseVersion ignores an
// empty or malformed version.
func (v MinVersions) RaiseVersion(resource Resource, version string) {
	if IsNewerVersion(version, v[resource]) {
		v[resource] = version
	}
}

// IsNewerVersion reports whether version a is newer than b. A well-formed version is newer than an empty version. A
// malformed version, which a signal sent by hand may contain, is never newer: once recorded, it would hide every later
// version.
func IsNewerVersion(a, b string) bool {
	if b == "" {
		_, err := resourceversion.CompareResourceVersion(a, a)
		return err == nil
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// AwaitVersions waits until the caches have reached these versions, for limit at most. AwaitVersions reports whether
// the caches have reached these versions. The version of Nodes applies to the nodes of the namespace's target.
// AwaitVersions ignores the version of Nodes while this target is not ready: the cache of its nodes reaches no version
// during an outage, and the decision knows that the nodes are unknown.
func (c *Cluster) AwaitVersions(
	ctx context.Context,
	namespace string,
	versions MinVersions,
	limit time.Duration,
) bool {
	err := wait.PollUntilContextTimeout(ctx, versionPollInterval, limit, true, func(context.Context) (bool, error) {
		return c.hasReachedVersions(namespace, versions), nil
	})
	return err == nil
}

func (c *Cluster) hasReachedVersions(namespace string, versions MinVersions) bool {
	for resource, version := range versions {
		informer := c.informerForResource(namespace, resource)
		if informer != nil && IsNewerVersion(version, reachedVersion(informer)) {
			return false
		}
	}
	return true
}

// informerForResource returns the cache of a resource of the control cluster or of the namespace's target.
// informerForResource returns nil for the nodes of a target that is not ready.
func (c *Cluster) informerForResource(namespace string, resource Resource) cache.SharedIndexInformer {
	switch target := c.Target(namespace); {
	case resource != NodesResource:
		return c.Informer(resource)
	case target.Status().State != TargetReady:
		return nil
	default:
		return target.Informer(NodesResource)
	}
}

// IsServerOlder reports whether an API server is older than these versions, because the API server was restored to a
// former state. After a restore, the caches reach these versions late or never. IsServerOlder asks the API server for
// the version of each resource whose cache is behind. IsServerOlder does not ask for the control plane, whose kind may
// not be installed.
func (c *Cluster) IsServerOlder(ctx context.Context, namespace string, versions MinVersions) (bool, error) {
	ahead := maps.Clone(versions)
	maps.DeleteFunc(
		ahead,
		func(resource Resource, version string) bool {
			return c.hasReachedVersions(namespace, MinVersions{resource: version})
		},
	)
	resource, err := c.findResourceAheadOfServer(ctx, namespace, ahead)
	return resource != "", err
}

// findResourceAheadOfServer returns a resource whose version the API server has not reached; empty if the API server
// has reached all versions.
func (c *Cluster) findResourceAheadOfServer(
	ctx context.Context,
	namespace string,
	versions MinVersions,
) (Resource, error) {
	ctx, cancel := context.WithTimeout(ctx, versionCheckTimeout)
	defer cancel()
	one := metav1.ListOptions{Limit: 1} // the list's resource version is the version of the whole store
	v1 := c.client.MachineV1alpha1()
	for resource, list := range map[Resource]func() (metav1.ListInterface, error){
		MachinesResource:        func() (metav1.ListInterface, error) { return v1.Machines(metav1.NamespaceAll).List(ctx, one) },
		SetsResource:            func() (metav1.ListInterface, error) { return v1.MachineSets(metav1.NamespaceAll).List(ctx, one) },
		DeploymentsResource:     func() (metav1.ListInterface, error) { return v1.MachineDeployments(metav1.NamespaceAll).List(ctx, one) },
		RolloutPoliciesResource: func() (metav1.ListInterface, error) { return v1.RolloutPolicies(metav1.NamespaceAll).List(ctx, one) },
		ClassesResource:         func() (metav1.ListInterface, error) { return v1.MachineClasses(metav1.NamespaceAll).List(ctx, one) },
		NodesResource: func() (metav1.ListInterface, error) {
			return c.TargetClient(namespace).CoreV1().Nodes().List(ctx, one)
		},
		SecretsResource: func() (metav1.ListInterface, error) {
			return c.SecretMetadataClient(metav1.NamespaceAll).List(ctx, one)
		},
	} {
		if versions[resource] == "" || c.informerForResource(namespace, resource) == nil {
			continue
		}
		newest, err := list()
		if err != nil {
			return "", fmt.Errorf("read the version of %s: %w", resource, err)
		}
		if IsNewerVersion(versions[resource], newest.GetResourceVersion()) {
			return resource, nil
		}
	}
	return "", nil
}

// ReachedVersion returns the version that the cache of a resource has reached; empty if the resource is not watched.
func (c *Cluster) ReachedVersion(resource Resource) string {
	informer := c.Informer(resource)
	if informer == nil {
		return ""
	}
	return reachedVersion(informer)
}

// reachedVersion returns the version that a cache has reached. The informer's own LastSyncResourceVersion may be ahead
// of its store.
func reachedVersion(informer cache.SharedIndexInformer) string {
	return informer.GetStore().LastStoreSyncResourceVersion()
}
