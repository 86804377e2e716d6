package capi_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
	capiset "millwright/observe/capi/set"
	"millwright/observe/observetest"
)

// infrastructureTemplateKind returns the kind of the infrastructure template.
func infrastructureTemplateKind() schema.GroupKind {
	return capitest.NewInfrastructureTemplate().GroupVersionKind().GroupKind()
}

// The version of a provider's resource is the newest version of the newest contract in the labels of the
// CustomResourceDefinition.
func TestNewestVersionOfTheNewestContractIsUsed(t *testing.T) {
	const v1beta1, v1beta2 = "cluster.x-k8s.io/v1beta1", "cluster.x-k8s.io/v1beta2"
	for _, row := range []struct {
		name   string
		labels map[string]string
		want   string // wanted version; empty: ErrKindNotInstalled
	}{
		{"one version", map[string]string{v1beta2: "v1beta1"}, "v1beta1"},
		{"the newest of several", map[string]string{v1beta2: "v1alpha4_v1beta2_v1beta1"}, "v1beta2"},
		{"a stable one is newer", map[string]string{v1beta2: "v1_v2beta1"}, "v1"},
		{"the tenth is newer than the ninth", map[string]string{v1beta2: "v9_v10"}, "v10"},
		{"the newest contract", map[string]string{v1beta1: "v1beta3", v1beta2: "v1beta2"}, "v1beta2"},
		{"the former contract", map[string]string{v1beta1: "v1beta1"}, "v1beta1"},
		{"an empty list", map[string]string{v1beta2: "", v1beta1: "v1beta1"}, "v1beta1"},
		{"a contract that is too old", map[string]string{"cluster.x-k8s.io/v1alpha4": "v1alpha4"}, ""},
		{"no contract", map[string]string{"cluster.x-k8s.io/provider": "infrastructure-example"}, ""},
		{"no labels", nil, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, _ := capitest.StartCaches(
				t,
				capitest.NewCustomResourceDefinition(capitest.NewInfrastructureTemplate().GroupVersionKind(), row.labels),
			)
			resource, err := c.ResourceOfKind(t.Context(), infrastructureTemplateKind())
			if row.want == "" {
				require.ErrorIs(t, err, capi.ErrKindNotInstalled)
				assert.True(t, resource.Empty())
				return
			}
			require.NoError(t, err)
			assert.Equal(
				t,
				schema.GroupVersionResource{
					Group:    infrastructureTemplateKind().Group,
					Version:  row.want,
					Resource: "examplemachinetemplates",
				},
				resource,
			)
		})
	}
}

func TestKindLookupsAreCached(t *testing.T) {
	c, server := capitest.StartCaches(t)
	for range 3 {
		_, err := c.ResourceOfKind(t.Context(), infrastructureTemplateKind())
		require.NoError(t, err)
		_, err = c.ResourceOfKind(t.Context(), schema.GroupKind{Group: "example.com", Kind: "Nothing"})
		require.ErrorIs(t, err, capi.ErrKindNotInstalled)
	}
	assert.Len(
		t,
		server.CustomResourceDefinitions.Actions(),
		1,
		"one request for the kind that exists, none for the one that is not served",
	)
}

// If the API server does not answer, a kind is unknown, not missing. The cache does not keep the error of a failed
// lookup.
func TestFailedKindLookupIsNotAMissingKind(t *testing.T) {
	c, server := capitest.StartCaches(t)
	fails := true
	server.CustomResourceDefinitions.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return fails, nil, errors.New("connection refused")
	})
	_, err := c.ResourceOfKind(t.Context(), infrastructureTemplateKind())
	require.ErrorContains(t, err, "connection refused")
	require.NotErrorIs(t, err, capi.ErrKindNotInstalled)
	_, err = c.ReadRelatedObjects(t.Context(), capitest.NewSet("s", 1))
	require.ErrorContains(t, err, "connection refused", "nobody may take the template for missing")
	fails = false
	_, err = c.ResourceOfKind(t.Context(), infrastructureTemplateKind())
	require.NoError(t, err)
}

