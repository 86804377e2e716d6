package workflows

import (
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/deletion"
)

// delete takes the deletion one stage further, and reports whether it came to the end. The decision says which stage has
// anything to do; the status is told before the stage begins, so that no later run enters one that came before it.
func (m *machine) delete(ctx workflow.Context, d activities.MachineDecision) (released bool, err error) {
	if d.Problem != nil && d.NeverTried { // nothing was ever made for it: without a class, too, there is nothing to delete
		err = m.release(ctx, "no instance was ever made: the object may go")
		return err == nil, err
	}
	s := *d.Deletion
	if s.Announce {
		var made activities.Gate
		if err := quick(ctx, "the node says that its machine is to go", core().AnnounceTermination, m.read(), &made); err != nil {
			return false, err
		}
		m.raise(made)
	}
	if s.Stage == deletion.Release && s.BlockedBy == "" && s.Released == "" {
		err = m.release(ctx, "takes the finalizer off: the object may go")
		return err == nil, err
	}
	if err := m.enter(ctx, d, s); err != nil {
		return false, err
	}
	if s.BlockedBy == deletion.Held {
		return false, m.awaken(ctx)
	}
	switch s.Stage {
	case deletion.PreDrainHooks, deletion.PreTerminateHooks:
		return false, m.awaken(ctx)
	case deletion.Drain:
		return false, m.drain(ctx, d)
	case deletion.Detach:
		return false, m.detach(ctx, d)
	case deletion.Instance:
		return false, m.deleteInstance(ctx, d)
	case deletion.Node:
		return false, m.deleteNode(ctx, d)
	default: // people were told that the instance stays
		m.done = deletion.Node
		err = m.release(ctx, "takes the finalizer off: the object may go")
		return err == nil, err
	}
}

// enter shows the stage that begins, and records it where the status does not say so yet.
func (m *machine) enter(ctx workflow.Context, d activities.MachineDecision, s deletion.Step) error {
	if s.Stage == deletion.Drain && !s.Record && s.BlockedBy == "" && m.shown.name == "queued" {
		return nil // what people see stays so until its turn has come
	}
	now := stageOf(s, d)
	again, resumed := m.shown.name == now.name && m.shown.why == now.why, m.shown.name == "held"
	if err := m.show(ctx, now); err != nil {
		return err
	}
	if !s.Record && (again || !now.stuck) && !resumed {
		return nil
	}
	report := m.progress("Terminating", lastOperation("Delete", "Processing", described(s.Stage)))
	report.Deletion = &activities.DeletionProgress{Stage: s.Stage}
	switch {
	case s.Empty:
		report.Deletion.Result = activities.Drained
		report.Conditions = []activities.Condition{{Type: "Drained", True: true, Reason: activities.Drained, Message: "nothing had to leave node " + d.NodeName}}
	case s.Skipped != "":
		report.Deletion.Result = activities.Skipped
		report.Conditions = []activities.Condition{{Type: "Drained", True: true, Reason: activities.Skipped, Message: s.Skipped}}
	}
	if s.Released != "" {
		report.Event = &activities.Event{Warning: true, Reason: "InstanceReleased", Message: "the provider was not asked to delete instance " + d.ProviderID + ": " + s.Released}
	}
	if now.stuck {
		report.Operation.Description = now.why
		report.Event = &activities.Event{Reason: "DeletionHeld", Message: now.why}
	}
	return m.write(ctx, "stage "+string(s.Stage)+": "+s.Why, core().ReportMachine, report)
}

// stageOf is what people see of a stage.
func stageOf(s deletion.Step, d activities.MachineDecision) step {
	if s.BlockedBy == deletion.Held {
		return step{name: "held", why: s.Why, phase: "Terminating", node: d.NodeName, blockedBy: s.BlockedBy, stuck: true}
	}
	now := step{why: s.Why, phase: "Terminating", node: d.NodeName, blockedBy: s.BlockedBy, stuck: s.BlockedBy != ""}
	switch s.Stage {
	case deletion.PreDrainHooks, deletion.PreTerminateHooks:
		now.name = "await-hooks"
	case deletion.Drain:
		now.name = "drain"
	case deletion.Detach:
		now.name = "await-detach"
	case deletion.Instance:
		now.name, now.why = "delete-instance", fmt.Sprintf("provider %s removes instance %s", d.Provider, d.ProviderID)
	default:
		now.name = "delete-node"
	}
	return now
}

// described is what lastOperation says of a stage; nothing is decided from it. Where machine-controller-manager has such a
// stage, its users know the words.
func described(s deletion.Stage) string {
	switch s {
	case deletion.PreDrainHooks:
		return "Set machine status to termination"
	case deletion.Drain:
		return "Initiate node drain"
	case deletion.Detach:
		return "Wait for volumes to be detached"
	case deletion.PreTerminateHooks:
		return "Wait for pre-terminate hooks"
	case deletion.Instance:
		return "Initiate VM deletion"
	default:
		return "Initiate node object deletion"
	}
}

