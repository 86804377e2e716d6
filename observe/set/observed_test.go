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
	return machineWithName(
		name,
		observetest.MachineFromTemplate(
			append([]func(*v1alpha1.Machine){observetest.WithReadyTime(observetest.MinutesBeforeNoon(60))}, change...)...),
	)
}

func machineWithName(name string, m *v1alpha1.Machine) *v1alpha1.Machine {
	m.Name, m.UID = name, observetest.NewMetadata(name).UID
	return m
}

// newSetWithFinalizer returns a set with this number of replicas, Millwright's finalizer and an observed generation.
func newSetWithFinalizer(replicas int32, change ...observetest.SetChange) *v1alpha1.MachineSet {
	return observetest.NewSet("s", append([]observetest.SetChange{func(s *v1alpha1.MachineSet) {
		s.Spec.Replicas = replicas
		s.Finalizers = []string{v1alpha1.FinalizerMachine}
		s.Status.ObservedGeneration = s.Generation
	}}, change...)...)
}

// withPlannedStatus gives a set the status that the plan for noon computes.
func withPlannedStatus(s *v1alpha1.MachineSet, related set.RelatedObjects) *v1alpha1.MachineSet {
	set.ApplyStatus(
		&s.Status,
		scale.PlanSet(set.ScaleFacts(s, related, observetest.Noon, 0)).Status,
		metav1.NewTime(observetest.Noon),
	)
	return s
}

func withoutClass(related set.RelatedObjects) set.RelatedObjects {
	related.MissingKinds = []string{"MachineClass"}
	return related
}

