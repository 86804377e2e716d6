package watch

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
	"millwright/decide/scale"
	"millwright/observe/set"
)

type (
	machineChange = func(*v1alpha1.Machine)
	setChange     = func(*v1alpha1.MachineSet)
)

// initialObjects returns the objects that are written before a row's change.
func initialObjects(all ...runtime.Object) []runtime.Object { return all }

// newSizedSet returns a set with this size, these machines and the matching status.
func newSizedSet(replicas int32, change setChange, machines ...*v1alpha1.Machine) *v1alpha1.MachineSet {
	s := machineSetWithoutStatus()
	s.Spec.Replicas = replicas
	if change != nil {
		change(s)
	}
	return withSetStatus(s, machines...)
}

func withoutLabelAndAnnotation(key string) func(metav1.Object) {
	return func(o metav1.Object) {
		delete(o.GetLabels(), key)
		delete(o.GetAnnotations(), key)
	}
}

// markDeletedWithOrphans puts an object into the state after kubectl delete --cascade=orphan, before the garbage
// collector has finished.
func markDeletedWithOrphans[T metav1.Object](o T) {
	setDeleting(o)
	o.SetFinalizers(append(o.GetFinalizers(), metav1.FinalizerOrphanDependents))
}

func putWithoutLabelAndAnnotation[T interface {
	metav1.Object
	runtime.Object
}](o T, key string) func(*bridgeTestEnv) {
	return putChangedObject(o, func(o T) { withoutLabelAndAnnotation(key)(o) })
}

func withSetLabel(key, value string) setChange {
	return func(s *v1alpha1.MachineSet) { s.Labels[key] = value }
}

// orphanMachine returns a machine without a controller that the set would adopt.
func orphanMachine(changes ...machineChange) *v1alpha1.Machine {
	return changedCopy(
		machineWithName("orphan"),
		append([]machineChange{func(m *v1alpha1.Machine) { m.OwnerReferences = nil }}, changes...)...)
}

func withOtherMachinePoolLabel(m *v1alpha1.Machine) { m.Labels["pool"] = "b" }

// machineSetFacts contains the facts and the plan that determine a set's pending work.
type machineSetFacts struct {
	Deleting, HasFinalizer, NeedsReport, NeedsRecheck bool
	Orphaning                                         bool
	Generation, ObservedGeneration                    int64
	Replicas, MemberCount                             int
	NextAction                                        string
}

func readSetFacts(w *bridgeTestEnv) any {
	s, found := w.cluster.MachineSet("ns/s")
	require.True(w.t, found)
	o := set.ScaleFacts(s, set.ReadRelatedObjects(w.cluster, s), time.Now(), 0)
	plan := scale.PlanSet(o)
	facts := machineSetFacts{
		Deleting:           o.Deleting,
		Orphaning:          o.Orphaning,
		HasFinalizer:       o.HasFinalizer,
		Generation:         o.Generation,
		ObservedGeneration: o.ObservedGeneration,
		Replicas:           o.Replicas,
		MemberCount:        len(o.Members),
		NeedsReport:        plan.NeedsStatusWrite,
		NeedsRecheck:       !plan.Decision.Recheck.IsZero(),
	}
	if plan.Decision.HasActions() {
		facts.NextAction = plan.Decision.Why
	}
	return facts
}

// machineSetTestCases are the facts that a set shares with all objects that have a workflow, and the facts that change
// with time.
func machineSetTestCases() []factTestCase {
	readyNow := func(m *v1alpha1.Machine) { m.Status.Conditions[0].LastTransitionTime = metav1.Now() }
	slow := newSizedSet(1, func(s *v1alpha1.MachineSet) { s.Spec.MinReadySeconds = 60 }, testMachine())
	return []factTestCase{
		{fact: "Deleting", change: putChangedObject(testMachineSet(), setDeleting[*v1alpha1.MachineSet])},
		{
			name:           "the garbage collector is done",
			fact:           "Orphaning",
			initialObjects: initialObjects(changedCopy(testMachineSet(), markDeletedWithOrphans[*v1alpha1.MachineSet])),
			change:         putChangedObject(testMachineSet(), setDeleting[*v1alpha1.MachineSet]),
		},
		{
			fact:   "HasFinalizer",
			change: putChangedObject(testMachineSet(), func(s *v1alpha1.MachineSet) { s.Finalizers = nil }),
		},
		{fact: "Generation", change: putChangedObject(testMachineSet(), func(s *v1alpha1.MachineSet) { s.Generation = 2 })},
		{
			fact:           "ObservedGeneration",
			waitsForResync: true,
			change:         putChangedObject(testMachineSet(), func(s *v1alpha1.MachineSet) { s.Status.ObservedGeneration = 0 }),
		},
		{fact: "Replicas", change: putChangedObject(testMachineSet(), func(s *v1alpha1.MachineSet) { s.Spec.Replicas = 2 })},
		{name: "one more", fact: "MemberCount", change: putChangedObject(machineWithName("second"))},
		{name: "gone", fact: "MemberCount", change: func(w *bridgeTestEnv) { w.deleteObject(testMachine()) }},
		{
			name:   "given away",
			fact:   "MemberCount",
			change: putChangedObject(testMachine(), func(m *v1alpha1.Machine) { m.OwnerReferences = nil }),
		},
		{
			name:           "its node was not ready for a moment",
			fact:           "NeedsRecheck",
			initialObjects: initialObjects(slow),
			change:         putChangedObject(testMachine(), readyNow),
		},
		{
			name:   "one goes",
			fact:   "NeedsRecheck",
			change: putChangedObject(testMachine(), func(m *v1alpha1.Machine) { m.DeletionTimestamp = new(metav1.Now()) }),
		},
	}
}

