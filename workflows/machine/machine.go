// Package machine contains the workflow of a Machine: creation, health, in-place updates, preservation and deletion.
package machine

import (
	"cmp"

	"go.temporal.io/sdk/workflow"

	"millwright/activities/cloud"
	"millwright/activities/kube"
	activities "millwright/activities/machine"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/deletion"
	"millwright/decide/health"
	"millwright/decide/inplace"
	"millwright/decide/phrase"
	"millwright/workflows/run"
)

type machine struct {
	*run.WorkflowState
	attemptName string // name of the creation attempt, for its bootstrap token
	// an open inquiry, or a cancelled provider call that has not ended yet; may be nil
	unfinishedCall     workflow.Future
	unfinishedCallName string // activity name of the unfinished call

	isBlocked             bool              // something blocks the machine's step, according to the last decision
	areBlockersUnreported bool              // the status does not name the blockers of the step
	instanceGoneCheck     instanceGoneCheck // provider call that finds out whether the instance is gone

	// a node sync had nothing to write, and the workflow has already decided again from the API server
	hasReadLiveAgain bool
	// reason why the node sync cannot write the missing fields at present; empty: no reason is known
	nodeSyncBlockReason string
	hasAskedNodeOwner   bool // the workflow has already asked the provider for the owner of the node
	// message with which the API server has refused the last node sync; empty if it was not refused
	nodeSyncRefusal       string
	refusedNodeWriteCount int    // refused node writes since the last successful sync
	markedUpdateState     string // the in-place update state in the last write of the node's condition

	finishedStage deletion.Stage // the last deletion stage that this run has finished
	// the workflow has already asked the provider for the names of an unrecorded instance
	hasAskedForNames bool
	// the provider has answered with the names, or a person has skipped this call
	areNamesSettled          bool
	callCauses               string // the causes of the current provider call, see Decision.Call
	isInstanceOfOtherMachine bool   // the instance belongs to another Machine, and stays
	announcedNode            string // the node whose condition this run has set to "machine is being deleted"
	// the node is not drained, because its cluster did not answer and a person has skipped the wait
	isDrainSkipped bool
}

// Machine reconciles a Machine: it creates and initializes the instance, waits for the node, and follows the node's
// health. When the object is being deleted, the workflow deletes the instance and the node, and removes the finalizer.
// The run ends when the machine is gone or nothing is left to do. A deletion can interrupt every step. A run may be
// terminated at any time, and the next run continues from the state of the object and the provider.
func Machine(ctx workflow.Context, in run.Input) (run.Result, error) {
	return run.ExecuteLoop(
		ctx,
		&machine{WorkflowState: run.NewWorkflowState(ctx, run.KindMachine, kube.MachinesResource, in)},
	)
}

// FinishOpenWork waits for the end of an unfinished call before the run continues as new, because the next run cannot
// wait for this call.
func (m *machine) FinishOpenWork(ctx workflow.Context, again bool) {
	if again {
		_ = m.awaitUnfinishedCall(ctx)
	}
}

func (m *machine) Decide(ctx workflow.Context) (activities.Decision, error) {
	in := m.NewReadInput(ctx)
	in.Done = m.finishedStage
	m.Live = false
	d, err := decideMachineActivity.RunLocalFirst(ctx, m.WorkflowState, "what does it need next?", in)
	if err == nil {
		m.isBlocked, m.areBlockersUnreported = d.Blocked, d.Unsaid
	}
	return d, err
}

// writeStatus writes the report into the machine's status.
func (m *machine) writeStatus(ctx workflow.Context, summary string, report activities.Report) error {
	return run.ReportMachineStatus(ctx, m.WorkflowState, summary, reportMachineActivity, report)
}

// ExecuteStep carries out the machine's next step. If the result is not nil, nothing is left to do. If the API server
// refuses a write, the status shows the refusal.
func (m *machine) ExecuteStep(ctx workflow.Context, d activities.Decision) (*run.Result, error) {
	result, err := m.carryOutDecision(ctx, d)
	if run.IsFailureOfType(err, kube.FailureTypeRefused) {
		m.ShowRefusal(ctx, err)
		// ignore the error, because the API server may also refuse the status
		_ = m.writeStatus(ctx, m.Shown.Why, m.progressReport(ctx, "", nil))
	}
	return result, err
}

