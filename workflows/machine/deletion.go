package machine

import (
	"cmp"
	"fmt"

	"go.temporal.io/sdk/workflow"

	"millwright/activities/cloud"
	"millwright/activities/drain"
	"millwright/activities/kube"
	activities "millwright/activities/machine"
	"millwright/api/vocabulary"
	"millwright/decide/deletion"
	decidedrain "millwright/decide/drain"
	"millwright/decide/phrase"
	"millwright/workflows/run"
)

// runDeletion executes the stage of the deletion that the decision names. The deletion is complete after the stage
// Release. Each stage is recorded in the status before its work starts, so later runs never return to an earlier stage.
// If a stage succeeds in its first local attempt, the stage is not written to the status.
func (m *machine) runDeletion(ctx workflow.Context, d activities.Decision) error {
	if d.Problem != nil && d.NeverTried { // no class is needed, because there is nothing for the provider to delete
		return m.releaseMachine(ctx, d, "no instance was ever created: our finalizer is removed")
	}
	if again, err := m.recordMissingNames(ctx, d); err != nil || again {
		return err
	}
	s := *d.Deletion
	if announced, err := m.announceDeletion(ctx, d); err != nil || !announced {
		return err
	}
	if s.BlockedBy == nil {
		if over, err := m.tryStageLocally(ctx, d, s); err != nil || over {
			return err
		}
	}
	if err := m.enterStage(ctx, d, s); err != nil {
		return err
	}
	return m.runStage(ctx, d, s)
}

// tryStageLocally tries a stage before the stage is recorded. over is false if the stage must be recorded and run
// normally.
func (m *machine) tryStageLocally(ctx workflow.Context, d activities.Decision, s deletion.Step) (over bool, err error) {
	switch {
	case s.Stage == deletion.StageDrain:
		return true, m.drainNode(ctx, d)
	case s.Stage == deletion.StageDeleteNode && s.Record && s.Abandoned == "":
		_, over, err := deleteNodeActivity.RunLocalAttempt(ctx, "removes node "+d.NodeName, m.nodeRemoval(d))
		if !over { // the activity takes longer than a local attempt, so the stage must be recorded and shown
			return false, nil
		}
		if err == nil {
			m.finishedStage = deletion.StageDeleteNode
		}
		return true, err
	case s.Stage == deletion.StageRemoveFinalizer && s.Abandoned == "":
		return true, m.releaseMachine(ctx, d, "our finalizer is removed")
	default:
		return false, nil
	}
}

// runStage does the work of a recorded stage. While something blocks the stage, runStage only waits for a change.
func (m *machine) runStage(ctx workflow.Context, d activities.Decision, s deletion.Step) error {
	switch {
	case len(s.BlockedBy) > 0:
		return m.AwaitChange(ctx)
	case s.Stage == deletion.StageDetachVolumes:
		return m.awaitVolumeDetach(ctx, d)
	case s.Stage == deletion.StageDeleteInstance:
		return m.deleteInstance(ctx, d)
	case s.Stage == deletion.StageDeleteNode:
		return m.deleteNode(ctx, d)
	default: // the status reports that the instance stays
		m.finishedStage = deletion.StageDeleteNode
		return m.releaseMachine(ctx, d, "our finalizer is removed")
	}
}

// announceDeletion sets the node condition that reports the deletion of the machine. This condition is the first write
// to the node during the deletion.
func (m *machine) announceDeletion(ctx workflow.Context, d activities.Decision) (announced bool, err error) {
	if !d.Deletion.Announce || m.announcedNode == d.NodeName {
		return true, nil
	}
	made, went, err := runOnTarget(
		ctx,
		m,
		d,
		"node "+d.NodeName+" gets the condition that its machine is deleted",
		announceTerminationActivity,
		m.NewReadInput(ctx),
	)
	m.RaiseMinVersions(made)
	if len(made) > 0 { // if no node was written, the next decision tries again
		m.announcedNode = d.NodeName
	}
	return went != targetCallUnanswered, err
}

