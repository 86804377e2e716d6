package capitest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/gentype"
	kubefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/observe/cache"
	"millwright/observe/capi"
)

// FakeServer is a fake API server with the objects of Cluster API and of its providers.
type FakeServer struct {
	Clientset                 *FakeClientset // fake clientset of cluster.x-k8s.io
	ProviderObjects           *dynamicfake.FakeDynamicClient
	CustomResourceDefinitions *metadatafake.FakeMetadataClient
	Client                    *capi.Client
}

// FakeClientset is a fake clientset with its object tracker.
type FakeClientset struct {
	*clienttesting.Fake
	tracker clienttesting.ObjectTracker
}

// Tracker returns the object tracker of the fake.
func (c *FakeClientset) Tracker() clienttesting.ObjectTracker { return c.tracker }

// ProviderKinds returns the installed kinds of providers: the templates, their clones, and the control plane.
func ProviderKinds() []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, o := range []*unstructured.Unstructured{NewBootstrapTemplate(), NewInfrastructureTemplate()} {
		kinds = append(
			kinds,
			o.GroupVersionKind(),
			o.GroupVersionKind().GroupVersion().WithKind(capi.CloneKind(ObjectReference(o)).Kind),
		)
	}
	return append(kinds, NewControlPlane().GroupVersionKind())
}

// NewCustomResourceDefinition returns the CustomResourceDefinition of a kind with these labels.
func NewCustomResourceDefinition(kind schema.GroupVersionKind, labels map[string]string) *metav1.PartialObjectMetadata {
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: resource.GroupResource().String(), Labels: labels},
	}
}

// NewFakeServer returns a server that contains these objects and the definitions of ProviderKinds. A
// CustomResourceDefinition among the objects replaces the definition of the same kind.
func NewFakeServer(objects ...runtime.Object) *FakeServer {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	metav1.AddToGroupVersion(scheme, clusterv1.GroupVersion)
	s := &FakeServer{
		Clientset: &FakeClientset{
			&clienttesting.Fake{},
			clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder()),
		},
	}
	var foreign, definitions []runtime.Object
	for _, o := range objects {
		switch o := o.(type) {
		case *unstructured.Unstructured:
			foreign = append(foreign, o)
		case *metav1.PartialObjectMetadata:
			definitions = append(definitions, o)
		default:
			if err := s.Clientset.tracker.Add(o); err != nil {
				panic(err)
			}
		}
	}
	var groups []schema.GroupVersion // the mapper has only these versions
	for _, kind := range ProviderKinds() {
		groups = append(groups, kind.GroupVersion())
	}
	mapper, lists := meta.NewDefaultRESTMapper(groups), map[schema.GroupVersionResource]string{}
	for _, kind := range ProviderKinds() {
		mapper.Add(kind, meta.RESTScopeNamespace)
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		lists[resource] = kind.Kind + "List"
		lists[resource.GroupResource().WithVersion("v1beta1")] = kind.Kind + "List" // for a provider before its upgrade
		definition := NewCustomResourceDefinition(
			kind,
			map[string]string{clusterv1.GroupVersion.Group + "/v1beta2": kind.Version},
		)
		if !slices.ContainsFunc(
			definitions,
			func(o runtime.Object) bool { return o.(*metav1.PartialObjectMetadata).Name == definition.Name },
		) {
			definitions = append(definitions, definition)
		}
	}
	lists[runtimev1.GroupVersion.WithResource("extensionconfigs")] = "ExtensionConfigList"
	s.Clientset.AddReactor("*", "*", clienttesting.ObjectReaction(s.Clientset.tracker))
	s.Clientset.AddWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		options := action.(clienttesting.WatchActionImpl).ListOptions
		if options.SendInitialEvents != nil { // the tracker sends no initial events, so the cache lists instead
			return true, nil, apierrors.NewBadRequest("sendInitialEvents is not supported")
		}
		w, err := s.Clientset.tracker.Watch(action.GetResource(), action.GetNamespace(), options)
		return true, w, err
	})
	s.ProviderObjects = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, foreign...)
	s.CustomResourceDefinitions = metadatafake.NewSimpleMetadataClient(scheme, definitions...)
	s.Client = &capi.Client{
		MachineSets: newTypedClientFunc(
			s.Clientset,
			"MachineSet",
			func(l *clusterv1.MachineSetList) *[]clusterv1.MachineSet { return &l.Items },
		),
		Machines: newTypedClientFunc(
			s.Clientset,
			"Machine",
			func(l *clusterv1.MachineList) *[]clusterv1.Machine { return &l.Items },
		),
		Deployments: newTypedClientFunc(
			s.Clientset,
			"MachineDeployment",
			func(l *clusterv1.MachineDeploymentList) *[]clusterv1.MachineDeployment { return &l.Items },
		),
		Clusters: newTypedClientFunc(
			s.Clientset,
			"Cluster",
			func(l *clusterv1.ClusterList) *[]clusterv1.Cluster { return &l.Items },
		),
		DrainRules: newTypedClientFunc(
			s.Clientset,
			"MachineDrainRule",
			func(l *clusterv1.MachineDrainRuleList) *[]clusterv1.MachineDrainRule { return &l.Items },
		),
		ProviderObjects:           s.ProviderObjects,
		CustomResourceDefinitions: s.CustomResourceDefinitions,
		Mapper:                    mapper,
	}
	return s
}

// newTypedClientFunc returns a function that makes the fake clients of one kind. The function items returns the items
// of a list.
func newTypedClientFunc[O, L any, P interface {
	*O
	runtime.Object
	metav1.Object
}, Q interface {
	*L
	runtime.Object
	metav1.ListInterface
}](core *FakeClientset, kind string, items func(Q) *[]O,
) func(string) capi.TypedClient[P, Q] {
	gvk := clusterv1.GroupVersion.WithKind(kind)
	resource, _ := meta.UnsafeGuessKindToResource(gvk)
	return func(namespace string) capi.TypedClient[P, Q] {
		return gentype.NewFakeClientWithList(core.Fake, namespace, resource, gvk,
			func() P { return new(O) }, func() Q { return new(L) },
			func(to, from Q) { to.SetResourceVersion(from.GetResourceVersion()) },
			func(list Q) (all []P) {
				for i := range *items(list) {
					all = append(all, &(*items(list))[i])
				}
				return all
			},
			func(list Q, all []P) {
				for _, o := range all {
					*items(list) = append(*items(list), *o)
				}
			})
	}
}

// FakeClientsets returns the clientsets of the server.
func (s *FakeServer) FakeClientsets() []*clienttesting.Fake {
	return []*clienttesting.Fake{s.Clientset.Fake, &s.ProviderObjects.Fake, &s.CustomResourceDefinitions.Fake}
}

// StartCaches returns running caches over a fake API server that contains these objects.
func StartCaches(t *testing.T, objects ...runtime.Object) (*capi.Cache, *FakeServer) {
	t.Helper()
	server := NewFakeServer(objects...)
	cluster, err := cache.NewCluster(fake.NewSimpleClientset(), kubefake.NewClientset(), nil)
	require.NoError(t, err)
	c, err := capi.WatchObjects(t.Context(), cluster, server.Client, DefaultSettings)
	require.NoError(t, err)
	require.NoError(t, c.WatchDrainRules())
	require.NoError(t, cluster.Start(t.Context()))
	return c, server
}
