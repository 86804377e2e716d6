// Package scale answers what a set has to do next to have as many machines as are wanted, and what its status says
// meanwhile: which machines to let go or to take, to keep, to replace, to delete, to make and to bring up to date. The
// set's activities call it with what they read. It knows no API kind and changes nothing.
package scale

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// MaxBatch is how many machines one decision names at the most. It bounds the decision's size in history. Source: 50
// targets of some 180 bytes stay below the 16 KiB that a decision may take there.
const MaxBatch = 50

// Target names a machine as it was seen.
type Target struct {
	Name    string
	UID     string
	Version string // resourceVersion that was read: the write must meet the same one
	Why     string // one sentence, for events and history
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
	Why         string    `json:"Plan"` // not Why: whoever embeds a Decision has a Why too, and JSON would drop this one
}

// Acts reports whether there is anything to do now.
func (d Decision) Acts() bool { return d.Acting() || d.Generations != nil }

// Acting reports whether one of the lists is filled.
func (d Decision) Acting() bool {
	return len(d.Release)+len(d.Adopt)+len(d.Keep)+len(d.Unmark)+len(d.Remediate)+len(d.Delete)+len(d.Create)+len(d.Sync) > 0
}

// Decide takes one step towards the wanted number, in this order: let go of what does not match and take what does,
// preserve what failed, delete what failed, what is unhealthy, what the autoscaler chose, what is too much; then create,
// then bring up to date. Machines that are being deleted are gone for every count. A set that is to go deletes all it owns;
// a paused one does nothing. The same input gives the same output, in whatever order members and orphans stand.
func Decide(o Observed) Decision { return decide(o.sorted()) }

// Look is Decide and Report of the same facts. They are planned once.
func Look(o Observed) (Decision, Status) {
	o = o.sorted()
	d := decide(o)
	return d, report(o, d)
}

func decide(o Observed) Decision {
	d := step(o)
	if !o.ListFailed {
		d.Recheck = recheck(o)
		if d.Generations == nil {
			d.Generations = forget(o)
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
	if targets := toRelease(o, live); len(targets) > 0 {
		return Decision{Release: targets, Why: fmt.Sprintf("release %s: the labels do not match the selector", machines(len(targets)))}
	}
	if o.Deleting {
		return teardown(o, live)
	}
	for _, next := range []func(Observed, []Member) (Decision, bool){
		adopt, keep, unmark, removeFailed, remediate, removeChosen, removeSurplus, create,
	} {
		if d, found := next(o, live); found {
			return d
		}
	}
	return rest(o, live)
}

// rest is what is done when the number is right, or cannot be made right now.
func rest(o Observed, live []Member) Decision {
	d := sync(o)
	d.Hold = waits(o, live)
	if len(d.Sync) == 0 {
		d.Why = cmp.Or(d.Hold, fmt.Sprintf("%s wanted and there", machines(o.Replicas)))
	}
	return d
}

func held(why string) Decision { return Decision{Hold: why, Why: "hold: " + why} }

// teardown deletes all machines of a set that is to go.
func teardown(o Observed, live []Member) Decision {
	if len(live) > 0 {
		slices.SortFunc(live, ranking(o.Order))
		d := Decision{Why: fmt.Sprintf("delete all %s: the set is being deleted", machines(len(live)))}
		for _, m := range first(live) {
			d.Delete = append(d.Delete, m.target("the set is being deleted"))
		}
		return d
	}
	d := sync(o) // their timeouts are how people hurry a deletion
	if len(d.Sync) == 0 {
		d.Done = len(o.Members) == 0
		d.Why = fmt.Sprintf("the set is being deleted, %s left", machines(len(o.Members)))
	}
	return d
}

// sync brings up to date what may change of a template without a new machine. One machine that cannot be written holds up
// nothing else, because all else comes before.
func sync(o Observed) Decision {
	var d Decision
	for _, m := range o.Members {
		if m.Drift != "" && len(d.Sync) < MaxBatch {
			d.Sync = append(d.Sync, m.target(m.Drift))
		}
	}
	if len(d.Sync) > 0 {
		d.Why = fmt.Sprintf("copy the template to %s in place", machines(len(d.Sync)))
	}
	return d
}

func first[T any](all []T) []T { return all[:min(len(all), MaxBatch)] }

func machines(n int) string {
	if n == 1 {
		return "1 machine"
	}
	return fmt.Sprintf("%d machines", n)
}
