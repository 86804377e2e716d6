package set_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/scale"
	"millwright/observe/observetest"
	"millwright/observe/set"
)

// runningMachine returns a machine that matches its set's template and has been ready for an hour at noon.
func runningMachine(name string, change ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
	return renamedTo(
		name,
		observetest.Follower(append([]func(*v1alpha1.Machine){observetest.ReadySince(observetest.Ago(60))}, change...)...),
	)
}

func renamedTo(name string, m *v1alpha1.Machine) *v1alpha1.Machine {
	m.Name, m.UID = name, observetest.Meta(name).UID
	return m
}

// finalizedSet returns a set with this number of replicas, Millwright's finalizer and an observed generation.
func finalizedSet(replicas int32, change ...observetest.OnSet) *v1alpha1.MachineSet {
	return observetest.Set("s", append([]observetest.OnSet{func(s *v1alpha1.MachineSet) {
		s.Spec.Replicas = replicas
		s.Finalizers = []string{v1alpha1.FinalizerMachine}
		s.Status.ObservedGeneration = s.Generation
	}}, change...)...)
}

// withPlannedStatus gives a set the status that is planned for noon.
func withPlannedStatus(s *v1alpha1.MachineSet, related set.Related) *v1alpha1.MachineSet {
	set.ApplyStatus(
		&s.Status,
		scale.Plan(set.Observed(s, related, observetest.Noon, 0)).Status,
		metav1.NewTime(observetest.Noon),
	)
	return s
}

func missingClass(related set.Related) set.Related {
	related.Missing = []string{"MachineClass"}
	return related
}

func TestPendingWorkOfASet(t *testing.T) {
	calm := func(why string) attention.Decision { return attention.Decision{Why: why} }
	scales := func(why string) attention.Decision { return attention.Decision{Need: attention.Scale, Why: why} }
	const late = "status is out of date"
	two := observetest.Members(runningMachine("a"), runningMachine("b"))
	one := observetest.Members(runningMachine("a"), runningMachine("b", deletedAt(observetest.Noon)))
	long := observetest.Members(runningMachine("a"), runningMachine("b", deletedAt(observetest.Noon.Add(-time.Hour))))
	young := observetest.Members(runningMachine("a"), runningMachine("b", observetest.ReadySince(observetest.Ago(1))))
	joined := observetest.Members(runningMachine("a", createdAt(observetest.Ago(80))), runningMachine("b"))
	minReady := func(s *v1alpha1.MachineSet) { s.Spec.MinReadySeconds = 3600 }
	for _, row := range []struct {
		name    string
		set     *v1alpha1.MachineSet
		related set.Related
		now     time.Time
		want    attention.Decision
	}{
		{"as many as wanted", withPlannedStatus(finalizedSet(2), two), two, observetest.Noon, calm("2 machines wanted, 2 there")},
		{"a new set", observetest.Set("s", func(s *v1alpha1.MachineSet) { s.Spec.Replicas = 1 }), observetest.Members(), observetest.Noon, scales("new: our finalizer is missing")},
		{"a generation that was not seen", func() *v1alpha1.MachineSet {
			s := withPlannedStatus(finalizedSet(2), two)
			s.Generation = 7
			return s
		}(), two, observetest.Noon, scales("generation 7 was not seen yet (last seen: 1)")},
		{"one is missing", withPlannedStatus(finalizedSet(3), two), two, observetest.Noon, scales("create 1 machine: 3 wanted, 2 there")},
		{"one too many", withPlannedStatus(finalizedSet(1), two), two, observetest.Noon, scales("delete 1 machine: 1 wanted, 2 there")},
		{"one goes: it is looked at again when that takes long", withPlannedStatus(finalizedSet(1), one), one, observetest.Noon, scales("1 machine wanted, 2 there; it waits for the time to pass")},
		{"it takes long, and is told", withPlannedStatus(finalizedSet(1), long), long, observetest.Noon, calm("1 machine wanted, 2 there")},
		{"one is not ready for long enough", withPlannedStatus(finalizedSet(2, minReady), young), young, observetest.Noon, scales("2 machines wanted, 2 there; it waits for the time to pass")},
		{"now it is", withPlannedStatus(finalizedSet(2, minReady), young), young, observetest.Noon.Add(time.Hour), scales(late)},
		{"the status is of another time", finalizedSet(2), two, observetest.Noon, scales(late)},
		{"that its class is missing was not told yet", withPlannedStatus(finalizedSet(3, observetest.FrozenSet), two), missingClass(two), observetest.Noon, scales(late)},
		{"its class is missing, and that is told", withPlannedStatus(finalizedSet(3), missingClass(two)), missingClass(two), observetest.Noon, scales("3 wanted, 2 there; none is created: MachineClass does not exist")},
		{"what is missing cannot be made, and that is told", withPlannedStatus(finalizedSet(3, observetest.FrozenSet), two), two, observetest.Noon, scales("3 wanted, 2 there; none is created: MachineSet is frozen")},
		{"only a record to change", withPlannedStatus(finalizedSet(2, func(s *v1alpha1.MachineSet) {
			s.Status.FailedGenerations = &v1alpha1.FailedGenerations{Count: 1, LastFailedAt: observetest.Ago(90)}
		}), joined), joined, observetest.Noon, scales("2 machines wanted and there")},
		{"it goes", withPlannedStatus(finalizedSet(2, observetest.GoingSet), two), two, observetest.Noon, attention.Decision{Need: attention.Deletion, Why: "deletion was asked for; 2 machines left"}},
		{
			"gone but for others' finalizers", withPlannedStatus(finalizedSet(2, observetest.GoingSet, func(s *v1alpha1.MachineSet) { s.Finalizers = []string{"example.com/x"} }), observetest.Members()),
			observetest.Members(), observetest.Noon, calm("released: the API server removes it"),
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := row.set.DeepCopy()
			is := scale.Plan(set.Observed(row.set, row.related, row.now, 0)).Pending
			assert.Equal(t, row.want, attention.Decision{Need: is.Need, Why: is.Why})
			assert.Equal(t, before, row.set, "what is looked at stays as it is")
		})
	}
}

