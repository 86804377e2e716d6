package workflows

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/attention"
	"millwright/decide/deletion"
)

// drain empties the node of a machine that is to go, in a workflow of its own. A node on which nothing stands needs none: its
// machine never enters the stage.
func (m *machine) drain(ctx workflow.Context, d activities.MachineDecision) error {
	var load activities.NodeLoad
	if done, err := m.onTarget(ctx, d, "cordons node "+d.NodeName+", and looks what stands on it", core().WeighNode, m.read(), &load); err != nil || !done {
		return err
	}
	m.raise(load.Versions)
	if load.Pods == 0 && load.Attached == 0 {
		m.done = deletion.Detach
		return nil
	}
	if d.Deletion.Record { // whose turn it is, is decided among those that are on record: it is weighed again, with its own place among them
		return m.enter(ctx, d, *d.Deletion)
	}
	if err := m.enter(ctx, d, *d.Deletion); err != nil {
		return err
	}
	if load.Queue != "" {
		return m.queue(ctx, d, load.Queue)
	}
	m.show(ctx, stageOf(*d.Deletion, d))
	_, err := m.runDrain(ctx, d, "")
	return err
}

// queue waits for the machine's turn. The bridge wakes those that are next.
func (m *machine) queue(ctx workflow.Context, d activities.MachineDecision, why string) error {
	again := m.shown.name == "queued"
	m.show(ctx, step{name: "queued", why: why, phase: "Terminating", node: d.NodeName})
	if !again { // then it asks once more: a place that became free before this was known woke nobody
		return m.write(ctx, why, core().ReportMachine, m.progress("Terminating", lastOperation("Delete", "Processing", why)))
	}
	return m.awaken(ctx)
}

// vacate empties the node of a machine that has failed and is kept for people to look at.
func (m *machine) vacate(ctx workflow.Context, d activities.MachineDecision) error {
	if err := m.showKept(ctx, d, "drain"); err != nil {
		return err
	}
	_, err := m.runDrain(ctx, d, activities.ForPreservation)
	return err
}

// empty cordons the node that is to be updated in place and empties it. It reports false when the machine needs something
// else first.
func (m *machine) empty(ctx workflow.Context, d activities.MachineDecision) (bool, error) {
	var made activities.Gate
	if done, err := m.unlessChanged(ctx, "cordons node "+d.NodeName, core().CordonNode, m.read(), &made); err != nil || !done {
		return false, err
	}
	m.raise(made)
	return m.runDrain(ctx, d, activities.ForUpdate)
}

// runDrain runs a drain, and reports whether it came to its end. What else than that may have happened is dealt with: the
// next decision says what to do.
func (m *machine) runDrain(ctx workflow.Context, d activities.MachineDecision, purpose activities.Purpose) (over bool, err error) {
	stopped, result, err := m.awaitDrain(ctx, d, purpose)
	m.live = true // the drain wrote the status
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case stopped:
		return false, nil
	case err == nil:
		return result.Outcome != activities.Cancelled, nil
	case alreadyStarted(err): // that of a run that was terminated is about to end: nothing tells us when
		return false, m.handover(ctx, "the drain of an earlier run is ending")
	case temporal.IsCanceledError(err): // a person did that, in Temporal
		return false, m.holdDrain(ctx, d, purpose)
	default: // terminated, or something that should not be: another one takes it up
		return false, m.handover(ctx, "the drain has failed: another one begins")
	}
}

func (m *machine) handover(ctx workflow.Context, why string) error {
	return m.awaken(ctx, m.timer(ctx, "handover", why, workflow.Now(ctx).Add(drainHandover)))
}

// holdDrain writes on the object that a person does not want the drain. A node that is to go stays as it is until another
// word; one that is to be updated may have new pods.
func (m *machine) holdDrain(ctx workflow.Context, d activities.MachineDecision, purpose activities.Purpose) error {
	hold := activities.Holding{Read: m.read(), Why: "the drain was cancelled in Temporal"}
	if err := m.write(ctx, "holds the drain: "+hold.Why, core().HoldDrain, hold); err != nil || purpose != activities.ForUpdate {
		return err
	}
	var made activities.Gate
	_, err := m.unlessChanged(ctx, "uncordons node "+d.NodeName, core().UncordonNode, m.read(), &made)
	m.raise(made)
	return err
}

// awaitDrain waits for the end of a drain, and hands on what wakes the machine meanwhile. It stops the drain when this run has
// to end, and that of a machine that is to stay when the machine needs something else.
func (m *machine) awaitDrain(ctx workflow.Context, d activities.MachineDecision, purpose activities.Purpose) (stopped bool, result DrainResult, err error) {
	child, cancel := workflow.WithCancel(drainOptions(ctx, m.ref, d.NodeName, purpose))
	defer cancel()
	future := workflow.ExecuteChildWorkflow(child, Drain, DrainInput{Ref: m.ref, Gate: m.gate, NodeName: d.NodeName, Purpose: purpose})
	if err := future.GetChildWorkflowExecution().Get(ctx, nil); err != nil {
		return false, result, err
	}
	for wanted := true; !future.IsReady(); {
		if err := m.awaitMachine(ctx, d, future); err != nil {
			return false, result, err
		}
		if m.receive() && !future.IsReady() { // it reads what woke us; that it may have ended meanwhile is no failure
			_ = future.SignalChildWorkflow(ctx, SignalChanged, Changed{UID: m.ref.UID, Versions: m.gate}).Get(ctx, nil)
		}
		if purpose != "" && !future.IsReady() {
			if d, wanted, err = m.stillEmptying(ctx); err != nil {
				return false, result, err
			}
		}
		if !future.IsReady() && (!wanted || workflow.GetInfo(ctx).GetContinueAsNewSuggested()) {
			cancel()
			_ = future.Get(ctx, nil) // its end is all that matters
			return true, result, nil
		}
	}
	return false, result, future.Get(ctx, &result)
}

// stillEmptying decides again while the node of a machine that is to stay is emptied, and reports whether that is still what
// the machine needs first.
func (m *machine) stillEmptying(ctx workflow.Context) (d activities.MachineDecision, wanted bool, err error) {
	d, err = m.decide(ctx)
	told := d.Health != nil && (d.Health.Change != nil || d.Health.Due != nil)
	return d, !told && !d.Gone && d.Need == attention.Emptying, err
}