// machineSetStatusTestCases clear each field of a set's status, or make the field out of date.
func machineSetStatusTestCases() []factTestCase {
	status := func(name string, change func(*v1alpha1.MachineSetStatus)) factTestCase {
		return factTestCase{
			name:           "status, " + name,
			fact:           "NeedsReport",
			waitsForResync: true,
			change:         putChangedObject(testMachineSet(), func(s *v1alpha1.MachineSet) { change(&s.Status) }),
		}
	}
	pending := changedCopy(testMachine(), withPhase(v1alpha1.MachinePending))
	ofPending := initialObjects(pending, newSizedSet(1, nil, pending))
	crashing := func(m *v1alpha1.Machine) {
		m.Status.CurrentStatus.Phase = v1alpha1.MachineCrashLoopBackOff
		m.Status.Conditions = []corev1.NodeCondition{
			{Type: v1alpha1.MachineInstanceReady, Status: corev1.ConditionFalse, Reason: "ResourceExhausted"},
		}
	}
	crashed := changedCopy(testMachine(), crashing)
	return []factTestCase{
		status("replicas", func(s *v1alpha1.MachineSetStatus) { s.Replicas = 0 }),
		status("fully labelled", func(s *v1alpha1.MachineSetStatus) { s.FullyLabeledReplicas = 0 }),
		status("ready", func(s *v1alpha1.MachineSetStatus) { s.ReadyReplicas = 0 }),
		status("available", func(s *v1alpha1.MachineSetStatus) { s.AvailableReplicas = 0 }),
		status("up to date", func(s *v1alpha1.MachineSetStatus) { s.UpToDateReplicas = 0 }),
		status("preserved", func(s *v1alpha1.MachineSetStatus) { s.PreservedFailedReplicas = 1 }),
		status("kept", func(s *v1alpha1.MachineSetStatus) { s.AutoPreserveFailedMachineCount = 1 }),
		status("peak", func(s *v1alpha1.MachineSetStatus) { s.PeakReplicas = 0 }),
		status("overshoot", func(s *v1alpha1.MachineSetStatus) { s.Overshoot = 1 }),
		status("the size that was seen", func(s *v1alpha1.MachineSetStatus) { s.ObservedReplicas = 0 }),
		status("no conditions", func(s *v1alpha1.MachineSetStatus) { s.Conditions = nil }),
		status("one more condition", func(s *v1alpha1.MachineSetStatus) {
			s.Conditions = append(
				s.Conditions,
				v1alpha1.MachineSetCondition{
					Type:   v1alpha1.MachineSetReplicaFailure,
					Status: v1alpha1.ConditionTrue,
					Reason: "ResourceExhausted",
				},
			)
		}),
		status(
			"whether a condition holds",
			func(s *v1alpha1.MachineSetStatus) { s.Conditions[0].Status = v1alpha1.ConditionFalse },
		),
		status("the reason of a condition", func(s *v1alpha1.MachineSetStatus) { s.Conditions[0].Reason = "Odd" }),
		status("the message of a condition", func(s *v1alpha1.MachineSetStatus) { s.Conditions[0].Message = "odd" }),

		{
			name:   "ready no more",
			fact:   "NeedsReport",
			change: putChangedObject(testMachine(), withPhase(v1alpha1.MachineUnknown)),
		},
		{
			name:   "available only",
			fact:   "NeedsReport",
			change: putChangedObject(testMachine(), withPhase(v1alpha1.MachineAvailable)),
		},
		{
			name:           "a label of the template",
			fact:           "NeedsReport",
			initialObjects: initialObjects(withBroaderSelector(testMachineSet())),
			change: putChangedObject(
				testMachine(),
				func(m *v1alpha1.Machine) { delete(m.Labels, v1alpha1.LabelMachineTemplateHash) },
			),
		},
		{name: "no instance can be made", fact: "NeedsReport", change: putChangedObject(testMachine(), crashing)},
		{
			name:           "for another reason",
			fact:           "NeedsReport",
			initialObjects: initialObjects(crashed, newSizedSet(1, nil, crashed)),
			change: putChangedObject(
				crashed,
				func(m *v1alpha1.Machine) { m.Status.Conditions[0].Reason = "Unauthenticated" },
			),
		},
		{
			name:           "what it waits for",
			fact:           "NeedsReport",
			initialObjects: ofPending,
			change: putChangedObject(
				pending,
				func(m *v1alpha1.Machine) { m.Status.LastOperation.Description = "waits for its node" },
			),
		},
		{
			name:           "it had joined",
			fact:           "NeedsReport",
			initialObjects: ofPending,
			change:         putChangedObject(pending, func(m *v1alpha1.Machine) { m.Status.JoinedAt = &creationTime }),
		},
		{
			name:           "preserved",
			fact:           "NeedsReport",
			initialObjects: failedMachineAndItsSet(),
			change: putChangedObject(failedMachineAndItsSet()[0].(*v1alpha1.Machine), func(m *v1alpha1.Machine) {
				m.Status.CurrentStatus.PreserveExpiryTime = &creationTime
			}),
		},
		{
			name: "kept",
			fact: "NeedsReport",
			change: putChangedObject(
				testMachine(),
				withAnnotation[*v1alpha1.Machine](v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveAuto),
			),
		},
		{
			name: "ready since a moment",
			fact: "NeedsReport",
			initialObjects: initialObjects(
				newSizedSet(1, func(s *v1alpha1.MachineSet) { s.Spec.MinReadySeconds = 60 }, testMachine()),
			),
			change: putChangedObject(testMachine(), func(m *v1alpha1.Machine) {
				m.Status.Conditions[0].LastTransitionTime = metav1.Now()
			}),
		},
		{
			name: "its deployment has another template",
			fact: "NeedsReport",
			change: putChangedObject(
				testDeployment(),
				func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "large" },
			),
		},
		{
			name: "its deployment is paused",
			fact: "NeedsReport",
			change: putChangedObject(
				testDeployment(),
				withAnnotation[*v1alpha1.MachineDeployment](v1alpha1.AnnotationPaused, ""),
			),
		},
		{
			name: "its deployment is frozen",
			fact: "NeedsReport",
			change: putChangedObject(testDeployment(), func(d *v1alpha1.MachineDeployment) {
				d.Labels[v1alpha1.LabelFreeze] = v1alpha1.ValueTrue
			}),
		},
		{name: "its class is gone", fact: "NeedsReport", change: func(w *bridgeTestEnv) { w.deleteObject(testClass()) }},
		{
			name: "the template names a class that does not exist",
			fact: "NeedsReport",
			change: putChangedObject(testMachineSet(), func(s *v1alpha1.MachineSet) {
				s.Spec.Template.Spec.Class.Name = "none"
			}),
		},
		{
			name:           "the node of a failed machine asks for it",
			fact:           "NeedsReport",
			initialObjects: failedMachineAndItsSet(),
			change: putChangedObject(
				testNode(),
				withAnnotation[*corev1.Node](v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveNow),
			),
		},
		{
			name:   "paused",
			fact:   "NeedsReport",
			change: putChangedObject(testMachineSet(), withAnnotation[*v1alpha1.MachineSet](v1alpha1.AnnotationPaused, "")),
		},
	}
}

// failedMachineAndItsSet returns a failed machine that is not replaced, and a set whose status reports the failed
// machine.
func failedMachineAndItsSet() []runtime.Object {
	m := changedCopy(testMachine(), withPhase(v1alpha1.MachineFailed))
	return initialObjects(m, newSizedSet(1, nil, m))
}

func TestEveryChangedSetFactSignalsTheSet(t *testing.T) {
	rows := append(append(machineSetTestCases(), machineSetActionTestCases()...), machineSetStatusTestCases()...)
	assertFactsSendSignals(t, reflect.TypeFor[machineSetFacts](), testMachineSet(), readSetFacts, rows, nil)
}
