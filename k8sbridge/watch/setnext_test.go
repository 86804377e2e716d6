package watch

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/observe/set"
)

// machineSetActionTestCases change the next action of the set.
func machineSetActionTestCases() []factTestCase {
	failed := withPhase(v1alpha1.MachineFailed)
	granted := withAnnotation[*v1alpha1.Machine](v1alpha1.AnnotationReplacementGranted, "2026-01-01T00:00:00Z")
	short := func(change setChange) *v1alpha1.MachineSet { return newSizedSet(2, change, testMachine()) }
	frozen := short(withSetLabel(v1alpha1.LabelFreeze, v1alpha1.ValueTrue))
	closed := short(withSetLabel(v1alpha1.LabelScaleUpDisabled, "true"))
	paused := short(withAnnotation[*v1alpha1.MachineSet](v1alpha1.AnnotationPaused, ""))
	pausing := changedCopy(testDeployment(), withAnnotation[*v1alpha1.MachineDeployment](v1alpha1.AnnotationPaused, ""))
	pausedBelow := machineSetWithoutStatus()
	pausedBelow.Spec.Replicas = 2
	machineSetWithDeploymentAndStatus(pausing, pausedBelow, testMachine())
	freezing := changedCopy(
		testDeployment(),
		func(d *v1alpha1.MachineDeployment) { d.Labels[v1alpha1.LabelFreeze] = v1alpha1.ValueTrue },
	)
	frozenBelow := machineSetWithoutStatus()
	frozenBelow.Spec.Replicas = 2
	machineSetWithDeploymentAndStatus(freezing, frozenBelow, testMachine())
	classless := machineSetWithoutStatus()
	classless.Spec.Replicas, classless.Spec.Template.Spec.Class.Name = 2, "large"
	withStatusForRelatedObjects(
		classless,
		set.RelatedObjects{
			Members:      []*v1alpha1.Machine{testMachine()},
			Deployment:   testDeployment(),
			MissingKinds: []string{"MachineClass"},
		},
	)
	askingNode := changedCopy(
		testNode(),
		withAnnotation[*corev1.Node](v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveNow),
	)
	scaled := withAnnotation[*v1alpha1.MachineSet](v1alpha1.AnnotationLastScalerChange, "2026-01-01T01:00:00Z")
	marked := withAnnotation[*v1alpha1.Machine](v1alpha1.AnnotationMarkedForDeletionTime, "2026-01-01T00:30:00Z")
	chosen := func(m *v1alpha1.Machine) { m.Annotations[v1alpha1.AnnotationMachinePriority] = "1" }
	wellKept := withAnnotation[*v1alpha1.Machine](v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveNow)
	ending := func(m *v1alpha1.Machine) { m.Status.CurrentStatus.PreserveExpiryTime = &creationTime }
	updated := func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful }
	second := machineWithName("second")
	richer := newSizedSet(1, func(s *v1alpha1.MachineSet) {
		s.Spec.Template.Labels["tier"], s.Spec.Template.Annotations = "front", map[string]string{"team": "shop"}
	})
	rich := changedCopy(
		testMachine(),
		func(m *v1alpha1.Machine) { m.Labels["tier"], m.Annotations["team"] = "front", "shop" },
	)
	withSetStatus(richer, rich)
	machineWith := func(changes ...machineChange) *v1alpha1.Machine { return changedCopy(testMachine(), changes...) }
	setWith := func(m *v1alpha1.Machine) *v1alpha1.MachineSet { return newSizedSet(1, nil, m) }
	failedOne, failedGranted := machineWith(failed), machineWith(failed, granted)
	return []factTestCase{
		{name: "one is gone", fact: "NextAction", change: func(w *bridgeTestEnv) { w.deleteObject(testMachine()) }},
		{name: "one goes", fact: "NextAction", change: putChangedObject(testMachine(), setDeleting[*v1alpha1.Machine])},
		{name: "one too many", fact: "NextAction", change: putChangedObject(second)},
		{
			name:   "the size",
			fact:   "NextAction",
			change: putChangedObject(testMachineSet(), func(s *v1alpha1.MachineSet) { s.Spec.Replicas = 0 }),
		},
		{
			name:           "no longer just updated",
			fact:           "NextAction",
			initialObjects: initialObjects(second, machineWith(updated), newSizedSet(1, nil, machineWith(updated), second)),
			change:         putChangedObject(testMachine()),
		},

		{name: "a new orphan", fact: "NextAction", change: putChangedObject(orphanMachine())},
		{
			name:           "an orphan's labels match now",
			fact:           "NextAction",
			initialObjects: initialObjects(orphanMachine(withOtherMachinePoolLabel)),
			change:         putChangedObject(orphanMachine()),
		},
		{
			name: "an orphan has lost its owner",
			fact: "NextAction",
			initialObjects: initialObjects(orphanMachine(func(m *v1alpha1.Machine) {
				m.OwnerReferences = newOwnerReferences(testClass(), "Stranger")
			})),
			change: putChangedObject(orphanMachine()),
		},
		{
			name:   "its labels do not match",
			fact:   "NextAction",
			change: putChangedObject(testMachine(), withOtherMachinePoolLabel),
		},
		{
			name:           "the selector matches another one",
			fact:           "NextAction",
			initialObjects: initialObjects(orphanMachine(withOtherMachinePoolLabel)),
			change: putChangedObject(testMachineSet(), func(s *v1alpha1.MachineSet) {
				s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelMachineTemplateHash: "h"}}
			}),
		},

		{name: "failed and granted", fact: "NextAction", change: putChangedObject(testMachine(), failed, granted)},
		{
			name:           "granted before it failed",
			fact:           "NextAction",
			initialObjects: initialObjects(machineWith(granted)),
			change:         putChangedObject(testMachine(), granted, failed),
		},
		{
			name:           "granted after it failed",
			fact:           "NextAction",
			initialObjects: initialObjects(failedOne, setWith(failedOne)),
			change:         putChangedObject(failedOne, granted),
		},
		{
			name:           "its deployment is not above it any more",
			fact:           "NextAction",
			initialObjects: initialObjects(failedOne, setWith(failedOne)),
			change:         putChangedObject(setWith(failedOne), func(s *v1alpha1.MachineSet) { s.OwnerReferences = nil }),
		},
		{
			name: "to be kept",
			fact: "NextAction",
			initialObjects: initialObjects(
				newSizedSet(1, func(s *v1alpha1.MachineSet) { s.Spec.AutoPreserveFailedMachineMax = 1 }, testMachine()),
			),
			change: putChangedObject(testMachine(), failed),
		},
		{
			name:           "its time is over",
			fact:           "NextAction",
			initialObjects: initialObjects(machineWith(failed, granted, ending), setWith(machineWith(failed, granted, ending))),
			change:         putChangedObject(testMachine(), failed, granted),
		},
		{
			name: "nobody wants it kept",
			fact: "NextAction",
			initialObjects: initialObjects(
				machineWith(failed, granted, wellKept),
				setWith(machineWith(failed, granted, wellKept)),
			),
			change: putChangedObject(testMachine(), failed, granted),
		},

		{
			name:   "marked by a person",
			fact:   "NextAction",
			change: putChangedObject(testMachine(), withAnnotation[*v1alpha1.Machine](v1alpha1.AnnotationRemediateMachine, "")),
		},
		{
			name: "marked by a health check",
			fact: "NextAction",
			change: putChangedObject(testMachine(), func(m *v1alpha1.Machine) {
				for _, kind := range []corev1.NodeConditionType{v1alpha1.MachineHealthCheckSucceeded, v1alpha1.MachineOwnerRemediated} {
					m.Status.Conditions = append(m.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse})
				}
			}),
		},
		{
			name:           "marked by the autoscaler",
			fact:           "NextAction",
			initialObjects: initialObjects(newSizedSet(1, scaled, testMachine()), machineWith(chosen)),
			change:         putChangedObject(testMachine(), chosen, marked),
		},
		{
			name:           "given the priority that goes with it",
			fact:           "NextAction",
			initialObjects: initialObjects(newSizedSet(1, scaled, testMachine()), machineWith(marked)),
			change:         putChangedObject(testMachine(), chosen, marked),
		},
		{
			name:           "the size changed after that",
			fact:           "NextAction",
			initialObjects: initialObjects(machineWith(chosen, marked)),
			change:         putChangedObject(testMachineSet(), scaled),
		},

		{
			name:           "frozen",
			fact:           "NextAction",
			initialObjects: initialObjects(short(nil)),
			change:         putChangedObject(short(nil), withSetLabel(v1alpha1.LabelFreeze, v1alpha1.ValueTrue)),
		},
		{
			name:           "not frozen any more",
			fact:           "NextAction",
			initialObjects: initialObjects(frozen),
			change:         putWithoutLabelAndAnnotation(frozen, v1alpha1.LabelFreeze),
		},
		{
			name:           "a person ends the freeze",
			fact:           "NextAction",
			initialObjects: initialObjects(frozen),
			change:         putChangedObject(frozen, withAnnotation[*v1alpha1.MachineSet](v1alpha1.AnnotationUnfreeze, "")),
		},
		{
			name:           "its deployment is not frozen any more",
			fact:           "NextAction",
			initialObjects: initialObjects(freezing, frozenBelow),
			change:         putChangedObject(testDeployment()),
		},
		{
			name:           "a person ends the freeze of its deployment",
			fact:           "NextAction",
			initialObjects: initialObjects(freezing, frozenBelow),
			change: putChangedObject(
				freezing,
				withAnnotation[*v1alpha1.MachineDeployment](v1alpha1.AnnotationUnfreeze, ""),
			),
		},
		{
			name:           "its class comes",
			fact:           "NextAction",
			initialObjects: initialObjects(classless),
			change:         putChangedObject(classWithName("large")),
		},
		{
			name:           "the node of a failed machine asks for it no more",
			fact:           "NextAction",
			initialObjects: initialObjects(failedGranted, askingNode, setWith(failedGranted)),
			change:         putChangedObject(testNode()),
		},
		{
			name:           "current once more",
			fact:           "NextAction",
			initialObjects: initialObjects(closed),
			change:         putWithoutLabelAndAnnotation(closed, v1alpha1.LabelScaleUpDisabled),
		},
		{
			name:           "not paused any more",
			fact:           "NextAction",
			initialObjects: initialObjects(paused),
			change:         putWithoutLabelAndAnnotation(paused, v1alpha1.AnnotationPaused),
		},
		{
			name:           "its deployment is no longer paused",
			fact:           "NextAction",
			initialObjects: initialObjects(pausing, pausedBelow),
			change:         putChangedObject(testDeployment()),
		},
		{
			name:           "its deployment is gone, and its pause",
			fact:           "NextAction",
			initialObjects: initialObjects(pausing, pausedBelow),
			change:         func(w *bridgeTestEnv) { w.deleteObject(testDeployment()) },
		},
		{
			name:           "what it released is gone",
			fact:           "NextAction",
			initialObjects: append(releasedMachines(), newSizedSetWithOrphans(2, releasedMachines())),
			change:         func(w *bridgeTestEnv) { w.deleteObject(machineWithName("r-0")) },
		},
		{
			name:           "what it released is being deleted",
			fact:           "NextAction",
			initialObjects: append(releasedMachines(), newSizedSetWithOrphans(2, releasedMachines())),
			change:         putChangedObject(releasedMachine("r-0"), setDeleting[*v1alpha1.Machine]),
		},

		{
			name: "the template has another timeout",
			fact: "NextAction",
			change: putChangedObject(testMachineSet(), func(s *v1alpha1.MachineSet) {
				s.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
					MachineDrainTimeout: &metav1.Duration{Duration: time.Minute},
				}
			}),
		},
		{name: "the machine has", fact: "NextAction", change: putChangedObject(testMachine(), func(m *v1alpha1.Machine) {
			m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
				MachineDrainTimeout: &metav1.Duration{Duration: time.Minute},
			}
		})},
		{
			name: "the machine has another node template",
			fact: "NextAction",
			change: putChangedObject(testMachine(), func(m *v1alpha1.Machine) {
				m.Spec.NodeTemplateSpec.Labels = map[string]string{"team": "a"}
			}),
		},
		{
			name:   "the class's kind",
			fact:   "NextAction",
			change: putChangedObject(testMachine(), func(m *v1alpha1.Machine) { m.Spec.Class.Kind = "OtherClass" }),
		},
		{
			name:           "the machine has lost a label",
			fact:           "NextAction",
			initialObjects: initialObjects(withBroaderSelector(richer), rich),
			change:         putWithoutLabelAndAnnotation(rich, "tier"),
		},
		{
			name:           "the machine has lost an annotation",
			fact:           "NextAction",
			initialObjects: initialObjects(withBroaderSelector(richer), rich),
			change:         putWithoutLabelAndAnnotation(rich, "team"),
		},
	}
}