func TestIsTemplateAndCloneKind(t *testing.T) {
	ref := func(kind string) clusterv1.ContractVersionedObjectReference {
		return clusterv1.ContractVersionedObjectReference{APIGroup: "example.com", Kind: kind, Name: "x"}
	}
	for kind, want := range map[string]bool{"ExampleMachineTemplate": true, "ExampleMachine": false, "Template": false, "TemplateX": false, "": false} {
		assert.Equal(t, want, capi.IsTemplate(ref(kind)), kind)
	}
	assert.Equal(
		t,
		schema.GroupKind{Group: "example.com", Kind: "ExampleMachine"},
		capi.CloneKind(ref("ExampleMachineTemplate")),
	)
}

// objectsOfAllKinds returns one object of each kind, and objects that Millwright does not reconcile.
func objectsOfAllKinds() []runtime.Object {
	s := capitest.NewSet("s", 1, capitest.WithDeploymentOwner)
	other := capitest.NewSet("other", 1)
	elsewhere := capitest.NewMachine("elsewhere", s, capitest.WithoutOwner)
	elsewhere.Namespace = "garden"
	return []runtime.Object{
		s,
		other,
		capitest.NewMachine("a", s),
		capitest.NewMachine("b", s, capitest.AsDeletingObject),
		capitest.NewMachine("c", other),
		capitest.NewMachine("free", s, capitest.WithoutOwner),
		capitest.NewMachine("relabelled", s, func(m *clusterv1.Machine) { m.Labels = nil }),
		elsewhere,
		capitest.NewCluster(),
		capitest.NewDeployment(),
		capitest.NewBootstrapTemplate(),
		capitest.NewInfrastructureTemplate(),
		capitest.NewControlPlane(),
	}
}

// The caches and the API server give the same objects related to a set.
func TestCachedAndLiveReadsGiveTheSameObjects(t *testing.T) {
	c, server := capitest.StartCaches(t, objectsOfAllKinds()...)
	s, found := c.MachineSet("shop/s")
	require.True(t, found)
	server.Clientset.ClearActions()
	live, err := c.ReadLiveRelatedObjects(t.Context(), s)
	require.NoError(t, err)
	for _, action := range server.Clientset.Actions() {
		if list, ok := action.(clienttesting.ListAction); ok {
			assert.False(
				t,
				list.GetListRestrictions().Labels.Empty(),
				"a list of all %s of the namespace",
				action.GetResource().Resource,
			)
		}
	}
	cached, err := c.ReadRelatedObjects(t.Context(), s)
	require.NoError(t, err)
	for name, a := range map[string]capi.RelatedObjects{"live": live, "cached": cached} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, []string{"a", "b", "relabelled"}, observetest.ObjectNames(a.Members))
			assert.Equal(t, []string{"free"}, observetest.ObjectNames(a.Orphans))
			assert.Equal(t, []string{"c", "d"}, []string{a.Cluster.Name, a.Deployment.Name})
			require.Len(t, a.Templates, 2)
			assert.Equal(
				t,
				[]string{"join", "small", "cp"},
				[]string{a.Templates[0].Object.GetName(), a.Templates[1].Object.GetName(), a.ControlPlane.Object.GetName()},
			)
			assert.Equal(
				t,
				schema.GroupVersionResource{
					Group:    "infrastructure.cluster.x-k8s.io",
					Version:  "v1beta2",
					Resource: "examplemachinetemplates",
				},
				a.Templates[1].Resource,
			)
			assert.Equal(t, cache.MinVersions{
				"machines.cluster.x-k8s.io":                               "900",
				"clusters.cluster.x-k8s.io":                               "900",
				"machinedeployments.cluster.x-k8s.io":                     "900",
				"kubeadmconfigtemplates.bootstrap.cluster.x-k8s.io":       "900",
				"examplemachinetemplates.infrastructure.cluster.x-k8s.io": "900",
				"kubeadmcontrolplanes.controlplane.cluster.x-k8s.io":      "900",
			}, a.ResourceVersions())
		})
	}
}

