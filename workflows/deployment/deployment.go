// Package deployment contains the workflows of a MachineDeployment and its rollouts.
package deployment

import (
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/deployment"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	"millwright/workflows/run"
)

type machineDeployment struct {
	setWriter
	hasActed bool // this run has executed a step, so its history has grown
}

// MachineDeployment creates the set for its template, sets the set's size and writes the deployment's status. If
// machines of another template exist, MachineDeployment starts a rollout. While the rollout is open, only the rollout
// writes the sets. The workflow stays open as long as its object exists. After each completed change, the workflow
// continues as new to keep its history short.
func MachineDeployment(ctx workflow.Context, in run.Input) (run.Result, error) {
	return runDeployment(ctx, millwrightActivities(), in)
}

// ClusterAPIDeployment is MachineDeployment for a deployment of Cluster API. The deployment's sets are also objects of
// Cluster API. The run also ends when the deployment no longer has Millwright's label.
func ClusterAPIDeployment(ctx workflow.Context, in run.Input) (run.Result, error) {
	return runDeployment(ctx, clusterAPIActivities(), in)
}

func runDeployment(ctx workflow.Context, a apiActivities, in run.Input) (run.Result, error) {
	m := &machineDeployment{
		setWriter: setWriter{WorkflowState: run.NewWorkflowState(ctx, a.deploymentKind, a.resource, in), apiActivities: a},
	}
	m.Live, m.ContinuesAsNew = !in.Continued, true
	return run.ExecuteLoop(ctx, m)
}

// ExecuteStep carries out a decision, or waits for a change. A run that has changed something, and then
// had nothing to do for SettledTimeBeforeContinueAsNew, continues as new.
func (m *machineDeployment) ExecuteStep(ctx workflow.Context, d deployment.Decision) (*run.Result, error) {
	if d.Gone {
		return run.GoneResult(d.Pending.Why)
	}
	acted, err := m.carryOutDecision(ctx, d)
	m.hasActed = m.hasActed || acted || m.pendingNodeMarks != nil
	if err != nil || acted {
		return nil, m.reportRefusal(ctx, d, err)
	}
	if waits := m.futuresToAwait(ctx, d); len(waits) > 0 || d.Pending.Need != attention.NeedNothing || !m.hasActed {
		return nil, m.AwaitChange(ctx, waits...)
	}
	if t := m.Timers["settled"]; t == nil || t.Future.IsReady() { // a signal does not restart the timer
		m.EnsureTimer(
			ctx,
			"settled",
			run.SettledLabel(),
			workflow.Now(ctx).Add(run.SettledTimeBeforeContinueAsNew),
		)
	}
	if err := m.AwaitChange(ctx, m.Timers["settled"].Future); err != nil || m.Changed.Len() > 0 {
		return nil, err
	}
	return run.CalmResult(d.Pending.Why)
}

func (m *machineDeployment) carryOutDecision(ctx workflow.Context, d deployment.Decision) (acted bool, err error) {
	if d.Rollout.Rolling || d.Operation != "" {
		m.awaitNodeMarks(ctx) // only one workflow writes nodes at a time
	}
	if d.Operation != "" && d.Operation != m.endedRolloutID { // an earlier run started this rollout
		m.ShowStep(ctx, stepDuringRollout(d.Operation))
		return true, m.followRollout(ctx, d.Operation, d)
	}
	if d.Rollout.Rolling && d.Rollout.HoldBy != rollout.HeldByCancel && d.Rollout.HoldBy != rollout.HeldByTurn &&
		d.Rollout.Create == nil && !d.Prepare {
		m.ShowStep(ctx, stepDuringRollout(m.rolloutID(ctx, d.Rollout.TargetRevision())))
		return true, m.startAndAwaitRollout(ctx, d)
	}
	m.ShowStep(ctx, m.stepForDecision(d).WithBlockers(d.Blocked))
	return m.applyDecision(ctx, d)
}

// stepDuringRollout returns the step shown while a rollout is open. This workflow makes no decisions during the
// rollout, so the step contains only text that stays true.
func stepDuringRollout(id string) run.Step {
	return run.Step{
		Name: vocabulary.StepRollout,
		Why:  "the workflow " + id + " rolls the template out: its page says what it waits for",
	}
}

