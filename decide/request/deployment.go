package request

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"millwright/decide/phrase"
)

// DeploymentFacts describe the deployment that a request is for.
type DeploymentFacts struct {
	Name string // namespace and name
	UID  string
	Now  time.Time
	Last string // record of the last request; empty: none

	Deleting   bool
	Invalid    string // why its spec is invalid, in one sentence; empty: it is valid
	Paused     bool
	Held       string           // who holds the current revision, and why; empty: no hold
	Rolling    bool             // machines of other templates exist
	OnDelete   bool             // the strategy is OnDelete
	Revision   int64            // of the current set, or about to be given to it; 0: the set does not exist yet
	Revisions  []int64          // of the former templates that can return
	Lacking    map[int64]string // by revision: the missing object that another former template needs to return
	RollbackTo *int64           // requested rollback that is not done yet; 0: the revision before; nil: none

	Steps       int    // number of rollout steps; 0: none
	WaitsAt     int    // the pause point, from 1; 0: none
	Approved    int    // number of steps that people approved for this revision, counted from the first
	RestartedAt string // time of the last start; empty: none
	// ClusterAPI: it is a MachineDeployment of Cluster API, whose starts are not in the template.
	ClusterAPI bool
}

func (f DeploymentFacts) object() (Kind, string) { return MachineDeployment, f.UID }

func (f DeploymentFacts) decide(o Order) Decision {
	record := cmp.Or(o.Asked, f.Now).UTC().Format(time.RFC3339Nano) + " " + o.Summary()
	if !o.Asked.IsZero() && f.Last == record {
		return same("deployment %s got this request before: nothing was written", f.Name)
	}
	d := unless(
		phrase.If(f.Deleting, "deployment %s is being deleted: %s would change nothing", f.Name, o.Command),
		f.write(o),
	)
	if d.Refused == "" && !d.Same {
		d.Record = record
	}
	return d
}

func (f DeploymentFacts) write(o Order) Decision {
	switch {
	case o.Command == Pause && f.Paused:
		return same("deployment %s is paused already", f.Name)
	case o.Command == Pause:
		return Decision{Paused: new(true), Annotation: new(o.words()), Says: fmt.Sprintf("deployment %s is paused", f.Name)}
	case o.Command == Resume:
		return f.resume()
	case f.Invalid != "":
		return refused("deployment %s cannot be rolled out: %s; correct that first", f.Name, f.Invalid)
	case o.Command == Start:
		return f.start(o)
	case o.Command == Undo:
		return f.undo(o)
	case o.Command == Approve:
		return f.approve(o)
	case !f.Rolling:
		return refused("no rollout of deployment %s is under way: there is nothing to cancel; "+
			"to go back to a former revision, undo", f.Name)
	case o.Back:
		return f.undo(o)
	default:
		return f.hold(o)
	}
}

// resume ends a pause and a hold, but no pause point.
func (f DeploymentFacts) resume() (d Decision) {
	if f.Paused {
		d.Paused, d.Says = new(false), fmt.Sprintf("deployment %s is no longer paused", f.Name)
	}
	if f.Held != "" {
		d.Annotation = new("")
		d.Says += phrase.If(f.Paused, ", and ") + fmt.Sprintf("%s is no longer held (former hold: %s)", f.rollout(), f.Held)
	}
	return unless(
		phrase.If(d.Says == "", "deployment %s is neither paused nor held: there is nothing to resume", f.Name),
		d,
	)
}

// start changes only the restart time, which is in the template or in spec.rollout.after: all machines are replaced.
func (f DeploymentFacts) start(o Order) Decision {
	at := cmp.Or(o.Asked, f.Now).UTC().Format(time.RFC3339)
	if f.Held == "" && f.busy() == "" && f.RestartedAt == at {
		return same("%s of deployment %s says %s already", f.startField(), f.Name, at)
	}
	return unless(cmp.Or(
		f.busy(),
		phrase.If(f.Held != "", "%s is held (%s), and nothing is rolled out: resume or undo it first", f.rollout(), f.Held),
	), Decision{
		RestartedAt: &at, Annotation: new("started by " + o.words()),
		Says: fmt.Sprintf("wrote %s into %s of deployment %s: all its machines are replaced%s", at, f.startField(), f.Name,
			phrase.If(f.OnDelete, ", each when somebody deletes the old one")) +
			phrase.If(f.ClusterAPI && f.RestartedAt > at, "; it overwrites the later time %s", f.RestartedAt),
	})
}

// startField names what a start changes.
func (f DeploymentFacts) startField() string {
	return cmp.Or(phrase.If(f.ClusterAPI, "spec.rollout.after"), "the template")
}

