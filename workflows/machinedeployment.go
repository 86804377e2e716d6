package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/attention"
)

// machineDeployment is one run of a MachineDeployment's workflow.
type machineDeployment struct {
	*object
	acted bool // something was done in this run: history has grown
}

// MachineDeployment makes the set of its object, gives it its size and writes the deployment's status. The workflow lives
// as long as its object; it continues as new after each settled change, so that its history stays short.
func MachineDeployment(ctx workflow.Context, in Input) (Result, error) {
	m := &machineDeployment{object: newObject(ctx, KindMachineDeployment, in)}
	m.live = !in.Continued
	for {
		m.receive()
		d, err := m.decide(ctx)
		if err != nil {
			return Result{}, err
		}
		if d.Gone {
			return Result{OutcomeGone, d.Why}, nil
		}
		acted, err := m.act(ctx, d)
		m.acted = m.acted || acted
		switch {
		case failedWith(err, activities.TypeObjectGone):
			m.live = true // the deployment, or one of its sets: the next decision tells
		case failedWith(err, activities.TypeConflict), timedOut(err):
			m.live = true // another writer was faster, or the decision grew too old: look at what is there now
		case err != nil:
			return Result{}, err
		case acted:
		default:
			if err := m.rest(ctx, d); err != nil {
				return Result{}, err
			}
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			m.receive()
			return Result{}, m.again(ctx)
		}
	}
}

// decide asks which set to make, resize or delete next.
func (m *machineDeployment) decide(ctx workflow.Context) (d activities.DeploymentDecision, err error) {
	err = quick(ctx, "which set to make, resize or delete next?", core().DecideDeployment, m.read(), &d)
	m.live = false
	m.raise(d.Seen)
	return d, err
}

// rest waits for a change. A calm run that has done something continues as new after the linger.
func (m *machineDeployment) rest(ctx workflow.Context, d activities.DeploymentDecision) error {
	if !d.HeldUntil.IsZero() {
		at := workflow.Now(ctx).Add(time.Second) // should the worker's clock be behind this one: no decision is made in a hurry
		if d.HeldUntil.After(at) {
			at = d.HeldUntil
		}
		return m.awaken(ctx, m.timer(ctx, "hold", d.Why, at))
	}
	m.disarm("hold")
	if d.Need != attention.Nothing || !m.acted {
		return m.awaken(ctx)
	}
	over, err := m.lingered(ctx)
	if err != nil {
		return err
	}
	if over && !m.receive() {
		return m.again(ctx)
	}
	return nil
}

// again hands the gate to a run with an empty history. Nothing may yield between the last receive and the return of it.
func (m *machineDeployment) again(ctx workflow.Context) error {
	return workflow.NewContinueAsNewError(ctx, MachineDeployment, Input{Ref: m.ref, Gate: m.gate, Continued: true})
}

// act does what was decided, and reports whether there was anything to do.
func (m *machineDeployment) act(ctx workflow.Context, d activities.DeploymentDecision) (acted bool, err error) {
	if err := m.show(ctx, m.step(d)); err != nil {
		return false, err
	}
	if d.Prepare || d.Release {
		return true, m.write(ctx, "finalizer: "+d.Why, core().FinalizeDeployment, m.read())
	}
	var made activities.Gate
	switch {
	case d.Create:
		creation := activities.SetCreation{Deployment: m.ref, Version: d.Version}
		acted, err = true, workflow.ExecuteActivity(batch(ctx, d.Decision.Why), core().CreateSet, creation).Get(ctx, &made)
	case len(d.Resize) > 0 || len(d.Delete) > 0:
		changes := activities.SetChanges{Deployment: m.ref, Resize: d.Resize, Delete: d.Delete}
		acted, err = true, workflow.ExecuteActivity(batch(ctx, d.Decision.Why), core().ChangeSets, changes).Get(ctx, &made)
	}
	if err != nil {
		return acted, err
	}
	m.raise(made)
	if d.Replace {
		var granted activities.Granted
		if err := quick(ctx, d.Why, core().GrantReplacements, m.read(), &granted); err != nil {
			return true, err
		}
		m.raise(granted.Versions)
		if granted.Wrote {
			return true, nil
		}
	}
	if d.Report {
		report := activities.DeploymentReport{Read: m.read(), Pending: d.Pending}
		if d.Need != attention.Nothing {
			report.Step = m.report()
		}
		return true, m.write(ctx, "status: "+d.Why, core().ReportDeployment, report)
	}
	return acted, nil
}

// step is what the deployment is doing, for people.
func (m *machineDeployment) step(d activities.DeploymentDecision) step {
	switch {
	case d.Create:
		return step{name: "create-set", why: d.Decision.Why}
	case len(d.Resize) > 0:
		return step{name: "resize-set", why: d.Decision.Why}
	case d.Need == attention.Deletion:
		return step{name: "await-sets", why: d.Why}
	case d.Need == attention.Replace && d.Held:
		return step{name: "await-replacements", why: d.Why, blockedBy: "ReplacementHeld"}
	case d.Need == attention.Replace:
		return step{name: "await-replacements", why: d.Why}
	default: // calm, or nothing but a status to write
		return step{why: d.Why}
	}
}
