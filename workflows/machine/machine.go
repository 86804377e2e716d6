// Package machine has the workflow of a Machine: creation, health, in-place updates, preservation and deletion.
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
	"millwright/workflows/run"
)

type machine struct {
	*run.Object
	attempt string          // name of the creation attempt, for its bootstrap token
	running workflow.Future // a call of the provider that was given up and has not ended yet; nil: none
	calling string          // the name of that activity

	blocked bool    // something blocks the step of the machine, as of the last decision
	unsaid  bool    // the status does not name what blocks the step
	inquiry inquiry // the question to the provider whether the instance is gone

	readAgain  bool   // a sync of the node wrote nothing, and the facts were read again live
	unsyncable string // what the node lacks and cannot get at present; empty: not known
	wondered   bool   // the provider was asked whose the node is
	refusal    string // the words of the API server that refused the last sync of the node; empty: it refused none
	refusals   int    // writes of the node that it refused since the last sync that was done
	marked     string // the in-place update state that was last written to the node's condition

	done      deletion.Stage // the last stage of the deletion that this run has finished
	asked     bool           // the provider was asked for the names of an instance that is not on record
	answered  bool           // that question is settled: the provider has answered, or a person does not want to wait
	callsFor  string         // what the present call of the provider depends on, as Decision.Call
	anothers  bool           // the instance is another Machine's, and stays
	announced string         // the node on which this run has written the condition that its machine is deleted
	undrained bool           // the node was not drained: its cluster did not answer, and a person does not wait for it
}

// Machine reconciles one Machine while it is in motion: it creates and initialises the instance, waits for the node,
// follows the node's health, and deletes instance, node and finalizer when the object is being deleted. The run ends
// when the machine is calm or gone. A deletion can interrupt every step, and a run may be terminated at any moment: the
// next run finds its place from the object and the provider.
func Machine(ctx workflow.Context, in run.Input) (run.Result, error) {
	return run.Loop(ctx, &machine{Object: run.NewObject(ctx, run.KindMachine, kube.MachinesResource, in)})
}

// Settle waits for the end of a call that was given up before the run continues as new: the next run would not know of
// it.
func (m *machine) Settle(ctx workflow.Context, again bool) {
	if again {
		_ = m.callEnded(ctx)
	}
}

func (m *machine) Decide(ctx workflow.Context) (activities.Decision, error) {
	in := m.Read(ctx)
	in.Done = m.done
	m.Live = false
	d, err := decideMachine.RunLocalFirst(ctx, m.Object, "what does it need next?", in)
	if err == nil {
		m.blocked, m.unsaid = d.Blocked, d.Unsaid
	}
	return d, err
}

// writeStatus writes the report into the machine's status.
func (m *machine) writeStatus(ctx workflow.Context, summary string, report activities.Report) error {
	return run.Report(ctx, m.Object, summary, reportMachine, report)
}

// Step does what the machine needs next. A result means that no work is left. The status shows a write that the API
// server refused.
func (m *machine) Step(ctx workflow.Context, d activities.Decision) (*run.Result, error) {
	result, err := m.step(ctx, d)
	if run.FailedWith(err, kube.TypeRefused) {
		m.ShowRefusal(ctx, err)
		// an error is ignored: the status itself may be what is refused
		_ = m.writeStatus(ctx, m.Shown.Why, m.progress(ctx, "", nil))
	}
	return result, err
}

func (m *machine) step(ctx workflow.Context, d activities.Decision) (*run.Result, error) {
	switch {
	case d.Gone:
		return run.Gone(d.Why)
	case d.Need == attention.Deletion:
		if err := m.delete(ctx, d); err != nil || m.done != deletion.Release {
			return nil, err
		}
		return run.Gone("instance, node and finalizer are gone")
	case d.Health != nil && d.Health.Change != nil:
		return nil, m.reportVerdict(ctx, d, *d.Health, activities.Report{})
	case d.Need != attention.Nothing:
		return nil, m.do(ctx, d)
	}
	m.Show(ctx, shown(d, "", d.Why))
	if d.Busy { // the status still shows a step that is finished
		return nil, m.writeStatus(ctx, "calm: "+d.Why, activities.Report{Read: m.Read(ctx)})
	}
	if m.running != nil && !m.running.IsReady() { // the next run would not know of a call that was given up
		return nil, m.AwaitChange(ctx, m.running)
	}
	return run.Calm(d.Why)
}

