// Package scale answers what a set has to do next to have as many machines as are wanted, and what its status says
// meanwhile: which machines to let go or to take, to keep, to replace, to delete, to make and to bring up to date. The
// set's activities call it with what they read. It knows no API kind and changes nothing.
package scale

import (
	"cmp"
	"fmt"
	"time"

	"millwright/decide/attention"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// MaxBatch is how many machines one decision names at the most. It bounds the decision's size in history. Source: 50
// targets of some 180 bytes stay below the 16 KiB that a decision may take there.
const MaxBatch = 50

// Target names a machine as it was seen.
type Target struct {
	Name, UID string
	Version   string // resourceVersion that was read: the write must meet the same one
	Why       string // one sentence, for events and history
}

// Decision says what to do next. At most one of its lists is filled, with at most MaxBatch entries; all are empty when
// there is nothing to do now.
type Decision struct {
	Release   []Target // take our controller reference off
	Adopt     []Target // put it on, after the set was read live once more
	Keep      []Target // ask for their preservation
	Unmark    []Target // they are healthy again: take the wish off that the set replaces them
	Remediate []Target // delete: marked unhealthy
	Delete    []Target
	Create    []string // names of machines to create
	Sync      []Target // copy to them what may change of a template without a new machine

	// Generations is what the set's status shall record, before the lists are carried out; nil when it does already.
	Generations *Generations
	Hold        string    // what waits, and why; empty when nothing does
	Done        bool      // the set is being deleted and owns nothing any more
	Recheck     time.Time // when to look again although nothing else changes; zero means that there is no need
	Why         string    // what is done next, or what it waits for, in a sentence
}

// Acts reports whether there is anything to do now.
func (d Decision) Acts() bool { return d.Acting() || d.Generations != nil }

// Acting reports whether one of the lists is filled.
func (d Decision) Acting() bool {
	return len(d.Release)+len(d.Adopt)+len(d.Keep)+len(d.Unmark)+len(d.Remediate)+len(d.Delete)+len(d.Create)+len(d.Sync) > 0
}

// Plan is what one look at a set comes to.
type Plan struct {
	Decision   Decision
	Status     Status
	Unreported bool               // the status does not say what Status says, or is of another generation
	Pending    attention.Decision // the work that is left, the most urgent first; calm when none is
	Calm       bool               // nothing is left once the status says what Status says
}

// Look plans one step towards the wanted number, in this order: let go of what does not match and take what does,
// preserve what failed, delete what failed, what is unhealthy, what the autoscaler chose, what is too much; then create,
// then bring up to date. Machines that are being deleted are gone for every count. A set that is being deleted deletes all it owns;
// a paused one does nothing. The same input gives the same output, in whatever order members and orphans stand.
func Look(o Observed) Plan {
	o = o.sorted()
	plan := Plan{Decision: decide(o)}
	plan.Status = report(o, plan.Decision)
	plan.Unreported = o.Generation != o.ObservedGeneration || !o.Reported.says(plan.Status)
	plan.Pending = o.pending(plan.Decision, plan.Unreported)
	o.ObservedGeneration = o.Generation
	plan.Calm = o.pending(plan.Decision, false).Calm()
	return plan
}

// Decide is the Decision of Look.
func Decide(o Observed) Decision { return decide(o.sorted()) }

// pending says what work there is beside or after a decision.
func (o Observed) pending(d Decision, unreported bool) attention.Decision {
	there := fmt.Sprintf("%d machines wanted, %d there", o.Replicas, len(o.Members))
	return cmp.Or(
		attention.If(o.Deleting && !o.Finalizer, attention.Nothing, "released: the API server removes it"),
		attention.If(o.Deleting, attention.Deletion, "deletion was asked for; %d machines left", len(o.Members)),
		attention.If(!o.Finalizer, attention.Scale, "new: not yet taken care of"),
		attention.If(o.Generation != o.ObservedGeneration, attention.Scale,
			"generation %d was not seen yet (last seen: %d)", o.Generation, o.ObservedGeneration),
		attention.If(d.Acts(), attention.Scale, "%s", d.Why),
		attention.If(unreported, attention.Scale, "status is out of date"),
		attention.If(!d.Recheck.IsZero(), attention.Scale, "%s; it waits for the time to pass", there),
		attention.Decision{Why: there},
	)
}

func decide(o Observed) Decision {
	d := step(o)
	if !o.ListFailed {
		d.Recheck = recheck(o)
		if d.Generations == nil && o.Generations.Failed != 0 && failures(o) <= 0 {
			d.Generations = &Generations{} // the failures are over: without this the proof would go with the machine that joined
		}
	}
	return d
}

func step(o Observed) Decision {
	live := o.live()
	switch {
	case o.ListFailed:
		return held("the machines could not be listed")
	case len(o.pauses()) > 0:
		return held(o.pauses()[0])
	case o.Invalid != "" && !o.Deleting:
		return held(o.Invalid)
	}
	if d := release(o, live); d.Acting() {
		return d
	}
	if o.Deleting {
		return teardown(o, live)
	}
	for _, next := range []func(Observed, []Member) Decision{
		adopt, keep, unmark, removeFailed, remediate, removeChosen, removeSurplus, create,
	} {
		if d := next(o, live); d.Acting() {
			return d
		}
	}
	d := sync(o)
	d.Hold = waits(o, live)
	d.Why = cmp.Or(d.Why, d.Hold, machines(o.Replicas)+" wanted and there")
	return d
}

func held(why string) Decision { return Decision{Hold: why, Why: "hold: " + why} }

// pauses returns why the set is paused, each as Cluster API words it; empty when it is not.
func (o Observed) pauses() []string {
	const annotated = " has the cluster.x-k8s.io/paused annotation"
	return phrase.Parts(phrase.If(o.OwnerPaused != "", "%s", o.OwnerPaused+annotated), phrase.If(o.Paused, "MachineSet"+annotated))
}

// release lets go of the members whose labels do not match any more. Until the release is done they count as members, so
// that the set makes none in their place while it still owns them. One that is being deleted is let be. A selector that
// cannot be read, or that is empty, is no reason to let go of anything.
func release(o Observed, live []Member) Decision {
	if o.Invalid != "" || o.SelectsAll {
		return Decision{}
	}
	const why = "the labels do not match the selector"
	d := Decision{Release: targets(list.Where(live, func(m Member) bool { return !m.Matches }), why)}
	d.Why = fmt.Sprintf("release %s: %s", machines(len(d.Release)), why)
	return d
}

// adopt takes machines that match and have no controller, so that the set does not make what is there already.
func adopt(o Observed, _ []Member) Decision {
	const why = "the labels match the selector, and there is no owner"
	var d Decision
	for _, m := range o.Orphans {
		if m.Matches && !m.Deleting && !o.SelectsAll && len(d.Adopt) < MaxBatch {
			d.Adopt = append(d.Adopt, Target{Name: m.Name, UID: m.UID, Version: m.Version, Why: why})
		}
	}
	d.Why = fmt.Sprintf("adopt %s: %s", machines(len(d.Adopt)), why)
	return d
}

// unmark takes the wish off members that are healthy again.
func unmark(_ Observed, live []Member) Decision {
	healthy := list.Where(live, func(m Member) bool { return m.Marked && m.HealthCheck == True })
	d := Decision{Unmark: targets(healthy, "healthy again")}
	d.Why = fmt.Sprintf("take the mark off %s: healthy again", machines(len(d.Unmark)))
	return d
}

// teardown deletes all machines of a set that is being deleted.
func teardown(o Observed, live []Member) Decision {
	if len(live) > 0 {
		return Decision{
			Delete: targets(list.Sorted(live, ranking(o.Order)), "the set is being deleted"),
			Why:    fmt.Sprintf("delete all %s: the set is being deleted", machines(len(live))),
		}
	}
	d := sync(o) // their timeouts are how people hurry a deletion
	d.Done = len(o.Members) == 0
	d.Why = cmp.Or(d.Why, fmt.Sprintf("the set is being deleted, %s left", machines(len(o.Members))))
	return d
}

// sync brings up to date what may change of a template without a new machine. One machine that cannot be written holds up
// nothing else, because all else comes before.
func sync(o Observed) Decision {
	var d Decision
	for _, m := range first(list.Where(o.Members, func(m Member) bool { return m.Drift != "" })) {
		d.Sync = append(d.Sync, m.target(m.Drift))
	}
	if len(d.Sync) > 0 {
		d.Why = fmt.Sprintf("copy the template to %s in place", machines(len(d.Sync)))
	}
	return d
}

func first[T any](all []T) []T { return all[:min(len(all), MaxBatch)] }

// targets names members for a decision, as many as it may name.
func targets(members []Member, why string) []Target {
	var named []Target
	for _, m := range first(members) {
		named = append(named, m.target(why))
	}
	return named
}

func machines(n int) string { return phrase.Count(n, "machine") }
