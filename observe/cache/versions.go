package cache

import (
	"context"
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
)

// MinVersions holds, for each resource, the resource version that a cache must have reached before a decision may read
// it: the newest of the versions that woke the workflow and that the workflow wrote. Versions compare within one
// resource only.
type MinVersions map[Resource]string

// Raise keeps the newer of the recorded version and this one. An empty or malformed version changes nothing.
func (v MinVersions) Raise(resource Resource, version string) {
	if Newer(version, v[resource]) {
		v[resource] = version
	}
}

// Newer reports whether version a is newer than b. A well-formed version is newer than an empty one. A malformed
// version, which a signal sent by hand may contain, is never newer: once recorded, it would hide every later version.
func Newer(a, b string) bool {
	if b == "" {
		_, err := resourceversion.CompareResourceVersion(a, a)
		return err == nil
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// Await waits until the caches have reached these versions, for limit at most, and reports whether they have.
func (c *Cluster) Await(ctx context.Context, versions MinVersions, limit time.Duration) bool {
	err := wait.PollUntilContextTimeout(ctx, versionsPoll, limit, true, func(context.Context) (bool, error) {
		return c.reached(versions), nil
	})
	return err == nil
}

func (c *Cluster) reached(versions MinVersions) bool {
	for resource, version := range versions {
		if c.Informer(resource) != nil && Newer(version, c.Applied(resource)) {
			return false
		}
	}
	return true
}

// Rewound reports whether an API server is older than these versions: it was restored to a former state. The versions
// will not be reached for a long time, if ever. It asks the API server for each resource that a cache has not reached,
// but not for the control plane, whose kind may not be installed.
func (c *Cluster) Rewound(ctx context.Context, versions MinVersions) (bool, error) {
	ahead := maps.Clone(versions)
	maps.DeleteFunc(
		ahead,
		func(resource Resource, version string) bool { return c.reached(MinVersions{resource: version}) },
	)
	resource, err := c.older(ctx, ahead)
	return resource != "", err
}

// older returns a resource of which the API server has not reached the version; empty if it has reached all of them.
func (c *Cluster) older(ctx context.Context, versions MinVersions) (Resource, error) {
	ctx, cancel := context.WithTimeout(ctx, versionRequest)
	defer cancel()
	one := metav1.ListOptions{Limit: 1} // its version is that of the whole store
	v1 := c.client.MachineV1alpha1()
	for resource, list := range map[Resource]func() (metav1.ListInterface, error){
		Machines:    func() (metav1.ListInterface, error) { return v1.Machines(metav1.NamespaceAll).List(ctx, one) },
		Sets:        func() (metav1.ListInterface, error) { return v1.MachineSets(metav1.NamespaceAll).List(ctx, one) },
		Deployments: func() (metav1.ListInterface, error) { return v1.MachineDeployments(metav1.NamespaceAll).List(ctx, one) },
		Policies:    func() (metav1.ListInterface, error) { return v1.RolloutPolicies(metav1.NamespaceAll).List(ctx, one) },
		Classes:     func() (metav1.ListInterface, error) { return v1.MachineClasses(metav1.NamespaceAll).List(ctx, one) },
		Nodes:       func() (metav1.ListInterface, error) { return c.target.CoreV1().Nodes().List(ctx, one) },
		Secrets:     func() (metav1.ListInterface, error) { return c.SecretMetadata(metav1.NamespaceAll).List(ctx, one) },
	} {
		if versions[resource] == "" || c.Informers[resource] == nil {
			continue
		}
		newest, err := list()
		if err != nil {
			return "", fmt.Errorf("read the version of %s: %w", resource, err)
		}
		if Newer(versions[resource], newest.GetResourceVersion()) {
			return resource, nil
		}
	}
	return "", nil
}

// Applied returns the version that the cache of a resource has reached; empty when the resource is not watched.
func (c *Cluster) Applied(resource Resource) string {
	informer := c.Informer(resource)
	if informer == nil {
		return ""
	}
	// the informer's own LastSyncResourceVersion may be ahead of its store
	return informer.GetStore().LastStoreSyncResourceVersion()
}
