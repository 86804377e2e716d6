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

func inOtherNamespace(m *v1alpha1.Machine) { m.Namespace = "other" }

// versionsByName returns the resource versions of machines by name.
func versionsByName(machines []*v1alpha1.Machine) map[string]string {
	result := map[string]string{}
	for _, m := range machines {
		result[m.Name] = m.ResourceVersion
	}
	return result
}

func TestReadOfASet(t *testing.T) {
	s, d := observetest.Set("s", observetest.OfDeployment), observetest.Deployment("d")
	loose := observetest.Machine("loose")
	loose.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineSet", Name: "s", UID: "uid-s"}} // controller: unset
	cluster, _ := observetest.Start(
		t,
		nil,
		s,
		d,
		observetest.Machine("mine", observetest.Of(s)),
		observetest.Machine("going", observetest.Of(s), observetest.GoingMachine),
		observetest.Machine("relabelled", observetest.Of(s), observetest.Labelled("api")),
		observetest.Machine(
			"foreign",
			observetest.Of(observetest.Set("other")),
		),
		observetest.Machine("orphan"),
		observetest.Machine("stranger", observetest.Labelled("api")),
		loose,
		observetest.Machine("far", inOtherNamespace),
	)
	related := set.Read(cluster, s)
	assert.Equal(t, []string{"going", "mine", "relabelled"}, observetest.Names(related.Members), "whatever their labels")
	assert.Equal(
		t,
		[]string{"loose", "orphan", "stranger"},
		observetest.Names(related.Orphans),
		"of its namespace, whatever their labels",
	)
	require.NotNil(t, related.Deployment)
	assert.Equal(t, "d", related.Deployment.Name)
}

func TestReadFindsTheDeploymentOfASet(t *testing.T) {
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
		{"its controller", observetest.Set("s", observetest.OfDeployment), observetest.Deployment("d"), true},
		{"a set of its own", observetest.Set("s"), observetest.Deployment("d"), false},
		{"an owner that does not control it", observetest.Set("s", notController), observetest.Deployment("d"), false},
		{"it is gone", observetest.Set("s", observetest.OfDeployment), observetest.Deployment("e"), false},
		{"it was made anew", observetest.Set("s", observetest.OfDeployment), observetest.Deployment("d", another), false},
		{"one of that name elsewhere", observetest.Set("s", observetest.OfDeployment), observetest.Deployment("d", far), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			cluster, _ := observetest.Start(t, nil, row.deployment)
			assert.Equal(t, row.found, set.Read(cluster, row.set).Deployment != nil)
			live, err := set.ReadLive(t.Context(), cluster, row.set)
			require.NoError(t, err)
			assert.Equal(t, row.found, live.Deployment != nil)
		})
	}
}

// newStaleCluster returns caches that hold the cached machines, while the API server lists the live machines.
func newStaleCluster(t *testing.T, cached, live []*v1alpha1.Machine) (*cache.Cluster, *[]string) {
	t.Helper()
	var objects []runtime.Object
	for _, m := range cached {
		objects = append(objects, m)
	}
	cluster, client := observetest.Start(t, nil, objects...)
	return cluster, setListResponse(client, live)
}