// The failure of the last batch is also a fact, so that the set reports the failure only once.
func TestARefusedBatchIsReportedOnce(t *testing.T) {
	s, related := finalizedSet(3), observetest.Members(runningMachine("a"), runningMachine("b"))
	look := func(failure scale.Failure) scale.Planned {
		o := set.Observed(s, related, observetest.Noon, 0)
		o.LastFailure = failure
		return scale.Plan(o)
	}
	quota := scale.Failure{Message: "quota"}
	plan := look(quota)
	assert.True(t, plan.Unreported)
	set.ApplyStatus(&s.Status, plan.Status, metav1.NewTime(observetest.Noon))
	assert.Equal(t, int32(3), s.Status.ObservedReplicas, "nothing is under way until it is tried again")
	plan = look(quota)
	assert.False(t, plan.Unreported)
	assert.Equal(t, "create 1 machine: 3 wanted, 2 there", plan.Pending.Why)
	assert.True(t, look(scale.Failure{}).Unreported, "whoever knows of no failure would take it back")
}

func deletedAt(at time.Time) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.DeletionTimestamp = new(metav1.NewTime(at)) }
}

func createdAt(at metav1.Time) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.CreationTimestamp = at }
}

// decisionText returns the non-empty lists of a decision, in one line.
func decisionText(d scale.Decision) string {
	var lists []string
	for _, list := range []struct {
		verb     string
		machines []scale.Target
	}{
		{"release", d.Release}, {"adopt", d.Adopt}, {"keep", d.Keep}, {"unmark", d.Unmark}, {"remediate", d.Remediate}, {"delete", d.Delete}, {"sync", d.Sync},
	} {
		if len(list.machines) > 0 {
			line := list.verb
			for _, m := range list.machines {
				line += " " + m.Name
			}
			lists = append(lists, line)
		}
	}
	if len(d.Create) > 0 {
		lists = append(lists, "create")
	}
	slices.Sort(lists)
	return strings.Join(lists, ", ")
}