func TestPendingWorkOfASet(t *testing.T) {
	calm := func(why string) attention.Decision { return attention.Decision{Why: why} }
	scales := func(why string) attention.Decision { return attention.Decision{Need: attention.NeedScaling, Why: why} }
	const late = "status is out of date"
	two := observetest.RelatedObjectsWithMembers(runningMachine("a"), runningMachine("b"))
	one := observetest.RelatedObjectsWithMembers(
		runningMachine("a"),
		runningMachine("b", withDeletionTime(observetest.Noon)),
	)
	long := observetest.RelatedObjectsWithMembers(
		runningMachine("a"),
		runningMachine("b", withDeletionTime(observetest.Noon.Add(-time.Hour))),
	)
	young := observetest.RelatedObjectsWithMembers(
		runningMachine("a"),
		runningMachine("b", observetest.WithReadyTime(observetest.MinutesBeforeNoon(1))),
	)
	joined := observetest.RelatedObjectsWithMembers(
		runningMachine("a", withCreationTime(observetest.MinutesBeforeNoon(80))),
		runningMachine("b"),
	)
	minReady := func(s *v1alpha1.MachineSet) { s.Spec.MinReadySeconds = 3600 }
	for _, row := range []struct {
		name    string
		set     *v1alpha1.MachineSet
		related set.RelatedObjects
		now     time.Time
		want    attention.Decision
	}{
		{"as many as wanted", withPlannedStatus(newSetWithFinalizer(2), two), two, observetest.Noon, calm("2 machines wanted, 2 there")},
		{"a new set", observetest.NewSet("s", func(s *v1alpha1.MachineSet) { s.Spec.Replicas = 1 }), observetest.RelatedObjectsWithMembers(), observetest.Noon, scales("new: our finalizer is missing")},
		{"a generation that was not seen", func() *v1alpha1.MachineSet {
			s := withPlannedStatus(newSetWithFinalizer(2), two)
			s.Generation = 7
			return s
		}(), two, observetest.Noon, scales("generation 7 was not seen yet (last seen: 1)")},
		{"one is missing", withPlannedStatus(newSetWithFinalizer(3), two), two, observetest.Noon, scales("create 1 machine: 3 wanted, 2 there")},
		{"one too many", withPlannedStatus(newSetWithFinalizer(1), two), two, observetest.Noon, scales("delete 1 machine: 1 wanted, 2 there")},
		{"one machine is being deleted: the set decides again when the deletion takes long", withPlannedStatus(newSetWithFinalizer(1), one), one, observetest.Noon, scales("1 machine wanted, 2 there; it waits for the time to pass")},
		{"a deletion takes long, and the status shows it", withPlannedStatus(newSetWithFinalizer(1), long), long, observetest.Noon, calm("1 machine wanted, 2 there")},
		{"one is not ready for long enough", withPlannedStatus(newSetWithFinalizer(2, minReady), young), young, observetest.Noon, scales("2 machines wanted, 2 there; it waits for the time to pass")},
		{"now it is", withPlannedStatus(newSetWithFinalizer(2, minReady), young), young, observetest.Noon.Add(time.Hour), scales(late)},
		{"the status is of another time", newSetWithFinalizer(2), two, observetest.Noon, scales(late)},
		{"that its class is missing was not told yet", withPlannedStatus(newSetWithFinalizer(3, observetest.AsFrozenSet), two), withoutClass(two), observetest.Noon, scales(late)},
		{"the class is missing, and the status shows it", withPlannedStatus(newSetWithFinalizer(3), withoutClass(two)), withoutClass(two), observetest.Noon, scales("3 wanted, 2 there; none is created: MachineClass does not exist")},
		{"missing machines cannot be created, and the status shows it", withPlannedStatus(newSetWithFinalizer(3, observetest.AsFrozenSet), two), two, observetest.Noon, scales("3 wanted, 2 there; none is created: MachineSet is frozen")},
		{"only a record to change", withPlannedStatus(newSetWithFinalizer(2, func(s *v1alpha1.MachineSet) {
			s.Status.FailedGenerations = &v1alpha1.FailedGenerations{Count: 1, LastFailedAt: observetest.MinutesBeforeNoon(90)}
		}), joined), joined, observetest.Noon, scales("2 machines wanted and there")},
		{"it goes", withPlannedStatus(newSetWithFinalizer(2, observetest.AsDeletingSet), two), two, observetest.Noon, attention.Decision{Need: attention.NeedDeletion, Why: "deletion was asked for; 2 machines left"}},
		{
			"gone but for others' finalizers", withPlannedStatus(newSetWithFinalizer(2, observetest.AsDeletingSet, func(s *v1alpha1.MachineSet) { s.Finalizers = []string{"example.com/x"} }), observetest.RelatedObjectsWithMembers()),
			observetest.RelatedObjectsWithMembers(), observetest.Noon, calm("released: the API server removes it"),
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := row.set.DeepCopy()
			is := scale.PlanSet(set.ScaleFacts(row.set, row.related, row.now, 0)).PendingWork
			assert.Equal(t, row.want, attention.Decision{Need: is.Need, Why: is.Why})
			assert.Equal(t, before, row.set, "what is looked at stays as it is")
		})
	}
}

// The failure of the last batch is also a fact, so that the set reports the failure only once.
func TestFailedBatchIsReportedOnce(t *testing.T) {
	s, related := newSetWithFinalizer(3), observetest.RelatedObjectsWithMembers(runningMachine("a"), runningMachine("b"))
	look := func(failure scale.WriteFailure) scale.PlanResult {
		o := set.ScaleFacts(s, related, observetest.Noon, 0)
		o.LastWriteFailure = failure
		return scale.PlanSet(o)
	}
	quota := scale.WriteFailure{Message: "quota"}
	plan := look(quota)
	assert.True(t, plan.NeedsStatusWrite)
	set.ApplyStatus(&s.Status, plan.Status, metav1.NewTime(observetest.Noon))
	assert.Equal(t, int32(3), s.Status.ObservedReplicas, "nothing is under way until it is tried again")
	plan = look(quota)
	assert.False(t, plan.NeedsStatusWrite)
	assert.Equal(t, "create 1 machine: 3 wanted, 2 there", plan.PendingWork.Why)
	assert.True(t, look(scale.WriteFailure{}).NeedsStatusWrite, "whoever knows of no failure would take it back")
}

