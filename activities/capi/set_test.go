package capi_test

import (
	"errors"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/set"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/scale"
	"millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
)

func withOtherController(s *clusterv1.MachineSet) { s.Labels[clusterv1.WatchLabel] = "theirs" }

func removeSetFinalizers(s *clusterv1.MachineSet) { s.Finalizers = nil }

func withAnnotation(key, value string) capitest.SetChange {
	return capitest.WithAnnotation[*clusterv1.MachineSet](key, value)
}

// decideSet returns the decision about a set. The decision from live reads must equal the decision from the caches.
func decideSet(t *testing.T, w *activitiestest.World, s *clusterv1.MachineSet) set.Decision {
	t.Helper()
	a := newActivities(w)
	live, err := activitiestest.RunActivity[set.Decision](
		w,
		a.DecideClusterAPISet,
		activitiestest.NewClusterAPISetInput(s, true),
	)
	require.NoError(t, err)
	cached, err := activitiestest.RunActivity[set.Decision](
		w,
		a.DecideClusterAPISet,
		activitiestest.NewClusterAPISetInput(s, false),
	)
	require.NoError(t, err)
	for _, d := range []*set.Decision{&live, &cached} {
		d.Blocked.Since, d.Blocked.Message = d.Blocked.At, replaceTimes(d.Blocked.Message)
		if len(d.Scale.Create) > 0 {
			d.Scale.Create = []string{"random"}
		}
	}
	without := live
	without.Extra = nil
	for _, e := range live.Extra {
		if e.Activity != "CollectClones" { // clones have no cache
			without.Extra = append(without.Extra, e)
		}
	}
	assert.Equal(t, without, cached)
	return live
}

// replaceTimes replaces the times in a message, because two decisions may be made in different seconds.
func replaceTimes(sentence string) string {
	return regexp.MustCompile(`\d\d:\d\d:\d\d UTC`).ReplaceAllString(sentence, "some time")
}

func objectNamesOfExtraWrites(d set.Decision, activity string) (names []string) {
	for _, e := range d.Extra {
		if e.Activity == activity {
			for _, o := range e.Objects {
				names = append(names, o.Name)
			}
		}
	}
	return names
}

func TestDecideWhichSetsMillwrightReconciles(t *testing.T) {
	for _, row := range []struct {
		name       string
		has        []runtime.Object
		gone, free bool
	}{
		{"ours", []runtime.Object{capitest.NewSet("s", 0)}, false, false},
		{"gone", nil, true, false},
		{"another of this name", []runtime.Object{capitest.NewSet("s", 0, func(s *clusterv1.MachineSet) { s.UID = "uid-new" })}, true, false},
		{"handed over", []runtime.Object{capitest.NewSet("s", 0, withOtherController)}, false, true},
		{"handed over, and without our finalizer", []runtime.Object{capitest.NewSet("s", 0, withOtherController, removeSetFinalizers)}, true, false},
		{"without the label", []runtime.Object{capitest.NewSet("s", 0, removeSetFinalizers, func(s *clusterv1.MachineSet) { s.Labels = nil })}, true, false},
		{"being deleted without our finalizer", []runtime.Object{capitest.NewSet("s", 0, removeSetFinalizers, capitest.AsDeletingObject)}, false, false},
		{"being deleted, and no machine is left", []runtime.Object{capitest.NewSet("s", 0, capitest.AsDeletingObject)}, false, true},
		{"being deleted, and a machine is left", []runtime.Object{capitest.NewSet("s", 0, capitest.AsDeletingObject), capitest.NewMachine("m", capitest.NewSet("s", 0), capitest.AsDeletingObject)}, false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, _ := newWorld(t, row.has...)
			d := decideSet(t, w, capitest.NewSet("s", 0))
			assert.Equal(t, []bool{row.gone, row.free}, []bool{d.Gone, d.Free})
			if row.gone {
				assert.Equal(t, kube.ObjectGoneDecision, d.Pending)
			}
			assert.Empty(t, w.MutatingRequests())
		})
	}
}

