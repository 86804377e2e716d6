package workflows

import (
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/attention"
	"millwright/decide/inplace"
)

// updateInPlace takes our turn in the in-place update of the machine's node. Nothing is evicted: the node is cordoned, and
// whoever wants the update sees to it that its pods go. That patience with the machine has ended is told all the same.
func (m *machine) updateInPlace(ctx workflow.Context, d activities.MachineDecision) error {
	s := step{name: "update-in-place", why: d.InPlace.Why, phase: d.Phase, node: d.NodeName}
	changes := s.name != m.shown.name
	if err := m.show(ctx, s); err != nil {
		return err
	}
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
		empty, err := m.awaitEmpty(ctx, d)
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
	if err := quick(ctx, "the node says "+mark.Reason, core().MarkInPlace, mark, &made); err != nil {
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

// awaitEmpty cordons the node and waits until it is empty. It reports false when the machine needs something else first.
func (m *machine) awaitEmpty(ctx workflow.Context, d activities.MachineDecision) (bool, error) {
	var made activities.Gate
	if err := quick(ctx, "cordons node "+d.NodeName, core().CordonNode, m.read(), &made); err != nil {
		return false, err
	}
	m.raise(made)
	options, cancel := workflow.WithCancel(vigil(ctx, "await-empty", d.InPlace.Why))
	defer cancel()
	future := workflow.ExecuteActivity(options, core().AwaitEmpty, m.read())
	for !future.IsReady() {
		if err := m.awaitMachine(ctx, d, future); err != nil {
			return false, err
		}
		m.receive()
		if future.IsReady() {
			break
		}
		now, err := m.decide(ctx)
		if err != nil {
			return false, err
		}
		told := now.Health != nil && (now.Health.Change != nil || now.Health.Due != nil)
		if now.Gone || now.Need != attention.Emptying || told || workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			cancel()
			_ = future.Get(ctx, nil) // its end is all that matters
			return false, ctx.Err()
		}
		d = now
	}
	return true, future.Get(ctx, nil)
}
