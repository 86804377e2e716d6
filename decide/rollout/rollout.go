// Package rollout decides what a deployment does next with its sets, and what its status should be: which set to
// create, the size of each set, changes at nodes, where a rollout pauses, and when it is rolled back or complete.
// Scaling and rolling out are one decision. It does no I/O and knows no API type.
package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// Planned is the result of one evaluation of a deployment.
type Planned struct {
	Decision   Decision
	Status     Status
	Unreported bool               // the present status differs from Status, or observedGeneration is old, or Thaw
	Thaw       bool               // the freeze is over: the label freeze and the annotation unfreeze have to be removed
	Pending    attention.Decision // the most urgent pending work
	Replaces   bool               // once Status is written, the most urgent pending work is replacements
}

// Plan plans what to do next with a deployment. A change that must be visible before sizes change is a decision of its
// own; all other changes share one decision, so that each decision costs one round. The sizes never allow more machines
// than Replicas and surge, unless Replicas became smaller. No decision removes available machines below Replicas less
// maxUnavailable, except one that is Forced, and those of Recreate and OnDelete, which promise no availability. The
// same facts in any order give the same plan.
func Plan(o Observed) Planned {
	p := open(o.Sorted())
	plan := Planned{Status: p.report()} // before the decision changes sizes
	plan.Thaw = o.thaws()
	plan.Unreported = plan.Thaw || o.Generation != o.ObservedGeneration || !o.reports(plan.Status)
	plan.Decision = p.decide()
	left := o.left(plan.Decision)
	plan.Pending, plan.Replaces = o.pending(plan, left), left.Need == attention.Replace
	return plan
}

// Decide returns the Decision of Plan.
func Decide(o Observed) Decision { return open(o.Sorted()).decide() }

func (p *planner) decide() Decision {
	d, exclusive := p.exclusive()
	if !exclusive {
		d = p.proceed()
	}
	if p.current != nil && d.Create == nil {
		d.Revision = p.revision()
	}
	return d
}

// reports reports whether the status is as wanted. Conditions of other types are not compared.
func (o Observed) reports(want Status) bool {
	differs := func(c Condition) bool {
		is := o.reported(c.Type)
		return is.Status != c.Status || is.Reason != c.Reason || is.Message != c.Message
	}
	over := func(c Condition) bool {
		return (c.Type == vocabulary.ConditionReplicaFailure || c.Type == vocabulary.ConditionFrozen) &&
			!slices.ContainsFunc(want.Conditions, func(w Condition) bool { return w.Type == c.Type })
	}
	if o.countsNoUnavailable() {
		want.Counts.Unavailable = o.Reported.Counts.Unavailable
	}
	return want.Counts == o.Reported.Counts && slices.Equal(want.Failed, o.Reported.Failed) &&
		!slices.ContainsFunc(want.Conditions, differs) && !slices.ContainsFunc(o.Reported.Conditions, over)
}

// pending returns the work that is pending once this plan is known. Left is what is pending once its status is written.
func (o Observed) pending(plan Planned, left attention.Decision) attention.Decision {
	d, replicas := plan.Decision, plan.Status.Counts.Replicas
	return cmp.Or(
		attention.If(o.Deleting && !o.Finalizer, attention.Nothing, "released: the API server removes it"),
		attention.If(o.Orphaning || o.Deleting && o.suspended() != "", attention.Deletion, "%s", d.Why),
		attention.If(o.Deleting, attention.Deletion, "deletion was asked for; %s left", machines(replicas)),
		attention.If(!o.Finalizer && o.suspended() == "", attention.Scale, "new: our finalizer is missing"),
		left.Before(o.Generation != o.ObservedGeneration, attention.Scale,
			"generation %d was not seen yet (last seen: %d)", o.Generation, o.ObservedGeneration),
		left.Before(plan.Unreported && !d.Acts(), attention.Scale, "status is out of date"),
		left,
	)
}

