package observe_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	"millwright/decide/scale"
	"millwright/observe"
)

func TestSetFacts(t *testing.T) {
	s := set("s", goingSet)
	s.Generation, s.Spec.Replicas, s.Finalizers = 4, 5, []string{v1alpha1.FinalizerMachine}
	s.Status = v1alpha1.MachineSetStatus{ObservedGeneration: 3, Replicas: 1, FullyLabeledReplicas: 2, ReadyReplicas: 3, AvailableReplicas: 4}
	other := machine("relabelled")
	other.Labels = map[string]string{"app": "api"}
	facts := observe.SetFacts(s, []*v1alpha1.Machine{
		machine("new"), other,
		machine("pending", phase(v1alpha1.MachinePending)),
		machine("available", phase(v1alpha1.MachineAvailable)),
		machine("running", phase(v1alpha1.MachineRunning)),
		machine("failed", phase(v1alpha1.MachineFailed)),
		machine("failed-and-going", phase(v1alpha1.MachineFailed), goingMachine),
		machine("going", phase(v1alpha1.MachineRunning), goingMachine),
	})
	assert.Equal(t, attention.GroupFacts{
		Deleting: true, Finalizer: true, Generation: 4, ObservedGeneration: 3, Wanted: 5, Sets: 1,
		Live:     6, // whatever the phase, as long as it is not being deleted
		Failed:   1, // to be replaced; the other one is already
		Actual:   attention.Counts{Replicas: 8, FullyLabeled: 7, Ready: 2, Available: 3},
		Reported: attention.Counts{Replicas: 1, FullyLabeled: 2, Ready: 3, Available: 4},
	}, facts)
}

func TestScaleObserved(t *testing.T) {
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := machine("m", phase(v1alpha1.MachineRunning), goingMachine)
	m.ResourceVersion, m.CreationTimestamp = "9", metav1.NewTime(created)
	m.Annotations = map[string]string{v1alpha1.AnnotationMachinePriority: "1"}
	s := set("s")
	s.Spec.Replicas = 3
	assert.Equal(t, scale.Observed{
		Set: "s", Replicas: 3, Taken: []string{"x"}, Seed: 7,
		Members: []scale.Member{{Name: "m", UID: "uid-m", Version: "9", Phase: "Running", Deleting: true, Priority: 1, Created: created}},
	}, observe.ScaleObserved(s, []*v1alpha1.Machine{m}, []string{"x"}, 7))
	assert.True(t, observe.ScaleObserved(set("s", goingSet), nil, nil, 0).Deleting)
}

func TestPriority(t *testing.T) {
	for value, want := range map[string]int{"1": 1, "-5": -5, "100": 100, "": 3, "high": 3, "1.5": 3} {
		m := machine("m")
		m.Annotations = map[string]string{v1alpha1.AnnotationMachinePriority: value}
		assert.Equal(t, want, observe.Priority(m), "annotation %q", value)
	}
	assert.Equal(t, 3, observe.Priority(machine("m")), "no annotation")
}

// sized returns a set with this spec and these counts in its status: replicas, ready, available.
func sized(name string, replicas int32, counts [3]int32, change ...func(*v1alpha1.MachineSet)) *v1alpha1.MachineSet {
	s := set(name, change...)
	s.Spec.Replicas = replicas
	s.Status.Replicas, s.Status.ReadyReplicas, s.Status.AvailableReplicas = counts[0], counts[1], counts[2]
	return s
}

func oldTemplate(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class.Name = "old" }

func TestDeploymentFacts(t *testing.T) {
	d := deployment("d")
	d.Generation, d.Spec.Replicas, d.Finalizers = 4, 5, []string{v1alpha1.FinalizerMachine}
	d.Status = v1alpha1.MachineDeploymentStatus{
		ObservedGeneration: 4, Replicas: 1, ReadyReplicas: 2, AvailableReplicas: 3, UpdatedReplicas: 4, UnavailableReplicas: 5,
	}
	facts := observe.DeploymentFacts(d, []*v1alpha1.MachineSet{
		sized("current", 4, [3]int32{4, 2, 3}),
		sized("old", 2, [3]int32{2, 1, 1}, oldTemplate),
		sized("going", 7, [3]int32{1, 0, 0}, goingSet, oldTemplate),
	})
	assert.Equal(t, attention.GroupFacts{
		Finalizer: true, Generation: 4, ObservedGeneration: 4, Wanted: 5,
		Sets: 2, Live: 6, // of the sets that are not being deleted
		Actual:   attention.Counts{Replicas: 7, Ready: 3, Available: 4, Updated: 4, Unavailable: 2},
		Reported: attention.Counts{Replicas: 1, Ready: 2, Available: 3, Updated: 4, Unavailable: 5},
	}, facts)
}

func TestUnavailableIsNeverNegative(t *testing.T) {
	facts := observe.DeploymentFacts(deployment("d"), []*v1alpha1.MachineSet{sized("s", 1, [3]int32{3, 3, 3})})
	assert.Zero(t, facts.Actual.Unavailable, "more machines than wanted, as while a set shrinks")
}

func TestRolloutObserved(t *testing.T) {
	d := deployment("d", func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas, d.DeletionTimestamp = 2, now() })
	s := sized("s", 3, [3]int32{}, goingSet, oldTemplate)
	s.ResourceVersion = "9"
	assert.Equal(t, rollout.Observed{
		Replicas: 2, Deleting: true,
		Sets: []rollout.Set{{Name: "s", UID: "uid-s", Version: "9", Replicas: 3, Deleting: true}},
	}, observe.RolloutObserved(d, []*v1alpha1.MachineSet{s}))
	assert.True(t, observe.RolloutObserved(d, []*v1alpha1.MachineSet{set("s")}).Sets[0].Current)
}
