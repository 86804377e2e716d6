// Package scale decides what a set does next to have the wanted number of machines, and what its status should be:
// which machines to release, adopt, preserve, replace, update, move, delete and create. It does no I/O and knows no API
// type.
package scale

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"millwright/decide/attention"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// MaxBatch is the largest number of machines in one decision. It bounds the size of a decision in histories. Source: 50
// targets of about 180 bytes stay below 16 KiB.
const MaxBatch = 50

// MaxCreate is the largest number of machines that one decision creates. Source: 1000 names of 63 characters are 64
// KiB, a quarter of what Temporal warns of, and a set reaches this size in one decision (ADR 0089).
const MaxCreate = 1000

// Target names a machine as it was read.
type Target struct {
	Name, UID string
	Version   string // resourceVersion that was read: precondition of the write
	Why       string // one sentence, for events and history
}

// Decision says what to do next. At most one of its lists has entries: at most MaxBatch, in Create at most MaxCreate.
// All lists are empty if there is nothing to do now.
type Decision struct {
	Release   []Target // remove our controller reference
	Adopt     []Target // set our controller reference, after a live read of the set
	Keep      []Target // request their preservation
	Unmark    []Target // remove the health check's mark: they are healthy again
	Remediate []Target // delete, because they are marked unhealthy
	Delete    []Target
	Update    []Target // begin their update in place
	Move      []Target // hand over to the set MoveTo, which updates them in place
	Create    []string // names of machines to create
	Sync      []Target // copy the parts of the template that may change in place

	// Generations is what the set's status has to record before the lists are carried out; nil: the record stays.
	Generations *Generations
	Hold        string    // what waits, and why; empty: nothing waits
	Done        bool      // the set is being deleted and owns no machine
	Recheck     time.Time // when to decide again if nothing else changes; zero: never
	Why         string    // what is done next, or what the set waits for, in one sentence
}

// Acts reports whether there is anything to do now.
func (d Decision) Acts() bool { return d.Acting() || d.Generations != nil }

// Acting reports whether one of the lists has entries.
func (d Decision) Acting() bool {
	lists := len(d.Release) + len(d.Adopt) + len(d.Keep) + len(d.Unmark) + len(d.Remediate) + len(d.Delete) +
		len(d.Update) + len(d.Move) + len(d.Create) + len(d.Sync)
	return lists > 0
}

// Planned is the result of one evaluation of a set.
type Planned struct {
	Decision   Decision
	Status     Status
	Unreported bool               // the present status differs from Status, or observedGeneration is old, or Thaw
	Thaw       bool               // the freeze is over: the label freeze and the annotation unfreeze have to be removed
	Pending    attention.Decision // the most urgent pending work
	Calm       bool               // no work is pending once Status is written
	Postponed  []Target           // members that are marked to be replaced and stay for now, each with the reason
	Outdated   bool               // the set is an old set: Postponed members stay until the rollout removes them
}

// Plan plans one step towards the wanted number. The order is: release members that do not match, adopt machines that
// do, preserve failed machines, unmark machines that are healthy again, delete failed and unhealthy machines, begin
// updates in place, delete chosen machines, delete or move surplus machines, create, copy the template. Machines that
// are being deleted do not count as existing. A set that is being deleted deletes all its machines, and with
// --cascade=orphan none. A paused set does nothing. The same facts in any order give the same plan.
func Plan(o Observed) Planned {
	return open(o).plan()
}

func (o *planner) plan() Planned {
	plan := Planned{Decision: decide(o)}
	plan.Status = report(o, plan.Decision)
	plan.Thaw = o.thaw()
	plan.Unreported = plan.Thaw || o.Generation != o.ObservedGeneration || !o.Reported.says(plan.Status)
	plan.Pending = o.pending(plan.Decision, plan.Unreported)
	o.ObservedGeneration = o.Generation
	plan.Calm = o.pending(plan.Decision, false).Calm()
	plan.Postponed, plan.Outdated = postponedTargets(o), o.Remediation.Outdated
	return plan
}

// postponedTargets returns the members that are marked to be replaced and stay for now, each with the reason.
func postponedTargets(o *planner) (members []Target) {
	at := make(map[string]int, len(o.live))
	for i, m := range o.live {
		at[m.Name] = i
	}
	for _, s := range o.marksLater {
		members = append(members, o.live[at[s.name]].target(s.message))
	}
	return members
}

// Decide returns the Decision of Plan.
func Decide(o Observed) Decision { return decide(open(o)) }

// pending returns the work that is pending.
func (o *planner) pending(d Decision, unreported bool) attention.Decision {
	there := fmt.Sprintf("%s wanted, %d there", machines(o.Replicas), len(o.Members))
	left := cmp.Or(
		attention.If(d.Acts(), attention.Scale, "%s", d.Why),
		attention.Decision{
			Why: cmp.Or(o.underWay(), there),
		}.Before(
			!d.Recheck.IsZero(),
			attention.Scale,
			"%s; it waits for the time to pass",
			there,
		),
		attention.If(stopped(o) != "", attention.Scale, "%s", d.Hold),
		attention.Decision{Why: there},
	)
	return cmp.Or(
		attention.If(o.Deleting && !o.Finalizer, attention.Nothing, "released: the API server removes it"),
		attention.If(o.Orphaning, attention.Deletion, "%s", d.Why),
		attention.If(o.Deleting, attention.Deletion, "deletion was asked for; %s left", machines(len(o.Members))),
		attention.If(!o.Finalizer, attention.Scale, "new: our finalizer is missing"),
		left.Before(o.Generation != o.ObservedGeneration, attention.Scale,
			"generation %d was not seen yet (last seen: %d)", o.Generation, o.ObservedGeneration),
		left.Before(unreported && !d.Acts(), attention.Scale, "status is out of date"),
		left,
	)
}

