package set_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/observe/observetest"
	"millwright/observe/set"
)

func withOtherNamespace(m *v1alpha1.Machine) { m.Namespace = "other" }

// versionsByName returns the resource versions of machines by name.
func versionsByName(machines []*v1alpha1.Machine) map[string]string {
	result := map[string]string{}
	for _, m := range machines {
		result[m.Name] = m.ResourceVersion
	}
	return result
}

func TestReadRelatedObjects(t *testing.T) {
	s, d := observetest.NewSet("s", observetest.WithDeploymentOwner), observetest.NewDeployment("d")
	loose := observetest.NewMachine("loose")
	loose.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineSet", Name: "s", UID: "uid-s"}} // controller: unset
	cluster, _ := observetest.StartCaches(
		t,
		nil,
		s,
		d,
		observetest.NewMachine("mine", observetest.WithOwnerSet(s)),
		observetest.NewMachine("going", observetest.WithOwnerSet(s), observetest.AsDeletingMachine),
		observetest.NewMachine("relabelled", observetest.WithOwnerSet(s), observetest.WithAppLabel("api")),
		observetest.NewMachine(
			"foreign",
			observetest.WithOwnerSet(observetest.NewSet("other")),
		),
		observetest.NewMachine("orphan"),
		observetest.NewMachine("stranger", observetest.WithAppLabel("api")),
		loose,
		observetest.NewMachine("far", withOtherNamespace),
	)
	related := set.ReadRelatedObjects(cluster, s)
	assert.Equal(
		t,
		[]string{"going", "mine", "relabelled"},
		observetest.ObjectNames(related.Members),
		"whatever their labels",
	)
	assert.Equal(
		t,
		[]string{"loose", "orphan", "stranger"},
		observetest.ObjectNames(related.Orphans),
		"of its namespace, whatever their labels",
	)
	require.NotNil(t, related.Deployment)
	assert.Equal(t, "d", related.Deployment.Name)
}

func TestReadRelatedObjectsFindsTheDeploymentOfASet(t *testing.T) {
	notController := func(s *v1alpha1.MachineSet) {
		s.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineDeployment", Name: "d", UID: "uid-d"}}
	}
	another := func(d *v1alpha1.MachineDeployment) { d.UID = "uid-another" }
	far := func(d *v1alpha1.MachineDeployment) { d.Namespace = "other" }
	for _, row := range []struct {
		name       string
		set        *v1alpha1.MachineSet
		deployment *v1alpha1.MachineDeployment
		found      bool
	}{
		{"its controller", observetest.NewSet("s", observetest.WithDeploymentOwner), observetest.NewDeployment("d"), true},
		{"a set of its own", observetest.NewSet("s"), observetest.NewDeployment("d"), false},
		{"an owner that does not control it", observetest.NewSet("s", notController), observetest.NewDeployment("d"), false},
		{"it is gone", observetest.NewSet("s", observetest.WithDeploymentOwner), observetest.NewDeployment("e"), false},
		{"it was made anew", observetest.NewSet("s", observetest.WithDeploymentOwner), observetest.NewDeployment("d", another), false},
		{"one of that name elsewhere", observetest.NewSet("s", observetest.WithDeploymentOwner), observetest.NewDeployment("d", far), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			cluster, _ := observetest.StartCaches(t, nil, row.deployment)
			assert.Equal(t, row.found, set.ReadRelatedObjects(cluster, row.set).Deployment != nil)
			live, err := set.ReadLiveRelatedObjects(t.Context(), cluster, row.set)
			require.NoError(t, err)
			assert.Equal(t, row.found, live.Deployment != nil)
		})
	}
}

// newClusterWithStaleCache returns caches that contain the cached machines, while the API server lists the live
// machines.
func newClusterWithStaleCache(t *testing.T, cached, live []*v1alpha1.Machine) (*cache.Cluster, *[]string) {
	t.Helper()
	var objects []runtime.Object
	for _, m := range cached {
		objects = append(objects, m)
	}
	cluster, client := observetest.StartCaches(t, nil, objects...)
	return cluster, mockMachineList(client, live)
}

