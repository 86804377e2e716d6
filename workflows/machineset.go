package workflows

import (
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/attention"
)

// machineSet is one run of a MachineSet's workflow.
type machineSet struct {
	*object
}

// MachineSet keeps as many machines as its object wants: it creates and deletes Machine objects, in batches, and writes the
// set's status. What becomes of each machine is its own workflow's business. The run ends when the set is calm or gone.
func MachineSet(ctx workflow.Context, in Input) (Result, error) {
	s := &machineSet{newObject(ctx, KindMachineSet, in)}
	s.live = !in.Continued
	for {
		s.receive()
		d, err := s.decide(ctx)
		if err != nil {
			return Result{}, err
		}
		if d.Gone {
			return Result{OutcomeGone, d.Why}, nil
		}
		acted, err := s.act(ctx, d)
		switch {
		case failedWith(err, activities.TypeObjectGone):
			return Result{OutcomeGone, "the object is gone"}, nil
		case failedWith(err, activities.TypeConflict), timedOut(err):
			s.live = true // another writer was faster, or the decision grew too old: look at what is there now
		case err != nil:
			return Result{}, err
		case acted:
		case d.Need == attention.Nothing:
			over, err := s.lingered(ctx)
			if err != nil {
				return Result{}, err
			}
			if over && !s.receive() {
				return Result{OutcomeCalm, d.Why}, nil
			}
		default:
			if err := s.awaken(ctx); err != nil {
				return Result{}, err
			}
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			s.receive()
			return Result{}, workflow.NewContinueAsNewError(ctx, MachineSet, Input{Ref: s.ref, Gate: s.gate, Continued: true})
		}
	}
}

// decide asks which machines to create or delete next.
func (s *machineSet) decide(ctx workflow.Context) (d activities.SetDecision, err error) {
	err = quick(ctx, "which machines to create or delete next?", core().DecideScale, s.read(), &d)
	s.live = false
	s.raise(d.Seen)
	return d, err
}

// act does what was decided, and reports whether there was anything to do.
func (s *machineSet) act(ctx workflow.Context, d activities.SetDecision) (acted bool, err error) {
	if err := s.show(ctx, s.step(d)); err != nil {
		return false, err
	}
	if d.Prepare || d.Release {
		return true, s.write(ctx, "finalizer: "+d.Why, core().FinalizeSet, s.read()) // the set has another version now
	}
	var made activities.Gate
	switch {
	case len(d.Create) > 0:
		acted = true
		creation := activities.Creation{Set: s.ref, Version: d.Version, Names: d.Create}
		if err := workflow.ExecuteActivity(batch(ctx, d.Decision.Why), core().CreateMachines, creation).Get(ctx, &made); err != nil {
			return acted, err
		}
		s.raise(made)
	case len(d.Keep) > 0:
		acted = true
		if err := workflow.ExecuteActivity(batch(ctx, d.Decision.Why), core().KeepMachines, activities.Deletion{Set: s.ref, Machines: d.Keep}).Get(ctx, &made); err != nil {
			return acted, err
		}
		s.raise(made)
	case len(d.Delete) > 0:
		acted = true
		deletion := activities.Deletion{Set: s.ref, Machines: d.Delete}
		if err := workflow.ExecuteActivity(batch(ctx, d.Decision.Why), core().DeleteMachines, deletion).Get(ctx, nil); err != nil {
			return acted, err
		}
		s.live = true // a deletion tells no version to wait for, and an older look would choose other victims
	}
	if d.Report {
		report := activities.SetReport{Read: s.read()}
		if d.Need != attention.Nothing {
			report.Step = s.report()
		}
		return true, s.write(ctx, "status: "+d.Why, core().ReportSet, report)
	}
	return acted, nil
}

// step is what the set is doing, for people.
func (s *machineSet) step(d activities.SetDecision) step {
	switch {
	case len(d.Create) > 0:
		return step{name: "create-machines", why: d.Decision.Why}
	case len(d.Delete) > 0:
		return step{name: "delete-machines", why: d.Decision.Why}
	case len(d.Keep) > 0:
		return step{name: "keep-machines", why: d.Decision.Why}
	case d.Need == attention.Deletion:
		return step{name: "await-machines", why: d.Why}
	default: // calm, or nothing but a status to write
		return step{why: d.Why}
	}
}
