package steer

import (
	"cmp"
	"fmt"
	"time"
)

// Gate is a stage that a rollout has reached and waits at.
type Gate struct {
	Step int // from 0
	Of   int // stages in all
}

// Facts are what is known of the deployment that a verb is for.
type Facts struct {
	Deployment string // namespace and name
	UID        string
	Now        time.Time
	Last       string // the record of the verb that was given last; empty: none was

	Deleting   bool
	Invalid    string // why nothing can be done with it, in a sentence; empty when all is well
	Paused     bool
	Held       string // who holds the current revision where it is, and why; empty: nobody does
	Rolling    bool   // machines of other templates are there
	OnDelete   bool   // an old machine stays until somebody deletes it
	Revision   int64  // that the set of the template has, or is about to get; 0: the set has yet to be made
	Revisions  []int64
	RollbackTo *int64 // revision to which it was asked to return, and has not yet; 0: the one before; nil: none

	Gate        *Gate  // nil: it waits at none
	Stages      int    // of a rollout; 0: all at once
	Approved    int    // stages that people passed for this revision, counted from the first
	RestartedAt string // what the template says of the last start; empty: nothing
}

// Decision says what a verb writes: each field that is not nil, and Last. What is refused, or the Same, writes nothing.
type Decision struct {
	Refused     string // why not, in one sentence; empty when it is given
	Same        bool   // all is so already: nothing is to be written
	PauseTo     *bool
	RollbackTo  *int64
	Hold        *string // empty: it is to go
	Approve     *string
	RestartedAt *string // in the template
	Cause       *string // why there is another revision
	Last        string  // the record of this order; empty when nothing is to be written
	Says        string  // what was written, in a sentence without its full stop; empty when it was refused
}

func refused(format string, values ...any) Decision {
	return Decision{Refused: fmt.Sprintf(format, values...)}
}

// Decide says what an order writes on a deployment, or why it is refused: because it makes no sense at all, or because the
// deployment has no use for it. An order that may be carried out twice is not refused for what it brought about the first time,
// and does not bring it about again: it is known by its record.
func Decide(o Order, f Facts) Decision {
	o = o.Cleaned()
	if why := cmp.Or(Check(o), Meant(o, f.UID)); why != "" {
		return Decision{Refused: why}
	}
	record := o.record(f.Now)
	switch {
	case !o.Asked.IsZero() && f.Last == record:
		return Decision{Same: true, Says: fmt.Sprintf("deployment %s was given this order before: nothing was to be written", f.Deployment)}
	case f.Deleting:
		return refused("deployment %s is being deleted: %s would change nothing", f.Deployment, o.Verb)
	}
	d := o.decide(f)
	if d.Refused == "" && !d.Same {
		d.Last = record
	}
	return d
}

func (o Order) decide(f Facts) Decision {
	switch o.Verb {
	case Start:
		return o.start(f)
	case Pause:
		return pause(f)
	case Resume:
		return resume(f)
	case Cancel:
		return o.cancel(f)
	case Undo:
		return o.undo(f)
	default:
		return o.approve(f)
	}
}