func (m *machine) carryOutDecision(ctx workflow.Context, d activities.Decision) (*run.Result, error) {
	switch {
	case d.Gone:
		return run.GoneResult(d.Why)
	case d.Need == attention.NeedDeletion:
		if err := m.runDeletion(ctx, d); err != nil || m.finishedStage != deletion.StageRemoveFinalizer {
			return nil, err
		}
		return run.GoneResult("instance, node and finalizer are gone")
	case d.Health != nil && d.Health.Change != nil:
		return nil, m.reportVerdict(ctx, d, *d.Health, activities.Report{})
	case d.Need != attention.NeedNothing:
		return nil, m.handleNeed(ctx, d)
	}
	m.ShowStep(ctx, stepForDecision(d, "", d.Why))
	if d.Busy { // the status still shows a finished step
		return nil, m.writeStatus(ctx, "calm: "+d.Why, activities.Report{Read: m.NewReadInput(ctx)})
	}
	// wait here, because the next run cannot wait for an unfinished call of this run
	if m.unfinishedCall != nil && !m.unfinishedCall.IsReady() {
		return nil, m.AwaitChange(ctx, m.unfinishedCall)
	}
	return run.CalmResult(d.Why)
}

func (m *machine) handleNeed(ctx workflow.Context, d activities.Decision) error {
	switch d.Need {
	case attention.NeedStatusUpdate:
		if d.Health.Due != nil {
			return m.awaitRecovery(ctx, d, *d.Health)
		}
		return m.copyNodeConditions(ctx, d)
	case attention.NeedInstance:
		return m.createInstance(ctx, d)
	case attention.NeedNodeName:
		_, err := m.recordInstanceNames(
			ctx,
			activities.InstanceRecord{ProviderID: d.ProviderID, NodeName: d.NodeFound, Told: true},
		)
		return err
	case attention.NeedNodeJoin:
		return m.awaitNodeJoin(ctx, d)
	case attention.NeedRecovery:
		return m.awaitRecovery(ctx, d, *d.Health)
	case attention.NeedNodeSync:
		return m.syncNodeOrContinue(ctx, d)
	case attention.NeedPreservation:
		return m.writePreservation(ctx, d)
	case attention.NeedPreservationEnd: // a preserved machine waits until the preservation ends
		if err := m.showPreservationStep(ctx, d, vocabulary.StepAwaitPreservationEnd); err != nil {
			return err
		}
		return m.awaitChangeOrDeadline(ctx, d)
	case attention.NeedDrain:
		if d.InPlace.Step != inplace.StepDrain {
			return m.drainPreservedNode(ctx, d)
		}
		return m.updateInPlace(ctx, d)
	default:
		return m.updateInPlace(ctx, d)
	}
}

// stepForDecision returns a step with the phase and the node of the decision.
func stepForDecision(d activities.Decision, name, why string) run.Step {
	return run.Step{Name: name, Why: why, Phase: d.Phase, Node: d.NodeName}
}

// reportVerdict writes the machine's new phase, the time of its health timeout and its node's conditions. reportVerdict
// also writes the content of before, a report that has not been written yet.
func (m *machine) reportVerdict(
	ctx workflow.Context,
	d activities.Decision,
	v health.Verdict,
	before activities.Report,
) error {
	m.ShowStep(ctx, run.Step{Phase: v.Change.Phase, Node: d.NodeName, Why: v.Why})
	if err := m.withdrawReplacementGrant(ctx, d); err != nil {
		return err
	}
	report := verdictReport(m.NewReadInput(ctx), v)
	report.LastKnownState, report.NodeName = before.LastKnownState, before.NodeName
	report.Conditions = append(before.Conditions, report.Conditions...)
	if v.Change.Phase == vocabulary.PhaseFailed {
		report.PreserveUntil = d.PreserveUntil
	}
	if err := m.writeStatus(ctx, "phase "+v.Change.Phase+": "+v.Why, report); err != nil {
		return err
	}
	m.instanceGoneCheck.isSettled = false
	if v.Change.Joined || (v.Change.Phase == vocabulary.PhaseFailed && d.Phase != vocabulary.PhaseUnknown) {
		// If the target cluster does not answer and finishJoinActivity is interrupted, the remaining tokens expire.
		version, _, err := finishJoinActivity.RunUnlessChanged(
			ctx,
			m.WorkflowState,
			"the bootstrap tokens go",
			m.NewReadInput(ctx),
		)
		m.RequireWrittenVersion(version)
		return err
	}
	return nil
}

