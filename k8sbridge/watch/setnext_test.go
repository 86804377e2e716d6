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

// nextRows change what must be done next.
func nextRows() []factRow {
	failed := inPhase(v1alpha1.MachineFailed)
	granted := annotated[*v1alpha1.Machine](v1alpha1.AnnotationReplacementGranted, "2026-01-01T00:00:00Z")
	short := func(change onSet) *v1alpha1.MachineSet { return sizedSet(2, change, aMachine()) }
	frozen := short(labelledSet(v1alpha1.LabelFreeze, v1alpha1.ValueTrue))
	closed := short(labelledSet(v1alpha1.LabelScaleUpDisabled, "true"))
	paused := short(annotated[*v1alpha1.MachineSet](v1alpha1.AnnotationPaused, ""))
	pausing := changed(aDeployment(), annotated[*v1alpha1.MachineDeployment](v1alpha1.AnnotationPaused, ""))
	pausedBelow := bareSet()
	pausedBelow.Spec.Replicas = 2
	reportingBelow(pausing, pausedBelow, aMachine())
	freezing := changed(
		aDeployment(),
		func(d *v1alpha1.MachineDeployment) { d.Labels[v1alpha1.LabelFreeze] = v1alpha1.ValueTrue },
	)
	frozenBelow := bareSet()
	frozenBelow.Spec.Replicas = 2
	reportingBelow(freezing, frozenBelow, aMachine())
	classless := bareSet()
	classless.Spec.Replicas, classless.Spec.Template.Spec.Class.Name = 2, "large"
	reportingOf(
		classless,
		set.Related{Members: []*v1alpha1.Machine{aMachine()}, Deployment: aDeployment(), Missing: []string{"MachineClass"}},
	)
	askingNode := changed(aNode(), annotated[*corev1.Node](v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveNow))
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
	failedOne, failedGranted := machineWith(failed), machineWith(failed, granted)
	return []factRow{
		{name: "one is gone", fact: "Next", change: func(w *world) { w.remove(aMachine()) }},
		{name: "one goes", fact: "Next", change: replace(aMachine(), toBeDeleted[*v1alpha1.Machine])},
		{name: "one too many", fact: "Next", change: replace(second)},
		{name: "the size", fact: "Next", change: replace(aSet(), func(s *v1alpha1.MachineSet) { s.Spec.Replicas = 0 })},
		{
			name:   "no longer just updated",
			fact:   "Next",
			before: objects(second, machineWith(updated), sizedSet(1, nil, machineWith(updated), second)),
			change: replace(aMachine()),
		},

		{name: "a new orphan", fact: "Next", change: replace(anOrphan())},
		{
			name:   "an orphan's labels match now",
			fact:   "Next",
			before: objects(anOrphan(inOtherPool)),
			change: replace(anOrphan()),
		},
		{name: "an orphan has lost its owner", fact: "Next", before: objects(anOrphan(func(m *v1alpha1.Machine) {
			m.OwnerReferences = ownedBy(aClass(), "Stranger")
		})), change: replace(anOrphan())},
		{name: "its labels do not match", fact: "Next", change: replace(aMachine(), inOtherPool)},
		{
			name:   "the selector matches another one",
			fact:   "Next",
			before: objects(anOrphan(inOtherPool)),
			change: replace(aSet(), func(s *v1alpha1.MachineSet) {
				s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelMachineTemplateHash: "h"}}
			}),
		},

		{name: "failed and granted", fact: "Next", change: replace(aMachine(), failed, granted)},
		{
			name:   "granted before it failed",
			fact:   "Next",
			before: objects(machineWith(granted)),
			change: replace(aMachine(), granted, failed),
		},
		{
			name:   "granted after it failed",
			fact:   "Next",
			before: objects(failedOne, setWith(failedOne)),
			change: replace(failedOne, granted),
		},
		{
			name:   "its deployment is not above it any more",
			fact:   "Next",
			before: objects(failedOne, setWith(failedOne)),
			change: replace(setWith(failedOne), func(s *v1alpha1.MachineSet) { s.OwnerReferences = nil }),
		},
		{
			name:   "to be kept",
			fact:   "Next",
			before: objects(sizedSet(1, func(s *v1alpha1.MachineSet) { s.Spec.AutoPreserveFailedMachineMax = 1 }, aMachine())),
			change: replace(aMachine(), failed),
		},
		{
			name:   "its time is over",
			fact:   "Next",
			before: objects(machineWith(failed, granted, ending), setWith(machineWith(failed, granted, ending))),
			change: replace(aMachine(), failed, granted),
		},
		{
			name:   "nobody wants it kept",
			fact:   "Next",
			before: objects(machineWith(failed, granted, wellKept), setWith(machineWith(failed, granted, wellKept))),
			change: replace(aMachine(), failed, granted),
		},

		{
			name:   "marked by a person",
			fact:   "Next",
			change: replace(aMachine(), annotated[*v1alpha1.Machine](v1alpha1.AnnotationRemediateMachine, "")),
		},
		{name: "marked by a health check", fact: "Next", change: replace(aMachine(), func(m *v1alpha1.Machine) {
			for _, kind := range []corev1.NodeConditionType{v1alpha1.MachineHealthCheckSucceeded, v1alpha1.MachineOwnerRemediated} {
				m.Status.Conditions = append(m.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse})
			}
		})},
		{
			name:   "marked by the autoscaler",
			fact:   "Next",
			before: objects(sizedSet(1, scaled, aMachine()), machineWith(chosen)),
			change: replace(aMachine(), chosen, marked),
		},
		{
			name:   "given the priority that goes with it",
			fact:   "Next",
			before: objects(sizedSet(1, scaled, aMachine()), machineWith(marked)),
			change: replace(aMachine(), chosen, marked),
		},
		{
			name:   "the size changed after that",
			fact:   "Next",
			before: objects(machineWith(chosen, marked)),
			change: replace(aSet(), scaled),
		},

		{
			name:   "frozen",
			fact:   "Next",
			before: objects(short(nil)),
			change: replace(short(nil), labelledSet(v1alpha1.LabelFreeze, v1alpha1.ValueTrue)),
		},
		{name: "not frozen any more", fact: "Next", before: objects(frozen), change: lacks(frozen, v1alpha1.LabelFreeze)},
		{
			name:   "a person ends the freeze",
			fact:   "Next",
			before: objects(frozen),
			change: replace(frozen, annotated[*v1alpha1.MachineSet](v1alpha1.AnnotationUnfreeze, "")),
		},
		{
			name:   "its deployment is not frozen any more",
			fact:   "Next",
			before: objects(freezing, frozenBelow),
			change: replace(aDeployment()),
		},
		{
			name:   "a person ends the freeze of its deployment",
			fact:   "Next",
			before: objects(freezing, frozenBelow),
			change: replace(freezing, annotated[*v1alpha1.MachineDeployment](v1alpha1.AnnotationUnfreeze, "")),
		},
		{name: "its class comes", fact: "Next", before: objects(classless), change: replace(classNamed("large"))},
		{
			name:   "the node of a failed machine asks for it no more",
			fact:   "Next",
			before: objects(failedGranted, askingNode, setWith(failedGranted)),
			change: replace(aNode()),
		},
		{
			name:   "current once more",
			fact:   "Next",
			before: objects(closed),
			change: lacks(closed, v1alpha1.LabelScaleUpDisabled),
		},
		{
			name:   "not paused any more",
			fact:   "Next",
			before: objects(paused),
			change: lacks(paused, v1alpha1.AnnotationPaused),
		},
		{
			name:   "its deployment is no longer paused",
			fact:   "Next",
			before: objects(pausing, pausedBelow),
			change: replace(aDeployment()),
		},
		{
			name:   "its deployment is gone, and its pause",
			fact:   "Next",
			before: objects(pausing, pausedBelow),
			change: func(w *world) { w.remove(aDeployment()) },
		},
		{
			name:   "what it released is gone",
			fact:   "Next",
			before: append(releasedOnes(), sizedSetAround(2, releasedOnes())),
			change: func(w *world) { w.remove(machineNamed("r-0")) },
		},
		{
			name:   "what it released is being deleted",
			fact:   "Next",
			before: append(releasedOnes(), sizedSetAround(2, releasedOnes())),
			change: replace(released("r-0"), toBeDeleted[*v1alpha1.Machine]),
		},

		{name: "the template has another timeout", fact: "Next", change: replace(aSet(), func(s *v1alpha1.MachineSet) {
			s.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
				MachineDrainTimeout: &metav1.Duration{Duration: time.Minute},
			}
		})},
		{name: "the machine has", fact: "Next", change: replace(aMachine(), func(m *v1alpha1.Machine) {
			m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
				MachineDrainTimeout: &metav1.Duration{Duration: time.Minute},
			}
		})},
		{name: "the machine has another node template", fact: "Next", change: replace(aMachine(), func(m *v1alpha1.Machine) {
			m.Spec.NodeTemplateSpec.Labels = map[string]string{"team": "a"}
		})},
		{
			name:   "the class's kind",
			fact:   "Next",
			change: replace(aMachine(), func(m *v1alpha1.Machine) { m.Spec.Class.Kind = "OtherClass" }),
		},
		{
			name:   "the machine has lost a label",
			fact:   "Next",
			before: objects(withSelector(richer), rich),
			change: lacks(rich, "tier"),
		},
		{
			name:   "the machine has lost an annotation",
			fact:   "Next",
			before: objects(withSelector(richer), rich),
			change: lacks(rich, "team"),
		},
	}
}

