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

// delete takes the deletion one stage further. The decision says which stage has work. The deletion is complete when
// the stage Release is done. A stage is recorded in the status before its work starts, so that no later run falls back
// to an earlier stage. A stage that finishes in its first local attempt is not recorded.
func (m *machine) delete(ctx workflow.Context, d activities.Decision) error {
	if d.Problem != nil && d.NeverTried { // even without a class: the provider has nothing to delete
		return m.release(ctx, d, "no instance was ever created: our finalizer is removed")
	}
	if again, err := m.identify(ctx, d); err != nil || again {
		return err
	}
	s := *d.Deletion
	if announced, err := m.announce(ctx, d); err != nil || !announced {
		return err
	}
	if s.BlockedBy == nil {
		if over, err := m.tryQuickly(ctx, d, s); err != nil || over {
			return err
		}
	}
	if err := m.enter(ctx, d, s); err != nil {
		return err
	}
	return m.advance(ctx, d, s)
}

// tryQuickly attempts a stage without recording it first. over is false if the stage must be recorded and run normally.
func (m *machine) tryQuickly(ctx workflow.Context, d activities.Decision, s deletion.Step) (over bool, err error) {
	switch {
	case s.Stage == deletion.Drain:
		return true, m.drain(ctx, d)
	case s.Stage == deletion.Node && s.Record && s.Abandoned == "":
		_, over, err := deleteNode.Attempt(ctx, "removes node "+d.NodeName, m.removal(d))
		if !over { // it takes longer than a local attempt: the stage is recorded and shown
			return false, nil
		}
		if err == nil {
			m.done = deletion.Node
		}
		return true, err
	case s.Stage == deletion.Release && s.Abandoned == "":
		return true, m.release(ctx, d, "our finalizer is removed")
	default:
		return false, nil
	}
}

// advance does the work of a stage that is on record. While something blocks the stage, it only waits for a change.
func (m *machine) advance(ctx workflow.Context, d activities.Decision, s deletion.Step) error {
	switch {
	case len(s.BlockedBy) > 0:
		return m.AwaitChange(ctx)
	case s.Stage == deletion.Detach:
		return m.detach(ctx, d)
	case s.Stage == deletion.Instance:
		return m.deleteInstance(ctx, d)
	case s.Stage == deletion.Node:
		return m.deleteNode(ctx, d)
	default: // the status says that the instance stays
		m.done = deletion.Node
		return m.release(ctx, d, "our finalizer is removed")
	}
}

