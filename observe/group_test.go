package observe_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	"millwright/observe"
)

// blocked is a machine that the provider makes no instance for, as its condition of this type says.
func blocked(kind corev1.NodeConditionType, reason string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Status.CurrentStatus.Phase = v1alpha1.MachineCrashLoopBackOff
		m.Status.Conditions = append(m.Status.Conditions, corev1.NodeCondition{Type: kind, Status: "False", Reason: reason, Message: "no " + reason})
	}
}

func blockedSet(status v1alpha1.ConditionStatus, reason string) func(*v1alpha1.MachineSet) {
	return func(s *v1alpha1.MachineSet) {
		s.Status.Conditions = []v1alpha1.MachineSetCondition{
			{Type: v1alpha1.MachineSetFrozen, Status: "True", Reason: "OverShootingReplicaCount"},
			{Type: v1alpha1.MachineSetReplicaFailure, Status: status, Reason: reason},
		}
	}
}

func preserved(m *v1alpha1.Machine) { m.Status.CurrentStatus.PreserveExpiryTime = now() }

func TestBlocked(t *testing.T) {
	for _, row := range []struct {
		name    string
		machine *v1alpha1.Machine
		reason  string
		message string
	}{
		{"a new machine", machine("m"), "", ""},
		{"the provider has none", machine("m", blocked("InstanceReady", "ResourceExhausted")), "ResourceExhausted", "no ResourceExhausted"},
		{"the class is missing", machine("m", blocked("ClassReady", "ClassNotFound")), "ClassNotFound", "no ClassNotFound"},
		{"it is being made", machine("m", blocked("InstanceReady", "Creating"), phase(v1alpha1.MachinePending)), "", ""},
		{"it is to go", machine("m", blocked("InstanceReady", "ResourceExhausted"), goingMachine), "", ""},
		{"a condition of a node says nothing of an instance", machine("m", blocked("Ready", "KubeletNotReady")), "", ""},
		{"nor does one that patience has not ended", machine("m", blocked("ReplacementDue", "Recovered")), "", ""},
		{"one that is in order", machine("m", blocked("ClassReady", ""), func(m *v1alpha1.Machine) { m.Status.Conditions[0].Status = "True" }), "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			reason, message := observe.Blocked(row.machine)
			assert.Equal(t, row.reason, reason)
			assert.Equal(t, row.message, message)
		})
	}
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
		Conditions: []v1alpha1.MachineDeploymentCondition{
			{Type: v1alpha1.MachineDeploymentAvailable, Status: "True", Reason: "MinimumReplicasAvailable"},
			{Type: v1alpha1.MachineDeploymentReplicaFailure, Status: "True", Reason: "Internal"},
		},
		Replacements: []v1alpha1.MachineReplacement{{UID: "uid-a"}, {UID: "uid-b"}},
	}
	facts := observe.DeploymentFacts(d, []*v1alpha1.MachineSet{
		sized("current", 4, [3]int32{4, 2, 3}, blockedSet("True", "ResourceExhausted")),
		sized("old", 2, [3]int32{2, 1, 1}, oldTemplate, blockedSet("True", "Internal")),
		sized("going", 7, [3]int32{1, 0, 0}, goingSet, oldTemplate, blockedSet("False", "Unknown")),
	}, []*v1alpha1.Machine{
		machine("running", phase(v1alpha1.MachineRunning)),
		machine("due", phase(v1alpha1.MachineUnknown), isDue),
		machine("failed", phase(v1alpha1.MachineFailed)),
		machine("granted", phase(v1alpha1.MachineUnknown), isDue, isGranted),
	})
	assert.Equal(t, attention.GroupFacts{
		Finalizer: true, Generation: 4, ObservedGeneration: 4, Wanted: 5,
		Sets: 2, Live: 6, // of the sets that are not being deleted
		Due: 2, Replacing: 2,
		Actual:   attention.Counts{Replicas: 7, Ready: 3, Available: 4, Updated: 4, Unavailable: 2, Blocked: "ResourceExhausted"},
		Reported: attention.Counts{Replicas: 1, Ready: 2, Available: 3, Updated: 4, Unavailable: 5, Blocked: "Internal"},
	}, facts)
}

func TestADeploymentThatNothingBlocks(t *testing.T) {
	d := deployment("d")
	d.Status.Conditions = []v1alpha1.MachineDeploymentCondition{{Type: v1alpha1.MachineDeploymentReplicaFailure, Status: "False", Reason: "Internal"}}
	facts := observe.DeploymentFacts(d, []*v1alpha1.MachineSet{set("s", blockedSet("False", "Internal"))}, nil)
	assert.Empty(t, facts.Actual.Blocked)
	assert.Empty(t, facts.Reported.Blocked)
}

func TestUnavailableIsNeverNegative(t *testing.T) {
	facts := observe.DeploymentFacts(deployment("d"), []*v1alpha1.MachineSet{sized("s", 1, [3]int32{3, 3, 3})}, nil)
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
