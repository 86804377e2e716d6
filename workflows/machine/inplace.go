package machine

import (
	"go.temporal.io/sdk/workflow"

	"millwright/activities/kube"
	activities "millwright/activities/machine"
	"millwright/api/vocabulary"
	"millwright/decide/inplace"
)

// updateInPlace carries out Millwright's next step of an in-place update of the machine's node. updateInPlace also
// reports the end of the health timeout.
func (m *machine) updateInPlace(ctx workflow.Context, d activities.Decision) error {
	s := stepForDecision(d, vocabulary.StepPrepareInPlaceUpdate, d.InPlace.Why)
	changes := s.Name != m.Shown.Name
	m.ShowStep(ctx, s)
	if changes || (d.Health != nil && d.Health.Due != nil) {
		report := verdictReport(m.NewReadInput(ctx), *d.Health)
		report.Step = m.StatusStep()
		if err := m.writeStatus(ctx, d.InPlace.Why, report); err != nil {
			return err
		}
	}
	switch d.InPlace.Step {
	case inplace.StepNothing:
		return m.awaitChangeOrMachineDeadline(ctx, d)
	case inplace.StepDrain:
		empty, err := m.drainNodeForUpdate(ctx, d)
		if err != nil || !empty {
			return err
		}
	case inplace.StepSetUpdatingPhase:
		report := m.progressReport(
			ctx,
			vocabulary.PhaseInPlaceUpdating,
			newLastOperation(
				vocabulary.OperationInPlaceUpdate,
				vocabulary.StateProcessing,
				"Machine "+m.Ref.Name+": its node is updated in place",
			),
		)
		report.Event = &kube.Event{Reason: vocabulary.PhaseInPlaceUpdating, Message: report.Operation.Description}
		return m.writeStatus(ctx, "phase InPlaceUpdating", report)
	default: // only the node's condition must be written
	}
	mark := activities.InPlaceCondition{Read: m.NewReadInput(ctx), Reason: d.InPlace.Reason, Message: d.InPlace.Message}
	made, err := markInPlaceActivity.RunLocalFirst(ctx, m.WorkflowState, "the node says "+mark.Reason, mark)
	if err != nil {
		return err
	}
	m.RaiseMinVersions(made)
	// the next step belongs to the agent on the node
	if again := m.markedUpdateState == d.InPlace.Why; again || len(made) == 0 {
		m.markedUpdateState = ""
		return m.awaitChangeOrMachineDeadline(ctx, d)
	}
	m.markedUpdateState = d.InPlace.Why
	return nil
}
