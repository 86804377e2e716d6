package observe_test

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
	"millwright/observe"
)

// running is a machine as its set wants it, ready since an hour before noon.
func running(name string, change ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
	return renamedTo(name, follower(append([]func(*v1alpha1.Machine){readySince(ago(60))}, change...)...))
}

func renamedTo(name string, m *v1alpha1.Machine) *v1alpha1.Machine {
	m.Name, m.UID = name, meta(name).UID
	return m
}

// caredFor is a set of this size that is seen to.
func caredFor(replicas int32, change ...onSet) *v1alpha1.MachineSet {
	return set("s", append([]onSet{func(s *v1alpha1.MachineSet) {
		s.Spec.Replicas, s.Finalizers, s.Status.ObservedGeneration = replicas, []string{v1alpha1.FinalizerMachine}, s.Generation
	}}, change...)...)
}

// reporting makes a set's status say what there was to say at noon.
func reporting(s *v1alpha1.MachineSet, around observe.AroundSet) *v1alpha1.MachineSet {
	observe.ApplySetStatus(&s.Status, scale.Report(observe.ScaleObserved(s, around, noon, 0)), metav1.NewTime(noon))
	return s
}

func members(machines ...*v1alpha1.Machine) observe.AroundSet {
	return observe.AroundSet{Members: machines}
}

func missingClass(around observe.AroundSet) observe.AroundSet {
	around.Missing = []string{"MachineClass"}
	return around
}

func frozenSet(s *v1alpha1.MachineSet) { labelSet(v1alpha1.LabelFreeze, "True")(s) }

func TestSetFacts(t *testing.T) {
	calm := attention.SetFacts{Finalizer: true, Generation: 1, ObservedGeneration: 1, Wanted: 2, Members: 2}
	two := members(running("a"), running("b"))
	minReady := func(s *v1alpha1.MachineSet) { s.Spec.MinReadySeconds = 3600 }
	edited := func(change func(*attention.SetFacts)) attention.SetFacts {
		f := calm
		change(&f)
		return f
	}
	for _, row := range []struct {
		name   string
		set    *v1alpha1.MachineSet
		around observe.AroundSet
		now    time.Time
		want   attention.SetFacts
	}{
		{"U43: as many as wanted", reporting(caredFor(2), two), two, noon, calm},
		{"a new set", set("s", func(s *v1alpha1.MachineSet) { s.Spec.Replicas = 1 }), members(), noon, attention.SetFacts{
			Generation: 1, Wanted: 1, Next: "create 1 machine: 1 wanted, 0 there", Unreported: true,
		}},
		{"a generation that was not seen", func() *v1alpha1.MachineSet {
			s := reporting(caredFor(2), two)
			s.Generation = 7
			return s
		}(), two, noon, edited(func(f *attention.SetFacts) { f.Generation = 7 })},
		{"U40: one is missing", reporting(caredFor(3), two), two, noon, edited(func(f *attention.SetFacts) {
			f.Wanted, f.Next = 3, "create 1 machine: 3 wanted, 2 there"
		})},
		{"U45: one too many", reporting(caredFor(1), two), two, noon, edited(func(f *attention.SetFacts) {
			f.Wanted, f.Next = 1, "delete 1 machine: 1 wanted, 2 there"
		})},
		{"one goes: it is looked at again when that takes long", reporting(caredFor(1), members(running("a"), running("b", goingAt(noon)))), members(running("a"), running("b", goingAt(noon))), noon, edited(func(f *attention.SetFacts) {
			f.Wanted, f.Recheck = 1, true
		})},
		{"it takes long, and is told", reporting(caredFor(1), members(running("a"), running("b", goingAt(noon.Add(-time.Hour))))), members(running("a"), running("b", goingAt(noon.Add(-time.Hour)))), noon, edited(func(f *attention.SetFacts) {
			f.Wanted = 1
		})},
		{"D12: one is not ready for long enough", reporting(caredFor(2, minReady), members(running("a"), running("b", readySince(ago(1))))), members(running("a"), running("b", readySince(ago(1)))), noon, edited(func(f *attention.SetFacts) {
			f.Recheck = true
		})},
		{"D12: now it is", reporting(caredFor(2, minReady), members(running("a"), running("b", readySince(ago(1))))), members(running("a"), running("b", readySince(ago(1)))), noon.Add(time.Hour), edited(func(f *attention.SetFacts) {
			f.Unreported = true
		})},
		{"the status is of another time", caredFor(2), two, noon, edited(func(f *attention.SetFacts) { f.Unreported = true })},
		{"that its class is missing was not told yet", reporting(caredFor(3, frozenSet), two), missingClass(two), noon, edited(func(f *attention.SetFacts) {
			f.Wanted, f.Unreported = 3, true
		})},
		{"its class is missing, and that is told", reporting(caredFor(3), missingClass(two)), missingClass(two), noon, edited(func(f *attention.SetFacts) {
			f.Wanted = 3
		})},
		{"what is missing cannot be made, and that is told", reporting(caredFor(3, labelSet(v1alpha1.LabelFreeze, "True")), two), two, noon, edited(func(f *attention.SetFacts) {
			f.Wanted = 3
		})},
		{"only a record to change", reporting(caredFor(2, func(s *v1alpha1.MachineSet) {
			s.Status.FailedGenerations = &v1alpha1.FailedGenerations{Count: 1, LastFailedAt: ago(90)}
		}), members(running("a", createdAt(ago(80))), running("b"))), members(running("a", createdAt(ago(80))), running("b")), noon, edited(func(f *attention.SetFacts) {
			f.Next = "2 machines wanted and there"
		})},
		{"U50: it goes", reporting(caredFor(2, goingSet), two), two, noon, edited(func(f *attention.SetFacts) {
			f.Deleting, f.Next = true, "delete all 2 machines: the set is being deleted"
		})},
		{"MS-61: gone but for others' finalizers", reporting(caredFor(2, goingSet, func(s *v1alpha1.MachineSet) { s.Finalizers = []string{"example.com/x"} }), members()), members(), noon, edited(func(f *attention.SetFacts) {
			f.Deleting, f.Finalizer, f.Members = true, false, 0
		})},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := row.set.DeepCopy()
			assert.Equal(t, row.want, observe.SetFacts(row.set, row.around, row.now))
			assert.Equal(t, before, row.set, "what is looked at stays as it is")
		})
	}
}

