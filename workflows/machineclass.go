package workflows

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/attention"
)

// machineClass is one run of a MachineClass's workflow.
type machineClass struct {
	*object
}

// MachineClass keeps our finalizers where they belong: on its class from the first look on, and on the Secrets of the
// namespace that a class needs. A class that is to go waits for its machines, then lets its Secrets go, then itself. The
// run ends when the class is calm or gone.
func MachineClass(ctx workflow.Context, in Input) (Result, error) {
	c := &machineClass{newObject(ctx, KindMachineClass, in)}
	c.live = !in.Continued
	result, err := c.run(ctx)
	return result, c.close(ctx, err)
}

// run does step after step until nothing is left to do.
func (c *machineClass) run(ctx workflow.Context) (Result, error) {
	for {
		c.receive()
		d, err := c.decide(ctx)
		if err != nil {
			return Result{}, err
		}
		if d.Gone {
			return Result{OutcomeGone, d.Why}, nil
		}
		acted, err := c.act(ctx, d)
		switch {
		case failedWith(err, activities.TypeObjectGone):
			return Result{OutcomeGone, "the object is gone"}, nil
		case failedWith(err, activities.TypeConflict):
			c.live = true // another writer was faster: look at what is there now
		case err != nil:
			return Result{}, err
		case acted:
		case d.Need == attention.Nothing:
			over, err := c.lingered(ctx)
			if err != nil {
				return Result{}, err
			}
			if over && !c.receive() {
				return Result{OutcomeCalm, d.Why}, nil
			}
		default:
			if err := c.awaken(ctx); err != nil {
				return Result{}, err
			}
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			c.receive()
			return Result{}, workflow.NewContinueAsNewError(ctx, MachineClass, Input{Ref: c.ref, Gate: c.gate, Continued: true})
		}
	}
}

// decide asks which finalizers are missing, and which have to go. The latter is believed of a live decision only: a machine
// that no cache shows yet must not lose its class, nor another class its Secret.
func (c *machineClass) decide(ctx workflow.Context) (d activities.ClassDecision, err error) {
	read := c.read()
	if err := c.quick(ctx, "which finalizers are missing, and which have to go?", core().DecideClass, read, &d); err != nil {
		return d, err
	}
	c.raise(d.Seen)
	c.live = !read.Live && (d.Release || len(d.Unguard) > 0)
	if c.live {
		return c.decide(ctx)
	}
	return d, nil
}

// act does what was decided, and reports whether there was anything to do. The class has its finalizer before its Secrets
// do, and keeps it longer: so nothing is left on a Secret behind a class that is gone.
func (c *machineClass) act(ctx workflow.Context, d activities.ClassDecision) (acted bool, err error) {
	c.show(ctx, c.step(d))
	secrets := slices.Concat(d.Guard, d.Unguard)
	switch {
	case len(secrets) > 0 && !d.Prepare:
		var made activities.Gate
		changes := activities.SecretChanges{Class: c.ref, Secrets: secrets}
		err := c.quick(ctx, "finalizers of Secrets: "+d.Why, core().FinalizeSecrets, changes, &made)
		c.live = len(made) == 0 // they are gone: no version tells the next decision so
		c.raise(made)
		return true, err
	case d.Prepare || d.Release:
		return true, c.write(ctx, "finalizer: "+d.Why, core().FinalizeClass, c.read())
	default:
		return false, nil
	}
}

// step is what the class is doing, for people.
func (c *machineClass) step(d activities.ClassDecision) step {
	switch {
	case len(d.Guard) > 0:
		return step{name: "guard-secrets", why: d.Why}
	case len(d.Unguard) > 0:
		return step{name: "release-secrets", why: d.Why}
	case d.Need == attention.Deletion && !d.Release:
		return step{name: "await-machines", why: d.Why}
	default: // calm, or nothing but its own finalizer to write
		return step{why: d.Why}
	}
}