// mockMachineList makes the API server return these machines for each list request, and returns the selectors of these
// requests.
func mockMachineList(client *fake.Clientset, live []*v1alpha1.Machine) *[]string {
	list, asked := &v1alpha1.MachineList{}, &[]string{}
	for _, m := range live {
		list.Items = append(list.Items, *m)
	}
	client.PrependReactor("list", "machines", func(action kubetesting.Action) (bool, runtime.Object, error) {
		*asked = append(*asked, action.(kubetesting.ListAction).GetListRestrictions().Labels.String())
		return true, list, nil
	})
	return asked
}

func TestReadLiveRelatedObjectsIgnoresAStaleCache(t *testing.T) {
	s, other := observetest.NewSet("s"), observetest.NewSet("other")
	cluster, asked := newClusterWithStaleCache(t,
		[]*v1alpha1.Machine{
			observetest.NewMachine(
				"mine",
				observetest.WithOwnerSet(s),
				observetest.WithResourceVersion("1"),
			),
			observetest.NewMachine("orphan", observetest.WithResourceVersion("1")),
			observetest.NewMachine("foreign", observetest.WithOwnerSet(other), observetest.WithResourceVersion("1")),
			observetest.NewMachine(
				"relabelled",
				observetest.WithOwnerSet(s),
				observetest.WithAppLabel("api"),
				observetest.WithResourceVersion("1"),
			),
			observetest.NewMachine("stranger", observetest.WithAppLabel("api"), observetest.WithResourceVersion("1")),
			observetest.NewMachine(
				"taken",
				observetest.WithResourceVersion("1"),
			),
			observetest.NewMachine("released", observetest.WithOwnerSet(s), observetest.WithResourceVersion("1")),
			observetest.NewMachine(
				"back",
				observetest.WithOwnerSet(s),
				observetest.WithAppLabel("api"),
				observetest.WithResourceVersion("1"),
			),
			observetest.NewMachine(
				"gone",
				observetest.WithOwnerSet(s),
				observetest.WithResourceVersion("1"),
			),
			observetest.NewMachine("orphan-gone", observetest.WithResourceVersion("1")),
			observetest.NewMachine(
				"moved",
				observetest.WithOwnerSet(s),
				observetest.WithResourceVersion("1"),
			),
			observetest.NewMachine("orphan-moved", observetest.WithResourceVersion("1")),
		},
		[]*v1alpha1.Machine{
			observetest.NewMachine(
				"mine",
				observetest.WithOwnerSet(s),
				observetest.WithResourceVersion("2"),
			),
			observetest.NewMachine("orphan", observetest.WithResourceVersion("2")),
			observetest.NewMachine("foreign", observetest.WithOwnerSet(other), observetest.WithResourceVersion("2")),
			observetest.NewMachine(
				"relabelled",
				observetest.WithOwnerSet(s),
				observetest.WithAppLabel("api"),
				observetest.WithResourceVersion("2"),
			),
			observetest.NewMachine("stranger", observetest.WithAppLabel("api"), observetest.WithResourceVersion("2")),
			observetest.NewMachine(
				"taken",
				observetest.WithOwnerSet(other),
				observetest.WithResourceVersion("2"),
			),
			observetest.NewMachine("released", observetest.WithResourceVersion("2")),
			observetest.NewMachine("back", observetest.WithOwnerSet(s), observetest.WithResourceVersion("2")),
			observetest.NewMachine(
				"late",
				observetest.WithOwnerSet(s),
				observetest.WithResourceVersion("2"),
			),
			observetest.NewMachine("orphan-late", observetest.WithResourceVersion("2")),
			observetest.NewMachine(
				"moved",
				observetest.WithOwnerSet(s),
				observetest.WithAppLabel("api"),
				observetest.WithResourceVersion("2"),
			),
			observetest.NewMachine("orphan-moved", observetest.WithAppLabel("api"), observetest.WithResourceVersion("2")),
		})
	related, err := set.ReadLiveRelatedObjects(t.Context(), cluster, s)
	require.NoError(t, err)
	assert.Equal(t, []string{"app=web"}, *asked, "one request, for what its selector matches")
	assert.Equal(t, map[string]string{
		"mine": "2", "late": "2", "back": "2",
		"relabelled": "1", // ReadLiveRelatedObjects reads an owned machine from the cache if the selector does not match it
	}, versionsByName(related.Members), "not what another owns, what is gone, or what does not match any more and shall not be counted from an old look")
	assert.Equal(t, map[string]string{
		"orphan": "2", "orphan-late": "2", "released": "2",
		"stranger": "1", // the selector does not match this machine, so the set may have released it
	}, versionsByName(related.Orphans), "not what another took meanwhile")
}

