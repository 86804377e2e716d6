package machine

import (
	"cmp"
	"errors"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/cloud"
	"millwright/activities/kube"
	activities "millwright/activities/machine"
	"millwright/api/vocabulary"
	"millwright/workflows/run"
)

// unasked reports whether the provider has yet to be asked for the names of a machine's instance. Either the creation
// was interrupted before they were recorded: the node may still join, and is then drained and removed like any other.
// Or only a label says that a node without provider ID is the machine's. A decision that skips the drain because a name
// is missing must wait for the answer. ADR 0030.
func (m *machine) unasked(d activities.Decision) bool {
	s := d.Deletion
	unproven := s != nil && (s.Skipped != "" && (d.NodeName == "" || d.ProviderID == "") || s.Ask)
	return unproven && !m.answered && d.Target && !d.NeverTried && !s.Stays
}

// identify asks the provider for the names of an instance that is not on record, until it answers, and records them. It
// reports true when a new decision must follow. After the request skip, the provider is asked at most once; after
// abandon-instance, it is not asked any more.
func (m *machine) identify(ctx workflow.Context, d activities.Decision) (again bool, err error) {
	switch hurry := d.Deletion.Hurry; {
	case !m.unasked(d):
		return false, nil
	case d.Deletion.Held():
		return true, m.holdUnasked(ctx, d)
	case hurry && (m.asked || d.Problem != nil):
		m.answered = true
		return false, nil
	case d.Problem != nil:
		m.asked = true
		return true, m.awaitRepair(ctx, d, *d.Problem)
	}
	answer, err := m.ask(ctx, d)
	if err != nil || answer == nil {
		return true, err
	}
	m.answered = true
	if answer.NodeName == "" && answer.ProviderID == "" {
		return false, nil
	}
	stale, err := m.recordNames(
		ctx,
		activities.Recorded{ProviderID: answer.ProviderID, NodeName: answer.NodeName, Told: true},
	)
	return err == nil && stale == "", err
}

// ask asks the provider until it answers. It returns nil, nil if the caller must decide again. If a person wants no
// drain, it asks once, and a missing answer counts as "there is no instance".
func (m *machine) ask(ctx workflow.Context, d activities.Decision) (*cloud.InstanceAnswer, error) {
	call := m.call(d)
	m.asked = true
	if d.Deletion.Hurry {
		answer, end, err := m.interruptible(ctx, d, new(cloud.Provider).InstanceStatus, call)
		if ctx.Err() != nil || end == aborted {
			return nil, ctx.Err()
		}
		if err != nil {
			answer = cloud.InstanceAnswer{}
		}
		return &answer, nil
	}
	for {
		answer, err := m.provide(ctx, d, new(cloud.Provider).InstanceStatus, call)
		if call.Known != nil || ctx.Err() != nil || !silent(err) {
			return answer, err
		}
		call.Known = kube.NoAnswer("provider " + d.Provider + " has not said whether there is an instance")
		if err := m.showProblem(ctx, d, *call.Known, "", false); err != nil {
			return nil, err
		}
	}
}

// silent reports whether the first half minute of the question has passed without an answer.
func silent(err error) bool {
	failed, is := errors.AsType[*temporal.ActivityError](err)
	return is && failed.ActivityType().GetName() == "InstanceStatus"
}

// holdUnasked waits for the end of an operator's hold. No stage begins before the provider has answered: a later stage
// would skip the drain for good.
func (m *machine) holdUnasked(ctx workflow.Context, d activities.Decision) error {
	m.Show(ctx, stageOf(*d.Deletion, d))
	report := m.progress(
		ctx,
		vocabulary.PhaseTerminating,
		lastOperation(vocabulary.OperationDelete, vocabulary.StateProcessing, m.Shown.Why),
	)
	report.Event = &kube.Event{Reason: vocabulary.ReasonDeletionHeld, Message: m.Shown.Why}
	if err := m.writeStatus(ctx, m.Shown.Why, report); err != nil {
		return err
	}
	return m.AwaitChange(ctx)
}

// askWhose asks the provider once for the name of the node of a machine that stays, if that can settle whose the node
// is, and records the name. It reports true when a new decision must follow. Without an answer within a minute, the
// doubt stays.
func (m *machine) askWhose(ctx workflow.Context, d activities.Decision) (settled bool, err error) {
	if !d.Ask || m.wondered || d.Provider == "" || d.NeverTried {
		return false, nil
	}
	m.wondered = true
	m.Show(
		ctx,
		shown(
			d,
			vocabulary.StepInstanceStatus,
			"asks provider "+d.Provider+" whether node "+d.NodeName+" is of its instance",
		),
	)
	if err := m.SetSearchAttributes(ctx); err != nil {
		return false, err
	}
	var answer cloud.InstanceAnswer
	question := run.Briefly(ctx, d.Provider, m.Shown.Why)
	err = workflow.ExecuteActivity(question, new(cloud.Provider).InstanceStatus, m.call(d)).Get(ctx, &answer)
	if err != nil || answer.Problem != nil || answer.NodeName == "" {
		return false, ctx.Err()
	}
	_, err = m.recordNames(
		ctx,
		activities.Recorded{ProviderID: cmp.Or(answer.ProviderID, d.ProviderID), NodeName: answer.NodeName, Told: true},
	)
	return err == nil, err
}