// withdrawReplacementGrant removes the permission to replace a machine, because the replacement is no longer needed.
func (m *machine) withdrawReplacementGrant(ctx workflow.Context, d activities.Decision) error {
	if !d.Withdraw {
		return nil
	}
	return run.WriteObject(
		ctx,
		m.WorkflowState,
		"the granted replacement is withdrawn",
		withdrawReplacementActivity,
		m.NewReadInput(ctx),
	)
}

// copyNodeConditions writes the node's conditions into the status. If the status already has these conditions, the node
// has changed since the decision. The bridge then signals this change, and the run continues.
func (m *machine) copyNodeConditions(ctx workflow.Context, d activities.Decision) error {
	report := activities.Report{Read: m.NewReadInput(ctx)}
	if m.Shown.Name != "" {
		report.Step = m.StatusStep()
	}
	reported, err := reportMachineActivity.RunLocalFirst(ctx, m.WorkflowState, d.Why, report)
	if err != nil {
		return err
	}
	m.RequireWrittenVersion(reported.Version)
	if m.AddWaitMessage(ctx, reported); reported.Version == d.Version {
		return m.awaitChangeOrMachineDeadline(ctx, d)
	}
	return nil
}

// awaitChangeOrMachineDeadline waits until a signal arrives, a future is ready, or a deadline of the machine has
// passed.
func (m *machine) awaitChangeOrMachineDeadline(
	ctx workflow.Context,
	d activities.Decision,
	futures ...workflow.Future,
) error {
	if d.Health != nil && d.Health.Deadline.After(workflow.Now(ctx)) {
		name, label := "health", run.HealthTimeoutLabel(d.NodeName)
		if d.Phase == vocabulary.PhasePending {
			name, label = "creation", nodeJoinTimeoutLabel(d)
		}
		futures = append(futures, m.EnsureTimer(ctx, name, label, d.Health.Deadline))
	}
	return m.awaitChangeOrDeadline(ctx, d, futures...)
}

// verdictReport returns the status report of a health verdict.
func verdictReport(read kube.ReadInput, v health.Verdict) activities.Report {
	report := activities.Report{Read: read, Clock: v.Clock}
	if c := v.Change; c != nil {
		report.Joined = c.Joined
		report.Phase, report.Operation = c.Phase, newLastOperation(c.Operation, c.State, c.Message)
		report.Event = &kube.Event{Warning: c.Warning, Reason: c.Reason, Message: c.Message}
	}
	if v.Due != nil {
		report.Conditions = []activities.Condition{
			{Type: vocabulary.ConditionReplacementDue, True: v.Due.True, Reason: v.Due.Reason, Message: v.Due.Message},
		}
	}
	return report
}

// awaitNodeJoin waits until the node joins, the machine is being deleted, or the creation timeout has ended.
func (m *machine) awaitNodeJoin(ctx workflow.Context, d activities.Decision) error {
	s := stepForDecision(d, vocabulary.StepAwaitNode, d.Why)
	s.Deadline = d.CreateBy
	m.ShowStep(ctx, s)
	return m.awaitChangeOrDeadline(ctx, d, m.EnsureTimer(ctx, "creation", nodeJoinTimeoutLabel(d), d.CreateBy))
}

// nodeJoinTimeoutLabel is the label of the creation timeout while the machine waits for its node.
func nodeJoinTimeoutLabel(d activities.Decision) run.TimerLabel {
	return run.CreationTimeoutLabel("waiting for " + phrase.NodeText(d.NodeName))
}

