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

// running is a machine as its set wants it, ready for an hour at noon.
func running(name string, change ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
	return renamedTo(
		name,
		observetest.Follower(append([]func(*v1alpha1.Machine){observetest.ReadySince(observetest.Ago(60))}, change...)...),
	)
}

func renamedTo(name string, m *v1alpha1.Machine) *v1alpha1.Machine {
	m.Name, m.UID = name, observetest.Meta(name).UID
	return m
}

// caredFor is a set of this size with our finalizer whose generation was observed.
func caredFor(replicas int32, change ...observetest.OnSet) *v1alpha1.MachineSet {
	return observetest.Set("s", append([]observetest.OnSet{func(s *v1alpha1.MachineSet) {
		s.Spec.Replicas = replicas
		s.Finalizers = []string{v1alpha1.FinalizerMachine}
		s.Status.ObservedGeneration = s.Generation
	}}, change...)...)
}

// reporting gives a set the status of noon.
func reporting(s *v1alpha1.MachineSet, related set.Related) *v1alpha1.MachineSet {
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

func TestWhatASetHasPending(t *testing.T) {
	calm := func(why string) attention.Decision { return attention.Decision{Why: why} }
	scales := func(why string) attention.Decision { return attention.Decision{Need: attention.Scale, Why: why} }
	const late = "status is out of date"
	two := observetest.Members(running("a"), running("b"))
	one := observetest.Members(running("a"), running("b", goingAt(observetest.Noon)))
	long := observetest.Members(running("a"), running("b", goingAt(observetest.Noon.Add(-time.Hour))))
	young := observetest.Members(running("a"), running("b", observetest.ReadySince(observetest.Ago(1))))
	joined := observetest.Members(running("a", createdAt(observetest.Ago(80))), running("b"))
	minReady := func(s *v1alpha1.MachineSet) { s.Spec.MinReadySeconds = 3600 }
	for _, row := range []struct {
		name    string
		set     *v1alpha1.MachineSet
		related set.Related
		now     time.Time
		want    attention.Decision
	}{
		{"as many as wanted", reporting(caredFor(2), two), two, observetest.Noon, calm("2 machines wanted, 2 there")},
		{"a new set", observetest.Set("s", func(s *v1alpha1.MachineSet) { s.Spec.Replicas = 1 }), observetest.Members(), observetest.Noon, scales("new: our finalizer is missing")},
		{"a generation that was not seen", func() *v1alpha1.MachineSet {
			s := reporting(caredFor(2), two)
			s.Generation = 7
			return s
		}(), two, observetest.Noon, scales("generation 7 was not seen yet (last seen: 1)")},
		{"one is missing", reporting(caredFor(3), two), two, observetest.Noon, scales("create 1 machine: 3 wanted, 2 there")},
		{"one too many", reporting(caredFor(1), two), two, observetest.Noon, scales("delete 1 machine: 1 wanted, 2 there")},
		{"one goes: it is looked at again when that takes long", reporting(caredFor(1), one), one, observetest.Noon, scales("1 machine wanted, 2 there; it waits for the time to pass")},
		{"it takes long, and is told", reporting(caredFor(1), long), long, observetest.Noon, calm("1 machine wanted, 2 there")},
		{"one is not ready for long enough", reporting(caredFor(2, minReady), young), young, observetest.Noon, scales("2 machines wanted, 2 there; it waits for the time to pass")},
		{"now it is", reporting(caredFor(2, minReady), young), young, observetest.Noon.Add(time.Hour), scales(late)},
		{"the status is of another time", caredFor(2), two, observetest.Noon, scales(late)},
		{"that its class is missing was not told yet", reporting(caredFor(3, observetest.FrozenSet), two), missingClass(two), observetest.Noon, scales(late)},
		{"its class is missing, and that is told", reporting(caredFor(3), missingClass(two)), missingClass(two), observetest.Noon, scales("3 wanted, 2 there; none is created: MachineClass does not exist")},
		{"what is missing cannot be made, and that is told", reporting(caredFor(3, observetest.FrozenSet), two), two, observetest.Noon, scales("3 wanted, 2 there; none is created: MachineSet is frozen")},
		{"only a record to change", reporting(caredFor(2, func(s *v1alpha1.MachineSet) {
			s.Status.FailedGenerations = &v1alpha1.FailedGenerations{Count: 1, LastFailedAt: observetest.Ago(90)}
		}), joined), joined, observetest.Noon, scales("2 machines wanted and there")},
		{"it goes", reporting(caredFor(2, observetest.GoingSet), two), two, observetest.Noon, attention.Decision{Need: attention.Deletion, Why: "deletion was asked for; 2 machines left"}},
		{
			"gone but for others' finalizers", reporting(caredFor(2, observetest.GoingSet, func(s *v1alpha1.MachineSet) { s.Finalizers = []string{"example.com/x"} }), observetest.Members()),
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

// The failure of the last batch is a fact too, so that it is reported only once.
func TestARefusedBatchIsToldOnce(t *testing.T) {
	s, related := caredFor(3), observetest.Members(running("a"), running("b"))
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

func goingAt(at time.Time) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.DeletionTimestamp = new(metav1.NewTime(at)) }
}

func createdAt(at metav1.Time) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.CreationTimestamp = at }
}

// planned names in one line the list of a decision that is filled.
func planned(d scale.Decision) string {
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

// From objects to a decision: the effect of what people and other controllers write on sets and machines.
func TestWhatASetDoesAboutWhatItSees(t *testing.T) {
	scaled := observetest.NoteSet(v1alpha1.AnnotationLastScalerChange, "2026-01-01T11:30:00Z")
	chosen := func(name, at string) *v1alpha1.Machine {
		return running(
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
		related := aroundD(change...)
		related.Members = []*v1alpha1.Machine{running("a", observetest.Note(v1alpha1.AnnotationRemediateMachine, ""))}
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
		related.Policy = atMost(intstr.FromString("many")).Policy
		related.Policy.Spec.DeletionOrder = "Sideways"
		return related
	}
	for _, row := range []struct {
		name    string
		set     *v1alpha1.MachineSet
		related set.Related
		want    string
	}{
		{"one is missing", caredFor(1), observetest.Members(), "create"},
		{"fields that make no sense", caredFor(2, nonsense), senseless(observetest.Members(running("a"), chosen("b", "soon"))), ""},
		{"as many as wanted", caredFor(1), observetest.Members(running("a")), ""},
		{"the failed one goes", caredFor(1), observetest.Members(running("a"), running("b", observetest.Phase(v1alpha1.MachineFailed))), "delete b"},
		{"chosen before the size last changed", caredFor(2, scaled), observetest.Members(running("a"), chosen("b", "2026-01-01T11:29:00Z")), "delete b"},
		{"chosen after it", caredFor(2, scaled), observetest.Members(running("a"), chosen("b", "2026-01-01T11:31:00Z")), ""},
		{"and the size is smaller", caredFor(1, scaled), observetest.Members(running("a"), chosen("b", "2026-01-01T11:29:00Z")), "delete b"},
		{"handed over by an update", caredFor(1), observetest.Members(running("a", updated), running("b")), ""},
		{"a selector that does not match the template", caredFor(3, selecting(&metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}})), with(orphans(observetest.Machine("o", observetest.Labelled("api"))), running("a")), ""},
		{"a selector that cannot be read", caredFor(3, selecting(observetest.Unreadable())), with(orphans(observetest.Machine("o")), running("a")), ""},
		{"no selector", caredFor(3, selecting(nil)), with(orphans(observetest.Machine("o")), running("a")), ""},
		{"an invalid set can be deleted", caredFor(3, selecting(observetest.Unreadable()), observetest.GoingSet), observetest.Members(running("a")), "delete a"},
		{"an orphan that matches", caredFor(1), with(orphans(observetest.Machine("o"), observetest.Machine("p", observetest.Labelled("api")), observetest.Machine("q", observetest.GoingMachine))), "adopt o"},
		{"one that does not match", caredFor(1), observetest.Members(running("a", observetest.Labelled("api"))), "release a"},
		{"until it is released no other is made", caredFor(2), observetest.Members(running("a"), running("b", observetest.Labelled("api"))), "release b"},
		{"nor is it deleted, though there are too many", caredFor(1), observetest.Members(running("a"), running("b", observetest.Labelled("api"))), "release b"},
		{"an empty selector", caredFor(1, selecting(&metav1.LabelSelector{})), with(orphans(observetest.Machine("o")), running("a"), running("b", observetest.Labelled("api"), observetest.GoingMachine)), ""},
		{"and it makes what is missing", caredFor(2, selecting(&metav1.LabelSelector{})), with(orphans(observetest.Machine("o")), running("a")), "create"},
		{"what it releases again and again is not made again and again", caredFor(1), with(orphans(observetest.Machine("o", observetest.Labelled("api"), releasedBy("uid-s")), observetest.Machine("p", observetest.Labelled("api"), releasedBy("uid-s")), observetest.Machine("q", observetest.Labelled("api"), releasedBy("uid-s")), observetest.Machine("r", observetest.Labelled("api"), releasedBy("uid-s")))), ""},
		{"1 of 1 is kept", caredFor(1, keeps(1)), observetest.Members(running("a", observetest.Phase(v1alpha1.MachineFailed))), "keep a"},
		{"max 0", caredFor(1), observetest.Members(running("a", observetest.Phase(v1alpha1.MachineFailed))), "delete a"},
		{"max reached", caredFor(2, keeps(1)), observetest.Members(running("a", observetest.Phase(v1alpha1.MachineFailed), observetest.Note(v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveAuto)), running("b", observetest.Phase(v1alpha1.MachineFailed))), "delete b"},
		{"the value false", caredFor(1, keeps(1)), observetest.Members(running("a", observetest.Phase(v1alpha1.MachineFailed), observetest.Note(v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveFalse))), "delete a"},
		{"it was kept, and that is over", caredFor(1, keeps(1)), observetest.Members(running("a", observetest.Phase(v1alpha1.MachineFailed), observetest.Note(v1alpha1.AnnotationAutoPreserved, "2026-01-01T10:00:00Z"))), "delete a"},
		{"a person wants another", caredFor(1), below(), "remediate a"},
		{"the rollout removes it", caredFor(1), below(observetest.RolledOut), ""},
		{"a person says which goes first", caredFor(1), observetest.Members(running("a", createdAt(observetest.Ago(1))), running("b", observetest.Note(v1alpha1.AnnotationDeleteMachine, ""))), "delete b"},
		{"paused", caredFor(5, observetest.NoteSet(v1alpha1.AnnotationPaused, "")), observetest.Members(running("a")), ""},
		{"paused and going", caredFor(5, observetest.NoteSet(v1alpha1.AnnotationPaused, ""), observetest.GoingSet), observetest.Members(running("a")), ""},
		{"frozen", caredFor(5, observetest.LabelSet(v1alpha1.LabelFreeze, "True")), observetest.Members(running("a")), ""},
		{"frozen, and still too many", caredFor(0, observetest.LabelSet(v1alpha1.LabelFreeze, "True")), observetest.Members(running("a")), "delete a"},
		{"a person ended the freeze", caredFor(5, observetest.LabelSet(v1alpha1.LabelFreeze, "True"), observetest.NoteSet(v1alpha1.AnnotationUnfreeze, "")), observetest.Members(running("a")), "create"},
		{"its class is missing", caredFor(5), missingClass(observetest.Members(running("a"))), ""},
		{"its class is missing, and there are too many", caredFor(0), missingClass(observetest.Members(running("a"))), "delete a"},
		{"others took its place", caredFor(5, observetest.LabelSet(v1alpha1.LabelScaleUpDisabled, "true")), observetest.Members(running("a")), ""},
		{"the template has another timeout", caredFor(1, func(s *v1alpha1.MachineSet) {
			s.Spec.Template.Spec.MachineConfiguration = observetest.Drained(time.Minute)
		}), observetest.Members(running("a")), "sync a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := scale.Decide(set.Observed(row.set, row.related, observetest.Noon, 7))
			assert.Equal(t, row.want, planned(d), d.Why)
		})
	}
}

func TestASetThatIsPausedAndGoesSaysBoth(t *testing.T) {
	s := caredFor(1, observetest.NoteSet(v1alpha1.AnnotationPaused, ""), observetest.GoingSet)
	related := observetest.Members(running("a"))
	plan := scale.Plan(set.Observed(s, related, observetest.Noon, 0))
	blocked := set.Explained(s, related, plan.Status.Conditions, observetest.Noon).Blocked(observetest.Noon)
	assert.Contains(t, blocked.Message, "set s is being deleted, and waits because it is paused: ")
	assert.Equal(t, "Paused", blocked.Reason)
}
