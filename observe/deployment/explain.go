package deployment

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/explain"
	"millwright/decide/rollout"
	"millwright/observe/machine"
	observeset "millwright/observe/set"
)

// ExplanationFacts returns the facts that explain what blocks a deployment, its sets and its machines. The plan
// contains the conditions that the deployment's status should have. The parameter hold is the reason why failed
// machines are not replaced now; empty if they are replaced or no machine has failed.
func ExplanationFacts(f ObjectTree, plan rollout.PlanResult, hold string, now time.Time) explain.Deployment {
	d := f.Deployment
	e := explain.Deployment{
		Namespace:             d.Namespace,
		Name:                  d.Name,
		ReplacementHoldReason: hold,
		HasPendingChanges:     plan.Decision.NoSet || !plan.Decision.Complete,
		ReplacementHoldSince: conditionTransitionTime(
			d,
			string(v1alpha1.MachineDeploymentReplacementHeld),
			string(v1alpha1.ConditionTrue),
			now,
		),
		MachineCount: max(len(f.Members), int(d.Spec.Replicas)),
	}
	if pin := plan.Decision.Pin; pin != nil {
		e.PinWait = explain.WaitState{
			Blockers: []string{pin.Reason()}, Cause: pin.SentenceWithoutTime(plan.Decision.Revision), Since: pin.Since,
		}
	}
	if p := plan.Decision.Pause; p != nil && !p.Approve {
		e.RolloutStep, e.RolloutStepEnd = p.ReachedClause(), p.Until
	}
	e.Turn = plan.Decision.Turn
	for _, c := range plan.Status.Conditions {
		// In these facts, only the condition Progressing has an update time. A new reason changes the update time of a
		// condition, but not its transition time.
		since := c.LastUpdateTime
		if since.IsZero() {
			since = conditionTransitionTime(d, c.Type, c.Status, now)
		}
		e.Conditions = append(
			e.Conditions,
			explain.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message, Since: since},
		)
	}
	sets := slices.SortedFunc(slices.Values(f.Sets), func(a, b *v1alpha1.MachineSet) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) // newest set first
	})
	for _, set := range sets {
		e.Sets = append(e.Sets, observeset.ExplanationFactsWithoutMachines(set, d, now))
	}
	for _, m := range f.Members {
		var class *v1alpha1.MachineClass
		if f.ClassOfMachine != nil {
			class = f.ClassOfMachine(m)
		}
		e.Machines = append(e.Machines, machine.ExplanationFacts(m, class, now))
	}
	return e
}

// conditionTransitionTime returns the transition time of a deployment's condition if the condition has this status;
// otherwise now.
func conditionTransitionTime(d *v1alpha1.MachineDeployment, kind, status string, now time.Time) time.Time {
	for _, c := range d.Status.Conditions {
		if string(c.Type) == kind && string(c.Status) == status {
			return c.LastTransitionTime.Time
		}
	}
	return now
}

// ConditionMessage returns the message of a deployment's condition; empty if the deployment has no such condition.
func ConditionMessage(d *v1alpha1.MachineDeployment, kind v1alpha1.MachineDeploymentConditionType) string {
	for _, c := range d.Status.Conditions {
		if c.Type == kind {
			return c.Message
		}
	}
	return ""
}

// StatusShowsBlockers reports whether the status of a deployment shows what blocks the deployment.
func StatusShowsBlockers(s *v1alpha1.MachineDeploymentStatus, blocked explain.Summary) bool {
	for _, c := range s.Conditions {
		if c.Type == v1alpha1.MachineDeploymentBlocked {
			return c.Reason == blocked.Reason && c.Message == blocked.Message
		}
	}
	return !blocked.IsBlocked()
}

// ApplyBlockedCondition sets the condition Blocked in a deployment's status, or removes the condition if nothing blocks
// the deployment.
func ApplyBlockedCondition(s *v1alpha1.MachineDeploymentStatus, blocked explain.Summary, now metav1.Time) {
	if !blocked.IsBlocked() {
		s.Conditions = slices.DeleteFunc(
			s.Conditions,
			func(c v1alpha1.MachineDeploymentCondition) bool { return c.Type == v1alpha1.MachineDeploymentBlocked },
		)
		return
	}
	s.Conditions = SetCondition(s.Conditions, v1alpha1.MachineDeploymentCondition{
		Type:    v1alpha1.MachineDeploymentBlocked,
		Status:  v1alpha1.ConditionTrue,
		Reason:  blocked.Reason,
		Message: blocked.Message,
	}, now)
	for i := range s.Conditions {
		if s.Conditions[i].Type == v1alpha1.MachineDeploymentBlocked {
			s.Conditions[i].LastTransitionTime = metav1.NewTime(blocked.Since).Rfc3339Copy()
		}
	}
}