// mostNamed is how many machines a sentence names. Source: a line of a terminal.
const mostNamed = 3

// underWay says which members are being deleted, and which are not available yet; empty: none.
func (o *planner) underWay() string {
	names := func(holds func(Member) bool) []string {
		return list.Map(pointers(o.Members, holds), (*Member).name)
	}
	says := func(names []string, one, several string) string {
		return phrase.If(
			len(names) > 0,
			"%s %s: %s",
			machines(len(names)),
			phrase.OneOf(len(names), one, several),
			phrase.List(names, mostNamed, ", "),
		)
	}
	return strings.Join(phrase.Parts(
		says(names(func(m Member) bool { return m.Deleting }), "is being deleted", "are being deleted"),
		says(
			names(func(m Member) bool { return !m.Deleting && !m.Available(o.Now, o.MinReady) }),
			"is not available yet",
			"are not available yet",
		),
	), "; ")
}

func decide(o *planner) Decision {
	d := step(o)
	d.Recheck = recheck(o)
	if d.Generations == nil && recovered(o) {
		d.Generations = &Generations{} // record that now: the machine that joined may be deleted later
	}
	return d
}

func step(o *planner) Decision {
	active := o.live
	switch {
	case len(o.Pauses) > 0:
		return held(o.Pauses[0])
	case o.Orphaning:
		return Decision{Why: o.letsGo()}
	case o.Invalid != "" && !o.Deleting:
		return held(o.Invalid)
	}
	if o.Deleting {
		return teardown(o, active)
	}
	for _, next := range []func(*planner, []Member) Decision{
		release, adopt, keep, unmark, removeFailed, remediate, update, removeChosen, removeSurplus, create,
	} {
		if d := next(o, active); d.Acting() {
			return d
		}
	}
	d := sync(o)
	d.Hold = waits(o)
	d.Why = cmp.Or(d.Why, d.Hold, machines(o.Replicas)+" wanted and there")
	return d
}

func held(why string) Decision { return Decision{Hold: why, Why: why} }

// letsGo says what a set that is being deleted with --cascade=orphan waits for.
func (o *planner) letsGo() string {
	return "deleted with --cascade=orphan: waits until the garbage collector has removed the owner reference of " +
		machines(len(o.Members)) + " and the finalizer orphan"
}

// release removes the controller reference from members whose labels no longer match. They count as members until their
// reference is removed, so that the set creates no substitute while it owns them. Members that are being deleted are
// not released. If the selector is invalid or empty, no member is released.
func release(o *planner, active []Member) Decision {
	if o.SelectsAll {
		return Decision{}
	}
	const why = "the labels do not match the selector"
	d := Decision{Release: targets(list.Where(active, func(m Member) bool { return !m.Matches }), why)}
	d.Why = fmt.Sprintf("release %s: %s", machines(len(d.Release)), why)
	return d
}

// adopt sets the controller reference of machines that match and have no controller, so that the set does not create
// others.
func adopt(o *planner, _ []Member) Decision {
	const why = "the labels match the selector, and there is no owner"
	orphans := first(list.Where(o.Orphans, func(m Orphan) bool { return m.Matches && !m.Deleting && !o.SelectsAll }))
	return Decision{
		Adopt: list.Map(orphans, func(m Orphan) Target { return Target{m.Name, m.UID, m.Version, why} }),
		Why:   fmt.Sprintf("adopt %s: %s", machines(len(orphans)), why),
	}
}

// unmark removes the mark from members that are healthy again.
func unmark(_ *planner, active []Member) Decision {
	healthy := list.Where(active, func(m Member) bool { return m.Marked && m.Healthy == True })
	d := Decision{Unmark: targets(healthy, "healthy again")}
	d.Why = fmt.Sprintf("unmark %s: healthy again", machines(len(d.Unmark)))
	return d
}

// teardown deletes all machines of a set that is being deleted.
func teardown(o *planner, active []Member) Decision {
	if len(active) > 0 {
		return Decision{
			Delete: targets(list.SortedLarge(active, ranking(o.Order)), "the set is being deleted"),
			Why:    fmt.Sprintf("delete all %s: the set is being deleted", machines(len(active))),
		}
	}
	d := sync(o) // operators shorten timeouts to speed up a deletion
	d.Done = len(o.Members) == 0
	d.Why = cmp.Or(d.Why, fmt.Sprintf("the set is being deleted, %s left", machines(len(o.Members))))
	return d
}

// sync copies the parts of the template that may change in place. It comes last, so that a machine that cannot be
// written delays nothing else.
func sync(o *planner) Decision {
	stale := first(pointers(o.Members, func(m Member) bool { return m.Drift != "" }))
	return Decision{
		Sync: list.Map(stale, func(m *Member) Target { return m.target(m.Drift) }),
		Why:  phrase.If(len(stale) > 0, "copy the template to %s in place", machines(len(stale))),
	}
}

func first[T any](all []T) []T { return all[:min(len(all), MaxBatch)] }

// targets returns the first MaxBatch members, for a decision.
func targets(members []Member, why string) []Target {
	return list.Map(first(members), func(m Member) Target { return m.target(why) })
}

func machines(n int) string { return phrase.Count(n, "machine") }