// answerWith makes an API server list these machines from now on, and returns the selectors of all list requests.
func setListResponse(client *fake.Clientset, live []*v1alpha1.Machine) *[]string {
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

func TestReadLiveOfASet(t *testing.T) {
	s, other := observetest.Set("s"), observetest.Set("other")
	cluster, asked := newStaleCluster(t,
		[]*v1alpha1.Machine{
			observetest.Machine(
				"mine",
				observetest.Of(s),
				observetest.Version("1"),
			),
			observetest.Machine("orphan", observetest.Version("1")),
			observetest.Machine("foreign", observetest.Of(other), observetest.Version("1")),
			observetest.Machine(
				"relabelled",
				observetest.Of(s),
				observetest.Labelled("api"),
				observetest.Version("1"),
			),
			observetest.Machine("stranger", observetest.Labelled("api"), observetest.Version("1")),
			observetest.Machine(
				"taken",
				observetest.Version("1"),
			),
			observetest.Machine("released", observetest.Of(s), observetest.Version("1")),
			observetest.Machine("back", observetest.Of(s), observetest.Labelled("api"), observetest.Version("1")),
			observetest.Machine(
				"gone",
				observetest.Of(s),
				observetest.Version("1"),
			),
			observetest.Machine("orphan-gone", observetest.Version("1")),
			observetest.Machine(
				"moved",
				observetest.Of(s),
				observetest.Version("1"),
			),
			observetest.Machine("orphan-moved", observetest.Version("1")),
		},
		[]*v1alpha1.Machine{
			observetest.Machine(
				"mine",
				observetest.Of(s),
				observetest.Version("2"),
			),
			observetest.Machine("orphan", observetest.Version("2")),
			observetest.Machine("foreign", observetest.Of(other), observetest.Version("2")),
			observetest.Machine(
				"relabelled",
				observetest.Of(s),
				observetest.Labelled("api"),
				observetest.Version("2"),
			),
			observetest.Machine("stranger", observetest.Labelled("api"), observetest.Version("2")),
			observetest.Machine(
				"taken",
				observetest.Of(other),
				observetest.Version("2"),
			),
			observetest.Machine("released", observetest.Version("2")),
			observetest.Machine("back", observetest.Of(s), observetest.Version("2")),
			observetest.Machine(
				"late",
				observetest.Of(s),
				observetest.Version("2"),
			),
			observetest.Machine("orphan-late", observetest.Version("2")),
			observetest.Machine(
				"moved",
				observetest.Of(s),
				observetest.Labelled("api"),
				observetest.Version("2"),
			),
			observetest.Machine("orphan-moved", observetest.Labelled("api"), observetest.Version("2")),
		})
	related, err := set.ReadLive(t.Context(), cluster, s)
	require.NoError(t, err)
	assert.Equal(t, []string{"app=web"}, *asked, "one request, for what its selector matches")
	assert.Equal(t, map[string]string{
		"mine": "2", "late": "2", "back": "2",
		"relabelled": "1", // ReadLive takes an owned machine that the selector does not match from the cache
	}, versionsByName(related.Members), "not what another owns, what is gone, or what does not match any more and shall not be counted from an old look")
	assert.Equal(t, map[string]string{
		"orphan": "2", "orphan-late": "2", "released": "2",
		"stranger": "1", // no selector matches this machine; the set may have released the machine
	}, versionsByName(related.Orphans), "not what another took meanwhile")
}

func TestReadLiveEqualsReadWhenTheCacheIsCurrent(t *testing.T) {
	s := observetest.Set("s")
	machines := []*v1alpha1.Machine{
		observetest.Machine(
			"mine",
			observetest.Of(s),
		),
		observetest.Machine("relabelled", observetest.Of(s), observetest.Labelled("api")),
		observetest.Machine("orphan"),
		observetest.Machine("stranger", observetest.Labelled("api")),
		observetest.Machine("foreign", observetest.Of(observetest.Set("other"))),
	}
	for name, selector := range map[string]*metav1.LabelSelector{
		"usual": s.Spec.Selector, "empty": {}, "unreadable": observetest.Unreadable(), "none": nil,
	} {
		t.Run(name, func(t *testing.T) {
			s := observetest.Set("s", func(s *v1alpha1.MachineSet) { s.Spec.Selector = selector })
			cluster, _ := newStaleCluster(t, machines, machines)
			cached := set.Read(cluster, s)
			live, err := set.ReadLive(t.Context(), cluster, s)
			require.NoError(t, err)
			assert.Equal(t, observetest.Names(cached.Members), observetest.Names(live.Members))
			assert.Equal(t, observetest.Names(cached.Orphans), observetest.Names(live.Orphans))
		})
	}
}

// A set with an empty or unreadable selector adopts no machines. ReadLive finds the set's machines by the labels of the
// template.
func TestReadLiveOfASetWithoutASelector(t *testing.T) {
	for name, selector := range map[string]*metav1.LabelSelector{"empty": {}, "unreadable": observetest.Unreadable()} {
		t.Run(name, func(t *testing.T) {
			s := observetest.Set("s", func(s *v1alpha1.MachineSet) { s.Spec.Selector = selector })
			cluster, asked := newStaleCluster(
				t,
				[]*v1alpha1.Machine{
					observetest.Machine("mine", observetest.Of(s)),
					observetest.Machine("relabelled", observetest.Of(s), observetest.Labelled("api")),
				},
				[]*v1alpha1.Machine{
					observetest.Machine("mine", observetest.Of(s)),
					observetest.Machine("relabelled", observetest.Of(s), observetest.Labelled("api")),
					observetest.Machine("late", observetest.Of(s)),
					observetest.Machine("orphan"),
				},
			)
			related, err := set.ReadLive(t.Context(), cluster, s)
			require.NoError(t, err)
			assert.Equal(t, []string{"app=web"}, *asked)
			assert.Equal(t, []string{"late", "mine", "relabelled"}, observetest.Names(related.Members))
			assert.Equal(t, []string{"orphan"}, observetest.Names(related.Orphans))
		})
	}
}

func TestReadLiveReturnsTheErrorOfTheAPIServer(t *testing.T) {
	s := observetest.Set("s")
	cluster, client := observetest.Start(t, nil, s, observetest.Machine("mine", observetest.Of(s)))
	client.PrependReactor("list", "machines", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("away")
	})
	_, err := set.ReadLive(t.Context(), cluster, s)
	assert.EqualError(t, err, "list machines of set s: away")
}

