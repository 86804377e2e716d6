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

// ClusterAPI reads the objects of Cluster API, where it is installed. A nil ClusterAPI counts as not installed.
type ClusterAPI struct {
	client *capi.Client
	served func() (bool, error)
}

// discoverer is the method of a discovery client that says whether the API server serves a version of an API group.
type discoverer interface {
	ServerResourcesForGroupVersion(version string) (*metav1.APIResourceList, error)
}

// NewClusterAPI returns a ClusterAPI. It sends no request. The first call of Served asks whether Cluster API is
// installed; later calls return the same answer.
func NewClusterAPI(client *capi.Client, asked discoverer) *ClusterAPI {
	return &ClusterAPI{client, sync.OnceValues(func() (bool, error) {
		_, err := asked.ServerResourcesForGroupVersion(clusterv1.GroupVersion.String())
		switch {
		case apierrors.IsNotFound(err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("ask whether Cluster API is installed: %w", err)
		}
		return true, nil
	})}
}

// Served reports whether the API server serves the objects of Cluster API in the version that Millwright knows.
func (c *ClusterAPI) Served() (bool, error) {
	if c == nil {
		return false, nil
	}
	return c.served()
}

// ServedIf is Served with an error if the API server does not serve the objects although the user meant them.
func (c *ClusterAPI) ServedIf(meant bool) (bool, error) {
	served, err := c.Served()
	if err == nil && !served && meant {
		err = fmt.Errorf("the API server does not serve %s: Cluster API is not installed", clusterv1.GroupVersion)
	}
	return served, err
}

// Client returns the client. Call it only if Served returns true.
func (c *ClusterAPI) Client() *capi.Client { return c.client }

// Sets returns the sets that Millwright reconciles in a namespace, or in all namespaces. It finds them by Millwright's
// finalizer, because only the worker's flags say which label makes a set Millwright's. It returns none if Cluster API
// is not installed.
func (c *ClusterAPI) Sets(ctx context.Context, namespace string) ([]clusterv1.MachineSet, error) {
	if served, err := c.Served(); err != nil || !served {
		return nil, err
	}
	found, err := c.client.Sets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list machine sets of Cluster API: %w", err)
	}
	return slices.DeleteFunc(found.Items, func(s clusterv1.MachineSet) bool { return !capi.Lost(&s) }), nil
}

// Deployments returns the deployments that Millwright reconciles in a namespace, or in all namespaces. It finds them as
// Sets does.
func (c *ClusterAPI) Deployments(ctx context.Context, namespace string) ([]clusterv1.MachineDeployment, error) {
	if served, err := c.Served(); err != nil || !served {
		return nil, err
	}
	found, err := c.client.Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list machine deployments of Cluster API: %w", err)
	}
	return slices.DeleteFunc(found.Items, func(d clusterv1.MachineDeployment) bool { return !capi.Lost(&d) }), nil
}

// Machines returns the machines in a namespace, or in all namespaces, that one of these sets controls.
func (c *ClusterAPI) Machines(
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

// keys returns the keys of the deployments or sets that Millwright reconciles, or of the machines that these sets
// control; none if they cannot be read.
func (c *ClusterAPI) keys(ctx context.Context, namespace string, kind request.Kind) (keys []types.NamespacedName) {
	if kind == KindClusterAPIDeployment {
		deployments, err := c.Deployments(ctx, namespace)
		for i := range deployments {
			keys = append(keys, types.NamespacedName{Namespace: deployments[i].Namespace, Name: deployments[i].Name})
		}
		return list.When(err == nil, keys)
	}
	sets, err := c.Sets(ctx, namespace)
	if err != nil {
		return nil
	}
	if kind == KindClusterAPISet {
		for i := range sets {
			keys = append(keys, types.NamespacedName{Namespace: sets[i].Namespace, Name: sets[i].Name})
		}
		return keys
	}
	machines, err := c.Machines(ctx, namespace, sets)
	if err != nil {
		return nil
	}
	for i := range machines {
		keys = append(keys, types.NamespacedName{Namespace: machines[i].Namespace, Name: machines[i].Name})
	}
	return keys
}
