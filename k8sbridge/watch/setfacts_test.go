package watch

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/observe"
)

type (
	onMachine = func(*v1alpha1.Machine)
	onSet     = func(*v1alpha1.MachineSet)
)

// objects are put before a row's change.
func objects(all ...runtime.Object) []runtime.Object { return all }

// sizedSet is a set of this size whose status says what there is to say of these machines.
func sizedSet(replicas int32, change onSet, machines ...*v1alpha1.Machine) *v1alpha1.MachineSet {
	s := bareSet()
	s.Spec.Replicas = replicas
	if change != nil {
		change(s)
	}
	return reporting(s, machines...)
}

func without(key string) func(metav1.Object) {
	return func(o metav1.Object) {
		delete(o.GetLabels(), key)
		delete(o.GetAnnotations(), key)
	}
}

func lacks[T interface {
	metav1.Object
	runtime.Object
}](o T, key string) func(*world) {
	return replace(o, func(o T) { without(key)(o) })
}

func labelledSet(key, value string) onSet {
	return func(s *v1alpha1.MachineSet) { s.Labels[key] = value }
}

// anOrphan is a machine without a controller that the set would take.
func anOrphan(changes ...onMachine) *v1alpha1.Machine {
	return changed(machineNamed("orphan"), append([]onMachine{func(m *v1alpha1.Machine) { m.OwnerReferences = nil }}, changes...)...)
}

func inOtherPool(m *v1alpha1.Machine) { m.Labels["pool"] = "b" }

func readSet(w *world) any {
	s, found := w.cluster.Set("ns/s")
	require.True(w.t, found)
	return observe.SetFacts(s, w.cluster.AroundSet(s), time.Now())
}

// setRows are the facts of a set that it shares with all that have a workflow, and those that time alone changes.
func setRows() []factRow {
	readyNow := func(m *v1alpha1.Machine) { m.Status.Conditions[0].LastTransitionTime = metav1.Now() }
	slow := sizedSet(1, func(s *v1alpha1.MachineSet) { s.Spec.MinReadySeconds = 60 }, aMachine())
	return []factRow{
		{fact: "Deleting", change: replace(aSet(), toBeDeleted[*v1alpha1.MachineSet])},
		{fact: "Finalizer", change: replace(aSet(), func(s *v1alpha1.MachineSet) { s.Finalizers = nil })},
		{fact: "Generation", change: replace(aSet(), func(s *v1alpha1.MachineSet) { s.Generation = 2 })},
		{fact: "ObservedGeneration", change: replace(aSet(), func(s *v1alpha1.MachineSet) { s.Status.ObservedGeneration = 0 })},
		{fact: "Wanted", change: replace(aSet(), func(s *v1alpha1.MachineSet) { s.Spec.Replicas = 2 })},
		{name: "one more", fact: "Members", change: replace(machineNamed("second"))},
		{name: "gone", fact: "Members", change: func(w *world) { w.remove(aMachine()) }},
		{name: "given away", fact: "Members", change: replace(aMachine(), func(m *v1alpha1.Machine) { m.OwnerReferences = nil })},
		{name: "D12: its node was not ready for a moment", fact: "Recheck", before: objects(slow), change: replace(aMachine(), readyNow)},
		{name: "one goes", fact: "Recheck", change: replace(aMachine(), func(m *v1alpha1.Machine) { m.DeletionTimestamp = new(metav1.Now()) })},
	}
}