// A read must not change the cached objects.
func TestReadLiveDoesNotChangeTheCache(t *testing.T) {
	s := observetest.Set("s")
	cluster, _ := newStaleCluster(
		t,
		[]*v1alpha1.Machine{
			observetest.Machine("a", observetest.Of(s)),
			observetest.Machine("b", observetest.Of(s)),
			observetest.Machine("o"),
		},
		nil,
	)
	related, err := set.ReadLive(t.Context(), cluster, s)
	require.NoError(t, err)
	assert.Empty(t, related.Members)
	assert.Equal(t, []string{"a", "b"}, observetest.Names(cluster.MachinesOf("uid-s")))
	assert.Equal(t, []string{"o"}, observetest.Names(set.Read(cluster, s).Orphans))
}

func TestSetsSelecting(t *testing.T) {
	selecting := func(name string, selector *metav1.LabelSelector) *v1alpha1.MachineSet {
		return observetest.Set(name, func(s *v1alpha1.MachineSet) { s.Spec.Selector = selector })
	}
	api := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}}
	whatever := &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}},
	}
	far := observetest.Set("far")
	far.Namespace = "other"
	cluster, _ := observetest.Start(
		t,
		nil,
		observetest.Set("s"),
		observetest.Set("going", observetest.GoingSet),
		selecting("whatever", whatever),
		selecting("api", api),
		selecting("everything", &metav1.LabelSelector{}),
		selecting("nothing", nil),
		selecting("unreadable", observetest.Unreadable()),
		far,
	)
	assert.Equal(
		t,
		[]string{"going", "s", "whatever"},
		observetest.Names(set.SetsSelecting(cluster, observetest.Machine("m"))),
		"an empty selector matches nothing",
	)
	assert.Equal(
		t,
		[]string{"api", "whatever"},
		observetest.Names(set.SetsSelecting(cluster, observetest.Machine("m", observetest.Labelled("api")))),
	)
	assert.Equal(
		t,
		[]string{"whatever"},
		observetest.Names(set.SetsSelecting(cluster, observetest.Machine("m", observetest.Labelled("db")))),
	)
	assert.Equal(
		t,
		[]string{"s", "whatever"},
		observetest.Names(
			set.SetsSelecting(cluster, observetest.Machine("m", observetest.Labelled("db"), releasedBy("uid-s"))),
		),
		"it counts those that it let go of",
	)
	assert.Equal(
		t,
		[]string{"going", "s", "whatever"},
		observetest.Names(set.SetsSelecting(cluster, observetest.Machine("m", releasedBy("uid-s")))),
		"each once",
	)
	assert.Empty(t, set.SetsSelecting(cluster, observetest.Machine("m", func(m *v1alpha1.Machine) { m.Labels = nil })))
}