func TestADecisionContainsTheResourceVersionsItRead(t *testing.T) {
	s := capitest.NewSet("s", 1)
	w, _ := newWorld(
		t,
		s,
		capitest.NewMachine("m", s, withResourceVersion("950")),
		capitest.NewMachine("free", s, capitest.WithoutOwner, withResourceVersion("960")),
	)
	assert.Equal(t, kube.MinVersions{
		"machinesets.cluster.x-k8s.io":                            "900",
		"machines.cluster.x-k8s.io":                               "960",
		"clusters.cluster.x-k8s.io":                               "900",
		"kubeadmconfigtemplates.bootstrap.cluster.x-k8s.io":       "900",
		"examplemachinetemplates.infrastructure.cluster.x-k8s.io": "900",
		"kubeadmcontrolplanes.controlplane.cluster.x-k8s.io":      "900",
	}, decideSet(t, w, s).Seen)
}

func TestDecideTheExtraWrites(t *testing.T) {
	limited := capitest.NewDeployment(func(d *clusterv1.MachineDeployment) {
		d.Annotations[clusterv1.RevisionAnnotation] = "2"
	})
	old := withAnnotation(clusterv1.RevisionAnnotation, "1")
	stray := newClone(capitest.NewInfrastructureTemplate(), "stray")
	pausedCluster := capitest.NewCluster(func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })
	for _, row := range []struct {
		name    string
		set     capitest.SetChange
		cluster *clusterv1.Cluster
		want    []string // objects named in OwnTemplates, PostponeRemediation, CollectClones
	}{
		{"all of them", old, capitest.NewCluster(), []string{"join", "sick", "stray"}},
		{"paused", combineChanges(old, withAnnotation(clusterv1.PausedAnnotation, "")), capitest.NewCluster(), nil},
		{"its Cluster is paused", old, pausedCluster, nil},
		{"being deleted: the clones only", combineChanges(old, capitest.AsDeletingObject[*clusterv1.MachineSet]), capitest.NewCluster(), []string{"stray"}},
		{"being deleted, and the machines stay", combineChanges(old, func(s *clusterv1.MachineSet) {
			capitest.AsDeletingObject(s)
			s.Finalizers = append(s.Finalizers, "orphan")
		}), capitest.NewCluster(), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := capitest.NewSet("s", 1, capitest.WithDeploymentOwner, row.set)
			w := activitiestest.NewClusterAPIWorld(
				t,
				capitest.DefaultSettings,
				s,
				row.cluster,
				limited,
				capitest.NewBootstrapTemplate(),
				capitest.NewInfrastructureTemplate(capitest.WithClusterOwner),
				stray,
				capitest.NewMachine("sick", s, capitest.AsUnhealthyMachine),
				capitest.NewControlPlane(),
			)
			d := decideSet(t, w, s)
			var names []string
			for _, activity := range []string{"OwnTemplates", "PostponeRemediation", "CollectClones"} {
				names = append(names, objectNamesOfExtraWrites(d, activity)...)
			}
			assert.Equal(t, row.want, names)
			for _, e := range d.Extra {
				assert.NotEmpty(t, e.Why)
				for _, o := range e.Objects {
					assert.NotEmpty(t, o.UID)
					assert.Equal(t, "900", o.Version)
				}
			}
		})
	}
}

func combineChanges(changes ...capitest.SetChange) capitest.SetChange {
	return func(s *clusterv1.MachineSet) {
		for _, change := range changes {
			change(s)
		}
	}
}

