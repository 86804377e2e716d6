package observe_test

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
	"millwright/observe"
)

// unreadable is a selector that no list of labels can be made of.
func unreadable() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Nonsense"}}}
}

func version(v string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.ResourceVersion = v }
}

func elsewhere(m *v1alpha1.Machine) { m.Namespace = "other" }

// versions returns the versions of machines by their names.
func versions(machines []*v1alpha1.Machine) map[string]string {
	result := map[string]string{}
	for _, m := range machines {
		result[m.Name] = m.ResourceVersion
	}
	return result
}

func TestMS06_AroundSet(t *testing.T) {
	s, d := set("s", ofDeployment), deployment("d")
	loose := machine("loose")
	loose.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineSet", Name: "s", UID: "uid-s"}} // not as controller
	cluster, _ := start(t, nil, s, d, machine("mine", of(s)), machine("going", of(s), goingMachine), machine("relabelled", of(s), labelled("api")),
		machine("foreign", of(set("other"))), machine("orphan"), machine("stranger", labelled("api")), loose, machine("far", elsewhere))
	around := cluster.AroundSet(s)
	assert.Equal(t, []string{"going", "mine", "relabelled"}, names(around.Members), "whatever their labels")
	assert.Equal(t, []string{"loose", "orphan", "stranger"}, names(around.Orphans), "of its namespace, whatever their labels")
	require.NotNil(t, around.Deployment)
	assert.Equal(t, "d", around.Deployment.Name)
}

func TestTheDeploymentAboveASet(t *testing.T) {
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
		{"its controller", set("s", ofDeployment), deployment("d"), true},
		{"a set of its own", set("s"), deployment("d"), false},
		{"an owner that does not control it", set("s", notController), deployment("d"), false},
		{"it is gone", set("s", ofDeployment), deployment("e"), false},
		{"it was made anew", set("s", ofDeployment), deployment("d", another), false},
		{"one of that name elsewhere", set("s", ofDeployment), deployment("d", far), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			cluster, _ := start(t, nil, row.deployment)
			assert.Equal(t, row.found, cluster.AroundSet(row.set).Deployment != nil)
			live, err := cluster.LiveAroundSet(t.Context(), row.set)
			require.NoError(t, err)
			assert.Equal(t, row.found, live.Deployment != nil)
		})
	}
}

// behind returns caches that hold some machines, over an API server that holds others by now.
func behind(t *testing.T, cached, live []*v1alpha1.Machine) (*observe.Cluster, *[]string) {
	t.Helper()
	var objects []runtime.Object
	for _, m := range cached {
		objects = append(objects, m)
	}
	cluster, client := start(t, nil, objects...)
	return cluster, answerWith(client, live)
}