// detach waits until no volume is attached to the node any more, or until it is time to go on without: what is left is
// released when the instance is gone.
func (m *machine) detach(ctx workflow.Context, d activities.MachineDecision) error {
	since := d.StageSince
	if d.Deletion.Record { // it has just begun
		since = workflow.Now(ctx)
	}
	in := activities.Detaching{Machine: m.ref, NodeName: d.NodeName, Since: since}
	var left activities.Detached
	if err := workflow.ExecuteActivity(draining(ctx, "await-detach", m.shown.why), core().AwaitDetach, in).Get(ctx, &left); err != nil {
		return err
	}
	m.done = deletion.Detach
	return nil
}

// deleteInstance makes the provider delete the instance, and waits until it is gone.
func (m *machine) deleteInstance(ctx workflow.Context, d activities.MachineDecision) error {
	if d.Problem != nil {
		return m.awaitRepair(ctx, d, *d.Problem)
	}
	if answer, err := m.provide(ctx, d, cloudCalls().DeleteInstance, m.call(d)); err != nil || answer == nil {
		return err
	}
	m.done = deletion.Instance
	return nil
}

// deleteNode removes what is left of the node of an instance that is gone.
func (m *machine) deleteNode(ctx workflow.Context, d activities.MachineDecision) error {
	removal := activities.NodeRemoval{Machine: m.ref, NodeName: d.NodeName, ProviderID: d.ProviderID}
	if err := quick(ctx, "removes node "+d.NodeName, core().DeleteNode, removal, nil); err != nil {
		return err
	}
	m.done = deletion.Node
	return nil
}

// release removes what is left in the target cluster, and lets the object go.
func (m *machine) release(ctx workflow.Context, summary string) error {
	return quick(ctx, summary, core().ReleaseMachine, m.read(), nil)
}

// drain empties the node in a workflow of its own. A node on which nothing stands needs none.
func (m *machine) drain(ctx workflow.Context, d activities.MachineDecision) error {
	var load activities.NodeLoad
	if err := quick(ctx, "cordons node "+d.NodeName+", and looks what stands on it", core().WeighNode, m.read(), &load); err != nil {
		return err
	}
	m.raise(load.Versions)
	if load.Pods == 0 && load.Attached == 0 {
		m.done = deletion.Detach
		return nil
	}
	if load.Queue != "" {
		return m.queue(ctx, d, load.Queue)
	}
	if err := m.show(ctx, stageOf(*d.Deletion, d)); err != nil {
		return err
	}
	err := m.runDrain(ctx, d)
	m.live = true // the drain wrote the status
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case alreadyStarted(err): // that of a run that was terminated is about to end: nothing tells us when
		return m.awaken(ctx, m.timer(ctx, "handover", "the drain of an earlier run is ending", workflow.Now(ctx).Add(drainHandover)))
	case temporal.IsCanceledError(err): // a person did that, in Temporal: until another word the node stays as it is
		hold := activities.Holding{Read: m.read(), Why: "the drain was cancelled in Temporal"}
		return m.write(ctx, "holds the deletion: "+hold.Why, core().HoldDeletion, hold)
	default: // terminated, or something that should not be: another one takes it up
		return m.awaken(ctx, m.timer(ctx, "handover", "the drain has failed: another one begins", workflow.Now(ctx).Add(drainHandover)))
	}
}

// runDrain runs the drain to its end, and hands on what wakes the machine meanwhile.
func (m *machine) runDrain(ctx workflow.Context, d activities.MachineDecision) error {
	child, cancel := workflow.WithCancel(drainOptions(ctx, m.ref, d.NodeName))
	defer cancel()
	future := workflow.ExecuteChildWorkflow(child, Drain, DrainInput{Ref: m.ref, Gate: m.gate, NodeName: d.NodeName})
	if err := future.GetChildWorkflowExecution().Get(ctx, nil); err != nil {
		return err
	}
	for !future.IsReady() {
		if err := m.awaken(ctx, future); err != nil {
			return err
		}
		if m.receive() && !future.IsReady() { // it reads what woke us; that it may have ended meanwhile is no failure
			_ = future.SignalChildWorkflow(ctx, SignalChanged, Changed{UID: m.ref.UID, Versions: m.gate}).Get(ctx, nil)
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			cancel()
			_ = future.Get(ctx, nil)
			return ctx.Err()
		}
	}
	return future.Get(ctx, nil)
}

// queue waits for the machine's turn. The bridge wakes those that are next.
func (m *machine) queue(ctx workflow.Context, d activities.MachineDecision, why string) error {
	again := m.shown.name == "queued"
	if err := m.show(ctx, step{name: "queued", why: why, phase: "Terminating", node: d.NodeName}); err != nil {
		return err
	}
	if !again { // then it asks once more: a place that became free before this was known woke nobody
		return m.write(ctx, why, core().ReportMachine, m.progress("Terminating", lastOperation("Delete", "Processing", why)))
	}
	return m.awaken(ctx)
}