func TestUnusedClonesAreFound(t *testing.T) {
	s := capitest.NewSet("s", 1)
	m := capitest.NewMachine("m", s)
	other := func(o *unstructured.Unstructured) {
		o.SetOwnerReferences(
			[]metav1.OwnerReference{
				{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "other", UID: "uid-other"},
			},
		)
	}
	for _, row := range []struct {
		name  string
		clone *unstructured.Unstructured
		stray bool
	}{
		{"no machine uses it", newClone(capitest.NewInfrastructureTemplate(), "x"), true},
		{"of the bootstrap template", newClone(capitest.NewBootstrapTemplate(), "x"), true},
		{"its machine exists and has not taken it over", newClone(capitest.NewInfrastructureTemplate(), "m"), false},
		{"a machine owns it", newClone(capitest.NewInfrastructureTemplate(), "x", withMachineOwner(m)), false},
		{"of another set", newClone(capitest.NewInfrastructureTemplate(), "x", other), false},
		{"nobody owns it", newClone(capitest.NewInfrastructureTemplate(), "x", capitest.WithoutOwner[*unstructured.Unstructured]), false},
		{"it is being deleted", newClone(capitest.NewInfrastructureTemplate(), "x", capitest.AsDeletingObject[*unstructured.Unstructured]), false},
		{"in another namespace", newClone(capitest.NewInfrastructureTemplate(), "x", func(o *unstructured.Unstructured) { o.SetNamespace("garden") }), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, acts := newWorld(t, s, m, row.clone)
			d := decideSet(t, w, s)
			assert.Equal(t, row.stray, len(objectNamesOfExtraWrites(d, "CollectClones")) == 1)
			if !row.stray {
				return
			}
			in := set.ExtraWritesInput{Set: activitiestest.NewRef(s), Objects: d.Extra[0].Objects}
			activitiestest.RunActivityTwice[kube.MinVersions](w, acts.CollectClones, in)
			assert.Nil(t, w.ProviderObject(row.clone, "x"))
			assert.Empty(t, decideSet(t, w, s).Extra)
		})
	}
	t.Run("kinds that are not installed have none", func(t *testing.T) {
		s := capitest.NewSet("s", 1, func(s *clusterv1.MachineSet) {
			s.Spec.Template.Spec.InfrastructureRef.APIGroup = "not.installed.example.com"
		})
		w, _ := newWorld(t, s)
		assert.Empty(t, decideSet(t, w, s).Extra)
	})
}

// A clone that changed since the decision may belong to a machine by now.
func TestAChangedCloneIsNotDeleted(t *testing.T) {
	s := capitest.NewSet("s", 1)
	o := newClone(capitest.NewInfrastructureTemplate(), "x")
	w, acts := newWorld(t, s, o)
	objects := decideSet(t, w, s).Extra[0].Objects
	for name, change := range map[string]func(*set.ExtraObject){
		"another version": func(o *set.ExtraObject) { o.Version = "899" }, "another object": func(o *set.ExtraObject) { o.UID = "uid-former" },
	} {
		t.Run(name, func(t *testing.T) {
			changed := objects[0]
			change(&changed)
			_, err := activitiestest.RunActivity[kube.MinVersions](
				w,
				acts.CollectClones,
				set.ExtraWritesInput{Set: activitiestest.NewRef(s), Objects: []set.ExtraObject{changed}},
			)
			activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
			assert.NotNil(t, infrastructureCloneOf(w, "x"))
		})
	}
}

// A machine that the set released or has not adopted yet uses its clones, although the set still owns the clones.
func TestAMachineWithoutAControllerUsesItsClones(t *testing.T) {
	s := capitest.NewSet("s", 1)
	released := capitest.NewMachine(
		"x",
		s,
		capitest.WithoutOwner,
		func(m *clusterv1.Machine) { m.Labels["pool"] = "other" },
	)
	w, _ := newWorld(
		t,
		s,
		capitest.NewMachine("m", s),
		released,
		newClone(capitest.NewInfrastructureTemplate(), "x"),
		newClone(capitest.NewBootstrapTemplate(), "x"),
	)
	assert.Empty(t, objectNamesOfExtraWrites(decideSet(t, w, s), "CollectClones"))
}