// left returns the work that is pending although the status is as wanted.
func (o Observed) left(d Decision) attention.Decision {
	calm := attention.Decision{Why: d.Why}
	return cmp.Or(
		attention.If(d.Acts(), attention.Scale, "%s", d.Why),
		attention.If(d.Rolling && d.HoldBy != HeldBy, attention.Rollout, "%s", d.Why),
		o.replacements(),
		calm.Before(!d.Recheck.IsZero(), attention.Scale, "%s; it waits for the time to pass", d.Why),
		calm,
	)
}

// The values of Decision.HoldBy.
const (
	HeldBy         = "Held" // a person cancelled the rollout
	HeldByPause    = "Paused"
	HeldByStep     = "Step"
	HeldByMachines = "Machines"
	HeldByFault    = "Invalid" // the deployment is invalid
)

// teardown deletes all sets of a deployment that is being deleted. With --cascade=orphan it waits until the garbage
// collector has removed their owner references.
func (p *planner) teardown() Decision {
	if p.o.Orphaning {
		return Decision{
			Why: "deleted with --cascade=orphan: waits until the garbage collector has removed the owner reference of " +
				phrase.Count(len(p.o.Sets), "set") + " and the finalizer orphan",
		}
	}
	const why = "the deployment is being deleted"
	d := Decision{
		Done:       len(p.o.Sets) == 0,
		SetChanges: SetChanges{Delete: targets(p.sets, why)},
		Why:        fmt.Sprintf("%s, %s left", why, phrase.Count(len(p.o.Sets), "set")),
	}
	if d.bound(); len(d.Delete) > 0 {
		d.Why = fmt.Sprintf("delete %s: %s", phrase.Count(len(d.Delete), "set"), why)
	}
	return d
}

// resize gives each set its size, by the strategy.
func (p *planner) resize() {
	p.acknowledge()
	if p.o.Stopped() != "" || p.current == nil {
		p.followSize()
		return
	}
	for _, set := range p.sets {
		// Machines handed over to a set keep serving, even if the template or the strategy has changed since.
		set.raise(min(set.handedOver(), set.active-set.size), "machines that were updated in place are in it now")
	}
	if p.o.Strategy != RollingUpdate {
		p.directTransfers(nil)
	}
	switch {
	case p.o.Strategy == Recreate:
		p.recreate()
	case p.o.Strategy == OnDelete:
		p.onDelete()
	case p.o.inPlace():
		p.updateInPlace()
	default:
		p.rolling()
	}
}

// proceed decides the sizes of the sets and the changes that go with them.
func (p *planner) proceed() Decision {
	record, pause := p.progress()
	p.resize()
	stopped := p.o.Stopped()
	d := Decision{
		Rolling:  p.underway() && p.current != nil,
		NoSet:    p.current == nil,
		Complete: p.complete(),
		Pause:    pause,
		Late:     p.late(),
		Recheck:  p.due(),
	}
	d.Record = p.unrecorded(record)
	p.ask(&d)
	p.resizes(&d)
	if stopped == "" {
		p.handOver(&d)
	}
	p.markNodes(&d, stopped == "")
	if d.Complete || p.o.Paused {
		d.Delete = p.cleanup()
	}
	d.bound()
	if pause != nil {
		d.soonest(pause.Until)
	}
	d.soonest(p.o.wake())
	p.holds(&d, stopped)
	d.Why = p.sentence(d)
	return d
}

// holds sets what the rollout waits for.
func (p *planner) holds(d *Decision, stopped string) {
	switch {
	case p.o.Paused:
		d.HoldBy, d.Hold = HeldByPause, stopped
	case stopped != "":
		d.HoldBy, d.Hold = HeldBy, phrase.Cut(stopped, maxReason)
	case d.NoSet:
		d.HoldBy, d.Hold = HeldByMachines, phrase.Cut(p.o.refused().Message, maxReason)
	case d.Pause != nil:
		d.HoldBy, d.Hold = HeldByStep, d.Pause.says(p.o.Now)
	case p.why != "" && len(d.Select)+len(d.Move)+len(d.Ask) == 0:
		d.HoldBy, d.Hold = HeldByMachines, p.why
	}
}