// A template counts as missing if its object or its kind does not exist.
func TestTemplateWithoutObjectOrKindIsMissing(t *testing.T) {
	ghost := func(s *clusterv1.MachineSet) {
		s.Spec.Template.Spec.InfrastructureRef.APIGroup = "not.installed.example.com"
	}
	c, _ := capitest.StartCaches(t, capitest.NewSet("s", 1, ghost, capitest.WithDeploymentOwner))
	s, _ := c.MachineSet("shop/s")
	for name, read := range map[string]func() (capi.RelatedObjects, error){
		"live": func() (capi.RelatedObjects, error) { return c.ReadLiveRelatedObjects(t.Context(), s) }, "cached": func() (capi.RelatedObjects, error) { return c.ReadRelatedObjects(t.Context(), s) },
	} {
		t.Run(name, func(t *testing.T) {
			a, err := read()
			require.NoError(t, err)
			assert.Empty(t, a.Members)
			assert.Nil(t, a.Cluster)
			assert.Nil(t, a.Deployment)
			assert.Nil(t, a.ControlPlane)
			require.Len(t, a.Templates, 2)
			assert.True(t, a.Templates[0].IsMissing(), "the object")
			assert.False(t, a.Templates[0].Resource.Empty())
			assert.True(t, a.Templates[1].IsMissing(), "the kind")
		})
	}
}

// A set needs no bootstrap provider if the bootstrap data are in a Secret. If a reference does not name a template,
// Millwright does not clone the object.
func TestReferenceToANonTemplateIsNotRead(t *testing.T) {
	c, _ := capitest.StartCaches(t, capitest.NewSet("s", 1, func(s *clusterv1.MachineSet) {
		s.Spec.Template.Spec.Bootstrap = clusterv1.Bootstrap{DataSecretName: new("data")}
	}), capitest.NewInfrastructureTemplate())
	s, _ := c.MachineSet("shop/s")
	a, err := c.ReadRelatedObjects(t.Context(), s)
	require.NoError(t, err)
	require.Len(t, a.Templates, 1)
	assert.Equal(t, "small", a.Templates[0].Object.GetName())
}

// A cache that is not yet filled does not prove that a template is missing. A decision that writes reads the template
// from the API server.
func TestUnfilledTemplateCacheProvesNoMissingTemplate(t *testing.T) {
	c, server := capitest.StartCaches(
		t,
		capitest.NewSet("s", 1),
		capitest.NewBootstrapTemplate(),
		capitest.NewInfrastructureTemplate(),
		capitest.NewCluster(),
		capitest.NewControlPlane(),
	)
	var silent atomic.Bool // no reactor is added later, because retried lists read the reactors concurrently
	server.ProviderObjects.PrependReactor(
		"*",
		"examplemachinetemplates",
		func(a clienttesting.Action) (bool, runtime.Object, error) {
			return a.GetVerb() == "list" || a.GetVerb() == "get" && silent.Load(), nil, errors.New("connection refused")
		},
	)
	s, _ := c.MachineSet("shop/s")
	a, err := c.ReadRelatedObjects(t.Context(), s)
	require.NoError(t, err)
	assert.True(t, a.Templates[0].WasRead)
	assert.False(t, a.Templates[1].WasRead)
	assert.False(t, a.Templates[1].IsMissing())
	assert.Equal(
		t,
		[]string{"templates or control plane were not read yet"},
		capiset.ScaleFacts(c, s, a, capitest.Noon, 0).StopReasons,
	)

	a, err = c.ReadRelatedObjectsForWrite(t.Context(), s)
	require.NoError(t, err)
	assert.Equal(t, "small", a.Templates[1].Object.GetName())
	require.NoError(
		t,
		server.ProviderObjects.Tracker().
			Delete(capitest.ResourceOfObject(capitest.NewInfrastructureTemplate()), capitest.Namespace, "small"),
	)
	a, err = c.ReadRelatedObjectsForWrite(t.Context(), s)
	require.NoError(t, err)
	assert.True(t, a.Templates[1].IsMissing())
	silent.Store(true)
	_, err = c.ReadRelatedObjectsForWrite(t.Context(), s)
	require.ErrorContains(t, err, "connection refused")
}

func TestTemplatesAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, server := capitest.StartCaches(t, capitest.NewSet("s", 1), capitest.NewBootstrapTemplate())
		var told []cache.Resource
		s, _ := c.MachineSet("shop/s")
		_, err := c.ReadRelatedObjects(t.Context(), s)
		require.NoError(t, err)
		c.OnProviderInformer(
			func(resource cache.Resource, _ toolscache.SharedIndexInformer) { told = append(told, resource) },
		)
		slices.Sort(told)
		assert.Equal(
			t,
			[]cache.Resource{
				"examplemachinetemplates.infrastructure.cluster.x-k8s.io",
				"kubeadmconfigtemplates.bootstrap.cluster.x-k8s.io",
			},
			told,
			"those that there are",
		)
		_, err = c.ResourceOfKind(
			t.Context(),
			schema.GroupKind{Group: "infrastructure.cluster.x-k8s.io", Kind: "ExampleMachine"},
		)
		require.NoError(t, err)
		assert.Len(t, told, 2, "a clone is not watched")

		synctest.Wait() // wait until the watch, which opens after the list, is open
		require.NoError(
			t,
			server.ProviderObjects.Tracker().
				Create(capitest.ResourceOfObject(capitest.NewInfrastructureTemplate()), capitest.NewInfrastructureTemplate(), capitest.Namespace),
		)
		synctest.Wait()
		a, err := c.ReadRelatedObjects(t.Context(), s)
		require.NoError(t, err)
		assert.NotNil(t, a.Templates[1].Object)
	})
}

// After an upgrade of a provider, the API server may stop to serve the version of a cache. The next decision reads the
// kind from a cache of the new version, and the former cache stops.
func TestACacheOfAnUnservedVersionIsReplaced(t *testing.T) {
	handlers := utilruntime.ErrorHandlers
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	utilruntime.ErrorHandlers = handlers[:1] // the second handler sleeps by the real clock, for all errors of the process
	synctest.Test(t, func(t *testing.T) {
		const contract = "cluster.x-k8s.io/v1beta2"
		kind := capitest.NewInfrastructureTemplate().GroupVersionKind()
		c, server := capitest.StartCaches(
			t,
			capitest.NewSet("s", 1),
			capitest.NewInfrastructureTemplate(),
			capitest.NewCustomResourceDefinition(kind, map[string]string{contract: "v1beta1"}),
		)
		var served atomic.Value
		served.Store("v1beta1")
		var lists atomic.Int32 // of the former version
		server.ProviderObjects.PrependReactor(
			"list",
			"examplemachinetemplates",
			func(a clienttesting.Action) (bool, runtime.Object, error) {
				resource := a.GetResource()
				if resource.Version == "v1beta1" {
					lists.Add(1)
				}
				if resource.Version != served.Load() {
					return true, nil, apierrors.NewNotFound(resource.GroupResource(), "")
				}
				list := &unstructured.UnstructuredList{}
				list.SetGroupVersionKind(resource.GroupVersion().WithKind("ExampleMachineTemplateList"))
				list.SetResourceVersion("1")
				return true, list, nil
			},
		)
		watches := make(chan *watch.FakeWatcher, 2)
		server.ProviderObjects.PrependWatchReactor(
			"examplemachinetemplates",
			func(a clienttesting.Action) (bool, watch.Interface, error) {
				if options := a.(clienttesting.WatchActionImpl).ListOptions; options.SendInitialEvents != nil {
					return true, nil, apierrors.NewBadRequest("sendInitialEvents is not supported")
				}
				if a.GetResource().Version != served.Load() {
					return true, nil, apierrors.NewNotFound(a.GetResource().GroupResource(), "")
				}
				w := watch.NewFake()
				watches <- w
				return true, w, nil
			},
		)
		s, _ := c.MachineSet("shop/s")
		_, err := c.ReadRelatedObjects(t.Context(), s)
		require.NoError(t, err)
		synctest.Wait()
		resource, err := c.ResourceOfKind(t.Context(), kind.GroupKind())
		require.NoError(t, err)
		require.Equal(t, "v1beta1", resource.Version)

		served.Store("v1beta2")
		definition := capitest.NewCustomResourceDefinition(kind, map[string]string{contract: "v1beta2"})
		crds := schema.GroupVersionResource{
			Group:    "apiextensions.k8s.io",
			Version:  "v1",
			Resource: "customresourcedefinitions",
		}
		require.NoError(t, server.CustomResourceDefinitions.Tracker().Update(crds, definition, ""))
		(<-watches).Stop()
		time.Sleep(time.Minute) // the cache tries again, with a back-off
		a, err := c.ReadRelatedObjects(t.Context(), s)
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, "v1beta2", a.Templates[len(a.Templates)-1].Resource.Version)
		before := lists.Load()
		time.Sleep(time.Hour)
		assert.Equal(t, before, lists.Load(), "nobody asks for the former version")
		(<-watches).Stop()
	})
}