// announce writes the condition on the node that its machine is being deleted, before anything is done to the node.
func (m *machine) announce(ctx workflow.Context, d activities.Decision) (announced bool, err error) {
	if !d.Deletion.Announce || m.announced == d.NodeName {
		return true, nil
	}
	made, went, err := onTarget(
		ctx,
		m,
		d,
		"node "+d.NodeName+" gets the condition that its machine is deleted",
		announceTermination,
		m.Read(ctx),
	)
	m.RaiseMinVersions(made)
	if len(made) > 0 { // if no node could be written, the next decision tries again
		m.announced = d.NodeName
	}
	return went != waits, err
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
	_, description := named(s.Stage)
	report := m.progress(
		ctx,
		vocabulary.PhaseTerminating,
		lastOperation(vocabulary.OperationDelete, vocabulary.StateProcessing, description),
	)
	report.Deletion = &activities.DeletionProgress{Stage: s.Stage}
	if result, message := m.withoutDrain(s, d); result != "" {
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

// withoutDrain returns the result of a drain that was not needed, and why it was not; both are empty if it was, or if
// its result is on record.
func (m *machine) withoutDrain(s deletion.Step, d activities.Decision) (result, why string) {
	switch {
	case s.Empty && m.undrained:
		return vocabulary.DrainSkipped, "the cluster of node " + d.NodeName + " does not answer, and a person wanted no wait for it"
	case s.Empty:
		return vocabulary.DrainDrained, "no pod had to leave node " + d.NodeName
	case s.Skipped != "":
		return vocabulary.DrainSkipped, s.Skipped
	default:
		return "", ""
	}
}

// stageOf returns the step that shows a stage.
func stageOf(s deletion.Step, d activities.Decision) run.Step {
	now := run.Step{
		Why:       s.Why,
		Phase:     vocabulary.PhaseTerminating,
		Node:      d.NodeName,
		BlockedBy: s.BlockedBy,
		Stuck:     s.BlockedBy != nil,
	}
	if s.Held() {
		now.Name = vocabulary.StepHeld
		return now
	}
	if now.Name, _ = named(s.Stage); s.Stage == deletion.Instance {
		now.Why = fmt.Sprintf("provider %s removes instance %s", d.Provider, d.ProviderID)
	}
	return now
}

// named returns the name of the step of a stage, and the description of the stage in lastOperation, which no decision
// reads. Where machine-controller-manager has such a stage, the words of the description are its own.
func named(s deletion.Stage) (step, description string) {
	switch s {
	case deletion.PreDrainHooks:
		return vocabulary.StepAwaitHooks, "Set machine status to termination"
	case deletion.Drain:
		return vocabulary.StepDrain, "Initiate node drain"
	case deletion.Detach:
		return vocabulary.StepAwaitDetach, "Wait for volumes to be detached"
	case deletion.PreTerminateHooks:
		return vocabulary.StepAwaitHooks, "Wait for pre-terminate hooks"
	case deletion.Instance:
		return vocabulary.StepDeleteInstance, "Initiate VM deletion"
	default:
		return vocabulary.StepDeleteNode, "Initiate node object deletion"
	}
}

// detach waits until no volume is attached to the node any more, or until its time is over: the cloud detaches the
// remaining volumes when it deletes the instance.
func (m *machine) detach(ctx workflow.Context, d activities.Decision) error {
	since := d.StageSince
	if d.Deletion.Record { // it has just begun
		since = workflow.Now(ctx)
	}
	in := drain.Detaching{Machine: m.Ref, NodeName: d.NodeName, Since: since, Tells: true}
	for {
		var seen drain.Detached
		cancelled, err := m.WhileWanted(
			ctx,
			vocabulary.StepAwaitDetach,
			new(drain.Activities).AwaitDetach,
			in,
			&seen,
			func() (bool, error) {
				now, err := m.Decide(ctx)
				return now.Deletion != nil && now.Deletion.Stage == deletion.Detach && now.Deletion.BlockedBy == nil, err
			},
		)
		if err != nil || cancelled {
			return err
		}
		if !seen.GoesOn {
			m.done = deletion.Detach
			return nil
		}
		if err := m.nameVolumes(ctx, d, seen); err != nil {
			return err
		}
		in.Shown = seen.Left
	}
}

// mostVolumesNamed is how many volumes the sentence of the stage Detach names. Source: what fits on a screen of 80
// columns.
const mostVolumesNamed = 2

// nameVolumes shows which volumes are still attached to the node, and until when they are waited for.
func (m *machine) nameVolumes(ctx workflow.Context, d activities.Decision, seen drain.Detached) error {
	all := len(seen.Left) + seen.More
	why := phrase.OneOf(all, "volume ", "volumes ") + phrase.ListOf(seen.Left, all, mostVolumesNamed, ", ") +
		phrase.OneOf(all, " is", " are") + " still attached to the node"
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
	m.Show(ctx, s)
	_, description := named(deletion.Detach)
	report := m.progress(
		ctx,
		vocabulary.PhaseTerminating,
		lastOperation(vocabulary.OperationDelete, vocabulary.StateProcessing, description),
	)
	return m.writeStatus(ctx, why, report)
}

func (m *machine) deleteInstance(ctx workflow.Context, d activities.Decision) error {
	if d.Problem != nil {
		return m.awaitRepair(ctx, d, *d.Problem)
	}
	answer, err := m.provide(ctx, d, new(cloud.Provider).DeleteInstance, m.call(d))
	if err != nil || answer == nil {
		return err
	}
	m.done, m.anothers = deletion.Instance, answer.Anothers != ""
	if !m.anothers {
		return nil
	}
	message := "the instance stays: " + answer.Anothers
	report := m.progress(ctx, vocabulary.PhaseTerminating, nil)
	report.Event = &kube.Event{Warning: true, Reason: vocabulary.ReasonInstanceAnothers, Message: message}
	report.Conditions = []activities.Condition{
		{Type: vocabulary.ConditionInstanceReady, Reason: vocabulary.ReasonInstanceAnothers, Message: message},
	}
	return m.writeStatus(ctx, message, report)
}

func (m *machine) deleteNode(ctx workflow.Context, d activities.Decision) error {
	_, went, err := onTarget(ctx, m, d, "removes node "+d.NodeName, deleteNode, m.removal(d))
	if went != waits {
		m.done = deletion.Node
	}
	return err
}

func (m *machine) removal(d activities.Decision) activities.NodeRemoval {
	return activities.NodeRemoval{
		Machine:       m.Ref,
		NodeName:      d.NodeName,
		ProviderID:    d.ProviderID,
		InstanceStays: d.Deletion.Stays || m.anothers,
	}
}

// release removes what is left in the target cluster, then the finalizer.
func (m *machine) release(ctx workflow.Context, d activities.Decision, summary string) error {
	in := activities.Releasing{Read: m.Read(ctx), Hurry: d.Deletion.Hurry}
	_, went, err := onTarget(ctx, m, d, summary, releaseMachine, in)
	if went != waits {
		m.done = deletion.Release
	}
	return err
}

// passage says how a deletion went past an activity in the target cluster.
type passage int

const (
	waits      passage = iota // it did not: the cluster has not answered
	done                      // the activity was done
	passedOver                // the cluster does not answer, and a person does not want to wait for it
)

// onTarget runs an activity in the target cluster. While that cluster does not answer, lastOperation is Failed, and
// each signal leads to a new decision. The deletion does not wait for that cluster if a person requested skip or
// abandon-instance or, before the stage Instance, force.
func onTarget[In, Out any](
	ctx workflow.Context, m *machine, d activities.Decision, summary string, activity run.Local[In, Out], in In,
) (out Out, went passage, err error) {
	out, over, err := activity.Attempt(ctx, summary, in)
	switch {
	case over && err != nil:
		return out, waits, err
	case over:
		return out, done, nil
	case d.Deletion.Hurry || d.Deletion.Force:
		return out, passedOver, nil
	}
	if _, internal := kube.Failure(err, kube.TypeInternal); !internal { // else it answers, and soon counts as a refusal
		if err := m.showUnanswered(ctx, d, summary, err); err != nil {
			return out, waits, err
		}
	}
	if over, err = m.UntilChanged(ctx, summary, activity.Activity, in, &out); over {
		went = done
	}
	return out, went, err
}

// showUnanswered shows in details and status that the target cluster does not answer, or does not allow, an activity.
func (m *machine) showUnanswered(ctx workflow.Context, d activities.Decision, summary string, err error) error {
	s := m.Shown
	s.Why, s.Node, s.Phase = "the target cluster does not answer: "+summary, d.NodeName, vocabulary.PhaseTerminating
	if denied, is := kube.Failure(err, kube.TypeDenied); is {
		s.Why = "the target cluster does not allow it: " + summary + ": " + denied.Message()
	}
	s.Name = cmp.Or(s.Name, vocabulary.StepAnnounce)
	s.BlockedBy = []string{vocabulary.BlockedTargetUnavailable}
	s.Stuck = true
	m.Show(ctx, s)
	report := m.progress(
		ctx,
		vocabulary.PhaseTerminating,
		lastOperation(vocabulary.OperationDelete, vocabulary.StateFailed, s.Why),
	)
	return m.writeStatus(ctx, s.Why, report)
}
