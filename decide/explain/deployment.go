package explain

import (
	"fmt"
	"slices"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/decide/rollout"
)

// Deployment holds the facts from the status of a deployment, its sets and its machines.
type Deployment struct {
	Namespace, Name string
	Conditions      []Condition
	// machines of other templates exist, or the template has no set; a pause delays these changes
	HasPendingChanges bool
	IsClusterAPI      bool   // the deployment is a Cluster API MachineDeployment
	ResumeCommand     string // command that ends the pause of the deployment or its Cluster; empty: no such pause
	// why the machines stay on an earlier revision, without NextEvent and Command; zero: the machines follow the template
	PinWait               WaitState
	ReplacementHoldReason string    // why failed machines are not replaced now; empty: they are replaced, or none failed
	ReplacementHoldSince  time.Time // when ReplacementHoldReason began; zero: the hold begins now
	// RolloutStep describes the rollout step that ends by itself at RolloutStepEnd; empty: the rollout is not in such a
	// step.
	RolloutStep    string
	RolloutStepEnd time.Time
	// Turn says which deployment of the policy is rolled out first; nil: the deployment does not wait for its turn.
	Turn         *rollout.TurnWait
	Sets         []MachineSet // the deployment's sets; their Machines are empty
	Machines     []Machine
	MachineCount int // existing or wanted number of machines, whichever is larger
}

// BlockedSummary returns the Summary of the deployment, its sets and its machines.
func (d Deployment) BlockedSummary(now time.Time) Summary {
	waits, upstream := d.waitsOfDeployment(), []ClusterAPIMachine(nil)
	for _, set := range d.Sets {
		waits, upstream = append(waits, d.waitsOfSet(set)...), append(upstream, set.ClusterAPIMachines...)
	}
	return summarizeWaits(
		waits,
		append(waitsOfMachines(waits, d.Machines), waitsOfClusterAPIMachines(upstream)...),
		d.MachineCount,
		now,
	)
}

// waitsOfSet returns the waits of a set that the waits of the deployment do not contain: if the deployment says why it
// grants no replacement, the reason includes the last retry of its sets.
func (d Deployment) waitsOfSet(set MachineSet) []WaitState {
	return list.Filter(set.waitsOfSet(), func(w WaitState) bool {
		return d.ReplacementHoldReason == "" || !slices.Contains(w.Blockers, vocabulary.ReasonMaxRetryReached)
	})
}

// waitsOfDeployment returns the waits of the deployment itself. If only its sets or machines wait, waitsOfDeployment
// returns no waits.
func (d Deployment) waitsOfDeployment() []WaitState {
	var waits []WaitState
	if d.PinWait.IsBlocked() {
		d.PinWait.NextEvent = newEvent("change the template, or retry it", "")
		d.PinWait.Command = d.rolloutCommand("retry")
		waits = append(waits, d.PinWait)
	}
	for _, c := range d.Conditions {
		if c.Reason == vocabulary.ReasonDeploymentRollbackTemplateNotFound {
			waits = append(waits, WaitState{
				Blockers: []string{c.Reason}, Since: c.Since, Cause: c.Message,
				NextEvent: newEvent("create it again, or change the template", ""),
				Command:   "kubectl edit " + d.kubectlArguments(),
			})
		}
		if c.Type != vocabulary.ConditionProgressing {
			continue
		}
		w := d.progressingWait(c)
		stopped := w.IsBlocked() && (w.Blockers[0] == vocabulary.BlockedByPause || w.Blockers[0] == vocabulary.BlockedByHold)
		if w.IsBlocked() && (!stopped || d.HasPendingChanges) {
			waits = append(waits, w)
		}
	}
	if d.ReplacementHoldReason != "" {
		waits = append(waits, WaitState{
			Blockers: []string{
				vocabulary.ConditionReplacementHeld,
			},
			Since:   d.ReplacementHoldSince,
			Cause:   "failed machines are not replaced: " + d.ReplacementHoldReason,
			Command: "kubectl get machines -n " + d.Namespace,
		})
	}
	return waits
}