// startAndAwaitRollout starts a rollout and waits until the rollout has ended. If an earlier run of this workflow
// started the rollout and the rollout is still open, startAndAwaitRollout waits for it.
func (m *machineDeployment) startAndAwaitRollout(ctx workflow.Context, d deployment.Decision) error {
	options := run.RolloutOptions(
		ctx,
		m.rolloutKind,
		m.Ref,
		d.Rollout.TargetRevision(),
		fmt.Sprintf(
			"machines of former templates are replaced: %d of %d machines up to date",
			d.Picture.Counts.Updated,
			d.Picture.Wanted,
		),
	)
	child := workflow.ExecuteChildWorkflow(
		options,
		string(m.rolloutKind),
		RolloutInput{Input: run.Input{Ref: m.Ref, Versions: m.Versions}, Revision: d.Rollout.TargetRevision()},
	)
	m.Live = true // the next decision reads from the API server
	if err := child.GetChildWorkflowExecution().Get(ctx, nil); err != nil {
		if temporal.IsWorkflowExecutionAlreadyStartedError(err) {
			return m.followRollout(ctx, m.rolloutID(ctx, d.Rollout.TargetRevision()), d)
		}
		return err
	}
	for !child.IsReady() {
		if err := m.AwaitChange(ctx, child); err != nil {
			disconnected, done := workflow.NewDisconnectedContext(ctx)
			defer done()
			_ = child.Get(disconnected, nil) // wait until the rollout has written the hold and has ended
			return err
		}
		if m.ReceiveSignals() && !child.IsReady() {
			// Ignore the error: a child that has ended needs no signal.
			_ = child.SignalChildWorkflow(ctx, run.SignalChanged, m.NewChangeSignal()).
				Get(ctx, nil)
		}
	}
	m.endedRolloutID = m.rolloutID(ctx, d.Rollout.TargetRevision())
	var result RolloutResult
	if err := child.Get(ctx, &result); err != nil {
		return m.AwaitChange(
			ctx,
			m.EnsureTimer(
				ctx,
				"again",
				run.RolloutRestartLabel(),
				workflow.Now(ctx).Add(run.RolloutRestartDelay),
			),
		)
	}
	m.RaiseMinVersions(result.Versions)
	return nil
}

func (m *machineDeployment) stepForDecision(d deployment.Decision) run.Step {
	switch {
	case d.Rollout.Create != nil:
		return run.Step{Name: vocabulary.StepCreateSet, Why: d.Rollout.Why}
	case len(d.Rollout.Resize) > 0:
		return run.Step{Name: vocabulary.StepResizeSets, Why: d.Rollout.Why}
	case d.Pending.Need == attention.NeedDeletion:
		return run.Step{Name: vocabulary.StepAwaitSets, Why: d.Pending.WaitText()}
	case d.Pending.Need == attention.NeedReplacement && d.ReplaceHeld:
		return run.Step{
			Name:      vocabulary.StepAwaitReplacements,
			Why:       d.Pending.WaitText(),
			BlockedBy: []string{vocabulary.ConditionReplacementHeld},
		}
	case d.Pending.Need == attention.NeedReplacement:
		return run.Step{Name: vocabulary.StepAwaitReplacements, Why: d.Pending.WaitText()}
	case d.Rollout.HoldBy == rollout.HeldByInvalidSpec:
		return run.Step{
			Name:      vocabulary.StepDeploymentInvalid,
			Why:       d.Pending.WaitText(),
			BlockedBy: []string{vocabulary.ReasonInvalid},
			Stuck:     true,
		}
	case d.Rollout.HoldBy == rollout.HeldByTurn:
		return run.Step{
			Name: vocabulary.StepAwaitTurn, Why: d.Pending.WaitText(), BlockedBy: []string{vocabulary.BlockedByTurn},
			Table: formatSetTable(d.Picture),
		}
	default: // nothing is left to do, or only the status must be written
		return run.Step{Why: d.Pending.WaitText(), Table: formatSetTable(d.Picture)}
	}
}
