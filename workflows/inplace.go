package workflows

import (
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/inplace"
)

// updateInPlace takes our turn in the in-place update of the machine's node. That patience with the machine has ended is told
// all the same.
func (m *machine) updateInPlace(ctx workflow.Context, d activities.MachineDecision) error {
	s := step{name: "update-in-place", why: d.InPlace.Why, phase: d.Phase, node: d.NodeName}
	changes := s.name != m.shown.name
	m.show(ctx, s)
	if changes || (d.Health != nil && d.Health.Due != nil) {
		report := verdictReport(m.read(), *d.Health)
		report.Step = m.report()
		if err := m.write(ctx, d.InPlace.Why, core().ReportMachine, report); err != nil {
			return err
		}
	}
	switch d.InPlace.Step {
	case inplace.Nothing:
		return m.awaitMachine(ctx, d)
	case inplace.Drain:
		empty, err := m.empty(ctx, d)
		if err != nil || !empty {
			return err
		}
	case inplace.Update:
		report := m.progress("InPlaceUpdating", lastOperation("InPlaceUpdate", "Processing", "Machine "+m.ref.Name+": its node is updated in place"))
		report.Event = &activities.Event{Reason: "InPlaceUpdating", Message: report.Operation.Description}
		return m.write(ctx, "phase InPlaceUpdating", core().ReportMachine, report)
	default: // only the condition is to be written
	}
	mark := activities.InPlaceMark{Read: m.read(), Reason: d.InPlace.Reason, Message: d.InPlace.Message}
	var made activities.Gate
	if err := m.quick(ctx, "the node says "+mark.Reason, core().MarkInPlace, mark, &made); err != nil {
		return err
	}
	m.raise(made)
	if again := m.marked == d.InPlace.Why; again || len(made) == 0 { // it was said, and the node does not say it: somebody else's turn
		m.marked = ""
		return m.awaitMachine(ctx, d)
	}
	m.marked = d.InPlace.Why
	return nil
}