func TestReadLiveRelatedObjectsEqualsACurrentCache(t *testing.T) {
	s := observetest.NewSet("s")
	machines := []*v1alpha1.Machine{
		observetest.NewMachine(
			"mine",
			observetest.WithOwnerSet(s),
		),
		observetest.NewMachine("relabelled", observetest.WithOwnerSet(s), observetest.WithAppLabel("api")),
		observetest.NewMachine("orphan"),
		observetest.NewMachine("stranger", observetest.WithAppLabel("api")),
		observetest.NewMachine("foreign", observetest.WithOwnerSet(observetest.NewSet("other"))),
	}
	for name, selector := range map[string]*metav1.LabelSelector{
		"usual": s.Spec.Selector, "empty": {}, "unreadable": observetest.InvalidSelector(), "none": nil,
	} {
		t.Run(name, func(t *testing.T) {
			s := observetest.NewSet("s", func(s *v1alpha1.MachineSet) { s.Spec.Selector = selector })
			cluster, _ := newClusterWithStaleCache(t, machines, machines)
			cached := set.ReadRelatedObjects(cluster, s)
			live, err := set.ReadLiveRelatedObjects(t.Context(), cluster, s)
			require.NoError(t, err)
			assert.Equal(t, observetest.ObjectNames(cached.Members), observetest.ObjectNames(live.Members))
			assert.Equal(t, observetest.ObjectNames(cached.Orphans), observetest.ObjectNames(live.Orphans))
		})
	}
}

// A set with an empty or unreadable selector adopts no machines. ReadLiveRelatedObjects finds the set's machines by the
// labels of the template.
func TestReadLiveRelatedObjectsWithoutASelector(t *testing.T) {
	for name, selector := range map[string]*metav1.LabelSelector{"empty": {}, "unreadable": observetest.InvalidSelector()} {
		t.Run(name, func(t *testing.T) {
			s := observetest.NewSet("s", func(s *v1alpha1.MachineSet) { s.Spec.Selector = selector })
			cluster, asked := newClusterWithStaleCache(
				t,
				[]*v1alpha1.Machine{
					observetest.NewMachine("mine", observetest.WithOwnerSet(s)),
					observetest.NewMachine("relabelled", observetest.WithOwnerSet(s), observetest.WithAppLabel("api")),
				},
				[]*v1alpha1.Machine{
					observetest.NewMachine("mine", observetest.WithOwnerSet(s)),
					observetest.NewMachine("relabelled", observetest.WithOwnerSet(s), observetest.WithAppLabel("api")),
					observetest.NewMachine("late", observetest.WithOwnerSet(s)),
					observetest.NewMachine("orphan"),
				},
			)
			related, err := set.ReadLiveRelatedObjects(t.Context(), cluster, s)
			require.NoError(t, err)
			assert.Equal(t, []string{"app=web"}, *asked)
			assert.Equal(t, []string{"late", "mine", "relabelled"}, observetest.ObjectNames(related.Members))
			assert.Equal(t, []string{"orphan"}, observetest.ObjectNames(related.Orphans))
		})
	}
}