func TestOwnTemplates(t *testing.T) {
	s := capitest.NewSet("s", 1)
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "X", Name: "x", UID: "uid-x"}
	shared := capitest.NewInfrastructureTemplate(func(o *unstructured.Unstructured) {
		o.SetOwnerReferences([]metav1.OwnerReference{other})
		o.SetLabels(map[string]string{"theirs": "x"})
	})
	w := activitiestest.NewClusterAPIWorld(
		t,
		capitest.DefaultSettings,
		s,
		capitest.NewCluster(),
		capitest.NewBootstrapTemplate(),
		shared,
		capitest.NewControlPlane(),
	)
	d := decideSet(t, w, s)
	require.Equal(t, []string{"join", "small"}, objectNamesOfExtraWrites(d, "OwnTemplates"))
	in := set.ExtraWritesInput{Set: activitiestest.NewRef(s), Objects: d.Extra[0].Objects}
	versions, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w).OwnTemplates, in)
	require.NoError(t, err)
	now := w.ProviderObject(shared, "small")
	assert.Equal(
		t,
		[]metav1.OwnerReference{other, capi.ClusterOwnerReference(capitest.NewCluster())},
		now.GetOwnerReferences(),
	)
	assert.Equal(t, map[string]string{"theirs": "x", clusterv1.ClusterNameLabel: "c"}, now.GetLabels())
	assert.Equal(t, shared.Object["spec"], now.Object["spec"])
	assert.Equal(t, now.GetResourceVersion(), versions["examplemachinetemplates.infrastructure.cluster.x-k8s.io"])
	w.AwaitCaches()
	assert.Empty(t, decideSet(t, w, s).Extra)
	_, err = activitiestest.RunActivity[kube.MinVersions](w, newActivities(w).OwnTemplates, in)
	activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)

	for i := range in.Objects {
		in.Objects[i].Version = w.ProviderObject(map[string]*unstructured.Unstructured{"join": capitest.NewBootstrapTemplate(), "small": shared}[in.Objects[i].Name], in.Objects[i].Name).
			GetResourceVersion()
	}
	activitiestest.RunActivityTwice[kube.MinVersions](w, newActivities(w).OwnTemplates, in)
	assert.Equal(t, now, w.ProviderObject(shared, "small"), "it has them already")
}

func TestPrepareASet(t *testing.T) {
	cluster := capi.ClusterOwnerReference(capitest.NewCluster())
	raw := func(s *clusterv1.MachineSet) {
		s.Finalizers, s.OwnerReferences = []string{"example.com/x"}, nil
		delete(s.Labels, clusterv1.ClusterNameLabel)
		delete(s.Spec.Selector.MatchLabels, clusterv1.ClusterNameLabel)
		delete(s.Spec.Template.Labels, clusterv1.ClusterNameLabel)
	}
	controlled := func(s *clusterv1.MachineSet) {
		s.OwnerReferences = []metav1.OwnerReference{
			*metav1.NewControllerRef(capitest.NewDeployment(), clusterv1.GroupVersion.WithKind("MachineDeployment")),
		}
	}
	for _, row := range []struct {
		name       string
		set        capitest.SetChange
		owners     []metav1.OwnerReference
		finalizers []string
	}{
		{"alone", raw, []metav1.OwnerReference{cluster}, []string{"example.com/x", capi.Finalizer}},
		{"of a deployment", combineChanges(raw, controlled), ownerReferencesOfChangedSet(controlled), []string{"example.com/x", capi.Finalizer}},
		{"of a deployment that was restored without owner references", combineChanges(raw, func(s *clusterv1.MachineSet) {
			s.Labels[clusterv1.MachineDeploymentNameLabel] = "d"
		}), nil, []string{"example.com/x", capi.Finalizer}},
		{"without any map", combineChanges(raw, func(s *clusterv1.MachineSet) {
			s.Spec.Selector.MatchLabels, s.Spec.Template.Labels = nil, nil
		}), []metav1.OwnerReference{cluster}, []string{"example.com/x", capi.Finalizer}},
		{"taken over from Cluster API", combineChanges(raw, func(s *clusterv1.MachineSet) {
			s.Finalizers = []string{clusterv1.MachineSetFinalizer}
		}, capitest.WithPausedCondition[*clusterv1.MachineSet]), []metav1.OwnerReference{cluster}, []string{capi.Finalizer}},
		{"an owner reference of a former version", combineChanges(raw, func(s *clusterv1.MachineSet) {
			former := cluster
			former.APIVersion = "cluster.x-k8s.io/v1beta1"
			s.OwnerReferences = []metav1.OwnerReference{former}
		}), []metav1.OwnerReference{cluster}, []string{"example.com/x", capi.Finalizer}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := capitest.NewSet("s", 1, row.set)
			w, acts := newWorld(t, s)
			d := decideSet(t, w, s)
			assert.True(t, d.Prepare)
			got := activitiestest.RunActivityTwice[string](w, acts.FinalizeClusterAPISet, activitiestest.NewLiveReadInput(s))
			now := w.ClusterAPISet("s")
			assert.Equal(t, now.ResourceVersion, got)
			assert.Equal(t, row.owners, now.OwnerReferences)
			assert.Equal(t, row.finalizers, now.Finalizers)
			for where, labels := range map[string]map[string]string{"set": now.Labels, "selector": now.Spec.Selector.MatchLabels, "template": now.Spec.Template.Labels} {
				if where == "selector" && s.Spec.Selector.MatchLabels == nil {
					assert.Empty(t, labels, "a selector that selects nothing stays so")
					continue
				}
				assert.Equal(t, "c", labels[clusterv1.ClusterNameLabel], where)
			}
			assert.False(t, decideSet(t, w, s).Prepare)
		})
	}
}

