package kubecli

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/decide/list"
	"millwright/decide/request"
	"millwright/observe/capi"
)

// ClusterAPIReader reads the objects of Cluster API. A nil *ClusterAPIReader means that Cluster API is not installed.
type ClusterAPIReader struct {
	client *capi.Client
	ask    func() (bool, error) // asks the API server whether Cluster API is installed

	mutex       sync.Mutex
	isKnown     bool // the API server has answered
	isInstalled bool
}

// groupVersionDiscoverer contains the method of a discovery client that reports whether the API server serves a version
// of an API group.
type groupVersionDiscoverer interface {
	ServerResourcesForGroupVersion(version string) (*metav1.APIResourceList, error)
}

// NewClusterAPIReader returns a ClusterAPI without sending a request. The first call of IsServed asks the API server
// whether Cluster API is installed; later calls return the same answer. If the API server does not answer, the next call
// asks again.
func NewClusterAPIReader(client *capi.Client, asked groupVersionDiscoverer) *ClusterAPIReader {
	return &ClusterAPIReader{client: client, ask: func() (bool, error) {
		_, err := asked.ServerResourcesForGroupVersion(clusterv1.GroupVersion.String())
		switch {
		case apierrors.IsNotFound(err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("ask whether Cluster API is installed: %w", err)
		}
		return true, nil
	}}
}

// IsServed reports whether the API server serves the objects of Cluster API in the version that Millwright uses.
func (c *ClusterAPIReader) IsServed() (bool, error) {
	if c == nil {
		return false, nil
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.isKnown {
		return c.isInstalled, nil
	}
	installed, err := c.ask()
	c.isKnown, c.isInstalled = err == nil, installed
	return installed, err
}

// RequireServedIf is like IsServed, but returns an error if meant is true and the API server does not serve the
// objects. The argument meant is true if the user named the API group.
func (c *ClusterAPIReader) RequireServedIf(meant bool) (bool, error) {
	served, err := c.IsServed()
	if err == nil && !served && meant {
		err = fmt.Errorf("the API server does not serve %s: Cluster API is not installed", clusterv1.GroupVersion)
	}
	return served, err
}

// Client returns the client, which may be used only if IsServed returns true.
func (c *ClusterAPIReader) Client() *capi.Client { return c.client }

// ListSets returns the sets that Millwright reconciles, or that wait for the hand-over to Millwright, in a namespace or
// in all namespaces. ListSets selects sets by Millwright's finalizer and the condition Blocked, because only the flags of
// the worker contain the label that selects Millwright's sets. If Cluster API is not installed, ListSets returns nil.
func (c *ClusterAPIReader) ListSets(ctx context.Context, namespace string) ([]clusterv1.MachineSet, error) {
	if served, err := c.IsServed(); err != nil || !served {
		return nil, err
	}
	found, err := c.client.MachineSets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list machine sets of Cluster API: %w", err)
	}
	return slices.DeleteFunc(found.Items, func(s clusterv1.MachineSet) bool { return !capi.IsMarkedByMillwright(&s) }), nil
}

// MachineExists reports whether a machine of Millwright or of Cluster API exists.
func (c Clients) MachineExists(ctx context.Context, key types.NamespacedName) (bool, error) {
	_, err := c.MachineClient.MachineV1alpha1().Machines(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err == nil, err
	}
	served, err := c.ClusterAPI.IsServed()
	if err != nil || !served {
		return false, err
	}
	_, err = c.ClusterAPI.Client().Machines(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// ListDeployments is ListSets for deployments.
func (c *ClusterAPIReader) ListDeployments(
	ctx context.Context,
	namespace string,
) ([]clusterv1.MachineDeployment, error) {
	if served, err := c.IsServed(); err != nil || !served {
		return nil, err
	}
	found, err := c.client.Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list machine deployments of Cluster API: %w", err)
	}
	return slices.DeleteFunc(
		found.Items,
		func(d clusterv1.MachineDeployment) bool { return !capi.IsMarkedByMillwright(&d) },
	), nil
}

// ListMachines returns the machines in a namespace, or in all namespaces, that one of these sets controls.
func (c *ClusterAPIReader) ListMachines(
	ctx context.Context,
	namespace string,
	sets []clusterv1.MachineSet,
) ([]clusterv1.Machine, error) {
	if len(sets) == 0 {
		return nil, nil
	}
	found, err := c.client.Machines(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list machines of Cluster API: %w", err)
	}
	return slices.DeleteFunc(found.Items, func(m clusterv1.Machine) bool {
		return !slices.ContainsFunc(sets, func(s clusterv1.MachineSet) bool { return metav1.IsControlledBy(&m, &s) })
	}), nil
}

// listObjectKeys returns the keys of the deployments or sets that Millwright reconciles, or of the machines that these
// sets control; nil if the objects cannot be read.
func (c *ClusterAPIReader) listObjectKeys(
	ctx context.Context,
	namespace string,
	kind request.Kind,
) (keys []types.NamespacedName) {
	if kind == KindClusterAPIDeployment {
		deployments, err := c.ListDeployments(ctx, namespace)
		for i := range deployments {
			keys = append(keys, types.NamespacedName{Namespace: deployments[i].Namespace, Name: deployments[i].Name})
		}
		return list.ValueIf(err == nil, keys)
	}
	sets, err := c.ListSets(ctx, namespace)
	if err != nil {
		return nil
	}
	if kind == KindClusterAPISet {
		for i := range sets {
			keys = append(keys, types.NamespacedName{Namespace: sets[i].Namespace, Name: sets[i].Name})
		}
		return keys
	}
	machines, err := c.ListMachines(ctx, namespace, sets)
	if err != nil {
		return nil
	}
	for i := range machines {
		keys = append(keys, types.NamespacedName{Namespace: machines[i].Namespace, Name: machines[i].Name})
	}
	return keys
}