// enterStage shows a stage that begins, and records the stage in the status if it is not recorded yet.
func (m *machine) enterStage(ctx workflow.Context, d activities.Decision, s deletion.Step) error {
	if s.Stage == deletion.StageDrain && !s.Record && s.BlockedBy == nil && m.Shown.Name == vocabulary.StepQueuedForDrain {
		return nil // the machine is shown as queued until its turn comes
	}
	now := stepOfStage(s, d)
	again, resumed := m.Shown.Name == now.Name && m.Shown.Why == now.Why, m.Shown.Name == vocabulary.StepHeldByOperator
	m.ShowStep(ctx, now)
	if !s.Record && (again || !now.Stuck) && !resumed {
		return nil
	}
	_, description := stageNames(s.Stage)
	report := m.progressReport(
		ctx,
		vocabulary.PhaseTerminating,
		newLastOperation(vocabulary.OperationDelete, vocabulary.StateProcessing, description),
	)
	report.Deletion = &activities.DeletionProgress{Stage: s.Stage}
	if result, message := m.skippedDrainResult(s, d); result != "" {
		report.Deletion.Result = result
		report.Conditions = []activities.Condition{
			{Type: vocabulary.ConditionDrained, True: true, Reason: result, Message: message},
		}
	}
	if s.Abandoned != "" {
		message := "the provider was not asked to delete instance " + d.ProviderID + ": " + s.Abandoned
		report.Event = &kube.Event{Warning: true, Reason: vocabulary.ReasonInstanceAbandoned, Message: message}
	}
	if now.Stuck {
		report.Operation.Description = now.Why
		report.Event = &kube.Event{Reason: vocabulary.ReasonDeletionHeld, Message: now.Why}
	}
	return m.writeStatus(ctx, "stage "+string(s.Stage)+": "+s.Why, report)
}

// skippedDrainResult returns the result of an unnecessary drain, and the reason why it was unnecessary. The result and
// the reason are empty if the drain was necessary, or if its result is already in the status.
func (m *machine) skippedDrainResult(s deletion.Step, d activities.Decision) (result, why string) {
	switch {
	case s.Empty && m.isDrainSkipped:
		return vocabulary.DrainResultSkipped,
			"the cluster of " + phrase.NodeText(d.NodeName) + " does not answer, and a person wanted no wait for it"
	case s.Empty:
		return vocabulary.DrainResultDrained, "no pod had to leave " + phrase.NodeText(d.NodeName)
	case s.Skipped != "":
		return vocabulary.DrainResultSkipped, s.Skipped
	default:
		return "", ""
	}
}

// stepOfStage returns the step that shows a stage in Temporal and in the status.
func stepOfStage(s deletion.Step, d activities.Decision) run.Step {
	now := run.Step{
		Why:       s.Why,
		Phase:     vocabulary.PhaseTerminating,
		Node:      d.NodeName,
		BlockedBy: s.BlockedBy,
		Stuck:     s.BlockedBy != nil,
	}
	if s.IsHeld() {
		now.Name = vocabulary.StepHeldByOperator
		return now
	}
	if now.Name, _ = stageNames(s.Stage); s.Stage == deletion.StageDeleteInstance {
		now.Why = fmt.Sprintf("provider %s removes instance %s", d.Provider, d.ProviderID)
	}
	return now
}

// stageNames returns the step name of a stage and its description for lastOperation. No decision reads the description.
// If machine-controller-manager has the same stage, the description has the words of machine-controller-manager.
func stageNames(s deletion.Stage) (step, description string) {
	switch s {
	case deletion.StagePreDrainHooks:
		return vocabulary.StepAwaitHooks, "Set machine status to termination"
	case deletion.StageDrain:
		return vocabulary.StepDrain, "Initiate node drain"
	case deletion.StageDetachVolumes:
		return vocabulary.StepAwaitDetach, "Wait for volumes to be detached"
	case deletion.StagePreTerminateHooks:
		return vocabulary.StepAwaitHooks, "Wait for pre-terminate hooks"
	case deletion.StageDeleteInstance:
		return vocabulary.StepDeleteInstance, "Initiate VM deletion"
	default:
		return vocabulary.StepDeleteNode, "Initiate node object deletion"
	}
}

