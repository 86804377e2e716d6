package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/deletion"
)

// delete takes the deletion one stage further, and reports whether it came to the end. The decision says which stage has
// anything to do. The status is told of a stage before it begins, so that no later run enters one that came before it; one that is
// over within a moment is not told at all.
func (m *machine) delete(ctx workflow.Context, d activities.MachineDecision) (released bool, err error) {
	if d.Problem != nil && d.NeverTried { // nothing was ever made for it: without a class, too, there is nothing to delete
		return m.release(ctx, d, "no instance was ever made: the object may go")
	}
	if again, err := m.identify(ctx, d); err != nil || again {
		return false, err
	}
	s := *d.Deletion
	if told, err := m.announce(ctx, d); err != nil || !told {
		return false, err
	}
	if s.BlockedBy == "" {
		if over, released, err := m.pass(ctx, d, s); err != nil || over {
			return released, err
		}
	}
	if err := m.enter(ctx, d, s); err != nil {
		return false, err
	}
	if s.BlockedBy == deletion.Held || s.Stage == deletion.PreDrainHooks || s.Stage == deletion.PreTerminateHooks {
		return false, m.awaken(ctx)
	}
	return m.advance(ctx, d, s)
}

// pass goes through a stage that may be over within a moment, before anything is told of it, and reports whether that was all.
func (m *machine) pass(ctx workflow.Context, d activities.MachineDecision, s deletion.Step) (over, released bool, err error) {
	switch {
	case s.Stage == deletion.Drain:
		return true, false, m.drain(ctx, d)
	case s.Stage == deletion.Node && s.Record && s.Released == "":
		err := workflow.ExecuteLocalActivity(quickly(ctx, "removes node "+d.NodeName), core().DeleteNode, m.removal(d)).Get(ctx, nil)
		switch {
		case err == nil:
			m.done = deletion.Node
			return true, false, nil
		case final(err), ctx.Err() != nil:
			return true, false, err
		default: // it takes longer: then people are told
			return false, false, nil
		}
	case s.Stage == deletion.Release && s.Released == "":
		released, err = m.release(ctx, d, "takes the finalizer off: the object may go")
		return true, released, err
	default:
		return false, false, nil
	}
}

// advance does what a stage is for.
func (m *machine) advance(ctx workflow.Context, d activities.MachineDecision, s deletion.Step) (released bool, err error) {
	switch s.Stage {
	case deletion.Detach:
		return false, m.detach(ctx, d)
	case deletion.Instance:
		return false, m.deleteInstance(ctx, d)
	case deletion.Node:
		return false, m.deleteNode(ctx, d)
	default: // people were told that the instance stays
		m.done = deletion.Node
		return m.release(ctx, d, "takes the finalizer off: the object may go")
	}
}

// announce makes the node say that its machine is to go, before anything is done to it.
func (m *machine) announce(ctx workflow.Context, d activities.MachineDecision) (told bool, err error) {
	if !d.Deletion.Announce || m.told == d.NodeName {
		return true, nil
	}
	var made activities.Gate
	told, err = m.onTarget(ctx, d, "node "+d.NodeName+" says that its machine is to go", core().AnnounceTermination, m.read(), &made)
	m.raise(made)
	if len(made) > 0 { // where it does not say so yet, the next round asks again
		m.told = d.NodeName
	}
	return told, err
}

// identify records the names of an instance whose creation was cut short before anybody did: its node may join, and then it
// is drained and removed like any other. It reports true when there is something new to decide from. No answer is as good as
// "there is none": the provider is asked to delete by the machine's UID in any case.
func (m *machine) identify(ctx workflow.Context, d activities.MachineDecision) (again bool, err error) {
	if d.NodeName != "" || d.NeverTried || !d.Target || d.Problem != nil || d.Deletion.Released != "" || m.named {
		return false, nil
	}
	m.named = true
	var answer activities.InstanceAnswer
	if err := m.settle(ctx); err != nil {
		return false, err
	}
	ask := glance(ctx, d.Provider, m.activityID(instanceStatus), "is there an instance that nobody recorded?")
	if err := workflow.ExecuteActivity(ask, cloudCalls().InstanceStatus, m.call(d)).Get(ctx, &answer); err != nil || answer.NodeName == "" {
		return false, ctx.Err()
	}
	var record activities.Record
	recorded := activities.Recorded{Read: m.read(), ProviderID: answer.ProviderID, NodeName: answer.NodeName}
	if err := m.quick(ctx, "records instance "+answer.ProviderID, core().RecordInstance, recorded, &record); err != nil {
		return false, err
	}
	m.wrote(record.Version)
	return record.Stale == "", nil
}