func (m *machine) do(ctx workflow.Context, d activities.Decision) error {
	switch d.Need {
	case attention.Health:
		if d.Health.Due != nil {
			return m.awaitRecovery(ctx, d, *d.Health)
		}
		return m.copyConditions(ctx, d)
	case attention.Instance:
		return m.create(ctx, d)
	case attention.Name:
		_, err := m.recordNames(ctx, activities.Recorded{ProviderID: d.ProviderID, NodeName: d.NodeFound, Told: true})
		return err
	case attention.Node:
		return m.awaitNode(ctx, d)
	case attention.Recovery:
		return m.awaitRecovery(ctx, d, *d.Health)
	case attention.Sync:
		return m.syncOr(ctx, d)
	case attention.Preserve:
		return m.preserve(ctx, d)
	case attention.Kept: // until the preservation ends
		if err := m.showKept(ctx, d, vocabulary.StepPreserved); err != nil {
			return err
		}
		return m.awaitDeadline(ctx, d)
	case attention.Drain:
		if d.InPlace.Step != inplace.Drain {
			return m.drainPreserved(ctx, d)
		}
		return m.updateInPlace(ctx, d)
	default:
		return m.updateInPlace(ctx, d)
	}
}

// shown returns a step with the phase and the node of the decision.
func shown(d activities.Decision, name, why string) run.Step {
	return run.Step{Name: name, Why: why, Phase: d.Phase, Node: d.NodeName}
}

// reportVerdict writes the machine's new phase, its health clock and the conditions of its node, together with the
// report before, which has not been written yet.
func (m *machine) reportVerdict(
	ctx workflow.Context,
	d activities.Decision,
	v health.Verdict,
	before activities.Report,
) error {
	m.Show(ctx, run.Step{Phase: v.Change.Phase, Node: d.NodeName, Why: v.Why})
	if err := m.withdraw(ctx, d); err != nil {
		return err
	}
	report := verdictReport(m.Read(ctx), v)
	report.LastKnownState, report.NodeName = before.LastKnownState, before.NodeName
	report.Conditions = append(before.Conditions, report.Conditions...)
	if v.Change.Phase == vocabulary.PhaseFailed {
		report.PreserveUntil = d.PreserveUntil
	}
	if err := m.writeStatus(ctx, "phase "+v.Change.Phase+": "+v.Why, report); err != nil {
		return err
	}
	m.inquiry.settled = false
	if v.Change.Joined || (v.Change.Phase == vocabulary.PhaseFailed && d.Phase != vocabulary.PhaseUnknown) {
		// If this is interrupted because the target cluster does not answer, the remaining tokens expire.
		version, _, err := finishJoin.UnlessChanged(ctx, m.Object, "the bootstrap tokens go", m.Read(ctx))
		m.Wrote(version)
		return err
	}
	return nil
}

// withdraw revokes the grant of a replacement that is not needed now.
func (m *machine) withdraw(ctx workflow.Context, d activities.Decision) error {
	if !d.Withdraw {
		return nil
	}
	return run.Write(ctx, m.Object, "the granted replacement is withdrawn", withdrawReplacement, m.Read(ctx))
}

// copyConditions writes the conditions of the node into the status. If they are written already, the node has changed
// since the decision, and the bridge's signal about it wakes the run.
func (m *machine) copyConditions(ctx workflow.Context, d activities.Decision) error {
	report := activities.Report{Read: m.Read(ctx)}
	if m.Shown.Name != "" {
		report.Step = m.Operation()
	}
	reported, err := reportMachine.RunLocalFirst(ctx, m.Object, d.Why, report)
	if err != nil {
		return err
	}
	m.Wrote(reported.Version)
	if m.Explain(ctx, reported); reported.Version == d.Version {
		return m.awaitMachine(ctx, d)
	}
	return nil
}

// awaitMachine waits until a signal arrives, one of the futures is ready, or one of the machine's deadlines has passed.
func (m *machine) awaitMachine(ctx workflow.Context, d activities.Decision, futures ...workflow.Future) error {
	if d.Health != nil && d.Health.Deadline.After(workflow.Now(ctx)) {
		name := "health"
		if d.Phase == vocabulary.PhasePending {
			name = "creation"
		}
		futures = append(futures, m.Timer(ctx, name, "the health timeout ends", d.Health.Deadline))
	}
	return m.awaitDeadline(ctx, d, futures...)
}