// awaitVolumeDetach waits until no volume is attached to the node or until the stage's timeout ends. After the timeout
// the cloud detaches the remaining volumes when it deletes the instance.
func (m *machine) awaitVolumeDetach(ctx workflow.Context, d activities.Decision) error {
	since := d.StageSince
	if d.Deletion.Record { // the stage has just begun
		since = workflow.Now(ctx)
	}
	in := drain.DetachWait{Machine: m.Ref, NodeName: d.NodeName, Since: since, Tells: true}
	for {
		var seen drain.DetachResult
		cancelled, err := m.RunWhileNeeded(
			ctx,
			vocabulary.StepAwaitDetach,
			new(drain.Activities).AwaitDetach,
			in,
			&seen,
			func() (bool, error) {
				now, err := m.Decide(ctx)
				return now.Deletion != nil && now.Deletion.Stage == deletion.StageDetachVolumes &&
					now.Deletion.BlockedBy == nil, err
			},
		)
		if err != nil || cancelled {
			return err
		}
		if !seen.GoesOn {
			m.finishedStage = deletion.StageDetachVolumes
			return nil
		}
		if err := m.showAttachedVolumes(ctx, d, seen); err != nil {
			return err
		}
		in.Shown = seen.Left
	}
}

// maxShownVolumes is the number of volumes in the message of the stage Detach. Source: two names fit into the 80
// columns of a terminal.
const maxShownVolumes = 2

// showAttachedVolumes reports which volumes are still attached to the node, and when the wait for them ends.
func (m *machine) showAttachedVolumes(ctx workflow.Context, d activities.Decision, seen drain.DetachResult) error {
	all := len(seen.Left) + seen.More
	why := phrase.SingularOrPlural(
		all,
		"volume ",
		"volumes ",
	) + phrase.JoinNamesWithTotal(
		seen.Left,
		all,
		maxShownVolumes,
		", ",
	) +
		phrase.SingularOrPlural(
			all,
			" is",
			" are",
		) + " still attached to the node"
	s := run.Step{
		Name:     vocabulary.StepAwaitDetach,
		Why:      why,
		Phase:    vocabulary.PhaseTerminating,
		Node:     d.NodeName,
		Stuck:    true,
		Deadline: seen.Until,
	}
	for _, name := range seen.Left {
		s.BlockedBy = append(s.BlockedBy, decidedrain.BlockedByVolume+" "+name)
	}
	m.ShowStep(ctx, s)
	_, description := stageNames(deletion.StageDetachVolumes)
	report := m.progressReport(
		ctx,
		vocabulary.PhaseTerminating,
		newLastOperation(vocabulary.OperationDelete, vocabulary.StateProcessing, description),
	)
	return m.writeStatus(ctx, why, report)
}

func (m *machine) deleteInstance(ctx workflow.Context, d activities.Decision) error {
	if d.Problem != nil {
		return m.awaitRepairByPerson(ctx, d, *d.Problem)
	}
	answer, err := m.callProvider(ctx, d, new(cloud.Activities).DeleteInstance, m.instanceCall(d))
	if err != nil || answer == nil {
		return err
	}
	m.finishedStage, m.isInstanceOfOtherMachine = deletion.StageDeleteInstance, answer.Anothers != ""
	if !m.isInstanceOfOtherMachine {
		return nil
	}
	message := "the instance stays: " + answer.Anothers
	report := m.progressReport(ctx, vocabulary.PhaseTerminating, nil)
	report.Event = &kube.Event{Warning: true, Reason: vocabulary.ReasonInstanceOfOtherMachine, Message: message}
	report.Conditions = []activities.Condition{
		{Type: vocabulary.ConditionInstanceReady, Reason: vocabulary.ReasonInstanceOfOtherMachine, Message: message},
	}
	return m.writeStatus(ctx, message, report)
}