// sentence describes a decision.
func (p *planner) sentence(d Decision) string {
	why := append(resizings(d.Resize), phrase.Parts(
		phrase.If(
			len(d.Ask) > 0,
			"ask a runtime extension whether it can update the machines of %s in place",
			phrase.Count(len(d.Ask), "set"),
		),
		phrase.If(len(d.Move) > 0, "hand over %s", machines(len(d.Move))),
		phrase.If(len(d.Select) > 0, "select %s for the in-place update", machines(len(d.Select))),
	)...)
	if n := len(d.Delete); n > 0 {
		why = append(why, fmt.Sprintf("delete %s: %d are kept", phrase.Count(n, "old set"), *p.o.HistoryLimit))
	}
	switch {
	case len(why) > 0:
		return strings.Join(why, "; ")
	case d.Hold != "":
		return d.Hold
	case d.Complete:
		return fmt.Sprintf("%s wanted and there, all of revision %d", machines(p.o.Replicas), p.current.Revision)
	default:
		return fmt.Sprintf("%s wanted, %d available", machines(p.o.Replicas), p.available())
	}
}

// resizings describes the sizes that change: as many as fit into maxSentence, and the number of the others.
func resizings(resizes []Resize) []string {
	var why []string
	room, others := maxSentence, 0
	for _, r := range resizes {
		if r.From == r.To {
			continue
		}
		text := fmt.Sprintf("resize set %s %d→%d: %s", r.Name, r.From, r.To, r.Why)
		if room -= len(text); room < 0 {
			others++
			continue
		}
		why = append(why, text)
	}
	if others > 0 {
		why = append(why, fmt.Sprintf("resize %d other sets", others))
	}
	return why
}

// exclusive returns a decision that must come before all others, if there is one.
func (p *planner) exclusive() (d Decision, found bool) {
	switch r, owned := p.asked(), p.ownership(); {
	case p.o.suspended() != "":
		why := phrase.Cut(p.o.suspended(), maxReason)
		return Decision{HoldBy: HeldByPause, Hold: why, Complete: p.complete(), Why: why}, true
	case p.o.Deleting:
		return p.teardown(), true
	case p.o.Invalid != "":
		why := phrase.Cut(p.o.Invalid, maxReason)
		return Decision{HoldBy: HeldByFault, Hold: why, Why: why}, true
	case owned.Acts():
		return owned, true
	case r != nil && !p.o.Paused:
		return Decision{Rollback: r, Why: r.Why}, true
	}
	if p.o.scaler(&d); d.Acts() {
		d.bound()
		d.Why = fmt.Sprintf("mark %s for the cluster autoscaler, unmark %d", machines(len(d.Mark)), len(d.Unmark))
		return d, true
	}
	if d = p.align(); d.Acts() {
		return d, true
	}
	if p.current == nil {
		return p.setOfTemplate()
	}
	record, _ := p.progress()
	r := p.automatic(record.Failed)
	if r == nil {
		return d, false
	}
	d.Why = r.Why
	if d.Record = p.unrecorded(record); d.Record == nil {
		// the record is written first, because a failed machine may be gone when the template is written
		d.Rollback = r
	}
	d.bound()
	return d, true
}

// align decides which sets may create machines, and brings the sets that follow the deployment up to date.
func (p *planner) align() (d Decision) {
	if p.current != nil {
		if p.allowScaleUp(&d); d.Acts() {
			d.bound()
			d.Why = "allow the current set to create machines, and no old set"
			return d
		}
		d.Revise = p.revise()
	}
	// Revise also syncs its set
	drifted := list.Where(p.sets, func(set *setPlan) bool { return set.Drift && (set != p.current || d.Revise == nil) })
	d.Sync = targets(drifted, "it differs from the deployment")
	d.bound()
	if d.Revise != nil {
		drifted = append(drifted, p.current)
	}
	d.Why = "bring " + phrase.If(len(drifted) != 1, "%s", phrase.Count(len(drifted), "set"))
	if len(drifted) == 1 {
		d.Why += "set " + drifted[0].Name
	}
	d.Why += " up to date"
	return d
}