// verdictReport returns the status report of a verdict.
func verdictReport(read kube.Read, v health.Verdict) activities.Report {
	report := activities.Report{Read: read, Clock: v.Clock}
	if c := v.Change; c != nil {
		report.Joined = c.Joined
		report.Phase, report.Operation = c.Phase, lastOperation(c.Operation, c.State, c.Message)
		report.Event = &kube.Event{Warning: c.Warning, Reason: c.Reason, Message: c.Message}
	}
	if v.Due != nil {
		report.Conditions = []activities.Condition{
			{Type: vocabulary.ConditionReplacementDue, True: v.Due.True, Reason: v.Due.Reason, Message: v.Due.Message},
		}
	}
	return report
}

// awaitNode waits until the node joins, the machine is being deleted, or the creation timeout has ended.
func (m *machine) awaitNode(ctx workflow.Context, d activities.Decision) error {
	s := shown(d, vocabulary.StepAwaitNode, d.Why)
	s.Deadline = d.CreateBy
	m.Show(ctx, s)
	deadline := m.Timer(ctx, "creation", "gives up waiting for "+nodeOf(d.NodeName)+": the creation timeout", d.CreateBy)
	return m.awaitDeadline(ctx, d, deadline)
}

// awaitRecovery waits until the node is healthy again or the health timeout has ended. Once per outage it asks the
// provider whether the instance is gone, until it answers: if it is, the timeout ends early.
func (m *machine) awaitRecovery(ctx workflow.Context, d activities.Decision, v health.Verdict) error {
	s := shown(d, vocabulary.StepAwaitRecovery, v.Why)
	if s.Deadline = v.Deadline; d.Phase == vocabulary.PhaseInPlaceUpdating {
		s.Name = vocabulary.StepAwaitUpdate
	}
	if v.Due != nil && v.Due.True {
		s.Name, s.BlockedBy = vocabulary.StepAwaitReplacement, run.Reasons(v.Due.Reason)
		if v.Held {
			s.BlockedBy = []string{vocabulary.ConditionReplacementHeld}
		}
	}
	changes := s.Name != m.Shown.Name || s.Why != m.Shown.Why
	m.Show(ctx, s)
	if changes || d.Unsaid || d.Need == attention.Health || v.Due != nil {
		report := verdictReport(m.Read(ctx), v)
		report.Step = m.Operation()
		if err := m.writeStatus(ctx, v.Why, report); err != nil {
			return err
		}
	}
	if v.Look && !m.inquiry.settled && d.Provider != "" {
		return m.inquire(ctx, d, v)
	}
	err := m.awaitHealth(ctx, d, v)
	m.inquiry.resume()
	return err
}

// awaitHealth waits until a signal arrives, one of the futures is ready, or one of the machine's deadlines has passed.
func (m *machine) awaitHealth(
	ctx workflow.Context,
	d activities.Decision,
	v health.Verdict,
	futures ...workflow.Future,
) error {
	if v.Deadline.IsZero() {
		m.CancelTimer("health")
		return m.awaitDeadline(ctx, d, futures...)
	}
	return m.awaitDeadline(
		ctx,
		d,
		append(futures, m.Timer(ctx, "health", "the health timeout of node "+d.NodeName+" ends", v.Deadline))...)
}

// awaitDeadline waits until a signal arrives or one of the machine's deadlines has passed. The awaited change may have
// come without a signal, so after a deadline the facts are read from the API server.
func (m *machine) awaitDeadline(ctx workflow.Context, d activities.Decision, deadlines ...workflow.Future) error {
	if d.PreserveUntil.After(workflow.Now(ctx)) { // an end that has passed already is written without a timer
		deadlines = append(deadlines, m.Timer(ctx, "preservation", "preserved until then", d.PreserveUntil))
	}
	if err := m.AwaitChange(ctx, deadlines...); err != nil {
		return err
	}
	for _, deadline := range deadlines {
		m.Live = m.Live || deadline.IsReady()
	}
	return nil
}

