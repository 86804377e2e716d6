package request

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/decide/deletion"
	"millwright/decide/drain"
	"millwright/decide/phrase"
)

// MachineFacts describe the machine that a request is for.
type MachineFacts struct {
	Name       string // namespace and name
	UID        string
	Phase      string  // for messages
	Annotation string  // key of the command's annotation
	Value      *string // value of that annotation; nil: none
	Now        time.Time

	Deleting  bool
	Emptying  bool           // its node is being drained although the machine stays
	Stage     deletion.Stage // recorded stage of its deletion; empty: none
	DrainOver bool           // the drain of its node is over
	Means     drain.Means    // present means of the drain; empty: none
	Deadlines drain.Deadlines
	Extended  time.Time // until when an earlier extend requested evictions; zero: none

	Node string // its name; empty: none
	// the node's value of the annotation preserve, as it was applied last; it takes precedence over the machine's
	// annotation
	NodeSays string
	Keeps    time.Duration // duration of a preservation
	KeptTill time.Time     // recorded end of a preservation; zero: none
}

func (f MachineFacts) object() (Kind, string) { return Machine, f.UID }

func (f MachineFacts) decide(o Order) Decision {
	again := !o.Asked.IsZero()
	switch {
	case o.Command == Resume && f.Value != nil:
		return Decision{Annotation: new(""), Says: fmt.Sprintf("removed %s: %q", f.Annotation, *f.Value)}
	case o.Command == Resume && again:
		return same("%s is not there: nothing was removed", f.Annotation)
	case o.Command == Resume:
		return refused("machine %s is not held: there is nothing to resume", f.Name)
	case again && f.Value != nil && o.wrote(*f.Value):
		return f.write(*f.Value)
	case o.Command == Preserve || o.Command == Unpreserve:
		return unless(f.unkept(o), f.write(o.value(f.Now)))
	case o.Command == Extend:
		return f.extend(o)
	default:
		return unless(f.unfit(o), f.write(o.value(f.Now)))
	}
}

func (f MachineFacts) write(value string) Decision {
	if f.Value != nil && *f.Value == value {
		return same("%s is already set: %q", f.Annotation, value)
	}
	before := *cmp.Or(f.Value, new(""))
	says := fmt.Sprintf("wrote %s: %q", f.Annotation, value) + phrase.If(before != "", "; before: %q", before)
	return Decision{Annotation: &value, Says: says}
}

// unfit says why a command for a deletion has no effect on the machine now, or is too late; empty: it has an effect.
// AbandonInstance is never too late, because every stage can wait for the target cluster.
func (f MachineFacts) unfit(o Order) string {
	drains := f.Deleting || f.Emptying && o.Command != AbandonInstance
	late := f.Means == drain.Delete || f.Means == drain.Kill
	ofPods := slices.Contains([]Command{Extend, Force, Skip}, o.Command)
	mayWait := slices.Contains(takers(Machine, "in-advance"), string(o.Command))
	hint := phrase.If(mayWait, "; with %s, %s waits for its deletion", o.called("in-advance"), o.Command)
	return cmp.Or(
		phrase.If(!drains && !o.InAdvance, "machine %s is not being deleted: its phase is %s%s", f.Name, f.Phase, hint),
		phrase.If(f.DrainOver && ofPods, "the drain of machine %s is over, "+
			"and its deletion is in stage %s: %s would change nothing", f.Name, f.Stage, o.Command),
		phrase.If(o.Command == Extend && late, "the deadline of machine %s has passed, its pods are deleted, "+
			"and nothing is evicted again: extend comes too late", f.Name),
	)
}

// unkept says why Preserve or Unpreserve has no effect; empty: it has one.
func (f MachineFacts) unkept(o Order) string {
	ended := !f.KeptTill.IsZero() && !f.Now.Before(f.KeptTill)
	return cmp.Or(
		phrase.If(f.Deleting, "machine %s is being deleted: %s would change nothing", f.Name, o.Command),
		phrase.If(
			f.Node != "" && f.NodeSays != "",
			"node %s says %q for machine %s, which counts as long as the node is there: "+
				"annotate the node instead",
			f.Node,
			f.NodeSays,
			f.Name,
		),
		phrase.If(o.Command == Preserve && ended, "the preservation of machine %s has ended at %s, and is being removed: "+
			"try again when it is removed", f.Name, phrase.Clock(f.KeptTill, f.Now)),
		phrase.If(o.Command == Preserve && f.KeptTill.IsZero() && f.Keeps <= 0,
			"machine %s cannot be preserved: its machinePreserveTimeout is %s", f.Name, phrase.Length(f.Keeps)),
	)
}

// extend writes until when pods are evicted: later than now, than the present deadline, and than an earlier extension.
func (f MachineFacts) extend(o Order) Decision {
	present, from := f.Deadlines.Next(), f.Now
	if f.Extended.After(present) { // written before the drain began
		present = f.Extended
	}
	if present.After(from) {
		from = present
	}
	until, _ := time.Parse(time.RFC3339, o.Until)
	if more, err := time.ParseDuration(o.For); err == nil {
		until = from.Add(more)
	}
	until = until.Truncate(time.Second) // like the written time
	clock := func(t time.Time) string { return phrase.Clock(t, f.Now) }
	return unless(cmp.Or(
		f.unfit(o),
		phrase.If(!until.After(f.Now), "extend until %s is not in the future: it is %s", clock(until), clock(f.Now)),
		phrase.If(!until.After(present), "extend until %s is not later than the present deadline of machine %s, %s (in %s): "+
			"extend only gives more time", clock(until), f.Name, clock(present), phrase.Length(present.Sub(f.Now).Truncate(time.Second))),
	), f.write(o.stamped(until)))
}

// value returns the value of a command's annotation, for extend only with Until. Source of the values of Preserve and
// Unpreserve: MCM's annotation, which has no room for actor and reason.
func (o Order) value(now time.Time) string {
	switch o.Command {
	case Preserve:
		return "now"
	case Unpreserve:
		return "false"
	case Retry:
		return o.stamped(now)
	case Extend:
		until, _ := time.Parse(time.RFC3339, o.Until)
		return o.stamped(until)
	default:
		return o.words()
	}
}

// wrote reports whether this order wrote the value of an annotation. An extension by a duration has the time of the
// request among its words, because it must not extend again when it is carried out twice.
func (o Order) wrote(value string) bool {
	if o.For != "" {
		_, value, _ = strings.Cut(value, " ")
		return value == o.words()
	}
	return value == o.value(o.Asked)
}