func (m *machine) deleteNode(ctx workflow.Context, d activities.Decision) error {
	_, went, err := runOnTarget(ctx, m, d, "removes node "+d.NodeName, deleteNodeActivity, m.nodeRemoval(d))
	if went != targetCallUnanswered {
		m.finishedStage = deletion.StageDeleteNode
	}
	return err
}

func (m *machine) nodeRemoval(d activities.Decision) activities.NodeRemoval {
	return activities.NodeRemoval{
		Machine:       m.Ref,
		NodeName:      d.NodeName,
		ProviderID:    d.ProviderID,
		InstanceStays: d.Deletion.Stays || m.isInstanceOfOtherMachine,
	}
}

// releaseMachine removes the machine's remaining objects from the target cluster, then the finalizer.
func (m *machine) releaseMachine(ctx workflow.Context, d activities.Decision, summary string) error {
	in := activities.ReleaseInput{ReadInput: m.NewReadInput(ctx), Hurry: d.Deletion.Hurry}
	_, went, err := runOnTarget(ctx, m, d, summary, releaseMachineActivity, in)
	if went != targetCallUnanswered {
		m.finishedStage = deletion.StageRemoveFinalizer
	}
	return err
}

// targetOutcome describes whether a deletion may continue after an activity in the target cluster.
type targetOutcome int

const (
	targetCallUnanswered targetOutcome = iota // the target cluster has not answered, so the deletion waits
	targetCallSucceeded                       // the activity has succeeded, so the deletion continues
	targetCallSkipped                         // the target cluster does not answer, but a person skips the wait
)

// runOnTarget runs an activity in the target cluster. While the target cluster does not answer, lastOperation is
// Failed, and each signal leads to a new decision. The deletion does not wait for the target cluster if a person has
// requested skip or abandon-instance. Before the stage Instance, a request for force also ends this wait.
func runOnTarget[In, Out any](
	ctx workflow.Context, m *machine, d activities.Decision, summary string, activity run.LocalActivity[In, Out], in In,
) (out Out, went targetOutcome, err error) {
	out, over, err := activity.RunLocalAttempt(ctx, summary, in)
	switch {
	case over && err != nil:
		return out, targetCallUnanswered, err
	case over:
		return out, targetCallSucceeded, nil
	case d.Deletion.Hurry || d.Deletion.Force:
		return out, targetCallSkipped, nil
	}
	// if the error is internal, the target cluster has answered
	if _, internal := kube.FailureOfType(err, kube.FailureTypeInternal); !internal {
		if err := m.showUnansweredTarget(ctx, d, summary, err); err != nil {
			return out, targetCallUnanswered, err
		}
	}
	if over, err = m.RunUntilChanged(ctx, summary, activity.Activity, in, &out); over {
		went = targetCallSucceeded
	}
	return out, went, err
}

// showUnansweredTarget shows in details and status that the target cluster does not answer an activity, or refuses it.
func (m *machine) showUnansweredTarget(ctx workflow.Context, d activities.Decision, summary string, err error) error {
	s := m.Shown
	s.Why = cmp.Or(d.TargetDown, "the target cluster does not answer") + ": " + summary
	s.Node, s.Phase = d.NodeName, vocabulary.PhaseTerminating
	if denied, is := kube.FailureOfType(err, kube.FailureTypeDenied); is {
		s.Why = "the target cluster does not allow it: " + summary + ": " + denied.Message()
	}
	s.Name = cmp.Or(s.Name, vocabulary.StepAnnounceTermination)
	s.BlockedBy = []string{vocabulary.BlockedByUnavailableTarget}
	s.Stuck = true
	m.ShowStep(ctx, s)
	report := m.progressReport(
		ctx,
		vocabulary.PhaseTerminating,
		newLastOperation(vocabulary.OperationDelete, vocabulary.StateFailed, s.Why),
	)
	return m.writeStatus(ctx, s.Why, report)
}