func withDeletionTime(at time.Time) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.DeletionTimestamp = new(metav1.NewTime(at)) }
}

func withCreationTime(at metav1.Time) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.CreationTimestamp = at }
}

// decisionText returns the non-empty lists of a decision, in one line.
func decisionText(d scale.Decision) string {
	var lists []string
	for _, list := range []struct {
		verb     string
		machines []scale.MachineTarget
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
func TestScaleDecisionsForChangedObjects(t *testing.T) {
	scaled := observetest.WithSetAnnotation(v1alpha1.AnnotationLastScalerChange, "2026-01-01T11:30:00Z")
	chosen := func(name, at string) *v1alpha1.Machine {
		return runningMachine(
			name,
			observetest.WithAnnotation(v1alpha1.AnnotationMachinePriority, "1"),
			observetest.WithAnnotation(v1alpha1.AnnotationMarkedForDeletionTime, at),
		)
	}
	keeps := func(n int32) observetest.SetChange {
		return func(s *v1alpha1.MachineSet) { s.Spec.AutoPreserveFailedMachineMax = n }
	}
	selecting := func(selector *metav1.LabelSelector) observetest.SetChange {
		return func(s *v1alpha1.MachineSet) { s.Spec.Selector = selector }
	}
	below := func(change ...observetest.DeploymentChange) set.RelatedObjects {
		related := relatedObjectsWithDeployment(change...)
		related.Members = []*v1alpha1.Machine{
			runningMachine("a", observetest.WithAnnotation(v1alpha1.AnnotationRemediateMachine, "")),
		}
		return related
	}
	with := func(related set.RelatedObjects, machines ...*v1alpha1.Machine) set.RelatedObjects {
		related.Members = machines
		return related
	}
	updated := func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful }
	nonsense := func(s *v1alpha1.MachineSet) {
		s.Spec.Replicas = 2
		observetest.WithSetAnnotation(v1alpha1.AnnotationLastScalerChange, "yesterday")(s)
	}
	senseless := func(related set.RelatedObjects) set.RelatedObjects {
		related.Policy = relatedObjectsWithMaxInFlight(intstr.FromString("many")).Policy
		related.Policy.Spec.DeletionOrder = "Sideways"
		return related
	}
	for _, row := range []struct {
		name    string
		set     *v1alpha1.MachineSet
		related set.RelatedObjects
		want    string
	}{
		{"one is missing", newSetWithFinalizer(1), observetest.RelatedObjectsWithMembers(), "create"},
		{"fields that make no sense", newSetWithFinalizer(2, nonsense), senseless(observetest.RelatedObjectsWithMembers(runningMachine("a"), chosen("b", "soon"))), ""},
		{"as many as wanted", newSetWithFinalizer(1), observetest.RelatedObjectsWithMembers(runningMachine("a")), ""},
		{"the failed one goes", newSetWithFinalizer(1), observetest.RelatedObjectsWithMembers(runningMachine("a"), runningMachine("b", observetest.WithPhase(v1alpha1.MachineFailed))), "delete b"},
		{"chosen before the size last changed", newSetWithFinalizer(2, scaled), observetest.RelatedObjectsWithMembers(runningMachine("a"), chosen("b", "2026-01-01T11:29:00Z")), "delete b"},
		{"chosen after it", newSetWithFinalizer(2, scaled), observetest.RelatedObjectsWithMembers(runningMachine("a"), chosen("b", "2026-01-01T11:31:00Z")), ""},
		{"and the size is smaller", newSetWithFinalizer(1, scaled), observetest.RelatedObjectsWithMembers(runningMachine("a"), chosen("b", "2026-01-01T11:29:00Z")), "delete b"},
		{"handed over by an update", newSetWithFinalizer(1), observetest.RelatedObjectsWithMembers(runningMachine("a", updated), runningMachine("b")), ""},
		{"a selector that does not match the template", newSetWithFinalizer(3, selecting(&metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}})), with(relatedObjectsWithOrphans(observetest.NewMachine("o", observetest.WithAppLabel("api"))), runningMachine("a")), ""},
		{"a selector that cannot be read", newSetWithFinalizer(3, selecting(observetest.InvalidSelector())), with(relatedObjectsWithOrphans(observetest.NewMachine("o")), runningMachine("a")), ""},
		{"no selector", newSetWithFinalizer(3, selecting(nil)), with(relatedObjectsWithOrphans(observetest.NewMachine("o")), runningMachine("a")), ""},
		{"an invalid set can be deleted", newSetWithFinalizer(3, selecting(observetest.InvalidSelector()), observetest.AsDeletingSet), observetest.RelatedObjectsWithMembers(runningMachine("a")), "delete a"},
		{"an orphan that matches", newSetWithFinalizer(1), with(relatedObjectsWithOrphans(observetest.NewMachine("o"), observetest.NewMachine("p", observetest.WithAppLabel("api")), observetest.NewMachine("q", observetest.AsDeletingMachine))), "adopt o"},
		{"one that does not match", newSetWithFinalizer(1), observetest.RelatedObjectsWithMembers(runningMachine("a", observetest.WithAppLabel("api"))), "release a"},
		{"until it is released no other is made", newSetWithFinalizer(2), observetest.RelatedObjectsWithMembers(runningMachine("a"), runningMachine("b", observetest.WithAppLabel("api"))), "release b"},
		{"nor is it deleted, though there are too many", newSetWithFinalizer(1), observetest.RelatedObjectsWithMembers(runningMachine("a"), runningMachine("b", observetest.WithAppLabel("api"))), "release b"},
		{"an empty selector", newSetWithFinalizer(1, selecting(&metav1.LabelSelector{})), with(relatedObjectsWithOrphans(observetest.NewMachine("o")), runningMachine("a"), runningMachine("b", observetest.WithAppLabel("api"), observetest.AsDeletingMachine)), ""},
		{"and it makes what is missing", newSetWithFinalizer(2, selecting(&metav1.LabelSelector{})), with(relatedObjectsWithOrphans(observetest.NewMachine("o")), runningMachine("a")), "create"},
		{"what it releases again and again is not made again and again", newSetWithFinalizer(1), with(relatedObjectsWithOrphans(observetest.NewMachine("o", observetest.WithAppLabel("api"), withReleasedByAnnotation("uid-s")), observetest.NewMachine("p", observetest.WithAppLabel("api"), withReleasedByAnnotation("uid-s")), observetest.NewMachine("q", observetest.WithAppLabel("api"), withReleasedByAnnotation("uid-s")), observetest.NewMachine("r", observetest.WithAppLabel("api"), withReleasedByAnnotation("uid-s")))), ""},
		{"1 of 1 is kept", newSetWithFinalizer(1, keeps(1)), observetest.RelatedObjectsWithMembers(runningMachine("a", observetest.WithPhase(v1alpha1.MachineFailed))), "keep a"},
		{"max 0", newSetWithFinalizer(1), observetest.RelatedObjectsWithMembers(runningMachine("a", observetest.WithPhase(v1alpha1.MachineFailed))), "delete a"},
		{"max reached", newSetWithFinalizer(2, keeps(1)), observetest.RelatedObjectsWithMembers(runningMachine("a", observetest.WithPhase(v1alpha1.MachineFailed), observetest.WithAnnotation(v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveAuto)), runningMachine("b", observetest.WithPhase(v1alpha1.MachineFailed))), "delete b"},
		{"the value false", newSetWithFinalizer(1, keeps(1)), observetest.RelatedObjectsWithMembers(runningMachine("a", observetest.WithPhase(v1alpha1.MachineFailed), observetest.WithAnnotation(v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveFalse))), "delete a"},
		{"it was kept, and that is over", newSetWithFinalizer(1, keeps(1)), observetest.RelatedObjectsWithMembers(runningMachine("a", observetest.WithPhase(v1alpha1.MachineFailed), observetest.WithAnnotation(v1alpha1.AnnotationAutoPreserved, "2026-01-01T10:00:00Z"))), "delete a"},
		{"a person wants another", newSetWithFinalizer(1), below(), "remediate a"},
		{"the rollout removes it", newSetWithFinalizer(1), below(observetest.WithNewClass), ""},
		{"a person says which goes first", newSetWithFinalizer(1), observetest.RelatedObjectsWithMembers(runningMachine("a", withCreationTime(observetest.MinutesBeforeNoon(1))), runningMachine("b", observetest.WithAnnotation(v1alpha1.AnnotationDeleteMachine, ""))), "delete b"},
		{"paused", newSetWithFinalizer(5, observetest.WithSetAnnotation(v1alpha1.AnnotationPaused, "")), observetest.RelatedObjectsWithMembers(runningMachine("a")), ""},
		{"paused and going", newSetWithFinalizer(5, observetest.WithSetAnnotation(v1alpha1.AnnotationPaused, ""), observetest.AsDeletingSet), observetest.RelatedObjectsWithMembers(runningMachine("a")), ""},
		{"frozen", newSetWithFinalizer(5, observetest.WithSetLabel(v1alpha1.LabelFreeze, "True")), observetest.RelatedObjectsWithMembers(runningMachine("a")), ""},
		{"frozen, and still too many", newSetWithFinalizer(0, observetest.WithSetLabel(v1alpha1.LabelFreeze, "True")), observetest.RelatedObjectsWithMembers(runningMachine("a")), "delete a"},
		{"a person ended the freeze", newSetWithFinalizer(5, observetest.WithSetLabel(v1alpha1.LabelFreeze, "True"), observetest.WithSetAnnotation(v1alpha1.AnnotationUnfreeze, "")), observetest.RelatedObjectsWithMembers(runningMachine("a")), "create"},
		{"its class is missing", newSetWithFinalizer(5), withoutClass(observetest.RelatedObjectsWithMembers(runningMachine("a"))), ""},
		{"its class is missing, and there are too many", newSetWithFinalizer(0), withoutClass(observetest.RelatedObjectsWithMembers(runningMachine("a"))), "delete a"},
		{"others took its place", newSetWithFinalizer(5, observetest.WithSetLabel(v1alpha1.LabelScaleUpDisabled, "true")), observetest.RelatedObjectsWithMembers(runningMachine("a")), ""},
		{"the template has another timeout", newSetWithFinalizer(1, func(s *v1alpha1.MachineSet) {
			s.Spec.Template.Spec.MachineConfiguration = observetest.ConfigurationWithDrainTimeout(time.Minute)
		}), observetest.RelatedObjectsWithMembers(runningMachine("a")), "sync a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := scale.Decide(set.ScaleFacts(row.set, row.related, observetest.Noon, 7))
			assert.Equal(t, row.want, decisionText(d), d.Why)
		})
	}
}

func TestADeletedPausedSetReportsItsPauseAndItsDeletion(t *testing.T) {
	s := newSetWithFinalizer(1, observetest.WithSetAnnotation(v1alpha1.AnnotationPaused, ""), observetest.AsDeletingSet)
	related := observetest.RelatedObjectsWithMembers(runningMachine("a"))
	plan := scale.PlanSet(set.ScaleFacts(s, related, observetest.Noon, 0))
	blocked := set.ExplanationFacts(s, related, plan.Status.Conditions, observetest.Noon).BlockedSummary(observetest.Noon)
	assert.Contains(t, blocked.Message, "set s is being deleted, and waits because it is paused: ")
	assert.Equal(t, "Paused", blocked.Reason)
}