func TestCacheReturnsOnlySetsOfMillwright(t *testing.T) {
	label := func(value string) capitest.SetChange {
		return func(s *clusterv1.MachineSet) { s.Labels[clusterv1.WatchLabel] = value }
	}
	bare := func(s *clusterv1.MachineSet) { s.Finalizers = nil }
	c, _ := capitest.StartCaches(
		t,
		capitest.NewSet("ours", 1),
		capitest.NewSet("new", 1, bare),
		capitest.NewSet("theirs", 1, label("theirs"), bare),
		capitest.NewSet(
			"none",
			1,
			func(s *clusterv1.MachineSet) { s.Labels = nil },
			bare,
		),
		capitest.NewSet("handed-over", 1, label("theirs")),
	)
	assert.Equal(t, []string{"new", "ours"}, observetest.ObjectNames(c.MachineSets()))
	for name, want := range map[string]bool{"ours": true, "new": true, "theirs": false, "none": false, "handed-over": true, "nobody": false} {
		_, found := c.MachineSet("shop/" + name)
		assert.Equal(t, want, found, name)
	}
}

func TestSetRefersToObject(t *testing.T) {
	c, _ := capitest.StartCaches(t, capitest.NewSet("s", 1), capitest.NewCluster())
	s, _ := c.MachineSet("shop/s")
	rename := func(name string) capitest.ProviderObjectChange {
		return func(o *unstructured.Unstructured) { o.SetName(name) }
	}
	move := func(o *unstructured.Unstructured) { o.SetNamespace("garden") }
	for _, row := range []struct {
		name string
		o    *unstructured.Unstructured
		want bool
	}{
		{"its infrastructure template", capitest.NewInfrastructureTemplate(), true},
		{"whatever the version", capitest.NewInfrastructureTemplate(func(o *unstructured.Unstructured) { o.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1") }), true},
		{"its bootstrap template", capitest.NewBootstrapTemplate(), true},
		{"the control plane of its Cluster", capitest.NewControlPlane(), true},
		{"another name", capitest.NewInfrastructureTemplate(rename("x")), false},
		{"another namespace", capitest.NewInfrastructureTemplate(move), false},
		{"another kind", capitest.NewInfrastructureTemplate(rename("join")), false},
		{"another group", capitest.NewInfrastructureTemplate(func(o *unstructured.Unstructured) { o.SetAPIVersion("example.com/v1beta2") }), false},
		{"another control plane", capitest.NewControlPlane(rename("x")), false},
	} {
		assert.Equal(t, row.want, c.SetRefersToObject(s, row.o), row.name)
	}
}

func TestSelectsMachine(t *testing.T) {
	m := capitest.NewMachine("m", capitest.NewSet("s", 1))
	for _, row := range []struct {
		name   string
		change capitest.SetChange
		want   bool
	}{
		{"its labels", func(*clusterv1.MachineSet) {}, true},
		{"other labels", capitest.WithSelector(metav1.LabelSelector{MatchLabels: map[string]string{"pool": "x"}}), false},
		{"an empty selector", capitest.WithSelector(metav1.LabelSelector{}), false},
		{"an unreadable one", capitest.WithSelector(*observetest.InvalidSelector()), false},
		{"by an expression", capitest.WithSelector(metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: metav1.LabelSelectorOpExists}}}), true},
	} {
		assert.Equal(t, row.want, capi.SelectsMachine(capitest.NewSet("s", 1, row.change), m), row.name)
	}
}