// setOfTemplate creates the set of the template, unless the deployment is stopped or must not create sets.
func (p *planner) setOfTemplate() (d Decision, found bool) {
	if p.o.Stopped() != "" || p.o.refused().Reason != "" { // the sets that exist follow the number of machines
		return d, false
	}
	if why := p.o.noCreation(); why != "" {
		return Decision{NoSet: true, HoldBy: HeldByMachines, Hold: why, Why: why}, true
	}
	return p.create(), true
}

// allowScaleUp decides which sets may create machines: the current set always, an old set unless machines are handed
// over in place or people delete them (OnDelete).
func (p *planner) allowScaleUp(d *Decision) {
	switch {
	case !p.current.NoScaleUp:
	case p.current.size > p.current.active && sum(p.sets, p.occupied) > p.o.Replicas+p.surge:
		// it handed over machines, and must not create them again
		p.current.put(p.current.active, fmt.Sprintf("it has %s left", machines(p.current.active)))
		p.resizes(d)
		return
	default:
		d.AllowScaleUp = append(d.AllowScaleUp, p.current.target("it is the current set"))
	}
	if p.o.Stopped() != "" || !p.o.inPlace() && p.o.Strategy != OnDelete {
		return
	}
	mayCreate := func(set *setPlan) bool { return !set.NoScaleUp && (set.size > 0 || set.active > 0) }
	d.ForbidScaleUp = targets(list.Where(p.old(), mayCreate), "it is old: its machines are not created again")
}

// ownership releases sets that the selector no longer matches, and adopts those that it matches and that nobody
// controls, before it is decided whether the template has a set.
func (p *planner) ownership() Decision {
	const foreign, ours = "the selector does not match its labels", "the selector matches its labels, and it has no owner"
	adoptable := list.Where(p.o.Orphans, func(s Orphan) bool { return s.Matches && !s.Deleting })
	d := Decision{
		SetChanges: SetChanges{
			Release: targets(list.Where(p.sets, func(set *setPlan) bool { return set.foreign() }), foreign),
			Adopt: list.Map(
				adoptable,
				func(s Orphan) Target { return Target{Name: s.Name, UID: s.UID, Version: s.Version, Why: ours} },
			),
		},
	}
	d.bound()
	d.Why = strings.Join(phrase.Parts(
		phrase.If(len(d.Release) > 0, "release %s: %s", phrase.Count(len(d.Release), "set"), foreign),
		phrase.If(len(d.Adopt) > 0, "adopt %s: %s", phrase.Count(len(d.Adopt), "set"), ours),
	), "; ")
	return d
}

// mostReleased is how many released sets may be without an owner before the deployment creates no further set. Source:
// ours; a person may want one.
const mostReleased = 2

// noCreation says why no set is created for the template although it has none; empty: one is created.
func (o Observed) noCreation() string {
	leaving := list.Find(o.Sets, func(s Set) bool {
		return s.Current && s.Deleting && (s.Orphaning || s.Finalizer && len(s.Machines) == 0)
	})
	released := list.Count(o.Orphans, func(s Orphan) bool { return s.Released && !s.Deleting })
	return cmp.Or(
		phrase.If(
			leaving.Name != "",
			"set %s is being deleted and has let go of its machines: when it is gone, a new one takes them",
			leaving.Name,
		),
		phrase.If(
			released >= mostReleased,
			"%d sets that were released have no owner: something changes the labels of the sets that are created",
			released,
		),
	)
}

// create returns the set of the current template, with the size that it would get if it existed.
func (p *planner) create() Decision {
	current := &setPlan{Set: Set{Name: "the new set", Current: true, Revision: p.revision()}}
	p.current, p.sets = current, append(p.sets, current)
	p.progress()
	p.resize()
	return Decision{
		SetChanges: SetChanges{
			Create: &Creation{Replicas: current.size, Revision: current.Revision, Desired: p.o.Replicas, Max: most(p.o)},
		},
		Rolling: p.underway(),
		Why: fmt.Sprintf(
			"create a set of %s for revision %d: the template has none",
			machines(current.size),
			current.Revision,
		),
	}
}

func machines(n int) string { return phrase.Count(n, "machine") }