// awaitRecovery waits until the node is healthy again or the health timeout has ended. Once per outage, awaitRecovery
// asks the provider whether the instance is gone. If the instance is gone, awaitRecovery does not wait for the rest of
// the timeout.
func (m *machine) awaitRecovery(ctx workflow.Context, d activities.Decision, v health.Verdict) error {
	s := stepForDecision(d, vocabulary.StepAwaitRecovery, v.Why)
	if s.Deadline = v.Deadline; d.Phase == vocabulary.PhaseInPlaceUpdating {
		s.Name = vocabulary.StepAwaitUpdate
	}
	if v.Due != nil && v.Due.True {
		s.Name, s.BlockedBy = vocabulary.StepAwaitReplacement, run.ReasonList(v.Due.Reason)
		if v.Held {
			s.BlockedBy = []string{vocabulary.ConditionReplacementHeld}
		}
	}
	changes := s.Name != m.Shown.Name || s.Why != m.Shown.Why
	m.ShowStep(ctx, s)
	if changes || d.Unsaid || d.Need == attention.NeedStatusUpdate || v.Due != nil {
		report := verdictReport(m.NewReadInput(ctx), v)
		report.Step = m.StatusStep()
		if err := m.writeStatus(ctx, v.Why, report); err != nil {
			return err
		}
	}
	if v.Look && !m.instanceGoneCheck.isSettled && d.Provider != "" {
		return m.checkInstanceGone(ctx, d, v)
	}
	err := m.awaitChangeOrHealthDeadline(ctx, d, v)
	m.instanceGoneCheck.allowCallAfterRepair()
	return err
}

// awaitChangeOrHealthDeadline waits until a signal arrives, a future is ready, or a deadline of the machine has passed.
func (m *machine) awaitChangeOrHealthDeadline(
	ctx workflow.Context,
	d activities.Decision,
	v health.Verdict,
	futures ...workflow.Future,
) error {
	if v.Deadline.IsZero() {
		m.CancelTimer("health")
		return m.awaitChangeOrDeadline(ctx, d, futures...)
	}
	return m.awaitChangeOrDeadline(
		ctx,
		d,
		append(futures, m.EnsureTimer(ctx, "health", run.HealthTimeoutLabel(d.NodeName), v.Deadline))...)
}

// awaitChangeOrDeadline waits until a signal arrives or a deadline of the machine has passed. After a deadline the next
// decision reads from the API server, because the awaited change may have happened without a signal.
func (m *machine) awaitChangeOrDeadline(
	ctx workflow.Context,
	d activities.Decision,
	deadlines ...workflow.Future,
) error {
	if d.PreserveUntil.After(workflow.Now(ctx)) { // a preservation that has already ended needs no timer
		deadlines = append(deadlines, m.EnsureTimer(ctx, "preservation", run.PreservationLabel(), d.PreserveUntil))
	}
	if err := m.AwaitChange(ctx, deadlines...); err != nil {
		return err
	}
	for _, deadline := range deadlines {
		m.Live = m.Live || deadline.IsReady()
	}
	return nil
}

// syncNodeOrContinue writes the fields of the template and the class to the node. If the node cannot be written at
// present, syncNodeOrContinue continues with the machine's other work. If the machine needs nothing else, the status
// shows the reason, and syncNodeOrContinue waits for a change.
func (m *machine) syncNodeOrContinue(ctx workflow.Context, d activities.Decision) error {
	switch {
	case d.Why != m.nodeSyncBlockReason:
		return m.writeNodeFields(ctx, d)
	case d.Otherwise != attention.NeedNothing:
		d.Need = d.Otherwise
		return m.handleNeed(ctx, d)
	}
	if settled, err := m.askProviderForNodeOwner(ctx, d); settled || err != nil {
		return err
	}
	s := stepForDecision(
		d,
		vocabulary.StepSyncNode,
		"node "+d.NodeName+" cannot be written: "+cmp.Or(m.nodeSyncRefusal, d.Why),
	)
	if d.InDoubt {
		s.BlockedBy = []string{vocabulary.BlockedByOwnershipDoubt}
	}
	err := m.awaitWritableNode(ctx, d, s, m.nodeSyncRefusal)
	m.nodeSyncBlockReason = ""
	return err
}

// awaitWritableNode waits until something changes or the next attempt to write the node is due. If a person must act,
// the status shows the reason: the API server has refused the write with the message refusal, or the owner of the node
// is uncertain.
func (m *machine) awaitWritableNode(ctx workflow.Context, d activities.Decision, s run.Step, refusal string) error {
	again := run.StuckRecheckInterval
	if refusal != "" {
		m.refusedNodeWriteCount++
		again = run.WaitAfterRefusal(m.refusedNodeWriteCount)
	}
	if s.Stuck = true; len(s.BlockedBy) == 0 {
		s.BlockedBy = []string{vocabulary.BlockedByRefusedNodeWrite}
	}
	m.ShowStep(ctx, s)
	if refusal != "" || d.InDoubt {
		report := m.progressReport(ctx, "", nil)
		report.Event = &kube.Event{Warning: true, Reason: s.BlockedBy[0], Message: s.Why}
		if err := m.writeStatus(ctx, s.Why, report); err != nil {
			return err
		}
	}
	recheck := m.EnsureTimer(ctx, "repair", run.RecheckLabel(s.Why), workflow.Now(ctx).Add(again))
	defer m.CancelTimer("repair")
	return m.awaitChangeOrDeadline(ctx, d, recheck)
}

