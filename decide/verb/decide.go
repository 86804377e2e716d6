package verb

import (
	"fmt"
	"strings"
	"time"

	"millwright/decide/deletion"
	"millwright/decide/drain"
)

// Facts are what is known of the machine that a verb is for.
type Facts struct {
	Machine string // namespace and name
	UID     string
	Phase   string          // for people
	Said    map[Verb]string // what the annotation of each verb says now; missing: the machine has none
	Now     time.Time

	Deleting  bool
	Emptying  bool           // its node is being emptied although the machine is to stay
	Stage     deletion.Stage // of the deletion; empty before anything is recorded
	DrainOver bool           // nothing is done to the node's pods any more
	Means     drain.Means    // by which pods go now; empty when none are made to
	Deadline  time.Time      // when the next, harder step comes; zero when none does
	Extended  time.Time      // until when somebody asked to evict; zero: nobody did

	Node     string        // its name; empty when there is none
	NodeSays string        // the wish for preservation that was honoured last on the node: it counts before the machine's
	Keeps    time.Duration // how long a preservation lasts
	KeptTill time.Time     // the end of one that is on record; zero when none is
}

// Decision says what a verb writes. What is refused writes nothing.
type Decision struct {
	Refused string // why not, in one sentence; empty when it is given
	Value   string // what the verb's annotation shall say
	Remove  bool   // the annotation is to go; Value is empty then
	Same    bool   // it says so already: nothing is to be written
}

// Decide says what an order writes on a machine, or why it is refused: because it makes no sense at all, because the machine
// has no use for it, or because it comes too late. An order that may be carried out twice is not refused for what it brought
// about the first time: it is given again, and writes nothing.
func Decide(o Order, f Facts) Decision {
	o = o.Cleaned()
	if refused := Check(o); refused != "" {
		return Decision{Refused: refused}
	}
	if refused := Meant(o, f.UID); refused != "" {
		return Decision{Refused: refused}
	}
	said, wanted := f.Said[o.Verb]
	again := !o.Asked.IsZero()
	switch {
	case o.Verb == Resume && wanted:
		return Decision{Remove: true}
	case o.Verb == Resume && again:
		return Decision{Remove: true, Same: true}
	case o.Verb == Resume:
		return Decision{Refused: fmt.Sprintf("machine %s is not held: there is nothing to resume", f.Machine)}
	case again && wanted && o.was(said):
		return Decision{Value: said, Same: true}
	}
	if refused := o.refused(f); refused != "" {
		return Decision{Refused: refused}
	}
	if o.Verb == Extend {
		return o.extend(f)
	}
	value := o.value(f.Now)
	return Decision{Value: value, Same: wanted && value == said}
}

// refused says why a verb makes no sense for a machine as it is.
func (o Order) refused(f Facts) string {
	switch {
	case o.Verb == Preserve || o.Verb == Unpreserve:
		return o.unkept(f)
	case f.Deleting, f.Emptying && o.Verb != Release:
		return o.late(f)
	case o.InAdvance && o.Verb.MayWait():
		return o.late(f)
	case o.Verb.MayWait():
		return fmt.Sprintf("%s; with %s, %s waits for its deletion", notDeleting(f), o.Door.Call("in-advance"), o.Verb)
	default:
		return notDeleting(f)
	}
}

func notDeleting(f Facts) string {
	return fmt.Sprintf("machine %s is not being deleted: its phase is %s", f.Machine, f.Phase)
}

// late says why a verb comes too late. Release never does: each stage may wait for the target cluster.
func (o Order) late(f Facts) string {
	switch {
	case o.Verb.ofPods() && f.DrainOver:
		return fmt.Sprintf("the drain of machine %s is over, and its deletion is in stage %s: %s would change nothing", f.Machine, f.Stage, o.Verb)
	case o.Verb == Extend && (f.Means == drain.Delete || f.Means == drain.Kill):
		return fmt.Sprintf("the deadline of machine %s has passed, its pods are deleted, and nothing is evicted again: extend comes too late", f.Machine)
	default:
		return ""
	}
}

// unkept says why a wish for preservation, or against it, would change nothing.
func (o Order) unkept(f Facts) string {
	switch {
	case f.Deleting:
		return fmt.Sprintf("machine %s is being deleted: %s would change nothing", f.Machine, o.Verb)
	case f.Node != "" && f.NodeSays != "":
		return fmt.Sprintf("node %s says %q for machine %s, and its word counts as long as it is there: annotate the node instead", f.Node, f.NodeSays, f.Machine)
	case o.Verb == Preserve && !f.KeptTill.IsZero() && !f.Now.Before(f.KeptTill):
		return fmt.Sprintf("the preservation of machine %s has ended at %s, and is being taken back: ask again in a moment", f.Machine, clock(f.KeptTill, f.Now))
	case o.Verb == Preserve && f.KeptTill.IsZero() && f.Keeps <= 0:
		return fmt.Sprintf("machine %s is kept for no time: its machinePreserveTimeout is %s", f.Machine, f.Keeps)
	default:
		return ""
	}
}

// value is what an annotation says that is no time of extension.
func (o Order) value(now time.Time) string {
	switch o.Verb {
	case Preserve:
		return keepNow
	case Unpreserve:
		return keepNone
	case Retry:
		return now.UTC().Format(time.RFC3339) + " " + o.words()
	default:
		return o.words()
	}
}

// was reports whether what the annotation says came from this order. One that counts from the present deadline has the time
// at which it was given among its words: carried out twice, it must not extend twice.
func (o Order) was(said string) bool {
	_, words, _ := strings.Cut(said, " ")
	switch {
	case o.Verb == Extend && o.For != "":
		return words == o.words()
	case o.Verb == Extend:
		return said == o.until(o.wanted())
	default:
		return said == o.value(o.Asked)
	}
}

// wanted is the time that an extension names; zero where it names none.
func (o Order) wanted() time.Time {
	until, _ := time.Parse(time.RFC3339, o.Until) // Check has tried it
	return until
}

// until is what the annotation says of an extension.
func (o Order) until(t time.Time) string {
	return t.UTC().Format(time.RFC3339) + " " + o.words()
}

// extend says until when pods shall be evicted. It has to be later than now, than the present deadline, and than what somebody
// asked for before.
func (o Order) extend(f Facts) Decision {
	present, from := f.Deadline, f.Now
	if f.Extended.After(present) { // before the drain began
		present = f.Extended
	}
	if present.After(f.Now) {
		from = present
	}
	until := o.wanted()
	if o.Until == "" {
		more, _ := time.ParseDuration(o.For) // Check has tried it
		until = from.Add(more)
	}
	until = until.Truncate(time.Second) // as it is written
	switch {
	case !until.After(f.Now):
		return Decision{Refused: fmt.Sprintf("extend until %s is not in the future: it is %s", clock(until, f.Now), clock(f.Now, f.Now))}
	case !until.After(present):
		return Decision{Refused: fmt.Sprintf("extend until %s is not later than the present deadline of machine %s, %s: extend only gives more time",
			clock(until, f.Now), f.Machine, when(present, f.Now))}
	default:
		return Decision{Value: o.until(until)}
	}
}