func TestReadLiveRelatedObjectsReturnsTheErrorOfTheAPIServer(t *testing.T) {
	s := observetest.NewSet("s")
	cluster, client := observetest.StartCaches(t, nil, s, observetest.NewMachine("mine", observetest.WithOwnerSet(s)))
	client.PrependReactor("list", "machines", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("away")
	})
	_, err := set.ReadLiveRelatedObjects(t.Context(), cluster, s)
	assert.EqualError(t, err, "list machines of set s: away")
}

// A read must not change the cached objects.
func TestReadLiveRelatedObjectsDoesNotChangeTheCache(t *testing.T) {
	s := observetest.NewSet("s")
	cluster, _ := newClusterWithStaleCache(
		t,
		[]*v1alpha1.Machine{
			observetest.NewMachine("a", observetest.WithOwnerSet(s)),
			observetest.NewMachine("b", observetest.WithOwnerSet(s)),
			observetest.NewMachine("o"),
		},
		nil,
	)
	related, err := set.ReadLiveRelatedObjects(t.Context(), cluster, s)
	require.NoError(t, err)
	assert.Empty(t, related.Members)
	assert.Equal(t, []string{"a", "b"}, observetest.ObjectNames(cluster.MachinesOfOwner("uid-s")))
	assert.Equal(t, []string{"o"}, observetest.ObjectNames(set.ReadRelatedObjects(cluster, s).Orphans))
}

func TestSetsThatSelectMachine(t *testing.T) {
	selecting := func(name string, selector *metav1.LabelSelector) *v1alpha1.MachineSet {
		return observetest.NewSet(name, func(s *v1alpha1.MachineSet) { s.Spec.Selector = selector })
	}
	api := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}}
	whatever := &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}},
	}
	far := observetest.NewSet("far")
	far.Namespace = "other"
	cluster, _ := observetest.StartCaches(
		t,
		nil,
		observetest.NewSet("s"),
		observetest.NewSet("going", observetest.AsDeletingSet),
		selecting("whatever", whatever),
		selecting("api", api),
		selecting("everything", &metav1.LabelSelector{}),
		selecting("nothing", nil),
		selecting("unreadable", observetest.InvalidSelector()),
		far,
	)
	assert.Equal(
		t,
		[]string{"going", "s", "whatever"},
		observetest.ObjectNames(set.SetsThatSelectMachine(cluster, observetest.NewMachine("m"))),
		"an empty selector matches nothing",
	)
	assert.Equal(
		t,
		[]string{"api", "whatever"},
		observetest.ObjectNames(
			set.SetsThatSelectMachine(cluster, observetest.NewMachine("m", observetest.WithAppLabel("api"))),
		),
	)
	assert.Equal(
		t,
		[]string{"whatever"},
		observetest.ObjectNames(
			set.SetsThatSelectMachine(cluster, observetest.NewMachine("m", observetest.WithAppLabel("db"))),
		),
	)
	assert.Equal(
		t,
		[]string{"s", "whatever"},
		observetest.ObjectNames(
			set.SetsThatSelectMachine(
				cluster,
				observetest.NewMachine("m", observetest.WithAppLabel("db"), withReleasedByAnnotation("uid-s")),
			),
		),
		"it counts those that it let go of",
	)
	assert.Equal(
		t,
		[]string{"going", "s", "whatever"},
		observetest.ObjectNames(
			set.SetsThatSelectMachine(cluster, observetest.NewMachine("m", withReleasedByAnnotation("uid-s"))),
		),
		"each once",
	)
	assert.Empty(
		t,
		set.SetsThatSelectMachine(cluster, observetest.NewMachine("m", func(m *v1alpha1.Machine) { m.Labels = nil })),
	)
}