// busy says why a change of the template would not be rolled out now; empty: it would.
func (f DeploymentFacts) busy() string {
	return cmp.Or(
		phrase.If(
			f.Paused,
			"deployment %s is paused, and neither a new template nor a former one is rolled out: resume it first",
			f.Name,
		),
		phrase.If(
			f.RollbackTo != nil,
			"deployment %s was asked to return to %s, and does so first: try again afterwards",
			f.Name,
			cmp.Or(phrase.If(number(f.RollbackTo) > 0, "revision %d", number(f.RollbackTo)), "the revision before"),
		),
	)
}

// undo requests the template of a former revision. It always writes the number of the revision, because "the revision
// before" becomes another one if a set is created or deleted meanwhile.
func (f DeploymentFacts) undo(o Order) Decision {
	to := number(o.Revision)
	if all := slices.AppendSeq(slices.Clone(f.Revisions), maps.Keys(f.Lacking)); to == 0 && len(all) > 0 {
		to = slices.Max(all)
	}
	if !f.Paused && f.RollbackTo != nil && *f.RollbackTo == to && slices.Contains(f.Revisions, to) {
		return same("deployment %s was asked to return to revision %d already", f.Name, to)
	}
	return unless(cmp.Or(
		f.busy(),
		phrase.If(
			f.Lacking[to] != "",
			"revision %d of deployment %s cannot return: %s does not exist any more%s",
			to,
			f.Name,
			f.Lacking[to],
			phrase.If(len(f.Revisions) > 0, "; it can go back to %s", f.former()),
		),
		phrase.If(
			len(f.Revisions) == 0,
			"deployment %s has no set of a former template: there is nothing to go back to",
			f.Name,
		),
		phrase.If(
			to == f.Revision,
			"revision %d is the one that deployment %s has: it can go back to %s",
			to,
			f.Name,
			f.former(),
		),
		phrase.If(!slices.Contains(f.Revisions, to), "deployment %s has no set of revision %d: it can go back to %s",
			f.Name, to, f.former()),
	), Decision{RollbackTo: &to, Says: fmt.Sprintf("deployment %s returns%s to revision %d", f.Name,
		phrase.If(f.Revision != 0, " from revision %d", f.Revision), to)})
}

// hold stops the rollout of this revision where it is.
func (f DeploymentFacts) hold(o Order) Decision {
	why := cmp.Or(phrase.If(!f.Paused, "%s", f.busy()), f.stale(o))
	if why == "" && f.Held == o.words() {
		return same("%s is held already: %s", f.rollout(), f.Held)
	}
	return unless(
		cmp.Or(why, phrase.If(f.Held != "", "%s is held already: %s; resume it, or undo it", f.rollout(), f.Held)),
		Decision{Annotation: new(fmt.Sprintf("%d %s", f.Revision, o.words())), Says: f.rollout() + " is held where it is"},
	)
}

// stale says why an order is not for the current revision; empty: it is.
func (f DeploymentFacts) stale(o Order) string {
	return cmp.Or(
		phrase.If(
			f.Revision == 0,
			"the template of deployment %s has no set yet, and so no revision to %s: try again when it has",
			f.Name,
			o.Command,
		),
		phrase.If(
			o.Revision != nil && number(o.Revision) != f.Revision,
			"the request is for revision %d, and deployment %s has "+
				"revision %d: look at the rollout, then try again",
			number(o.Revision),
			f.Name,
			f.Revision,
		),
	)
}

// approve approves the steps up to o.Steps, or up to the pause point if o.Steps is 0.
func (f DeploymentFacts) approve(o Order) Decision {
	passed, to := max(f.Approved, f.WaitsAt-1), cmp.Or(o.Steps, f.WaitsAt)
	return unless(cmp.Or(
		phrase.If(f.Steps == 0, "a rollout of deployment %s has no steps: there is nothing to approve", f.Name),
		phrase.If(!f.Rolling, "no rollout of deployment %s is under way: there is no step to approve", f.Name),
		f.stale(o),
		phrase.If(to == 0, "%s waits at no step now: wait until it does, or pass steps in advance with %s",
			f.rollout(), o.called("steps")),
		phrase.If(to > f.Steps, "there is no step %d: %s has %d in all", to, f.rollout(), f.Steps),
		phrase.If(to <= passed, "%s has passed step %d of %d already", f.rollout(), passed, f.Steps),
	), Decision{
		Annotation: new(fmt.Sprintf("%d/%d %s", f.Revision, to, o.words())),
		Says: fmt.Sprintf("%s passes step %d of %d%s", f.rollout(), to, f.Steps,
			phrase.If(f.Paused || f.Held != "", ", once it is resumed")),
	})
}
