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

// needsInstanceNames reports whether the provider must be asked for the names of a machine's instance. There are two
// cases. In the first case, the creation was interrupted before the names were recorded. The node of this instance may
// still join, and the deletion must then drain and remove the node. In the second case, a node has no provider ID, and
// only a label assigns the node to the machine. A decision that skips the drain because of a missing name must wait for
// the provider's answer. ADR 0030.
func (m *machine) needsInstanceNames(d activities.Decision) bool {
	s := d.Deletion
	unproven := s != nil && (s.Skipped != "" && (d.NodeName == "" || d.ProviderID == "") || s.Ask)
	return unproven && !m.areNamesSettled && d.Target && !d.NeverTried && !s.Stays
}

// recordMissingNames asks the provider for the names of an instance that is not recorded, and records the answer.
// recordMissingNames returns true if a new decision must follow. After the operator request skip, recordMissingNames
// calls the provider at most once. After the request abandon-instance, recordMissingNames does not call the provider.
func (m *machine) recordMissingNames(ctx workflow.Context, d activities.Decision) (again bool, err error) {
	switch hurry := d.Deletion.Hurry; {
	case !m.needsInstanceNames(d):
		return false, nil
	case d.Deletion.IsHeld():
		return true, m.awaitHoldEnd(ctx, d)
	case hurry && (m.hasAskedForNames || d.Problem != nil):
		m.areNamesSettled = true
		return false, nil
	case d.Problem != nil:
		m.hasAskedForNames = true
		return true, m.awaitRepairByPerson(ctx, d, *d.Problem)
	}
	answer, err := m.askForInstanceNames(ctx, d)
	if err != nil || answer == nil {
		return true, err
	}
	m.areNamesSettled = true
	if answer.NodeName == "" && answer.ProviderID == "" {
		return false, nil
	}
	stale, err := m.recordInstanceNames(
		ctx,
		activities.InstanceRecord{ProviderID: answer.ProviderID, NodeName: answer.NodeName, Told: true},
	)
	return err == nil && stale == "", err
}

// askForInstanceNames calls the provider until the provider answers. askForInstanceNames returns nil, nil if the caller
// must decide again. If a person skips the drain, askForInstanceNames makes one call, and a missing answer counts as
// "there is no instance".
func (m *machine) askForInstanceNames(ctx workflow.Context, d activities.Decision) (*cloud.InstanceAnswer, error) {
	call := m.instanceCall(d)
	m.hasAskedForNames = true
	if d.Deletion.Hurry {
		answer, end, err := m.callProviderInterruptibly(ctx, d, new(cloud.Activities).InstanceStatus, call)
		if ctx.Err() != nil || end == outcomeAborted {
			return nil, ctx.Err()
		}
		if err != nil {
			answer = cloud.InstanceAnswer{}
		}
		return &answer, nil
	}
	for {
		answer, err := m.callProvider(ctx, d, new(cloud.Activities).InstanceStatus, call)
		if call.Known != nil || ctx.Err() != nil || !isCallUnanswered(err) {
			return answer, err
		}
		call.Known = kube.NewNoAnswerProblem("provider " + d.Provider + " has not said whether there is an instance")
		if err := m.showProblem(ctx, d, *call.Known, "", false); err != nil {
			return nil, err
		}
	}
}

// isCallUnanswered reports whether the provider has not answered within the first half minute.
func isCallUnanswered(err error) bool {
	failed, is := errors.AsType[*temporal.ActivityError](err)
	return is && failed.ActivityType().GetName() == "InstanceStatus"
}

// awaitHoldEnd waits until an operator's hold ends. No stage of the deletion may begin before the provider has
// answered, because a later stage would skip the drain.
func (m *machine) awaitHoldEnd(ctx workflow.Context, d activities.Decision) error {
	m.ShowStep(ctx, stepOfStage(*d.Deletion, d))
	report := m.progressReport(
		ctx,
		vocabulary.PhaseTerminating,
		newLastOperation(vocabulary.OperationDelete, vocabulary.StateProcessing, m.Shown.Why),
	)
	report.Event = &kube.Event{Reason: vocabulary.ReasonDeletionHeld, Message: m.Shown.Why}
	if err := m.writeStatus(ctx, m.Shown.Why, report); err != nil {
		return err
	}
	return m.AwaitChange(ctx)
}

// askProviderForNodeOwner asks the provider once for the node name of a machine that is not being deleted, if the owner
// of the node is uncertain. askProviderForNodeOwner records the answer, and returns true if the caller must decide
// again. If the provider does not answer within a minute, the owner stays uncertain.
func (m *machine) askProviderForNodeOwner(ctx workflow.Context, d activities.Decision) (settled bool, err error) {
	if !d.Ask || m.hasAskedNodeOwner || d.Provider == "" || d.NeverTried {
		return false, nil
	}
	m.hasAskedNodeOwner = true
	m.ShowStep(
		ctx,
		stepForDecision(
			d,
			vocabulary.StepGetInstanceStatus,
			"asks provider "+d.Provider+" whether node "+d.NodeName+" is of its instance",
		),
	)
	if err := m.SetSearchAttributes(ctx); err != nil {
		return false, err
	}
	var answer cloud.InstanceAnswer
	question := run.ShortCloudCallOptions(ctx, d.Provider, m.Shown.Why)
	err = workflow.ExecuteActivity(question, new(cloud.Activities).InstanceStatus, m.instanceCall(d)).Get(ctx, &answer)
	if err != nil || answer.Problem != nil || answer.NodeName == "" {
		return false, ctx.Err()
	}
	_, err = m.recordInstanceNames(
		ctx,
		activities.InstanceRecord{ProviderID: cmp.Or(answer.ProviderID, d.ProviderID), NodeName: answer.NodeName, Told: true},
	)
	return err == nil, err
}