func TestIsSetReference(t *testing.T) {
	for want, refs := range map[bool][]metav1.OwnerReference{
		true:  {{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "MachineSet"}, {APIVersion: "cluster.x-k8s.io/v1beta1", Kind: "MachineSet"}},
		false: {{APIVersion: "machine.sapcloud.io/v1alpha1", Kind: "MachineSet"}, {APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine"}, {}},
	} {
		for _, ref := range refs {
			assert.Equal(t, want, capi.IsSetReference(ref), ref)
		}
	}
}

// The caches keep only the managed fields of the controllers of MachineSets and MachineDeployments, which show what
// Millwright must remove later.
func TestCachesKeepOnlyManagedFieldsOfSets(t *testing.T) {
	s := capitest.NewSet("s", 1)
	want := append(capi.MachineFieldManagers(), capi.SetFieldManagers()...)
	m := capitest.NewMachine("m", s, capitest.WithoutManagedFields)
	for _, manager := range slices.Concat([]string{"kubelet"}, want, []string{"manager"}) {
		capitest.WithManagedFields(manager, "a", "b")(m)
	}
	c, _ := capitest.StartCaches(t, s, m)
	m, found := c.Machine("shop/m")
	require.True(t, found)
	var kept []string
	for _, entry := range m.ManagedFields {
		kept = append(kept, entry.Manager)
	}
	assert.Equal(t, want, kept)
}

func TestWithOwnerReplacesAFormerReference(t *testing.T) {
	cluster := capi.ClusterOwnerReference(capitest.NewCluster())
	assert.Equal(
		t,
		metav1.OwnerReference{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "c", UID: "uid-c"},
		cluster,
	)
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "X", Name: "x", UID: "uid-x"}
	former := cluster
	former.APIVersion = "cluster.x-k8s.io/v1beta1"
	for _, row := range []struct {
		name       string
		refs, want []metav1.OwnerReference
	}{
		{"none", nil, []metav1.OwnerReference{cluster}},
		{"there", []metav1.OwnerReference{cluster, other}, []metav1.OwnerReference{cluster, other}},
		{"others stay", []metav1.OwnerReference{other}, []metav1.OwnerReference{other, cluster}},
		{"one with a former version is replaced", []metav1.OwnerReference{former, other}, []metav1.OwnerReference{other, cluster}},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := slices.Clone(row.refs)
			got := capi.WithOwner(row.refs, cluster)
			assert.Equal(t, row.want, got)
			assert.Equal(t, row.want, capi.WithOwner(got, cluster), "again")
			assert.Equal(t, before, row.refs, "they belong to a cache")
		})
	}
	s := capitest.NewSet("s", 1)
	m := capitest.NewMachine("m", s)
	assert.True(t, capi.HasOwner(m, "uid-s"))
	assert.False(t, capi.HasOwner(m, "uid-x"))
	clone := capitest.NewInfrastructureTemplate(
		func(o *unstructured.Unstructured) { o.SetOwnerReferences(m.OwnerReferences) },
	)
	assert.False(t, capi.IsOwnedByMachine(clone), "its set owns it")
	clone.SetOwnerReferences(
		[]metav1.OwnerReference{*metav1.NewControllerRef(m, clusterv1.GroupVersion.WithKind("Machine"))},
	)
	assert.True(t, capi.IsOwnedByMachine(clone))
	clone.SetOwnerReferences(
		[]metav1.OwnerReference{{APIVersion: "machine.sapcloud.io/v1alpha1", Kind: "Machine", UID: "x"}},
	)
	assert.False(t, capi.IsOwnedByMachine(clone), "a machine of another API")
}