// syncOr brings the node to what template and class want. If that is impossible at present, it does what else the
// machine needs; if there is nothing else, the status says why, and it waits for a change.
func (m *machine) syncOr(ctx workflow.Context, d activities.Decision) error {
	switch {
	case d.Why != m.unsyncable:
		return m.sync(ctx, d)
	case d.Otherwise != attention.Nothing:
		d.Need = d.Otherwise
		return m.do(ctx, d)
	}
	if settled, err := m.askWhose(ctx, d); settled || err != nil {
		return err
	}
	s := shown(d, vocabulary.StepSyncNode, "node "+d.NodeName+" cannot be written: "+cmp.Or(m.refusal, d.Why))
	if d.InDoubt {
		s.BlockedBy = []string{vocabulary.BlockedOwnership}
	}
	err := m.awaitWritable(ctx, d, s, m.refusal)
	m.unsyncable = ""
	return err
}

// awaitWritable waits until something changes or the node may be written again. The status says why if a person has to
// do something: the API server refused the write with the words of refusal, or it is in doubt whose the node is.
func (m *machine) awaitWritable(ctx workflow.Context, d activities.Decision, s run.Step, refusal string) error {
	again := run.RecheckStuck
	if refusal != "" {
		m.refusals++
		again = run.Again(m.refusals)
	}
	if s.Stuck = true; len(s.BlockedBy) == 0 {
		s.BlockedBy = []string{vocabulary.BlockedNodeRefused}
	}
	m.Show(ctx, s)
	if refusal != "" || d.InDoubt {
		report := m.progress(ctx, "", nil)
		report.Event = &kube.Event{Warning: true, Reason: s.BlockedBy[0], Message: s.Why}
		if err := m.writeStatus(ctx, s.Why, report); err != nil {
			return err
		}
	}
	recheck := m.Timer(ctx, "repair", s.Why, workflow.Now(ctx).Add(again))
	defer m.CancelTimer("repair")
	return m.awaitDeadline(ctx, d, recheck)
}

// sync brings the node to what template and class want. If nothing was written, the caches may have been stale:
// the facts are read again live, once. If nothing is written then either, or the API server refuses the write,
// something else has to change first.
func (m *machine) sync(ctx workflow.Context, d activities.Decision) error {
	s := m.Shown
	s.Phase, s.Node, s.Why, s.BlockedBy = d.Phase, d.NodeName, d.Why, nil
	m.Show(ctx, s)
	made, err := syncNode.RunLocalFirst(ctx, m.Object, d.Why, m.Read(ctx))
	m.refusal = run.Refused(err)
	switch {
	case err != nil && m.refusal == "":
		return err
	case len(made) > 0:
		m.readAgain, m.refusals = false, 0
		m.RaiseMinVersions(made)
		return nil
	case m.refusal == "" && !m.readAgain:
		m.readAgain, m.Live = true, true
		return nil
	}
	m.readAgain, m.unsyncable = false, d.Why
	return nil
}

// preserve writes the decision about the machine's preservation to machine and node. If the API server refuses the
// write, or if there was nothing to write, it waits for a change.
func (m *machine) preserve(ctx workflow.Context, d activities.Decision) error {
	if err := m.withdraw(ctx, d); err != nil {
		return err
	}
	m.Show(ctx, shown(d, vocabulary.StepPreserve, d.Why))
	made, err := preserveMachine.RunLocalFirst(ctx, m.Object, d.Why, m.Read(ctx))
	m.RaiseMinVersions(made)
	if refusal := run.Refused(err); refusal != "" {
		s := shown(d, vocabulary.StepPreserve, "node "+d.NodeName+" cannot be written: "+refusal)
		return m.awaitWritable(ctx, d, s, refusal)
	}
	if err != nil || len(made) > 0 {
		return err
	}
	return m.awaitDeadline(ctx, d)
}

// showKept shows a step of a preservation, and records it in the status if it differs from the one shown before.
func (m *machine) showKept(ctx workflow.Context, d activities.Decision, name string) error {
	if err := m.withdraw(ctx, d); err != nil {
		return err
	}
	s, changes := shown(d, name, d.Why), name != m.Shown.Name
	s.Deadline = d.PreserveUntil
	m.Show(ctx, s)
	if !changes {
		return nil
	}
	return m.writeStatus(ctx, d.Why, activities.Report{Read: m.Read(ctx), Step: m.Operation()})
}

func (m *machine) progress(ctx workflow.Context, phase string, operation *activities.LastOperation) activities.Report {
	return activities.Report{Read: m.Read(ctx), Phase: phase, Operation: operation, Step: m.Operation()}
}

func (m *machine) call(d activities.Decision) cloud.InstanceCall {
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

func lastOperation(kind, state, description string) *activities.LastOperation {
	return &activities.LastOperation{Type: kind, State: state, Description: description}
}
