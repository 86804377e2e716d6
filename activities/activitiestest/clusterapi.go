package activitiestest

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	activitiesrequest "millwright/activities/request"
	"millwright/activities/set"
	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
	capidrain "millwright/observe/capi/drain"
)

// NewClusterAPIWorld returns a world that holds these objects of Cluster API and of its providers.
func NewClusterAPIWorld(t *testing.T, settings capi.Settings, objects ...runtime.Object) *World {
	t.Helper()
	return newWorld(t, nil, func(w *World, cluster *cache.Cluster) int {
		w.ClusterAPIServer = capitest.NewFakeServer(objects...)
		w.APIServer.interceptRequests(w.ClusterAPIServer.Clientset)
		w.APIServer.interceptRequests(w.ClusterAPIServer.ProviderObjects)
		var err error
		w.ClusterAPICache, err = capi.WatchObjects(t.Context(), cluster, w.ClusterAPIServer.Client, settings)
		require.NoError(t, err)
		w.KubeconfigClient = kubefake.NewClientset(NewKubeconfigSecret("c"))
		require.NoError(t, w.ClusterAPICache.WatchDrainRules())
		connect := func(*rest.Config, string, string) (kubernetes.Interface, error) { return w.TargetClient, nil }
		w.WorkloadClusters = capidrain.NewWorkloadClusters(
			t.Context(),
			capidrain.ClusterAccess{SecretsClient: w.KubeconfigClient, Connect: connect},
		)
		return 5 // one cache each for sets, machines, deployments, Clusters and drain rules
	})
}

// NewKubeconfigSecret is the Secret of a Cluster whose workload cluster is the target cluster of the world.
func NewKubeconfigSecret(cluster string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       TestNamespace,
			Name:            cluster + "-kubeconfig",
			UID:             "uid-kubeconfig",
			ResourceVersion: "1",
		},
		Data: map[string][]byte{
			"value": []byte(
				`{"apiVersion":"v1","kind":"Config","current-context":"x","clusters":[{"name":"c","cluster":{"server":"https://workload"}}],"contexts":[{"name":"x","context":{"cluster":"c"}}]}`,
			),
		},
	}
}

// cacheResourceOf returns the name of a resource in MinVersions.
func cacheResourceOf(gvr schema.GroupVersionResource) cache.Resource {
	if gvr.Group == "" || gvr.Group == v1alpha1.SchemeGroupVersion.Group {
		return cache.Resource(gvr.Resource)
	}
	return capi.ResourceName(gvr)
}

// clusterAPIKinds are the kinds of Cluster API that Millwright reads.
func clusterAPIKinds() []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, kind := range []string{"MachineSet", "Machine", "MachineDeployment", "Cluster", "MachineDrainRule"} {
		kinds = append(kinds, clusterv1.GroupVersion.WithKind(kind))
	}
	return kinds
}

// clusterAPIObjects returns the objects of Cluster API and of its providers in the API server.
func (w *World) clusterAPIObjects() (all []any) {
	if w.ClusterAPIServer == nil {
		return nil
	}
	add := func(tracker clienttesting.ObjectTracker, kinds []schema.GroupVersionKind) {
		for _, kind := range kinds {
			resource, _ := meta.UnsafeGuessKindToResource(kind)
			for _, o := range w.listObjects(tracker, resource, kind) {
				all = append(all, o)
			}
		}
	}
	add(w.ClusterAPIServer.Clientset.Tracker(), clusterAPIKinds())
	add(w.ClusterAPIServer.ProviderObjects.Tracker(), capitest.ProviderKinds())
	return all
}

// cachedClusterAPIResources returns the resources of Cluster API and of its providers that have a cache.
func (w *World) cachedClusterAPIResources() (all []cache.Resource) {
	if w.ClusterAPIServer == nil {
		return nil
	}
	for _, kind := range append(clusterAPIKinds(), capitest.ProviderKinds()...) {
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		if name := cacheResourceOf(resource); w.Cluster.Informer(name) != nil {
			all = append(all, name)
		}
	}
	return all
}

// clusterAPIRequests returns the requests about objects of Cluster API and of its providers.
func (w *World) clusterAPIRequests() (actions []clienttesting.Action) {
	if w.ClusterAPIServer == nil {
		return nil
	}
	for _, fake := range w.ClusterAPIServer.FakeClientsets() {
		actions = append(actions, fake.Actions()...)
	}
	return actions
}

// ClusterAPISet returns the current set of Cluster API from the API server; nil if the set is gone.
func (w *World) ClusterAPISet(name string) *clusterv1.MachineSet {
	o, err := w.ClusterAPIServer.Clientset.Tracker().
		Get(clusterv1.GroupVersion.WithResource("machinesets"), TestNamespace, name)
	if err != nil {
		return nil
	}
	return o.(*clusterv1.MachineSet)
}

// ClusterAPIDeployment returns the current deployment of Cluster API from the API server; nil if the deployment is
// gone.
func (w *World) ClusterAPIDeployment(name string) *clusterv1.MachineDeployment {
	o, err := w.ClusterAPIServer.Clientset.Tracker().
		Get(clusterv1.GroupVersion.WithResource("machinedeployments"), TestNamespace, name)
	if err != nil {
		return nil
	}
	return o.(*clusterv1.MachineDeployment)
}

// ClusterAPISets returns the current sets of Cluster API from the API server, sorted by name.
func (w *World) ClusterAPISets() (all []*clusterv1.MachineSet) {
	list, err := w.ClusterAPIServer.Client.MachineSets(TestNamespace).List(w.T.Context(), metav1.ListOptions{})
	require.NoError(w.T, err)
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	slices.SortFunc(all, func(a, b *clusterv1.MachineSet) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// NewClusterAPIRequest is an operator request for a deployment of Cluster API.
func NewClusterAPIRequest(d *clusterv1.MachineDeployment, o request.CommandOrder) activitiesrequest.Request {
	return newApplyRequestInput(request.KindMachineDeployment, d, o)
}

// ClusterAPIMachine returns the current machine of Cluster API from the API server; nil if the machine is gone.
func (w *World) ClusterAPIMachine(name string) *clusterv1.Machine {
	o, err := w.ClusterAPIServer.Clientset.Tracker().
		Get(clusterv1.GroupVersion.WithResource("machines"), TestNamespace, name)
	if err != nil {
		return nil
	}
	return o.(*clusterv1.Machine)
}

// ProviderObject returns the current object of a provider from the API server; nil if the object is gone. like is an
// object of the same kind.
func (w *World) ProviderObject(like *unstructured.Unstructured, name string) *unstructured.Unstructured {
	o, err := w.ClusterAPIServer.ProviderObjects.Tracker().Get(capitest.ResourceOfObject(like), TestNamespace, name)
	if err != nil {
		return nil
	}
	return o.(*unstructured.Unstructured)
}

// NewClusterAPISetInput is the input of a decision about a set of Cluster API.
func NewClusterAPISetInput(s *clusterv1.MachineSet, live bool) set.Input {
	in := set.Input{ReadInput: NewReadInput(s)}
	in.Live = live
	return in
}

// NewClusterAPIMachineCreation is the input of an activity that creates machines of a set of Cluster API.
func NewClusterAPIMachineCreation(s *clusterv1.MachineSet, names ...string) set.MachineCreation {
	return set.MachineCreation{Set: NewRef(s), Version: s.ResourceVersion, Names: names}
}