// enter shows the stage that begins, and records it where the status does not say so yet.
func (m *machine) enter(ctx workflow.Context, d activities.MachineDecision, s deletion.Step) error {
	if s.Stage == deletion.Drain && !s.Record && s.BlockedBy == "" && m.shown.name == "queued" {
		return nil // what people see stays so until its turn has come
	}
	now := stageOf(s, d)
	again, resumed := m.shown.name == now.name && m.shown.why == now.why, m.shown.name == "held"
	m.show(ctx, now)
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
		now.name = awaitDetach
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

// awaitDetach is the name of a step, and of its activity in Temporal's UI.
const awaitDetach = "await-detach"

// detach waits until no volume is attached to the node any more, or until it is time to go on without: what is left is
// released when the instance is gone.
func (m *machine) detach(ctx workflow.Context, d activities.MachineDecision) error {
	since := d.StageSince
	if d.Deletion.Record { // it has just begun
		since = workflow.Now(ctx)
	}
	in := activities.Detaching{Machine: m.ref, NodeName: d.NodeName, Since: since}
	var left activities.Detached
	options, cancel := workflow.WithCancel(draining(ctx, m.activityID(awaitDetach), m.shown.why))
	defer cancel()
	future := workflow.ExecuteActivity(options, core().AwaitDetach, in)
	for !future.IsReady() {
		if err := m.awaken(ctx, future); err != nil {
			return err
		}
		if !m.receive() || future.IsReady() {
			continue
		}
		now, err := m.decide(ctx)
		if err != nil {
			return err
		}
		if now.Deletion == nil || now.Deletion.Stage != deletion.Detach || now.Deletion.BlockedBy != "" {
			cancel()
			m.givenUp(awaitDetach, future.Get(ctx, nil)) // its end is all that matters
			return ctx.Err()
		}
	}
	if err := future.Get(ctx, &left); err != nil {
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
	if done, err := m.onTarget(ctx, d, "removes node "+d.NodeName, core().DeleteNode, m.removal(d), nil); err != nil || !done {
		return err
	}
	m.done = deletion.Node
	return nil
}

func (m *machine) removal(d activities.MachineDecision) activities.NodeRemoval {
	return activities.NodeRemoval{Machine: m.ref, NodeName: d.NodeName, ProviderID: d.ProviderID}
}

// release removes what is left in the target cluster, and lets the object go.
func (m *machine) release(ctx workflow.Context, d activities.MachineDecision, summary string) (released bool, err error) {
	in := activities.Releasing{Read: m.read(), Hurry: d.Deletion.Hurry}
	return m.onTarget(ctx, d, summary, core().ReleaseMachine, in, nil)
}

// TargetUnavailable is what a machine is blocked by whose target cluster does not answer.
const TargetUnavailable = "TargetUnavailable"

// onTarget does something in the target cluster, and reports whether it was done. While that cluster does not answer, people
// see it, and whatever changes is looked at. A person who wants the deletion to go on does not wait for it.
func (m *machine) onTarget(ctx workflow.Context, d activities.MachineDecision, summary string, activity, input, result any) (done bool, err error) {
	err = workflow.ExecuteLocalActivity(quickly(ctx, summary), activity, input).Get(ctx, result)
	switch {
	case err == nil, final(err), ctx.Err() != nil:
		return err == nil, err
	case d.Deletion.Hurry:
		return true, nil
	}
	s := m.shown
	s.why, s.node, s.phase, s.blockedBy, s.stuck = "the target cluster does not answer: "+summary, d.NodeName, "Terminating", TargetUnavailable, true
	if s.name == "" {
		s.name = "announce"
	}
	m.show(ctx, s)
	report := m.progress("Terminating", lastOperation("Delete", "Processing", s.why))
	if err := m.write(ctx, s.why, core().ReportMachine, report); err != nil {
		return false, err
	}
	return m.patiently(ctx, summary, activity, input, result)
}