func classNamed(name string) *v1alpha1.MachineClass {
	return changed(aClass(), func(c *v1alpha1.MachineClass) { c.Name, c.UID = name, types.UID("uid-"+name) })
}

// withSelector makes a set select its machines by fewer labels than those of its template.
func withSelector(s *v1alpha1.MachineSet) *v1alpha1.MachineSet {
	s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
	return s
}

// released is a machine that the set has released, because the labels of the set were removed from it.
func released(name string) *v1alpha1.Machine {
	return changed(
		machineNamed(name),
		inOtherPool,
		annotated[*v1alpha1.Machine](v1alpha1.AnnotationReleasedBy, "uid-s"),
		func(m *v1alpha1.Machine) { m.OwnerReferences = nil },
	)
}

// releasedOnes are so many that a set of two creates no more machines.
func releasedOnes() []runtime.Object {
	var all []runtime.Object
	for _, name := range []string{"r-0", "r-1", "r-2", "r-3", "r-4"} {
		all = append(all, released(name))
	}
	return all
}

// sizedSetAround is a set with the machine of the calm stack, whose status also covers the orphans.
func sizedSetAround(replicas int32, orphans []runtime.Object) *v1alpha1.MachineSet {
	s := bareSet()
	s.Spec.Replicas = replicas
	related := set.Related{Members: []*v1alpha1.Machine{aMachine()}, Deployment: aDeployment()}
	for _, o := range orphans {
		related.Orphans = append(related.Orphans, o.(*v1alpha1.Machine))
	}
	return reportingOf(s, related)
}