func ownerReferencesOfChangedSet(change capitest.SetChange) []metav1.OwnerReference {
	return capitest.NewSet("s", 1, change).OwnerReferences
}

func TestDecideWhichSetsMustBePrepared(t *testing.T) {
	for _, row := range []struct {
		name   string
		change capitest.SetChange
		has    []runtime.Object
		want   bool
	}{
		{"prepared", func(*clusterv1.MachineSet) {}, []runtime.Object{capitest.NewCluster()}, false},
		{"new", removeSetFinalizers, []runtime.Object{capitest.NewCluster()}, true},
		{"paused", combineChanges(removeSetFinalizers, withAnnotation(clusterv1.PausedAnnotation, "")), []runtime.Object{capitest.NewCluster()}, true},
		{"its Cluster is paused", removeSetFinalizers, []runtime.Object{capitest.NewCluster(func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })}, true},
		{"paused and prepared, except for its owner", combineChanges(func(s *clusterv1.MachineSet) { s.OwnerReferences = nil }, withAnnotation(clusterv1.PausedAnnotation, "")), []runtime.Object{capitest.NewCluster()}, false},

		{"being deleted", combineChanges(removeSetFinalizers, capitest.AsDeletingObject[*clusterv1.MachineSet]), []runtime.Object{capitest.NewCluster()}, false},
		{"without a Cluster", removeSetFinalizers, nil, true},
		{"its Cluster is not there yet", func(s *clusterv1.MachineSet) { s.OwnerReferences = nil }, nil, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := capitest.NewSet("s", 0, row.change)
			w := activitiestest.NewClusterAPIWorld(t, capitest.DefaultSettings, append(row.has, s)...)
			assert.Equal(t, row.want, decideSet(t, w, s).Prepare)
		})
	}
}