// writeNodeFields writes the fields of the template and the class to the node. If there was nothing to write, the
// caches may have been stale, so the next decision reads from the API server once. If there is still nothing to write,
// or the API server refuses the write, writeNodeFields sets nodeSyncBlockReason. The next attempt then waits for
// another change.
func (m *machine) writeNodeFields(ctx workflow.Context, d activities.Decision) error {
	s := m.Shown
	s.Phase, s.Node, s.Why, s.BlockedBy = d.Phase, d.NodeName, d.Why, nil
	m.ShowStep(ctx, s)
	made, err := syncNodeActivity.RunLocalFirst(ctx, m.WorkflowState, d.Why, m.NewReadInput(ctx))
	m.nodeSyncRefusal = run.RefusalMessage(err)
	switch {
	case err != nil && m.nodeSyncRefusal == "":
		return err
	case len(made) > 0:
		m.hasReadLiveAgain, m.refusedNodeWriteCount = false, 0
		m.RaiseMinVersions(made)
		return nil
	case m.nodeSyncRefusal == "" && !m.hasReadLiveAgain:
		m.hasReadLiveAgain, m.Live = true, true
		return nil
	}
	m.hasReadLiveAgain, m.nodeSyncBlockReason = false, d.Why
	return nil
}

// writePreservation writes the preservation decision to the machine and the node. If the API server refuses the
// write, or if there is nothing to write, writePreservation waits for a change.
func (m *machine) writePreservation(ctx workflow.Context, d activities.Decision) error {
	if err := m.withdrawReplacementGrant(ctx, d); err != nil {
		return err
	}
	m.ShowStep(ctx, stepForDecision(d, vocabulary.StepWritePreservation, d.Why))
	made, err := preserveMachineActivity.RunLocalFirst(ctx, m.WorkflowState, d.Why, m.NewReadInput(ctx))
	m.RaiseMinVersions(made)
	if refusal := run.RefusalMessage(err); refusal != "" {
		s := stepForDecision(d, vocabulary.StepWritePreservation, "node "+d.NodeName+" cannot be written: "+refusal)
		return m.awaitWritableNode(ctx, d, s, refusal)
	}
	if err != nil || len(made) > 0 {
		return err
	}
	return m.awaitChangeOrDeadline(ctx, d)
}

// showPreservationStep shows a step of a preservation. If the step differs from the previous step, showPreservationStep
// also writes the step to the status.
func (m *machine) showPreservationStep(ctx workflow.Context, d activities.Decision, name string) error {
	if err := m.withdrawReplacementGrant(ctx, d); err != nil {
		return err
	}
	s, changes := stepForDecision(d, name, d.Why), name != m.Shown.Name
	s.Deadline = d.PreserveUntil
	m.ShowStep(ctx, s)
	if !changes {
		return nil
	}
	return m.writeStatus(ctx, d.Why, activities.Report{Read: m.NewReadInput(ctx), Step: m.StatusStep()})
}

func (m *machine) progressReport(
	ctx workflow.Context,
	phase string,
	operation *activities.LastOperation,
) activities.Report {
	return activities.Report{Read: m.NewReadInput(ctx), Phase: phase, Operation: operation, Step: m.StatusStep()}
}

func (m *machine) instanceCall(d activities.Decision) cloud.InstanceCall {
	return cloud.InstanceCall{
		Machine:        m.Ref,
		Class:          d.Class,
		Versions:       d.Versions,
		ProviderID:     d.ProviderID,
		NodeName:       d.NodeName,
		LastKnownState: d.LastKnownState,
		NeverTried:     d.NeverTried,
	}
}

func newLastOperation(kind, state, description string) *activities.LastOperation {
	return &activities.LastOperation{Type: kind, State: state, Description: description}
}
