package machine

import (
	"cmp"
	"fmt"

	"go.temporal.io/sdk/workflow"

	activitiescloud "millwright/activities/cloud"
	"millwright/activities/drain"
	"millwright/activities/kube"
	activities "millwright/activities/machine"
	"millwright/api/vocabulary"
	"millwright/decide/deletion"
	"millwright/workflows/run"
)

// delete takes the deletion one stage further, and reports whether the finalizer is removed. The decision says which stage has
// work. A stage is recorded in the status before its work starts, so that no later run falls back to an earlier stage. A stage
// that finishes in its first local attempt is not recorded.
func (m *machine) delete(ctx workflow.Context, d activities.Decision) (released bool, err error) {
	if d.Problem != nil && d.NeverTried { // even without a class: the provider has nothing to delete
		return m.release(ctx, d, "no instance was ever made: the object may go")
	}
	if again, err := m.identify(ctx, d); err != nil || again {
		return false, err
	}
	s := *d.Deletion
	if announced, err := m.announce(ctx, d); err != nil || !announced {
		return false, err
	}
	if s.BlockedBy == nil {
		if over, released, err := m.tryQuickly(ctx, d, s); err != nil || over {
			return released, err
		}
	}
	if err := m.enter(ctx, d, s); err != nil {
		return false, err
	}
	if s.Held() || s.Stage == deletion.PreDrainHooks || s.Stage == deletion.PreTerminateHooks {
		return false, m.Awaken(ctx)
	}
	return m.advance(ctx, d, s)
}

// tryQuickly attempts a stage without recording it first. over is false if the stage must be recorded and run normally.
func (m *machine) tryQuickly(ctx workflow.Context, d activities.Decision, s deletion.Step) (over, released bool, err error) {
	switch {
	case s.Stage == deletion.Drain:
		return true, false, m.drain(ctx, d)
	case s.Stage == deletion.Node && s.Record && s.Abandoned == "":
		_, over, err := deleteNode.Attempt(ctx, "removes node "+d.NodeName, m.removal(d))
		switch {
		case !over: // it takes longer than a local attempt: the stage is recorded and shown
			return false, false, nil
		case err == nil:
			m.done = deletion.Node
		}
		return true, false, err
	case s.Stage == deletion.Release && s.Abandoned == "":
		released, err = m.release(ctx, d, "takes the finalizer off: the object may go")
		return true, released, err
	default:
		return false, false, nil
	}
}

func (m *machine) advance(ctx workflow.Context, d activities.Decision, s deletion.Step) (released bool, err error) {
	switch s.Stage {
	case deletion.Detach:
		return false, m.detach(ctx, d)
	case deletion.Instance:
		return false, m.deleteInstance(ctx, d)
	case deletion.Node:
		return false, m.deleteNode(ctx, d)
	default: // the status says that the instance stays
		m.done = deletion.Node
		return m.release(ctx, d, "takes the finalizer off: the object may go")
	}
}

// announce writes the condition on the node that its machine is being deleted, before anything is done to the node.
func (m *machine) announce(ctx workflow.Context, d activities.Decision) (announced bool, err error) {
	if !d.Deletion.Announce || m.announced == d.NodeName {
		return true, nil
	}
	made, announced, err := onTarget(ctx, m, d, "node "+d.NodeName+" gets the condition that its machine is deleted", announceTermination, m.Read())
	m.Raise(made)
	if len(made) > 0 { // if no node could be written, the next decision tries again
		m.announced = d.NodeName
	}
	return announced, err
}

// identify records the names of an instance whose creation was interrupted before its names were recorded: its node may still
// join, and is then drained and removed like any other. It reports true when the names are new facts to decide from. A failed
// lookup is treated as "no instance": DeleteInstance searches by the machine's UID anyway.
func (m *machine) identify(ctx workflow.Context, d activities.Decision) (again bool, err error) {
	if d.NodeName != "" || d.NeverTried || !d.Target || d.Problem != nil || d.Deletion.Abandoned != "" || m.askedNames {
		return false, nil
	}
	m.askedNames = true
	var answer activitiescloud.InstanceAnswer
	if err := m.callEnded(ctx); err != nil {
		return false, err
	}
	ask := run.Glance(ctx, d.Provider, m.ActivityID(vocabulary.StepInstanceStatus), "is there an instance that nobody recorded?")
	if err := workflow.ExecuteActivity(ask, new(activitiescloud.Provider).InstanceStatus, m.call(d)).Get(ctx, &answer); err != nil || answer.NodeName == "" {
		return false, ctx.Err()
	}
	stale, err := m.recordNames(ctx, answer.ProviderID, answer.NodeName)
	return err == nil && stale == "", err
}