func TestRemoveTheFinalizerOfASet(t *testing.T) {
	m := func(change ...capitest.MachineChange) *clusterv1.Machine {
		return capitest.NewMachine("m", capitest.NewSet("s", 0), change...)
	}
	also := func(s *clusterv1.MachineSet) { s.Finalizers = append(s.Finalizers, "example.com/x") }
	for _, row := range []struct {
		name    string
		set     *clusterv1.MachineSet
		machine *clusterv1.Machine
		want    []string // finalizers that the set keeps
	}{
		{"none left", capitest.NewSet("s", 0, capitest.AsDeletingObject, also), m(capitest.WithoutOwner), []string{"example.com/x"}},
		{"a machine is left", capitest.NewSet("s", 0, capitest.AsDeletingObject, also), m(), []string{capi.Finalizer, "example.com/x"}},
		{"although it goes", capitest.NewSet("s", 0, capitest.AsDeletingObject, also), m(capitest.AsDeletingObject), []string{capi.Finalizer, "example.com/x"}},
		{"no finalizer of ours", capitest.NewSet("s", 0, capitest.AsDeletingObject, removeSetFinalizers, also), m(capitest.WithoutOwner), []string{"example.com/x"}},
		{"handed over, with its machines", capitest.NewSet("s", 1, withOtherController, also), m(capitest.WithoutManagedFields), []string{"example.com/x"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, acts := newWorld(t, row.set, row.machine)
			_, err := activitiestest.RunActivity[string](w, acts.FinalizeClusterAPISet, activitiestest.NewLiveReadInput(row.set))
			require.NoError(t, err)
			assert.Equal(t, row.want, w.ClusterAPISet("s").Finalizers)
			assert.Equal(
				t,
				row.machine.ResourceVersion,
				w.ClusterAPIMachine("m").ResourceVersion,
				"its machines stay as they are",
			)
		})
	}
	t.Run("the last finalizer", func(t *testing.T) {
		s := capitest.NewSet("s", 0, capitest.AsDeletingObject)
		w, acts := newWorld(t, s)
		_, err := activitiestest.RunActivity[string](w, acts.FinalizeClusterAPISet, activitiestest.NewLiveReadInput(s))
		require.NoError(t, err)
		assert.Nil(t, w.ClusterAPISet("s"))
		_, err = activitiestest.RunActivity[string](w, acts.FinalizeClusterAPISet, activitiestest.NewLiveReadInput(s))
		activitiestest.AssertFailure(t, err, kube.FailureTypeObjectGone, false)
	})
	t.Run("another writer was faster", func(t *testing.T) {
		s := capitest.NewSet("s", 0, capitest.AsDeletingObject)
		w, acts := newWorld(t, s)
		activitiestest.FailRequests(
			w.ClusterAPIServer.Clientset,
			"patch",
			"machinesets",
			1,
			apierrors.NewConflict(schema.GroupResource{Resource: "machinesets"}, "s", nil),
			nil,
		)
		_, err := activitiestest.RunActivity[string](w, acts.FinalizeClusterAPISet, activitiestest.NewLiveReadInput(s))
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.Contains(t, w.ClusterAPISet("s").Finalizers, capi.Finalizer)
	})
}

func newReport(s *clusterv1.MachineSet) set.Report {
	return set.Report{Input: set.Input{ReadInput: activitiestest.NewReadInput(s)}}
}

func TestReportASet(t *testing.T) {
	s := capitest.NewSet("s", 2)
	w, acts := newWorld(t, s, capitest.NewMachine("m", s))
	assert.True(t, decideSet(t, w, s).Report)
	got := activitiestest.RunActivityTwice[string](w, acts.ReportClusterAPISet, newReport(s))
	now := w.ClusterAPISet("s")
	assert.Equal(t, now.ResourceVersion, got)
	assert.Equal(
		t,
		[]int32{1, 1, 1, 1},
		[]int32{*now.Status.Replicas, *now.Status.ReadyReplicas, *now.Status.AvailableReplicas, *now.Status.UpToDateReplicas},
	)
	assert.Equal(t, int64(1), now.Status.ObservedGeneration)
	assert.Equal(t, s.Spec, now.Spec)
	assert.Equal(t, []string{"patch machinesets/status"}, w.MutatingRequests())
	assert.False(t, decideSet(t, w, s).Report, "it is written once")
}

// Cluster API's status has no field for the record of failed generations.
func TestReportRecordsFailedGenerationsInAnAnnotation(t *testing.T) {
	s := capitest.NewSet("s", 1)
	w, acts := newWorld(t, s, capitest.NewMachine("m", s))
	in := newReport(s)
	in.Generations = &scale.GenerationRecord{Failed: 2, Last: capitest.Noon}
	version := activitiestest.RunActivityTwice[string](w, acts.ReportClusterAPISet, in)
	now := w.ClusterAPISet("s")
	assert.Equal(t, now.ResourceVersion, version)
	assert.JSONEq(
		t,
		`{"count":2,"lastFailedAt":"2026-01-01T12:00:00Z"}`,
		now.Annotations[v1alpha1.AnnotationFailedGenerations],
	)
	assert.Equal(
		t,
		[]string{"patch machinesets", "patch machinesets/status"},
		w.MutatingRequests(),
		"the second run writes nothing",
	)

	in = newReport(s)
	in.Generations = &scale.GenerationRecord{}
	activitiestest.RunActivityTwice[string](w, acts.ReportClusterAPISet, in)
	assert.NotContains(t, w.ClusterAPISet("s").Annotations, v1alpha1.AnnotationFailedGenerations)
}

