package workflows

import (
	"errors"
	"slices"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/attention"
	"millwright/decide/scale"
)

// machineSet is one run of a MachineSet's workflow.
type machineSet struct {
	*object
	failure scale.Failure // of the last batch; zero when it succeeded
}

// MachineSet keeps as many machines as its object wants: it takes and lets go of machines, creates and deletes them in
// batches, makes them follow the template, and writes the set's status. What becomes of each machine is its own workflow's
// business. The run ends when the set is calm or gone.
func MachineSet(ctx workflow.Context, in Input) (Result, error) {
	s := &machineSet{object: newObject(ctx, KindMachineSet, in)}
	s.live = !in.Continued
	result, err := s.run(ctx)
	return result, s.close(ctx, err)
}

// run does step after step until nothing is left to do.
func (s *machineSet) run(ctx workflow.Context) (Result, error) {
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
			if err := s.rest(ctx, d); err != nil {
				return Result{}, err
			}
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			s.receive()
			return Result{}, workflow.NewContinueAsNewError(ctx, MachineSet, Input{Ref: s.ref, Gate: s.gate, Continued: true})
		}
	}
}

// decide asks what to do next.
func (s *machineSet) decide(ctx workflow.Context) (d activities.SetDecision, err error) {
	err = s.quick(ctx, "which machines to create or delete next?", core().DecideScale, s.setRead(ctx), &d)
	s.live = false
	s.raise(d.Seen)
	return d, err
}

func (s *machineSet) setRead(ctx workflow.Context) activities.SetRead {
	read := s.read()
	read.At = workflow.Now(ctx)
	return activities.SetRead{Read: read, Failure: s.failure}
}

// rest waits until something changes, or until the clock alone changes what is to be said or done.
func (s *machineSet) rest(ctx workflow.Context, d activities.SetDecision) error {
	if d.Recheck.IsZero() {
		s.disarm("recheck")
		return s.awaken(ctx)
	}
	return s.awaken(ctx, s.timer(ctx, "recheck", "then it looks again: "+d.Why, d.Recheck))
}

// act does what was decided, and reports whether there was anything to do.
func (s *machineSet) act(ctx workflow.Context, d activities.SetDecision) (acted bool, err error) {
	s.show(ctx, s.step(d))
	if d.Prepare || d.Free {
		return true, s.write(ctx, "finalizer: "+d.Why, core().FinalizeSet, s.read()) // the set has another version now
	}
	if d.Generations != nil { // what is counted must be on record before a machine goes that counts
		if err := s.report(ctx, d); err != nil || !d.Acting() {
			return true, err
		}
	}
	failed, acted, err := s.carryOut(ctx, d)
	if err != nil {
		return acted, err
	}
	was := s.failure
	if s.failure = failed; d.Report || was != failed {
		if err := s.report(ctx, d); err != nil {
			return true, err
		}
		acted = true
	}
	if acted && failed.Message != "" { // doing it again at once would come to the same
		return true, s.awaken(ctx, s.timer(ctx, "again", "tries again then: "+failed.Message, workflow.Now(ctx).Add(refusedAgain)))
	}
	return acted, nil
}

// report writes the status.
func (s *machineSet) report(ctx workflow.Context, d activities.SetDecision) error {
	report := activities.SetReport{SetRead: s.setRead(ctx), Generations: d.Generations}
	if d.Need != attention.Nothing {
		report.Step = s.object.report()
	}
	return s.write(ctx, "status: "+d.Why, core().ReportSet, report)
}

// carryOut does what a decision lists. A failure is that of a write which the API server refused.
func (s *machineSet) carryOut(ctx workflow.Context, d activities.SetDecision) (failed scale.Failure, acted bool, err error) {
	if d.Acting() {
		if err := s.publish(ctx); err != nil {
			return scale.Failure{}, false, err
		}
	}
	var done activities.Written
	summary := d.Decision.Why
	for _, list := range []struct {
		activity any
		machines []scale.Target
	}{
		{core().ReleaseMachines, d.Release},
		{core().AdoptMachines, d.Adopt},
		{core().KeepMachines, d.Keep},
		{core().UnmarkMachines, d.Unmark},
		{core().SyncMachines, d.Sync},
	} {
		if len(list.machines) > 0 {
			err := workflow.ExecuteActivity(batch(ctx, summary, len(list.machines)), list.activity, activities.Batch{Set: s.ref, Machines: list.machines}).Get(ctx, &done.Versions)
			s.raise(done.Versions)
			return refused(err), true, unlessRefused(err)
		}
	}
	if len(d.Create) > 0 {
		creation := activities.Creation{Set: s.ref, Version: d.Version, Names: d.Create}
		err := workflow.ExecuteActivity(batch(ctx, summary, len(d.Create)), core().CreateMachines, creation).Get(ctx, &done)
		s.raise(done.Versions)
		return done.Failure, true, err
	}
	if doomed := slices.Concat(d.Delete, d.Remediate); len(doomed) > 0 {
		err := workflow.ExecuteActivity(batch(ctx, summary, len(doomed)), core().DeleteMachines, activities.Batch{Set: s.ref, Machines: doomed}).Get(ctx, &done)
		s.raise(done.Versions)
		s.live = err != nil || done.Unseen // an older look would choose other victims
		return done.Failure, true, err
	}
	return scale.Failure{}, false, nil // what was refused is not to be done any more
}

// refused is what the API server said against a write; the zero Failure when it took it.
func refused(err error) scale.Failure {
	if !failedWith(err, activities.TypeRefused) {
		return scale.Failure{}
	}
	var application *temporal.ApplicationError
	errors.As(err, &application)
	return scale.Failure{Message: application.Message()}
}

func unlessRefused(err error) error {
	if failedWith(err, activities.TypeRefused) {
		return nil
	}
	return err
}

// step is what the set is doing, for people.
func (s *machineSet) step(d activities.SetDecision) step {
	switch {
	case len(d.Create) > 0:
		return step{name: "create-machines", why: d.Decision.Why}
	case len(d.Delete)+len(d.Remediate) > 0:
		return step{name: "delete-machines", why: d.Decision.Why}
	case len(d.Keep) > 0:
		return step{name: "keep-machines", why: d.Decision.Why}
	case len(d.Adopt)+len(d.Release)+len(d.Unmark)+len(d.Sync) > 0:
		return step{name: "change-machines", why: d.Decision.Why}
	case d.Need == attention.Deletion:
		return step{name: "await-machines", why: d.Why}
	case d.Hold != "":
		return step{why: d.Hold, blockedBy: "ScaleUpBlocked"}
	default: // calm, or nothing but a status to write
		return step{why: d.Why}
	}
}