// The test rows check the decision for objects that people and other controllers have changed.
func TestDecisionsFromObjects(t *testing.T) {
	scaled := observetest.NoteSet(v1alpha1.AnnotationLastScalerChange, "2026-01-01T11:30:00Z")
	chosen := func(name, at string) *v1alpha1.Machine {
		return runningMachine(
			name,
			observetest.Note(v1alpha1.AnnotationMachinePriority, "1"),
			observetest.Note(v1alpha1.AnnotationMarkedForDeletionTime, at),
		)
	}
	keeps := func(n int32) observetest.OnSet {
		return func(s *v1alpha1.MachineSet) { s.Spec.AutoPreserveFailedMachineMax = n }
	}
	selecting := func(selector *metav1.LabelSelector) observetest.OnSet {
		return func(s *v1alpha1.MachineSet) { s.Spec.Selector = selector }
	}
	below := func(change ...observetest.OnDeployment) set.Related {
		related := withDeployment(change...)
		related.Members = []*v1alpha1.Machine{runningMachine("a", observetest.Note(v1alpha1.AnnotationRemediateMachine, ""))}
		return related
	}
	with := func(related set.Related, machines ...*v1alpha1.Machine) set.Related {
		related.Members = machines
		return related
	}
	updated := func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful }
	nonsense := func(s *v1alpha1.MachineSet) {
		s.Spec.Replicas = 2
		observetest.NoteSet(v1alpha1.AnnotationLastScalerChange, "yesterday")(s)
	}
	senseless := func(related set.Related) set.Related {
		related.Policy = withMaxInFlight(intstr.FromString("many")).Policy
		related.Policy.Spec.DeletionOrder = "Sideways"
		return related
	}
	for _, row := range []struct {
		name    string
		set     *v1alpha1.MachineSet
		related set.Related
		want    string
	}{
		{"one is missing", finalizedSet(1), observetest.Members(), "create"},
		{"fields that make no sense", finalizedSet(2, nonsense), senseless(observetest.Members(runningMachine("a"), chosen("b", "soon"))), ""},
		{"as many as wanted", finalizedSet(1), observetest.Members(runningMachine("a")), ""},
		{"the failed one goes", finalizedSet(1), observetest.Members(runningMachine("a"), runningMachine("b", observetest.Phase(v1alpha1.MachineFailed))), "delete b"},
		{"chosen before the size last changed", finalizedSet(2, scaled), observetest.Members(runningMachine("a"), chosen("b", "2026-01-01T11:29:00Z")), "delete b"},
		{"chosen after it", finalizedSet(2, scaled), observetest.Members(runningMachine("a"), chosen("b", "2026-01-01T11:31:00Z")), ""},
		{"and the size is smaller", finalizedSet(1, scaled), observetest.Members(runningMachine("a"), chosen("b", "2026-01-01T11:29:00Z")), "delete b"},
		{"handed over by an update", finalizedSet(1), observetest.Members(runningMachine("a", updated), runningMachine("b")), ""},
		{"a selector that does not match the template", finalizedSet(3, selecting(&metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}})), with(withOrphans(observetest.Machine("o", observetest.Labelled("api"))), runningMachine("a")), ""},
		{"a selector that cannot be read", finalizedSet(3, selecting(observetest.Unreadable())), with(withOrphans(observetest.Machine("o")), runningMachine("a")), ""},
		{"no selector", finalizedSet(3, selecting(nil)), with(withOrphans(observetest.Machine("o")), runningMachine("a")), ""},
		{"an invalid set can be deleted", finalizedSet(3, selecting(observetest.Unreadable()), observetest.GoingSet), observetest.Members(runningMachine("a")), "delete a"},
		{"an orphan that matches", finalizedSet(1), with(withOrphans(observetest.Machine("o"), observetest.Machine("p", observetest.Labelled("api")), observetest.Machine("q", observetest.GoingMachine))), "adopt o"},
		{"one that does not match", finalizedSet(1), observetest.Members(runningMachine("a", observetest.Labelled("api"))), "release a"},
		{"until it is released no other is made", finalizedSet(2), observetest.Members(runningMachine("a"), runningMachine("b", observetest.Labelled("api"))), "release b"},
		{"nor is it deleted, though there are too many", finalizedSet(1), observetest.Members(runningMachine("a"), runningMachine("b", observetest.Labelled("api"))), "release b"},
		{"an empty selector", finalizedSet(1, selecting(&metav1.LabelSelector{})), with(withOrphans(observetest.Machine("o")), runningMachine("a"), runningMachine("b", observetest.Labelled("api"), observetest.GoingMachine)), ""},
		{"and it makes what is missing", finalizedSet(2, selecting(&metav1.LabelSelector{})), with(withOrphans(observetest.Machine("o")), runningMachine("a")), "create"},
		{"what it releases again and again is not made again and again", finalizedSet(1), with(withOrphans(observetest.Machine("o", observetest.Labelled("api"), releasedBy("uid-s")), observetest.Machine("p", observetest.Labelled("api"), releasedBy("uid-s")), observetest.Machine("q", observetest.Labelled("api"), releasedBy("uid-s")), observetest.Machine("r", observetest.Labelled("api"), releasedBy("uid-s")))), ""},
		{"1 of 1 is kept", finalizedSet(1, keeps(1)), observetest.Members(runningMachine("a", observetest.Phase(v1alpha1.MachineFailed))), "keep a"},
		{"max 0", finalizedSet(1), observetest.Members(runningMachine("a", observetest.Phase(v1alpha1.MachineFailed))), "delete a"},
		{"max reached", finalizedSet(2, keeps(1)), observetest.Members(runningMachine("a", observetest.Phase(v1alpha1.MachineFailed), observetest.Note(v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveAuto)), runningMachine("b", observetest.Phase(v1alpha1.MachineFailed))), "delete b"},
		{"the value false", finalizedSet(1, keeps(1)), observetest.Members(runningMachine("a", observetest.Phase(v1alpha1.MachineFailed), observetest.Note(v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveFalse))), "delete a"},
		{"it was kept, and that is over", finalizedSet(1, keeps(1)), observetest.Members(runningMachine("a", observetest.Phase(v1alpha1.MachineFailed), observetest.Note(v1alpha1.AnnotationAutoPreserved, "2026-01-01T10:00:00Z"))), "delete a"},
		{"a person wants another", finalizedSet(1), below(), "remediate a"},
		{"the rollout removes it", finalizedSet(1), below(observetest.RolledOut), ""},
		{"a person says which goes first", finalizedSet(1), observetest.Members(runningMachine("a", createdAt(observetest.Ago(1))), runningMachine("b", observetest.Note(v1alpha1.AnnotationDeleteMachine, ""))), "delete b"},
		{"paused", finalizedSet(5, observetest.NoteSet(v1alpha1.AnnotationPaused, "")), observetest.Members(runningMachine("a")), ""},
		{"paused and going", finalizedSet(5, observetest.NoteSet(v1alpha1.AnnotationPaused, ""), observetest.GoingSet), observetest.Members(runningMachine("a")), ""},
		{"frozen", finalizedSet(5, observetest.LabelSet(v1alpha1.LabelFreeze, "True")), observetest.Members(runningMachine("a")), ""},
		{"frozen, and still too many", finalizedSet(0, observetest.LabelSet(v1alpha1.LabelFreeze, "True")), observetest.Members(runningMachine("a")), "delete a"},
		{"a person ended the freeze", finalizedSet(5, observetest.LabelSet(v1alpha1.LabelFreeze, "True"), observetest.NoteSet(v1alpha1.AnnotationUnfreeze, "")), observetest.Members(runningMachine("a")), "create"},
		{"its class is missing", finalizedSet(5), missingClass(observetest.Members(runningMachine("a"))), ""},
		{"its class is missing, and there are too many", finalizedSet(0), missingClass(observetest.Members(runningMachine("a"))), "delete a"},
		{"others took its place", finalizedSet(5, observetest.LabelSet(v1alpha1.LabelScaleUpDisabled, "true")), observetest.Members(runningMachine("a")), ""},
		{"the template has another timeout", finalizedSet(1, func(s *v1alpha1.MachineSet) {
			s.Spec.Template.Spec.MachineConfiguration = observetest.Drained(time.Minute)
		}), observetest.Members(runningMachine("a")), "sync a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := scale.Decide(set.Observed(row.set, row.related, observetest.Noon, 7))
			assert.Equal(t, row.want, decisionText(d), d.Why)
		})
	}
}

func TestAPausedSetThatIsDeletedReportsBoth(t *testing.T) {
	s := finalizedSet(1, observetest.NoteSet(v1alpha1.AnnotationPaused, ""), observetest.GoingSet)
	related := observetest.Members(runningMachine("a"))
	plan := scale.Plan(set.Observed(s, related, observetest.Noon, 0))
	blocked := set.Explained(s, related, plan.Status.Conditions, observetest.Noon).Blocked(observetest.Noon)
	assert.Contains(t, blocked.Message, "set s is being deleted, and waits because it is paused: ")
	assert.Equal(t, "Paused", blocked.Reason)
}