// answerWith makes an API server list these machines from now on, and returns the selectors that it is asked with.
func answerWith(client *fake.Clientset, live []*v1alpha1.Machine) *[]string {
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

func TestLiveAroundSet(t *testing.T) {
	s, other := set("s"), set("other")
	cluster, asked := behind(t,
		[]*v1alpha1.Machine{
			machine("mine", of(s), version("1")), machine("orphan", version("1")), machine("foreign", of(other), version("1")),
			machine("relabelled", of(s), labelled("api"), version("1")), machine("stranger", labelled("api"), version("1")),
			machine("taken", version("1")), machine("released", of(s), version("1")),
			machine("back", of(s), labelled("api"), version("1")),
			machine("gone", of(s), version("1")), machine("orphan-gone", version("1")),
			machine("moved", of(s), version("1")), machine("orphan-moved", version("1")),
		},
		[]*v1alpha1.Machine{
			machine("mine", of(s), version("2")), machine("orphan", version("2")), machine("foreign", of(other), version("2")),
			machine("relabelled", of(s), labelled("api"), version("2")), machine("stranger", labelled("api"), version("2")),
			machine("taken", of(other), version("2")), machine("released", version("2")),
			machine("back", of(s), version("2")),
			machine("late", of(s), version("2")), machine("orphan-late", version("2")),
			machine("moved", of(s), labelled("api"), version("2")), machine("orphan-moved", labelled("api"), version("2")),
		})
	around, err := cluster.LiveAroundSet(t.Context(), s)
	require.NoError(t, err)
	assert.Equal(t, []string{"app=web"}, *asked, "one request, for what its selector matches")
	assert.Equal(t, map[string]string{
		"mine": "2", "late": "2", "back": "2",
		"relabelled": "1", // owned and not matching: the cache alone knows of it, as in AroundSet
	}, versions(around.Members), "not what another owns, what is gone, or what does not match any more and shall not be counted from an old look")
	assert.Equal(t, map[string]string{
		"orphan": "2", "orphan-late": "2", "released": "2",
		"stranger": "1", // matches nothing, and may have been released by the set
	}, versions(around.Orphans), "not what another took meanwhile")
}

func TestLiveAndCachedLooksAgreeWhenTheCacheIsCurrent(t *testing.T) {
	s := set("s")
	machines := []*v1alpha1.Machine{
		machine("mine", of(s)), machine("relabelled", of(s), labelled("api")), machine("orphan"), machine("stranger", labelled("api")),
		machine("foreign", of(set("other"))),
	}
	for name, selector := range map[string]*metav1.LabelSelector{
		"usual": s.Spec.Selector, "empty": {}, "unreadable": unreadable(), "none": nil,
	} {
		t.Run(name, func(t *testing.T) {
			s := set("s", func(s *v1alpha1.MachineSet) { s.Spec.Selector = selector })
			cluster, _ := behind(t, machines, machines)
			cached := cluster.AroundSet(s)
			live, err := cluster.LiveAroundSet(t.Context(), s)
			require.NoError(t, err)
			assert.Equal(t, names(cached.Members), names(live.Members))
			assert.Equal(t, names(cached.Orphans), names(live.Orphans))
		})
	}
}

// Of a selector that is empty, or cannot be read, nothing is adopted: what the set made is found by the template's labels.
func TestLiveAroundASetWithoutASelector(t *testing.T) {
	for name, selector := range map[string]*metav1.LabelSelector{"D40: empty": {}, "U49: unreadable": unreadable()} {
		t.Run(name, func(t *testing.T) {
			s := set("s", func(s *v1alpha1.MachineSet) { s.Spec.Selector = selector })
			cluster, asked := behind(t,
				[]*v1alpha1.Machine{machine("mine", of(s)), machine("relabelled", of(s), labelled("api"))},
				[]*v1alpha1.Machine{machine("mine", of(s)), machine("relabelled", of(s), labelled("api")), machine("late", of(s)), machine("orphan")})
			around, err := cluster.LiveAroundSet(t.Context(), s)
			require.NoError(t, err)
			assert.Equal(t, []string{"app=web"}, *asked)
			assert.Equal(t, []string{"late", "mine", "relabelled"}, names(around.Members))
			assert.Equal(t, []string{"orphan"}, names(around.Orphans))
		})
	}
}

func TestLiveAroundSetThatCannotBeRead(t *testing.T) {
	s := set("s")
	cluster, client := start(t, nil, s, machine("mine", of(s)))
	client.PrependReactor("list", "machines", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("away")
	})
	_, err := cluster.LiveAroundSet(t.Context(), s)
	assert.EqualError(t, err, "list machines of set s: away")
}

// A look must not change what it finds in the caches.
func TestLiveAroundSetLeavesTheCacheAlone(t *testing.T) {
	s := set("s")
	cluster, _ := behind(t, []*v1alpha1.Machine{machine("a", of(s)), machine("b", of(s)), machine("o")}, nil)
	around, err := cluster.LiveAroundSet(t.Context(), s)
	require.NoError(t, err)
	assert.Empty(t, around.Members)
	assert.Equal(t, []string{"a", "b"}, names(cluster.MachinesOf("uid-s")))
	assert.Equal(t, []string{"o"}, names(cluster.AroundSet(s).Orphans))
}

func TestSetsSelecting(t *testing.T) {
	selecting := func(name string, selector *metav1.LabelSelector) *v1alpha1.MachineSet {
		return set(name, func(s *v1alpha1.MachineSet) { s.Spec.Selector = selector })
	}
	api := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}}
	whatever := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}}
	far := set("far")
	far.Namespace = "other"
	cluster, _ := start(t, nil, set("s"), set("going", goingSet), selecting("whatever", whatever), selecting("api", api), selecting("everything", &metav1.LabelSelector{}),
		selecting("nothing", nil), selecting("unreadable", unreadable()), far)
	assert.Equal(t, []string{"going", "s", "whatever"}, names(cluster.SetsSelecting(machine("m"))), "D40: an empty selector matches nothing")
	assert.Equal(t, []string{"api", "whatever"}, names(cluster.SetsSelecting(machine("m", labelled("api")))))
	assert.Equal(t, []string{"whatever"}, names(cluster.SetsSelecting(machine("m", labelled("db")))))
	assert.Equal(t, []string{"s", "whatever"}, names(cluster.SetsSelecting(machine("m", labelled("db"), releasedBy("uid-s")))), "it counts those that it let go of")
	assert.Equal(t, []string{"going", "s", "whatever"}, names(cluster.SetsSelecting(machine("m", releasedBy("uid-s")))), "each once")
	assert.Empty(t, cluster.SetsSelecting(machine("m", func(m *v1alpha1.Machine) { m.Labels = nil })))
}