// nextRows change what is to be done next.
func nextRows() []factRow {
	failed := inPhase(v1alpha1.MachineFailed)
	granted := annotated[*v1alpha1.Machine](v1alpha1.AnnotationReplacementGranted, "2026-01-01T00:00:00Z")
	short := func(change onSet) *v1alpha1.MachineSet { return sizedSet(2, change, aMachine()) }
	frozen, closed := short(labelledSet(v1alpha1.LabelFreeze, v1alpha1.ValueTrue)), short(labelledSet(v1alpha1.LabelScaleUpDisabled, "true"))
	paused := short(annotated[*v1alpha1.MachineSet](v1alpha1.AnnotationPaused, ""))
	pausing := changed(aDeployment(), annotated[*v1alpha1.MachineDeployment](v1alpha1.AnnotationPaused, ""))
	pausedBelow := bareSet()
	pausedBelow.Spec.Replicas = 2
	reportingBelow(pausing, pausedBelow, aMachine())
	scaled := annotated[*v1alpha1.MachineSet](v1alpha1.AnnotationLastScalerChange, "2026-01-01T01:00:00Z")
	marked := annotated[*v1alpha1.Machine](v1alpha1.AnnotationMarkedForDeletionTime, "2026-01-01T00:30:00Z")
	chosen := func(m *v1alpha1.Machine) { m.Annotations[v1alpha1.AnnotationMachinePriority] = "1" }
	wellKept := annotated[*v1alpha1.Machine](v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveNow)
	ending := func(m *v1alpha1.Machine) { m.Status.CurrentStatus.PreserveExpiryTime = &born }
	updated := func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful }
	second := machineNamed("second")
	richer := sizedSet(1, func(s *v1alpha1.MachineSet) {
		s.Spec.Template.Labels["tier"], s.Spec.Template.Annotations = "front", map[string]string{"team": "shop"}
	})
	rich := changed(aMachine(), func(m *v1alpha1.Machine) { m.Labels["tier"], m.Annotations["team"] = "front", "shop" })
	reporting(richer, rich)
	machineWith := func(changes ...onMachine) *v1alpha1.Machine { return changed(aMachine(), changes...) }
	setWith := func(m *v1alpha1.Machine) *v1alpha1.MachineSet { return sizedSet(1, nil, m) }
	failedOne := machineWith(failed)
	return []factRow{
		{name: "U40: one is gone", fact: "Next", change: func(w *world) { w.remove(aMachine()) }},
		{name: "U40: one goes", fact: "Next", change: replace(aMachine(), toBeDeleted[*v1alpha1.Machine])},
		{name: "U45: one too many", fact: "Next", change: replace(second)},
		{name: "the size", fact: "Next", change: replace(aSet(), func(s *v1alpha1.MachineSet) { s.Spec.Replicas = 0 })},
		{name: "U48: no longer just updated", fact: "Next", before: objects(second, machineWith(updated), sizedSet(1, nil, machineWith(updated), second)), change: replace(aMachine())},

		{name: "U52: a new orphan", fact: "Next", change: replace(anOrphan())},
		{name: "U52: an orphan's labels match now", fact: "Next", before: objects(anOrphan(inOtherPool)), change: replace(anOrphan())},
		{name: "U52: an orphan has lost its owner", fact: "Next", before: objects(anOrphan(func(m *v1alpha1.Machine) {
			m.OwnerReferences = ownedBy(aClass(), "Stranger")
		})), change: replace(anOrphan())},
		{name: "U53: its labels do not match", fact: "Next", change: replace(aMachine(), inOtherPool)},
		{name: "the selector matches another one", fact: "Next", before: objects(anOrphan(inOtherPool)), change: replace(aSet(), func(s *v1alpha1.MachineSet) {
			s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelMachineTemplateHash: "h"}}
		})},

		{name: "failed and granted", fact: "Next", change: replace(aMachine(), failed, granted)},
		{name: "granted before it failed", fact: "Next", before: objects(machineWith(granted)), change: replace(aMachine(), granted, failed)},
		{name: "granted after it failed", fact: "Next", before: objects(failedOne, setWith(failedOne)), change: replace(failedOne, granted)},
		{name: "its deployment is not above it any more", fact: "Next", before: objects(failedOne, setWith(failedOne)), change: replace(setWith(failedOne), func(s *v1alpha1.MachineSet) { s.OwnerReferences = nil })},
		{name: "U58: to be kept", fact: "Next", before: objects(sizedSet(1, func(s *v1alpha1.MachineSet) { s.Spec.AutoPreserveFailedMachineMax = 1 }, aMachine())), change: replace(aMachine(), failed)},
		{name: "U59: its time is over", fact: "Next", before: objects(machineWith(failed, granted, ending), setWith(machineWith(failed, granted, ending))), change: replace(aMachine(), failed, granted)},
		{name: "U59: nobody wants it kept", fact: "Next", before: objects(machineWith(failed, granted, wellKept), setWith(machineWith(failed, granted, wellKept))), change: replace(aMachine(), failed, granted)},

		{name: "MS-11: marked by a person", fact: "Next", change: replace(aMachine(), annotated[*v1alpha1.Machine](v1alpha1.AnnotationRemediateMachine, ""))},
		{name: "U46: marked by the autoscaler", fact: "Next", before: objects(sizedSet(1, scaled, aMachine()), machineWith(chosen)), change: replace(aMachine(), chosen, marked)},
		{name: "U46: given the priority that goes with it", fact: "Next", before: objects(sizedSet(1, scaled, aMachine()), machineWith(marked)), change: replace(aMachine(), chosen, marked)},
		{name: "U47: the size changed after that", fact: "Next", before: objects(machineWith(chosen, marked)), change: replace(aSet(), scaled)},

		{name: "frozen", fact: "Next", before: objects(short(nil)), change: replace(short(nil), labelledSet(v1alpha1.LabelFreeze, v1alpha1.ValueTrue))},
		{name: "not frozen any more", fact: "Next", before: objects(frozen), change: lacks(frozen, v1alpha1.LabelFreeze)},
		{name: "a person ends the freeze", fact: "Next", before: objects(frozen), change: replace(frozen, annotated[*v1alpha1.MachineSet](v1alpha1.AnnotationUnfreeze, ""))},
		{name: "current once more", fact: "Next", before: objects(closed), change: lacks(closed, v1alpha1.LabelScaleUpDisabled)},
		{name: "not paused any more", fact: "Next", before: objects(paused), change: lacks(paused, v1alpha1.AnnotationPaused)},
		{name: "its deployment is not paused any more", fact: "Next", before: objects(pausing, pausedBelow), change: replace(aDeployment())},
		{name: "its deployment is gone, and its pause", fact: "Next", before: objects(pausing, pausedBelow), change: func(w *world) { w.remove(aDeployment()) }},
		{name: "what it released is gone", fact: "Next", before: append(releasedOnes(), sizedSetAround(2, releasedOnes())), change: func(w *world) { w.remove(machineNamed("r-0")) }},
		{name: "what it released is to go", fact: "Next", before: append(releasedOnes(), sizedSetAround(2, releasedOnes())), change: replace(released("r-0"), toBeDeleted[*v1alpha1.Machine])},

		{name: "MS-10: the template has another timeout", fact: "Next", change: replace(aSet(), func(s *v1alpha1.MachineSet) {
			s.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineDrainTimeout: &metav1.Duration{Duration: time.Minute}}
		})},
		{name: "MS-10: the machine has", fact: "Next", change: replace(aMachine(), func(m *v1alpha1.Machine) {
			m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineDrainTimeout: &metav1.Duration{Duration: time.Minute}}
		})},
		{name: "MS-10: the machine has another node template", fact: "Next", change: replace(aMachine(), func(m *v1alpha1.Machine) {
			m.Spec.NodeTemplateSpec.Labels = map[string]string{"team": "a"}
		})},
		{name: "MS-10: the class's kind", fact: "Next", change: replace(aMachine(), func(m *v1alpha1.Machine) { m.Spec.Class.Kind = "OtherClass" })},
		{name: "MS-10: the machine has lost a label", fact: "Next", before: objects(withSelector(richer), rich), change: lacks(rich, "tier")},
		{name: "MS-10: the machine has lost an annotation", fact: "Next", before: objects(withSelector(richer), rich), change: lacks(rich, "team")},
	}
}