func classWithName(name string) *v1alpha1.MachineClass {
	return changedCopy(testClass(), func(c *v1alpha1.MachineClass) { c.Name, c.UID = name, types.UID("uid-"+name) })
}

// withBroaderSelector makes a set select its machines by fewer labels than the labels of its template.
func withBroaderSelector(s *v1alpha1.MachineSet) *v1alpha1.MachineSet {
	s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
	return s
}

// releasedMachine returns a machine that the set has released because the machine lost the set's labels.
func releasedMachine(name string) *v1alpha1.Machine {
	return changedCopy(
		machineWithName(name),
		withOtherMachinePoolLabel,
		withAnnotation[*v1alpha1.Machine](v1alpha1.AnnotationReleasedBy, "uid-s"),
		func(m *v1alpha1.Machine) { m.OwnerReferences = nil },
	)
}

// releasedMachines returns as many released machines as are necessary to stop the creation of machines by a set of size
// two.
func releasedMachines() []runtime.Object {
	var all []runtime.Object
	for _, name := range []string{"r-0", "r-1", "r-2", "r-3", "r-4"} {
		all = append(all, releasedMachine(name))
	}
	return all
}

// newSizedSetWithOrphans returns a set with the machine of the test stack. The set's status also covers the orphans.
func newSizedSetWithOrphans(replicas int32, orphans []runtime.Object) *v1alpha1.MachineSet {
	s := machineSetWithoutStatus()
	s.Spec.Replicas = replicas
	related := set.RelatedObjects{Members: []*v1alpha1.Machine{testMachine()}, Deployment: testDeployment()}
	for _, o := range orphans {
		related.Orphans = append(related.Orphans, o.(*v1alpha1.Machine))
	}
	return withStatusForRelatedObjects(s, related)
}
