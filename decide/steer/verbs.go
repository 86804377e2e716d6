package steer

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// start changes nothing but a time in the template, which makes another revision of it.
func (o Order) start(f Facts) Decision {
	switch {
	case f.Held != "" && !f.Paused:
		return refused("%s is held (%s), and nothing is rolled out: resume or undo it first", f.rolled(), f.Held)
	case f.unable() != "":
		return refused("%s", f.unable())
	}
	at := o.at(f.Now).UTC().Format(time.RFC3339)
	if f.RestartedAt == at {
		return Decision{Same: true, Says: fmt.Sprintf("the template of deployment %s says %s already", f.Deployment, at)}
	}
	d := Decision{
		RestartedAt: &at, Cause: new("started by " + o.words()),
		Says: fmt.Sprintf("wrote %s into the template of deployment %s: all its machines are made anew", at, f.Deployment),
	}
	if f.OnDelete {
		d.Says += ", each when somebody deletes the old one"
	}
	return d
}

// unable says why no change of the template comes about now; empty when it does.
func (f Facts) unable() string {
	switch {
	case f.Invalid != "":
		return fmt.Sprintf("deployment %s cannot be rolled out: %s; put that right first", f.Deployment, f.Invalid)
	case f.Paused:
		return fmt.Sprintf("deployment %s is paused, and neither a new template nor a former one is rolled out: resume it first", f.Deployment)
	case f.RollbackTo != nil:
		return fmt.Sprintf("deployment %s was asked to return to %s, and does so first: try again in a moment", f.Deployment, former(*f.RollbackTo))
	default:
		return ""
	}
}

func former(revision int64) string {
	if revision == 0 {
		return "the revision before"
	}
	return fmt.Sprintf("revision %d", revision)
}

func pause(f Facts) Decision {
	if f.Paused {
		return Decision{Same: true, Says: fmt.Sprintf("deployment %s is paused already", f.Deployment)}
	}
	return Decision{PauseTo: new(true), Says: fmt.Sprintf("deployment %s is paused", f.Deployment)}
}

// resume takes all off that stops a rollout but a stage.
func resume(f Facts) Decision {
	d := Decision{Says: fmt.Sprintf("deployment %s is not paused any more", f.Deployment)}
	switch {
	case !f.Paused && f.Held == "":
		return refused("deployment %s is neither paused nor held: there is nothing to resume", f.Deployment)
	case !f.Paused:
		d.Says = fmt.Sprintf("%s is not held any more (it was by %s)", f.rolled(), f.Held)
	case f.Held != "":
		d.Says += fmt.Sprintf(", and the rollout of revision %d not held (it was by %s)", f.Revision, f.Held)
	}
	if f.Paused {
		d.PauseTo = new(false)
	}
	if f.Held != "" {
		d.Hold = new("")
	}
	return d
}

// cancel ends a rollout on its way.
func (o Order) cancel(f Facts) Decision {
	switch {
	case f.Invalid != "":
		return refused("%s", f.unable())
	case !f.Rolling:
		return refused("no rollout of deployment %s is under way: there is nothing to cancel; to go back to a former revision, undo", f.Deployment)
	case o.Back:
		return o.undo(f)
	case f.RollbackTo != nil && !f.Paused:
		return refused("%s", f.unable())
	case f.Revision == 0:
		return refused("the template of deployment %s has no set yet, and so no revision to hold: pause it, or try again in a moment", f.Deployment)
	case o.another(f):
		return refused("%s", o.other(f))
	case f.Held == o.words():
		return Decision{Same: true, Says: fmt.Sprintf("%s is held already: %s", f.rolled(), f.Held)}
	case f.Held != "":
		return refused("%s is held already: %s; resume it, or undo it", f.rolled(), f.Held)
	default:
		return Decision{Hold: new(fmt.Sprintf("%d %s", f.Revision, o.words())), Says: fmt.Sprintf("%s is held where it is", f.rolled())}
	}
}

// another reports whether an order means another revision than the one that is rolled out.
func (o Order) another(f Facts) bool { return o.Revision != nil && *o.Revision != f.Revision }

func (o Order) other(f Facts) string {
	return fmt.Sprintf("the order is for revision %d, and deployment %s has revision %d: look again", *o.Revision, f.Deployment, f.Revision)
}

// undo asks for the template of a former revision. It names the one before by its number: when a set comes or goes meanwhile,
// another one must not be meant.
func (o Order) undo(f Facts) Decision {
	to, why := o.target(f)
	switch {
	case f.Invalid == "" && !f.Paused && f.RollbackTo != nil && why == "" && *f.RollbackTo == to:
		return Decision{Same: true, Says: fmt.Sprintf("deployment %s was asked to return to revision %d already", f.Deployment, to)}
	case f.unable() != "":
		return refused("%s", f.unable())
	case why != "":
		return Decision{Refused: why}
	}
	d := Decision{RollbackTo: &to, Says: fmt.Sprintf("deployment %s returns to revision %d", f.Deployment, to)}
	if f.Revision != 0 {
		d.Says = fmt.Sprintf("deployment %s returns from revision %d to revision %d", f.Deployment, f.Revision, to)
	}
	return d
}

// target is the revision to go back to, or why there is none.
func (o Order) target(f Facts) (to int64, why string) {
	if o.Revision != nil {
		to = *o.Revision
	}
	switch {
	case len(f.Revisions) == 0:
		return 0, fmt.Sprintf("deployment %s has no set of a former template: there is nothing to go back to", f.Deployment)
	case to == 0:
		return slices.Max(f.Revisions), ""
	case to == f.Revision:
		return 0, fmt.Sprintf("revision %d is the one that deployment %s has: it can go back to %s", to, f.Deployment, f.revisions())
	case !slices.Contains(f.Revisions, to):
		return 0, fmt.Sprintf("deployment %s has no set of revision %d: it can go back to %s", f.Deployment, to, f.revisions())
	default:
		return to, ""
	}
}

// approve passes stages, up to the one at which the rollout waits where no number is given.
func (o Order) approve(f Facts) Decision {
	passed, number := f.Approved, o.Stages
	if f.Gate != nil {
		passed, number = max(passed, f.Gate.Step), cmp.Or(number, f.Gate.Step+1)
	}
	switch {
	case f.Invalid != "":
		return refused("%s", f.unable())
	case f.Stages == 0:
		return refused("a rollout of deployment %s has no stages: there is nothing to approve", f.Deployment)
	case !f.Rolling:
		return refused("no rollout of deployment %s is under way: there is no stage to approve", f.Deployment)
	case f.Revision == 0:
		return refused("the template of deployment %s has no set yet, and so no revision to approve: try again in a moment", f.Deployment)
	case o.another(f):
		return refused("%s", o.other(f))
	case number == 0:
		return refused("%s waits at no stage now: wait until it does, or pass stages in advance with %s", f.rolled(), o.Door.Call("stages"))
	case number > f.Stages:
		return refused("%s has %s, and not %d", f.rolled(), stages(f.Stages), number)
	case number <= passed:
		return refused("%s has passed %s of %d already", f.rolled(), stages(passed), f.Stages)
	}
	return Decision{Approve: new(fmt.Sprintf("%d/%d %s", f.Revision, number, o.words())), Says: f.passes(number)}
}

func (f Facts) passes(number int) string {
	text := fmt.Sprintf("%s passes %s of %d", f.rolled(), stages(number), f.Stages)
	if f.Paused || f.Held != "" {
		text += ", once it is resumed"
	}
	return text
}