// withSelector makes a set select its machines by less than all labels of its template.
func withSelector(s *v1alpha1.MachineSet) *v1alpha1.MachineSet {
	s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
	return s
}

// released is a machine that the set let go of: somebody takes off the labels that it gives.
func released(name string) *v1alpha1.Machine {
	return changed(machineNamed(name), inOtherPool, annotated[*v1alpha1.Machine](v1alpha1.AnnotationReleasedBy, "uid-s"), func(m *v1alpha1.Machine) { m.OwnerReferences = nil })
}

// releasedOnes are so many that a set of two makes no further one.
func releasedOnes() []runtime.Object {
	var all []runtime.Object
	for _, name := range []string{"r-0", "r-1", "r-2", "r-3", "r-4"} {
		all = append(all, released(name))
	}
	return all
}

// sizedSetAround is a set with the machine of the calm stack, whose status tells of the orphans, too.
func sizedSetAround(replicas int32, orphans []runtime.Object) *v1alpha1.MachineSet {
	s := bareSet()
	s.Spec.Replicas = replicas
	around := observe.AroundSet{Members: []*v1alpha1.Machine{aMachine()}, Deployment: aDeployment()}
	for _, o := range orphans {
		around.Orphans = append(around.Orphans, o.(*v1alpha1.Machine))
	}
	return reportingOf(s, around)
}