// progressingWait returns the WaitState that the condition Progressing describes. If the rollout continues,
// progressingWait returns the zero WaitState.
func (d Deployment) progressingWait(c Condition) WaitState {
	w := WaitState{Blockers: []string{c.Reason}, Since: c.Since, Cause: c.Message}
	object := d.kubectlArguments()
	switch c.Reason {
	case vocabulary.ReasonWaitingForTurn:
		return d.turnWaitState(w)
	case vocabulary.ReasonInvalid:
		w.Command = "kubectl edit " + object
	case vocabulary.ReasonMachineSetCreateError:
		w.Blockers, w.Command = []string{vocabulary.BlockedByRefusedWrite}, "kubectl edit "+object
		w.NextEvent = newEvent(
			"it is tried again at least every "+phrase.DurationText(MaxRefusedWriteRetryPause), "",
		)
	case vocabulary.ReasonPolicyInvalid:
		w.NextEvent = newEvent("give the deployment a progress deadline, or correct the policy", "")
		w.Command = "kubectl edit rolloutpolicies -n " + d.Namespace
	case vocabulary.ReasonTemplateNotFound, vocabulary.ReasonScaleUpStopped:
		w.Command = "kubectl get " + object + " -o yaml"
	case vocabulary.ReasonExtensionFailed:
		w.NextEvent = newEvent("it is asked again every "+phrase.DurationText(rollout.ExtensionRetryInterval), "")
		w.Command = "kubectl get extensionconfigs.runtime.cluster.x-k8s.io -o yaml"
	case vocabulary.ReasonNotUpdatedInPlace:
		w.NextEvent = newEvent("correct the template, or let the rollout replace the machines", "")
		w.Command = "kubectl annotate " + object + " --overwrite " + vocabulary.AnnotationInPlaceUpdates + "=true"
	case vocabulary.ReasonDeploymentPaused:
		w.Blockers, w.NextEvent, w.Command = []string{
			vocabulary.BlockedByPause,
		}, untilResumedEvent(), d.rolloutCommand(
			"resume",
		)
		if d.ResumeCommand != "" {
			w.NextEvent, w.Command = newEvent("nothing is done until this has ended", ""), d.ResumeCommand
		}
	case vocabulary.ReasonRolloutHeld:
		w.Blockers, w.NextEvent, w.Command = []string{
			vocabulary.BlockedByHold,
		}, untilResumedEvent(), d.rolloutCommand(
			"resume",
		)
	case vocabulary.ReasonRolloutWaiting:
		w.Blockers, w.Command = []string{vocabulary.BlockedByMissingApproval}, d.rolloutCommand("approve")+requiredReasonFlag
		if d.RolloutStep != "" {
			w.Blockers = []string{vocabulary.BlockedByRolloutStep}
			w.Cause = d.RolloutStep
			w.NextEvent = newEvent("the next step begins", "next step")
			w.NextEventTime = d.RolloutStepEnd
		}
	case vocabulary.ReasonProgressDeadlineExceeded:
		w.Command = d.rolloutCommand("status")
	default:
		return WaitState{}
	}
	return w
}

// turnWaitState returns the WaitState of a deployment that waits for its turn.
func (d Deployment) turnWaitState(w WaitState) WaitState {
	w.Blockers = []string{vocabulary.BlockedByTurn}
	w.Command = "kubectl get rolloutpolicies -n " + d.Namespace + " -o yaml"
	if d.Turn == nil {
		return w
	}
	if d.Turn.Sibling != "" {
		w.Command = "millwright rollout status " + d.Namespace + "/" + d.Turn.Sibling
	}
	if !d.Turn.Until.IsZero() {
		w.NextEvent, w.NextEventTime = newEvent("the next rollout begins", "next rollout"), d.Turn.Until
	}
	return w
}

// untilResumedEvent returns the event of a rollout that a person has stopped.
func untilResumedEvent() Event {
	return newEvent("nothing is rolled out until somebody resumes it", "")
}

// kubectlArguments returns the arguments with which kubectl names the deployment.
func (d Deployment) kubectlArguments() string {
	return fmt.Sprintf("%s -n %s %s", d.resourceName(), d.Namespace, d.Name)
}

// resourceName returns the deployment's resource for kubectl. Both API groups have machinedeployments, so Cluster API's
// name has the group.
func (d Deployment) resourceName() string {
	if d.IsClusterAPI {
		return "machinedeployments.cluster.x-k8s.io"
	}
	return "machinedeployment"
}

func (d Deployment) rolloutCommand(command string) string {
	return fmt.Sprintf("millwright rollout %s %s/%s", command, d.Namespace, d.Name)
}