// What the run knows of its last batch is in the facts, too: what is told already is not told again and again.
func TestARefusedBatchIsToldOnce(t *testing.T) {
	s, around := caredFor(3), members(running("a"), running("b"))
	o := observe.ScaleObserved(s, around, noon, 0)
	o.LastFailure = scale.Failure{Message: "quota"}
	plan := observe.PlanSet(o)
	assert.True(t, plan.Facts(s).Unreported)
	observe.ApplySetStatus(&s.Status, plan.Status, metav1.NewTime(noon))
	assert.Equal(t, int32(3), s.Status.ObservedReplicas, "nothing is under way until it is tried again")
	facts := plan.Facts(s)
	assert.False(t, facts.Unreported)
	assert.Equal(t, "create 1 machine: 3 wanted, 2 there", facts.Next)
	assert.True(t, observe.SetFacts(s, around, noon).Unreported, "whoever knows of no failure would take it back")
}

func goingAt(at time.Time) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.DeletionTimestamp = new(metav1.NewTime(at)) }
}

func createdAt(at metav1.Time) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.CreationTimestamp = at }
}

// planned says in one line which list of a decision is filled.
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

// From objects to a decision: what people and other controllers write on sets and machines comes to this.
func TestWhatASetDoesAboutWhatItSees(t *testing.T) {
	scaled := noteSet(v1alpha1.AnnotationLastScalerChange, "2026-01-01T11:30:00Z")
	chosen := func(name, at string) *v1alpha1.Machine {
		return running(name, note(v1alpha1.AnnotationMachinePriority, "1"), note(v1alpha1.AnnotationMarkedForDeletionTime, at))
	}
	keeps := func(n int32) onSet { return func(s *v1alpha1.MachineSet) { s.Spec.AutoPreserveFailedMachineMax = n } }
	selecting := func(selector *metav1.LabelSelector) onSet {
		return func(s *v1alpha1.MachineSet) { s.Spec.Selector = selector }
	}
	below := func(change ...onDeployment) observe.AroundSet {
		around := aroundD(change...)
		around.Members = []*v1alpha1.Machine{running("a", note(v1alpha1.AnnotationRemediateMachine, ""))}
		return around
	}
	with := func(around observe.AroundSet, machines ...*v1alpha1.Machine) observe.AroundSet {
		around.Members = machines
		return around
	}
	updated := func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful }
	nonsense := func(s *v1alpha1.MachineSet) {
		atMost(intstr.FromString("many"))(s)
		s.Spec.Replicas, s.Spec.DeletionOrder = 2, "Sideways"
		noteSet(v1alpha1.AnnotationLastScalerChange, "yesterday")(s)
	}
	for _, row := range []struct {
		name   string
		set    *v1alpha1.MachineSet
		around observe.AroundSet
		want   string
	}{
		{"U40: one is missing", caredFor(1), members(), "create"},
		{"U41: fields that make no sense", caredFor(2, nonsense), members(running("a"), chosen("b", "soon")), ""},
		{"U43: as many as wanted", caredFor(1), members(running("a")), ""},
		{"U44: the failed one goes", caredFor(1), members(running("a"), running("b", phase(v1alpha1.MachineFailed))), "delete b"},
		{"U46: chosen before the size last changed", caredFor(2, scaled), members(running("a"), chosen("b", "2026-01-01T11:29:00Z")), "delete b"},
		{"U46: chosen after it", caredFor(2, scaled), members(running("a"), chosen("b", "2026-01-01T11:31:00Z")), ""},
		{"U47: and the size is smaller", caredFor(1, scaled), members(running("a"), chosen("b", "2026-01-01T11:29:00Z")), "delete b"},
		{"U48: handed over by an update", caredFor(1), members(running("a", updated), running("b")), ""},
		{"U49: a selector that does not match the template", caredFor(3, selecting(&metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}})), with(orphans(machine("o", labelled("api"))), running("a")), ""},
		{"U49: a selector that cannot be read", caredFor(3, selecting(unreadable())), with(orphans(machine("o")), running("a")), ""},
		{"U49: no selector", caredFor(3, selecting(nil)), with(orphans(machine("o")), running("a")), ""},
		{"U50: an invalid set can be deleted", caredFor(3, selecting(unreadable()), goingSet), members(running("a")), "delete a"},
		{"U52: an orphan that matches", caredFor(1), with(orphans(machine("o"), machine("p", labelled("api")), machine("q", goingMachine))), "adopt o"},
		{"U53: one that does not match", caredFor(1), members(running("a", labelled("api"))), "release a"},
		{"D10: until it is released no other is made", caredFor(2), members(running("a"), running("b", labelled("api"))), "release b"},
		{"D10: nor is it deleted, though there are too many", caredFor(1), members(running("a"), running("b", labelled("api"))), "release b"},
		{"D40: an empty selector", caredFor(1, selecting(&metav1.LabelSelector{})), with(orphans(machine("o")), running("a"), running("b", labelled("api"), goingMachine)), ""},
		{"D40: and it makes what is missing", caredFor(2, selecting(&metav1.LabelSelector{})), with(orphans(machine("o")), running("a")), "create"},
		{"what it releases again and again is not made again and again", caredFor(1), with(orphans(machine("o", labelled("api"), releasedBy("uid-s")), machine("p", labelled("api"), releasedBy("uid-s")), machine("q", labelled("api"), releasedBy("uid-s")), machine("r", labelled("api"), releasedBy("uid-s")))), ""},
		{"U58: 1 of 1 is kept", caredFor(1, keeps(1)), members(running("a", phase(v1alpha1.MachineFailed))), "keep a"},
		{"U58: max 0", caredFor(1), members(running("a", phase(v1alpha1.MachineFailed))), "delete a"},
		{"U58: max reached", caredFor(2, keeps(1)), members(running("a", phase(v1alpha1.MachineFailed), note(v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveAuto)), running("b", phase(v1alpha1.MachineFailed))), "delete b"},
		{"U58: the value false", caredFor(1, keeps(1)), members(running("a", phase(v1alpha1.MachineFailed), note(v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveFalse))), "delete a"},
		{"U58: it was kept, and that is over", caredFor(1, keeps(1)), members(running("a", phase(v1alpha1.MachineFailed), note(v1alpha1.AnnotationAutoPreserved, "2026-01-01T10:00:00Z"))), "delete a"},
		{"MS-11: a person wants another", caredFor(1), below(), "remediate a"},
		{"MS-13: the rollout removes it", caredFor(1), below(rolledOut), ""},
		{"a person says which goes first", caredFor(1), members(running("a", createdAt(ago(1))), running("b", note(v1alpha1.AnnotationDeleteMachine, ""))), "delete b"},
		{"paused", caredFor(5, noteSet(v1alpha1.AnnotationPaused, "")), members(running("a")), ""},
		{"paused and going", caredFor(5, noteSet(v1alpha1.AnnotationPaused, ""), goingSet), members(running("a")), ""},
		{"frozen", caredFor(5, labelSet(v1alpha1.LabelFreeze, "True")), members(running("a")), ""},
		{"frozen, and still too many", caredFor(0, labelSet(v1alpha1.LabelFreeze, "True")), members(running("a")), "delete a"},
		{"a person ended the freeze", caredFor(5, labelSet(v1alpha1.LabelFreeze, "True"), noteSet(v1alpha1.AnnotationUnfreeze, "")), members(running("a")), "create"},
		{"its class is missing", caredFor(5), missingClass(members(running("a"))), ""},
		{"its class is missing, and there are too many", caredFor(0), missingClass(members(running("a"))), "delete a"},
		{"others took its place", caredFor(5, labelSet(v1alpha1.LabelScaleUpDisabled, "true")), members(running("a")), ""},
		{"MS-10: the template has another timeout", caredFor(1, func(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.MachineConfiguration = drained(time.Minute) }), members(running("a")), "sync a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := scale.Decide(observe.ScaleObserved(row.set, row.around, noon, 7))
			assert.Equal(t, row.want, planned(d), d.Why)
		})
	}
}