// statusRows wipe what a set's status says, each by itself, and make it say what is not so any more.
func statusRows() []factRow {
	status := func(name string, change func(*v1alpha1.MachineSetStatus)) factRow {
		return factRow{name: "status, " + name, fact: "Unreported", change: replace(aSet(), func(s *v1alpha1.MachineSet) { change(&s.Status) })}
	}
	pending := changed(aMachine(), inPhase(v1alpha1.MachinePending))
	ofPending := objects(pending, sizedSet(1, nil, pending))
	crashing := func(m *v1alpha1.Machine) {
		m.Status.CurrentStatus.Phase = v1alpha1.MachineCrashLoopBackOff
		m.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.MachineInstanceReady, Status: corev1.ConditionFalse, Reason: "ResourceExhausted"}}
	}
	crashed := changed(aMachine(), crashing)
	return []factRow{
		status("replicas", func(s *v1alpha1.MachineSetStatus) { s.Replicas = 0 }),
		status("fully labelled", func(s *v1alpha1.MachineSetStatus) { s.FullyLabeledReplicas = 0 }),
		status("ready", func(s *v1alpha1.MachineSetStatus) { s.ReadyReplicas = 0 }),
		status("available", func(s *v1alpha1.MachineSetStatus) { s.AvailableReplicas = 0 }),
		status("up to date", func(s *v1alpha1.MachineSetStatus) { s.UpToDateReplicas = 0 }),
		status("preserved", func(s *v1alpha1.MachineSetStatus) { s.PreservedFailedReplicas = 1 }),
		status("kept", func(s *v1alpha1.MachineSetStatus) { s.AutoPreserveFailedMachineCount = 1 }),
		status("peak", func(s *v1alpha1.MachineSetStatus) { s.PeakReplicas = 0 }),
		status("overshoot", func(s *v1alpha1.MachineSetStatus) { s.Overshoot = 1 }),
		status("no conditions", func(s *v1alpha1.MachineSetStatus) { s.Conditions = nil }),
		status("one more condition", func(s *v1alpha1.MachineSetStatus) {
			s.Conditions = append(s.Conditions, v1alpha1.MachineSetCondition{Type: v1alpha1.MachineSetReplicaFailure, Status: v1alpha1.ConditionTrue, Reason: "ResourceExhausted"})
		}),
		status("whether a condition holds", func(s *v1alpha1.MachineSetStatus) { s.Conditions[0].Status = v1alpha1.ConditionFalse }),
		status("the reason of a condition", func(s *v1alpha1.MachineSetStatus) { s.Conditions[0].Reason = "Odd" }),
		status("the message of a condition", func(s *v1alpha1.MachineSetStatus) { s.Conditions[0].Message = "odd" }),

		{name: "ready no more", fact: "Unreported", change: replace(aMachine(), inPhase(v1alpha1.MachineUnknown))},
		{name: "available only", fact: "Unreported", change: replace(aMachine(), inPhase(v1alpha1.MachineAvailable))},
		{name: "a label of the template", fact: "Unreported", before: objects(withSelector(aSet())), change: replace(aMachine(), func(m *v1alpha1.Machine) { delete(m.Labels, v1alpha1.LabelMachineTemplateHash) })},
		{name: "no instance can be made", fact: "Unreported", change: replace(aMachine(), crashing)},
		{name: "for another reason", fact: "Unreported", before: objects(crashed, sizedSet(1, nil, crashed)), change: replace(crashed, func(m *v1alpha1.Machine) { m.Status.Conditions[0].Reason = "Unauthenticated" })},
		{name: "what it waits for", fact: "Unreported", before: ofPending, change: replace(pending, func(m *v1alpha1.Machine) { m.Status.LastOperation.Description = "waits for its node" })},
		{name: "it had joined", fact: "Unreported", before: ofPending, change: replace(pending, annotated[*v1alpha1.Machine](v1alpha1.AnnotationMachineJoinDuration, "1m"))},
		{name: "preserved", fact: "Unreported", before: failedBefore(), change: replace(failedBefore()[0].(*v1alpha1.Machine), func(m *v1alpha1.Machine) {
			m.Status.CurrentStatus.PreserveExpiryTime = &born
		})},
		{name: "kept", fact: "Unreported", change: replace(aMachine(), annotated[*v1alpha1.Machine](v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveAuto))},
		{name: "D12: ready since a moment", fact: "Unreported", before: objects(sizedSet(1, func(s *v1alpha1.MachineSet) { s.Spec.MinReadySeconds = 60 }, aMachine())), change: replace(aMachine(), func(m *v1alpha1.Machine) {
			m.Status.Conditions[0].LastTransitionTime = metav1.Now()
		})},
		{name: "its deployment has another template", fact: "Unreported", change: replace(aDeployment(), func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "large" })},
		{name: "its deployment is paused", fact: "Unreported", change: replace(aDeployment(), annotated[*v1alpha1.MachineDeployment](v1alpha1.AnnotationPaused, ""))},
		{name: "paused", fact: "Unreported", change: replace(aSet(), annotated[*v1alpha1.MachineSet](v1alpha1.AnnotationPaused, ""))},
	}
}