func TestRecordOfFailedGenerationsIsWrittenAgainAfterAConflict(t *testing.T) {
	s := capitest.NewSet("s", 1)
	w, acts := newWorld(t, s, capitest.NewMachine("m", s))
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "machinesets"}, "s", nil)
	activitiestest.FailRequests(w.ClusterAPIServer.Clientset, "patch", "machinesets", 1, conflict, nil)
	in := newReport(s)
	in.Generations = &scale.GenerationRecord{Failed: 1, Last: capitest.Noon}
	_, err := activitiestest.RunActivity[string](w, acts.ReportClusterAPISet, in)
	require.NoError(t, err)
	assert.Contains(t, w.ClusterAPISet("s").Annotations, v1alpha1.AnnotationFailedGenerations)
}

// The API server's refusal stays in the set's status until the next batch succeeds.
func TestReportedFailureStaysUntilABatchSucceeds(t *testing.T) {
	s := capitest.NewSet("s", 1)
	w, acts := newWorld(t, s)
	in := newReport(s)
	in.Failure = scale.WriteFailure{Message: "quota exceeded"}
	activitiestest.RunActivityTwice[string](w, acts.ReportClusterAPISet, in)
	said := map[string]string{}
	for _, c := range w.ClusterAPISet("s").Status.Conditions {
		said[c.Type] = string(c.Status) + " " + c.Reason + " " + c.Message
	}
	assert.Equal(t, "False MachineCreationFailed quota exceeded", said["MachinesCreated"])
	assert.Equal(t, "True FailedCreate quota exceeded", said["ReplicaFailure"])
	activitiestest.RunActivityTwice[string](w, acts.ReportClusterAPISet, newReport(s))
	for _, c := range w.ClusterAPISet("s").Status.Conditions {
		assert.NotEqual(t, "ReplicaFailure", c.Type)
	}
}

func TestReportReadsAgainAfterAConflict(t *testing.T) {
	s := capitest.NewSet("s", 2)
	w, acts := newWorld(t, s, capitest.NewMachine("m", s))
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "machinesets"}, "s", nil)
	activitiestest.FailRequests(w.ClusterAPIServer.Clientset, "patch", "machinesets", 1, conflict, nil)
	_, err := activitiestest.RunActivity[string](w, acts.ReportClusterAPISet, newReport(s))
	require.NoError(t, err)
	assert.Equal(t, int32(1), *w.ClusterAPISet("s").Status.Replicas)
	assert.Contains(t, w.Requests(), "get machinesets", "it was read live")
}

func TestASetOfAnotherControllerIsNotReported(t *testing.T) {
	for name, has := range map[string][]runtime.Object{
		"gone": nil, "handed over": {capitest.NewSet("s", 1, withOtherController)}, "never ours": {capitest.NewSet("s", 1, withOtherController, removeSetFinalizers)},
		"another of this name": {capitest.NewSet("s", 1, func(s *clusterv1.MachineSet) { s.UID = "uid-new" })},
	} {
		for _, live := range []bool{true, false} {
			w, acts := newWorld(t, has...)
			in := newReport(capitest.NewSet("s", 1))
			in.Live = live
			_, err := activitiestest.RunActivity[string](w, acts.ReportClusterAPISet, in)
			activitiestest.AssertFailure(t, err, kube.FailureTypeObjectGone, false)
			assert.Empty(t, w.MutatingRequests(), name)
		}
	}
}

