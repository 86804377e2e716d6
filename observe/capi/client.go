// Package capi reads the objects of cluster.x-k8s.io/v1beta2 and the objects to which they refer, from caches or from
// the API server. The subpackages of capi derive facts for decide from the objects of Cluster API.
package capi

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// TypedClient is a client for the objects of one kind in one namespace. TypedClient has no Update: an update would remove
// the fields that a newer version of Cluster API has and T lacks.
type TypedClient[T, L any] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
	Get(context.Context, string, metav1.GetOptions) (T, error)
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error)
}

// Client reads and writes the objects of Cluster API and of its providers.
type Client struct {
	MachineSets func(namespace string) TypedClient[*clusterv1.MachineSet, *clusterv1.MachineSetList]
	Machines    func(namespace string) TypedClient[*clusterv1.Machine, *clusterv1.MachineList]
	Deployments func(namespace string) TypedClient[*clusterv1.MachineDeployment, *clusterv1.MachineDeploymentList]
	Clusters    func(namespace string) TypedClient[*clusterv1.Cluster, *clusterv1.ClusterList]
	DrainRules  func(namespace string) TypedClient[*clusterv1.MachineDrainRule, *clusterv1.MachineDrainRuleList]

	ProviderObjects           dynamic.Interface  // client for templates, clones and control planes
	CustomResourceDefinitions metadata.Interface // client for CustomResourceDefinitions: their labels list contracts
	Mapper                    meta.RESTMapper    // maps kinds to resources
}

// NewClient returns a client of a management cluster. NewClient sends no request yet.
func NewClient(config *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	if err := clusterv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register the types of Cluster API: %w", err)
	}
	metav1.AddToGroupVersion(scheme, clusterv1.GroupVersion)
	typed := rest.CopyConfig(config)
	typed.GroupVersion, typed.APIPath = &clusterv1.GroupVersion, "/apis"
	typed.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	typed.ContentType, typed.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	core, err := rest.RESTClientFor(typed)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	definitions, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	served, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	codec := runtime.NewParameterCodec(scheme)
	return &Client{
		MachineSets: newTypedClientFunc[*clusterv1.MachineSet, *clusterv1.MachineSetList](
			core,
			codec,
			"machinesets",
			func() *clusterv1.MachineSet { return &clusterv1.MachineSet{} },
			func() *clusterv1.MachineSetList { return &clusterv1.MachineSetList{} },
		),
		Machines: newTypedClientFunc[*clusterv1.Machine, *clusterv1.MachineList](
			core,
			codec,
			"machines",
			func() *clusterv1.Machine { return &clusterv1.Machine{} },
			func() *clusterv1.MachineList { return &clusterv1.MachineList{} },
		),
		Deployments: newTypedClientFunc[*clusterv1.MachineDeployment, *clusterv1.MachineDeploymentList](
			core,
			codec,
			"machinedeployments",
			func() *clusterv1.MachineDeployment { return &clusterv1.MachineDeployment{} },
			func() *clusterv1.MachineDeploymentList { return &clusterv1.MachineDeploymentList{} },
		),
		Clusters: newTypedClientFunc[*clusterv1.Cluster, *clusterv1.ClusterList](
			core,
			codec,
			"clusters",
			func() *clusterv1.Cluster { return &clusterv1.Cluster{} },
			func() *clusterv1.ClusterList { return &clusterv1.ClusterList{} },
		),
		DrainRules: newTypedClientFunc[*clusterv1.MachineDrainRule, *clusterv1.MachineDrainRuleList](
			core,
			codec,
			"machinedrainrules",
			func() *clusterv1.MachineDrainRule { return &clusterv1.MachineDrainRule{} },
			func() *clusterv1.MachineDrainRuleList { return &clusterv1.MachineDrainRuleList{} },
		),
		ProviderObjects:           objects,
		CustomResourceDefinitions: definitions,
		Mapper:                    restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(served)),
	}, nil
}

// newTypedClientFunc returns a function that makes the clients of one kind. object() makes an empty object, and list()
// makes an empty list.
func newTypedClientFunc[T interface {
	runtime.Object
	metav1.Object
}, L runtime.Object](core rest.Interface, codec runtime.ParameterCodec, resource string, object func() T, list func() L) func(string) TypedClient[T, L] {
	return func(namespace string) TypedClient[T, L] {
		return gentype.NewClientWithList(resource, core, codec, namespace, object, list)
	}
}
