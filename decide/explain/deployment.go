package explain

import (
	"fmt"
	"time"

	"millwright/api/vocabulary"
)

// Deployment is what the status of a deployment says, with its sets and machines.
type Deployment struct {
	Namespace, Name string
	Conditions      []Condition
	Busy            bool      // machines of other templates are there, or the template has no set: a pause keeps them so
	Hold            string    // why failed machines are not replaced now; empty: they are, or there are none
	HoldSince       time.Time // zero: from now on
	Until           time.Time // when the present step of the rollout ends by itself; zero: not by itself
	Sets            []Set     // without their machines
	Machines        []Machine
	Of              int // as of a Set
}

// Blocked sums up what blocks the deployment, its sets and its machines.
func (d Deployment) Blocked(now time.Time) Summary {
	waits := d.waits()
	for _, set := range d.Sets {
		waits = append(waits, set.waits()...)
	}
	return summarize(waits, d.Machines, d.Of, now)
}

// waits returns what the deployment itself waits for; none if only its sets or machines wait.
func (d Deployment) waits() []Wait {
	var waits []Wait
	edit := fmt.Sprintf("kubectl edit machinedeployment -n %s %s", d.Namespace, d.Name)
	for _, c := range d.Conditions {
		if c.Type != vocabulary.ConditionProgressing {
			continue
		}
		w := Wait{Blockers: []string{c.Reason}, Since: c.Since, Cause: c.Message}
		switch c.Reason {
		case vocabulary.ReasonInvalid:
			w.Command = edit
		case vocabulary.ReasonMachineSetCreateError:
			w.Blockers, w.Command = []string{vocabulary.BlockedRefused}, edit
		case vocabulary.ReasonDeploymentPaused:
			w.Blockers, w.Command = []string{vocabulary.BlockedPaused}, d.starter("resume")
		case vocabulary.ReasonRolloutHeld:
			w.Blockers, w.Command = []string{vocabulary.BlockedHold}, d.starter("resume")
		case vocabulary.ReasonRolloutWaiting:
			w.Blockers, w.Command = []string{vocabulary.BlockedApproval}, d.starter("approve")+giveReason
			if !d.Until.IsZero() {
				w.Blockers, w.Next, w.At = []string{vocabulary.BlockedStep}, Words{One: "the next step begins"}, d.Until
			}
		case vocabulary.ReasonProgressDeadlineExceeded:
			w.Command = d.starter("status")
		default:
			continue
		}
		if stopped := w.Blockers[0] == vocabulary.BlockedPaused || w.Blockers[0] == vocabulary.BlockedHold; stopped && !d.Busy {
			continue
		}
		waits = append(waits, w)
	}
	if d.Hold != "" {
		waits = append(waits, Wait{
			Blockers: []string{vocabulary.ConditionReplacementHeld}, Since: d.HoldSince, Cause: "failed machines are not replaced: " + d.Hold,
			Command: "kubectl get machines -n " + d.Namespace,
		})
	}
	return waits
}

func (d Deployment) starter(command string) string {
	return fmt.Sprintf("starter rollout %s %s/%s", command, d.Namespace, d.Name)
}