func TestUnownedTemplates(t *testing.T) {
	unowned := func(a capi.RelatedObjects) []capi.ProviderObject {
		return capi.UnownedTemplates(a.Cluster, a.Templates)
	}
	owner := func(o *unstructured.Unstructured) {
		o.SetOwnerReferences([]metav1.OwnerReference{capi.ClusterOwnerReference(capitest.NewCluster())})
	}
	related := func(change ...capitest.ProviderObjectChange) capi.RelatedObjects {
		a := capitest.NewRelatedObjects()
		a.Templates[1] = capitest.FoundObject(capitest.NewInfrastructureTemplate(change...))
		return a
	}
	assert.Empty(t, unowned(capitest.NewRelatedObjects()))
	for name, a := range map[string]capi.RelatedObjects{
		"neither": related(), "the label is missing": related(owner),
		"the owner is missing": related(capitest.WithClusterOwner, capitest.WithoutOwner),
		"the label of another Cluster": related(owner, func(o *unstructured.Unstructured) {
			o.SetLabels(map[string]string{clusterv1.ClusterNameLabel: "x"})
		}),
	} {
		all := unowned(a)
		require.Len(t, all, 1, name)
		assert.Equal(t, "small", all[0].Object.GetName())
	}
	a := related()
	a.Cluster = nil
	assert.Empty(t, unowned(a), "without a Cluster")
	a = capitest.NewRelatedObjects()
	a.Templates[1] = capitest.MissingObject(capitest.NewInfrastructureTemplate())
	assert.Empty(t, unowned(a), "what does not exist")
}

// RelatedObjects contains the set that takes over a set's surplus, both from the caches and from the API server.
func TestReceivingSetIsRead(t *testing.T) {
	to := capitest.WithAnnotation[*clusterv1.MachineSet](clusterv1.MachineSetMoveMachinesToMachineSetAnnotation, "next")
	next := capitest.NewSet("next", 1)
	next.ResourceVersion = "77777"
	c, _ := capitest.StartCaches(
		t,
		capitest.NewSet("s", 1, to),
		next,
		capitest.NewBootstrapTemplate(),
		capitest.NewInfrastructureTemplate(),
		capitest.NewCluster(),
		capitest.NewControlPlane(),
	)
	s, _ := c.MachineSet("shop/s")
	cached, err := c.ReadRelatedObjects(t.Context(), s)
	assert.NoError(t, err)
	live, err := c.ReadLiveRelatedObjects(t.Context(), s)
	assert.NoError(t, err)
	for _, a := range []capi.RelatedObjects{cached, live} {
		assert.Equal(t, "next", a.Receiver.Name)
		assert.Equal(t, "77777", a.ResourceVersions()[capi.SetsResource])
	}
}

func TestWithMetadata(t *testing.T) {
	const inPlace = clusterv1.UpdateInProgressAnnotation
	clone := func(manager string) *unstructured.Unstructured {
		o := capitest.NewInfrastructureTemplate()
		o.SetLabels(map[string]string{"old": "1", "theirs": "1"})
		o.SetAnnotations(map[string]string{"former": "1", inPlace: "", "foreign": "1"})
		capitest.WithFieldsOf[*unstructured.Unstructured](
			manager,
			`{"f:metadata":{"f:labels":{"f:old":{}},"f:annotations":{"f:former":{},"f:in-place-updates.internal.cluster.x-k8s.io/update-in-progress":{}}}}`,
		)(
			o,
		)
		return o
	}
	for _, manager := range []string{capi.MachineSetFieldManager, "capi-machineset-metadata"} {
		before := clone(manager)
		after := capi.WithMetadata(before, map[string]string{"new": "1"}, map[string]string{"former": "again"})
		assert.Equal(t, map[string]string{"theirs": "1", "new": "1"}, after.GetLabels(), manager)
		assert.Equal(t, map[string]string{"former": "again", inPlace: "", "foreign": "1"}, after.GetAnnotations(), manager)
		assert.Equal(t, clone(manager), before, "the argument stays unchanged")
	}
	of := clone("other")
	assert.Equal(t, of, capi.WithMetadata(of, nil, nil), "what another writer wrote stays")
}