// failedBefore is a failed machine that is not to be replaced, and a set that says so.
func failedBefore() []runtime.Object {
	m := changed(aMachine(), inPhase(v1alpha1.MachineFailed))
	return objects(m, sizedSet(1, nil, m))
}

func TestEveryFactOfASetWakesIt(t *testing.T) {
	rows := append(append(setRows(), nextRows()...), statusRows()...)
	proveFacts(t, reflect.TypeFor[attention.SetFacts](), aSet(), readSet, rows, nil)
}

// An owned machine is its owner's business, an orphan that of the sets that match it, and others nobody's.
func TestMS05_WhoHearsOfAMachine(t *testing.T) {
	another := func(name, pool string) *v1alpha1.MachineSet {
		s := bareSet()
		s.Name, s.UID, s.OwnerReferences, s.Spec.Replicas = name, types.UID("uid-"+name), nil, 0
		s.Spec.Template.Labels = map[string]string{"pool": pool}
		s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": pool}}
		return reportingBelow(nil, s)
	}
	twin, apart, everything := another("twin", "a"), another("apart", "b"), another("everything", "b")
	everything.Spec.Selector = &metav1.LabelSelector{}
	for _, row := range []struct {
		name  string
		event func(w *world)
		want  []string
	}{
		{"owned: its owner", replace(machineNamed("second")), []string{awake(aSet())}},
		{"an orphan: the sets that match it", replace(anOrphan()), []string{awake(aSet()), awake(twin)}},
		{"D40: not the one that selects everything", replace(anOrphan(inOtherPool)), []string{awake(apart)}},
		{"an orphan that nobody matches", replace(anOrphan(func(m *v1alpha1.Machine) { m.Labels["pool"] = "c" })), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			inWorld(t, append(calmStack(), twin, apart, everything), func(w *world) {
				w.pass(2 * time.Second)
				w.took()
				row.event(w)
				w.flush()
				var sets []string
				for _, line := range w.asked() {
					for _, s := range []*v1alpha1.MachineSet{aSet(), twin, apart, everything} {
						if line == awake(s) {
							sets = append(sets, line)
						}
					}
				}
				assert.Equal(t, row.want, sets)
			})
		})
	}
}

// What an orphan's own workflow does is no news to the sets.
func TestAnOrphanThatOnlyWorksWakesNoSet(t *testing.T) {
	inWorld(t, append(calmStack(), anOrphan(inOtherPool)), func(w *world) {
		w.took()
		for _, phase := range []v1alpha1.MachinePhase{v1alpha1.MachineUnknown, v1alpha1.MachineRunning} {
			w.put(anOrphan(inOtherPool, inPhase(phase)))
			w.pass(2 * time.Second)
		}
		assert.NotContains(t, w.asked(), awake(aSet()))
	})
}

// Whoever is told to adopt must see the orphan.
func TestASetReadsTheOrphansThatTheBridgeRead(t *testing.T) {
	inWorld(t, calmStack(), func(w *world) {
		orphan := w.put(anOrphan())
		w.pass(5 * time.Second)
		w.took()
		w.pass(aResync) // it was not adopted
		for _, c := range w.took() {
			if c.id == idOf(aSet()) {
				assert.Equal(t, orphan, c.changed.Versions[observe.Machines])
				return
			}
		}
		assert.Fail(t, "nobody was told")
	})
}

// The size of a deployment is no news to its sets: it comes to them by their own.
func TestTheSizeOfADeploymentIsNoNewsToItsSets(t *testing.T) {
	inWorld(t, []runtime.Object{aDeployment(), aSet()}, func(w *world) {
		w.took()
		w.scale(5)
		w.pass(5 * time.Second)
		assert.Equal(t, []string{awake(aDeployment())}, w.asked())
	})
}
