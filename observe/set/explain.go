package set

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/explain"
	"millwright/decide/scale"
	"millwright/observe/cache"
	"millwright/observe/machine"
)

// ExplanationFacts returns the facts that explain what blocks a set and its machines. The parameter conditions contains
// the conditions that the set's status should have.
func ExplanationFacts(
	set *v1alpha1.MachineSet,
	related RelatedObjects,
	conditions []scale.Condition,
	now time.Time,
) explain.MachineSet {
	s := factsWithoutMachines(set, related.Deployment, conditions, len(related.Members), now)
	s.MachineCount = max(len(related.Members), int(set.Spec.Replicas))
	for _, m := range related.Members {
		s.Machines = append(s.Machines, machine.ExplanationFacts(m, related.lookUpClass(m), now))
	}
	return s
}

// ExplanationFactsWithoutMachines is ExplanationFacts without the machines; it uses the conditions in the set's status.
func ExplanationFactsWithoutMachines(
	set *v1alpha1.MachineSet,
	deployment *v1alpha1.MachineDeployment,
	now time.Time,
) explain.MachineSet {
	return factsWithoutMachines(set, deployment, reportedStatus(&set.Status).Conditions, int(set.Status.Replicas), now)
}

func factsWithoutMachines(
	set *v1alpha1.MachineSet,
	deployment *v1alpha1.MachineDeployment,
	conditions []scale.Condition,
	there int,
	now time.Time,
) explain.MachineSet {
	s := explain.MachineSet{
		Namespace: set.Namespace, Name: set.Name, ClassName: set.Spec.Template.Spec.Class.Name,
		Deleting:          set.DeletionTimestamp != nil,
		HasPendingChanges: set.DeletionTimestamp != nil || there != int(set.Spec.Replicas), Frozen: cache.IsFrozen(set),
	}
	if deployment != nil {
		if _, paused := deployment.Annotations[v1alpha1.AnnotationPaused]; paused {
			s.PausedBy = deployment.Name
		}
		if cache.IsFrozen(deployment) {
			s.Frozen, s.FrozenBy = true, deployment.Name
		}
	}
	for _, c := range conditions {
		since := now
		for _, was := range set.Status.Conditions {
			if string(was.Type) == c.Type && string(was.Status) == string(c.Status) {
				since = was.LastTransitionTime.Time
			}
		}
		s.Conditions = append(
			s.Conditions,
			explain.Condition{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: since},
		)
	}
	return s
}

// lookUpClass returns the class of a machine; nil if the class does not exist or classes are unknown.
func (a RelatedObjects) lookUpClass(m *v1alpha1.Machine) *v1alpha1.MachineClass {
	if a.ClassOfMachine == nil {
		return nil
	}
	return a.ClassOfMachine(m)
}

// StatusShowsBlockers reports whether the status of a set shows what blocks the set.
func StatusShowsBlockers(s *v1alpha1.MachineSetStatus, blocked explain.Summary) bool {
	for _, c := range s.Conditions {
		if c.Type == v1alpha1.MachineSetBlocked {
			return c.Reason == blocked.Reason && c.Message == blocked.Message
		}
	}
	return !blocked.IsBlocked()
}

// BlockedText returns what blocks a set or one of its machines; empty if nothing is blocked. The status of the set's
// deployment repeats this text.
func BlockedText(set *v1alpha1.MachineSet) string {
	for _, c := range set.Status.Conditions {
		if c.Type == v1alpha1.MachineSetBlocked {
			return c.Reason + c.Message
		}
	}
	return ""
}

// ApplyBlockedCondition adds the condition Blocked to a set's status if something blocks the set.
func ApplyBlockedCondition(s *v1alpha1.MachineSetStatus, blocked explain.Summary) {
	if blocked.IsBlocked() {
		s.Conditions = append(s.Conditions, v1alpha1.MachineSetCondition{
			Type: v1alpha1.MachineSetBlocked, Status: v1alpha1.ConditionTrue, Reason: blocked.Reason, Message: blocked.Message,
			LastTransitionTime: metav1.NewTime(blocked.Since).Rfc3339Copy(),
		})
	}
}