// A decision waits until the caches have the resource versions that woke the workflow, including the versions of
// templates.
func TestDecideWaitsForTheCaches(t *testing.T) {
	s := capitest.NewSet("s", 1)
	w, acts := newWorld(t, s)
	decideSet(t, w, s) // starts the informers of the templates
	in := activitiestest.NewClusterAPISetInput(s, false)
	in.Versions = kube.MinVersions{"examplemachinetemplates.infrastructure.cluster.x-k8s.io": "99999"}
	_, err := activitiestest.RunLocalActivity[set.Decision](w, acts.DecideClusterAPISet, in)
	activitiestest.AssertFailure(t, err, kube.FailureTypeCacheBehind, true)
	in.Versions = kube.MinVersions{cache.Resource("machines.cluster.x-k8s.io"): "99999"}
	_, err = activitiestest.RunLocalActivity[set.Decision](w, acts.DecideClusterAPISet, in)
	activitiestest.AssertFailure(t, err, kube.FailureTypeCacheBehind, true)
}

// Cluster API's controllers never remove conditions that they do not know, so Millwright's conditions would stay for
// ever.
func TestASetThatIsHandedOverLosesTheConditionsOfMillwright(t *testing.T) {
	t.Parallel()
	s := capitest.NewSet("s", 1, withOtherController, func(s *clusterv1.MachineSet) {
		for _, kind := range []string{clusterv1.MachineSetScalingUpCondition, vocabulary.ConditionMachinesCreated, vocabulary.ConditionBlocked, vocabulary.ConditionReplicaFailure, vocabulary.ConditionReconciling, vocabulary.ConditionStalled} {
			s.Status.Conditions = append(
				s.Status.Conditions,
				metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind},
			)
		}
	})
	w, acts := newWorld(t, s)
	got, err := activitiestest.RunActivity[string](w, acts.FinalizeClusterAPISet, activitiestest.NewLiveReadInput(s))
	require.NoError(t, err)
	now := w.ClusterAPISet("s")
	assert.Equal(t, now.ResourceVersion, got)
	assert.Empty(t, now.Finalizers)
	require.Len(t, now.Status.Conditions, 1)
	assert.Equal(t, clusterv1.MachineSetScalingUpCondition, now.Status.Conditions[0].Type)
}

// After a restore, a machine may be being deleted and have no controller. The set adopts the machine before it creates
// another machine, and the deletion of the set waits for the machine.
func TestDecideAdoptsAMachineThatIsBeingDeleted(t *testing.T) {
	s := capitest.NewSet("s", 1)
	m := capitest.NewMachine(
		"restored",
		s,
		capitest.WithoutOwner[*clusterv1.Machine],
		capitest.AsDeletingObject[*clusterv1.Machine],
	)
	w, _ := newWorld(t, s, m)
	d := decideSet(t, w, s)
	require.Len(t, d.Scale.Adopt, 1)
	assert.Equal(t, "restored", d.Scale.Adopt[0].Name)
	assert.Empty(t, d.Scale.Create)
}

// Decisions count in the metrics with the names of Cluster API's controllers.
func TestDecisionsCountAsReconciles(t *testing.T) {
	s := capitest.NewSet("s", 1)
	w, a := newWorld(t, s)
	registry := prometheus.NewRegistry()
	w.Metrics = kube.NewMetrics(registry)
	_, err := activitiestest.RunActivity[set.Decision](
		w,
		a.DecideClusterAPISet,
		activitiestest.NewClusterAPISetInput(s, true),
	)
	require.NoError(t, err)
	w.ClusterAPIServer.Clientset.PrependReactor(
		"get",
		"machinesets",
		func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewInternalError(errors.New("the API server fails"))
		},
	)
	_, err = activitiestest.RunActivity[set.Decision](
		w,
		a.DecideClusterAPISet,
		activitiestest.NewClusterAPISetInput(s, true),
	)
	require.Error(t, err)
	families, err := registry.Gather()
	require.NoError(t, err)
	counts := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := ""
			for _, label := range m.GetLabel() {
				labels += " " + label.GetValue()
			}
			counts[family.GetName()+labels] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	delete(counts, "millwright_fact_reads_total live")
	assert.Equal(t, map[string]float64{
		"capi_reconcile_total machineset error":   1,
		"capi_reconcile_total machineset success": 1,
		"capi_reconcile_time_seconds machineset":  2,
	}, counts)
}