// enter shows the stage that begins, and records it in the status if it is not on record.
func (m *machine) enter(ctx workflow.Context, d activities.Decision, s deletion.Step) error {
	if s.Stage == deletion.Drain && !s.Record && s.BlockedBy == nil && m.Shown.Name == vocabulary.StepQueued {
		return nil // shown as queued until its turn has come
	}
	now := stageOf(s, d)
	again, resumed := m.Shown.Name == now.Name && m.Shown.Why == now.Why, m.Shown.Name == vocabulary.StepHeld
	m.Show(ctx, now)
	if !s.Record && (again || !now.Stuck) && !resumed {
		return nil
	}
	report := m.progress(vocabulary.PhaseTerminating, lastOperation(vocabulary.OperationDelete, vocabulary.StateProcessing, described(s.Stage)))
	report.Deletion = &activities.DeletionProgress{Stage: s.Stage}
	switch {
	case s.Empty:
		report.Deletion.Result = vocabulary.DrainDrained
		report.Conditions = []activities.Condition{{Type: vocabulary.ConditionDrained, True: true, Reason: vocabulary.DrainDrained, Message: "no pod had to leave node " + d.NodeName}}
	case s.Skipped != "":
		report.Deletion.Result = vocabulary.DrainSkipped
		report.Conditions = []activities.Condition{{Type: vocabulary.ConditionDrained, True: true, Reason: vocabulary.DrainSkipped, Message: s.Skipped}}
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

func stageOf(s deletion.Step, d activities.Decision) run.Step {
	now := run.Step{Why: s.Why, Phase: vocabulary.PhaseTerminating, Node: d.NodeName, BlockedBy: s.BlockedBy, Stuck: s.BlockedBy != nil}
	if s.Held() {
		now.Name = vocabulary.StepHeld
		return now
	}
	switch s.Stage {
	case deletion.PreDrainHooks, deletion.PreTerminateHooks:
		now.Name = vocabulary.StepAwaitHooks
	case deletion.Drain:
		now.Name = vocabulary.StepDrain
	case deletion.Detach:
		now.Name = vocabulary.StepAwaitDetach
	case deletion.Instance:
		now.Name, now.Why = vocabulary.StepDeleteInstance, fmt.Sprintf("provider %s removes instance %s", d.Provider, d.ProviderID)
	default:
		now.Name = vocabulary.StepDeleteNode
	}
	return now
}

// described returns the description of a stage in lastOperation; no decision reads it. Where machine-controller-manager has
// such a stage, the words are its own.
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

// detach waits until no volume is attached to the node any more, or until its time is over: the cloud detaches the remaining
// volumes when it deletes the instance.
func (m *machine) detach(ctx workflow.Context, d activities.Decision) error {
	since := d.StageSince
	if d.Deletion.Record { // it has just begun
		since = workflow.Now(ctx)
	}
	in := drain.Detaching{Machine: m.Ref, NodeName: d.NodeName, Since: since}
	cancelled, err := m.WhileWanted(ctx, vocabulary.StepAwaitDetach, new(drain.Activities).AwaitDetach, in, nil, func() (bool, error) {
		now, err := m.Decide(ctx)
		return now.Deletion != nil && now.Deletion.Stage == deletion.Detach && now.Deletion.BlockedBy == nil, err
	})
	if err == nil && !cancelled {
		m.done = deletion.Detach
	}
	return err
}

func (m *machine) deleteInstance(ctx workflow.Context, d activities.Decision) error {
	if d.Problem != nil {
		return m.awaitRepair(ctx, d, *d.Problem)
	}
	if answer, err := m.provide(ctx, d, new(activitiescloud.Provider).DeleteInstance, m.call(d)); err != nil || answer == nil {
		return err
	}
	m.done = deletion.Instance
	return nil
}

func (m *machine) deleteNode(ctx workflow.Context, d activities.Decision) error {
	_, done, err := onTarget(ctx, m, d, "removes node "+d.NodeName, deleteNode, m.removal(d))
	if done {
		m.done = deletion.Node
	}
	return err
}

func (m *machine) removal(d activities.Decision) activities.NodeRemoval {
	return activities.NodeRemoval{Machine: m.Ref, NodeName: d.NodeName, ProviderID: d.ProviderID}
}

// release removes what is left in the target cluster, then the finalizer.
func (m *machine) release(ctx workflow.Context, d activities.Decision, summary string) (released bool, err error) {
	in := activities.Releasing{Read: m.Read(), Hurry: d.Deletion.Hurry}
	_, released, err = onTarget(ctx, m, d, summary, releaseMachine, in)
	return released, err
}

// onTarget runs an activity in the target cluster, and reports whether it was done. While that cluster does not answer, the
// status shows it, and each signal leads to a new decision. With the request to hurry, it does not wait for that cluster.
func onTarget[In, Out any](
	ctx workflow.Context, m *machine, d activities.Decision, summary string, activity run.Local[In, Out], in In,
) (out Out, done bool, err error) {
	out, over, err := activity.Attempt(ctx, summary, in)
	switch {
	case over:
		return out, err == nil, err
	case d.Deletion.Hurry:
		return out, true, nil
	}
	s := m.Shown
	s.Why, s.Node, s.Phase = "the target cluster does not answer: "+summary, d.NodeName, vocabulary.PhaseTerminating
	s.Name, s.BlockedBy, s.Stuck = cmp.Or(s.Name, "announce"), []string{vocabulary.BlockedTargetUnavailable}, true
	m.Show(ctx, s)
	report := m.progress(vocabulary.PhaseTerminating, lastOperation(vocabulary.OperationDelete, vocabulary.StateProcessing, s.Why))
	if err := m.writeStatus(ctx, s.Why, report); err != nil {
		return out, false, err
	}
	done, err = m.UntilChanged(ctx, summary, activity.Activity, in, &out)
	return out, done, err
}
