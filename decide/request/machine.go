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

// MachineFacts holds the facts about the machine of a request.
type MachineFacts struct {
	Name            string // namespace/name of the machine
	UID             string
	Phase           string  // phase of the machine, for messages
	AnnotationKey   string  // key of the annotation that the command writes
	AnnotationValue *string // value of the annotation; nil: no annotation
	Now             time.Time

	Deleting      bool
	NodeDraining  bool               // the node is being drained although the machine is not being deleted
	Stage         deletion.Stage     // recorded stage of the deletion; empty: none
	DrainEnded    bool               // the drain of the node has ended
	RemovalMeans  drain.RemovalMeans // how the drain removes pods at present; empty: no drain
	Deadlines     drain.Deadlines
	ExtendedUntil time.Time // end of an earlier extension of the drain; zero: none

	NodeName string // name of the node; empty: none
	// last applied value of the node's annotation preserve, which overrides the machine's annotation
	NodePreserveValue    string
	PreservationDuration time.Duration // duration of a preservation of this machine
	PreservedUntil       time.Time     // recorded end of the preservation; zero: not preserved
}

func (f MachineFacts) kindAndUID() (Kind, string) { return KindMachine, f.UID }

func (f MachineFacts) decideOrder(o CommandOrder) Decision {
	again := !o.RequestedAt.IsZero()
	switch {
	case o.Command == Resume && f.AnnotationValue != nil:
		return Decision{AnnotationValue: new(""), Message: fmt.Sprintf("removed %s: %q", f.AnnotationKey, *f.AnnotationValue)}
	case o.Command == Resume && again:
		return repeatedDecision("%s is not there: nothing was removed", f.AnnotationKey)
	case o.Command == Resume:
		return refusedDecision("machine %s is not held: there is nothing to resume", f.Name)
	case again && f.AnnotationValue != nil && o.hasWrittenValue(*f.AnnotationValue):
		return f.annotationDecision(*f.AnnotationValue)
	case o.Command == Preserve || o.Command == Unpreserve:
		return decisionUnlessRefused(f.preservationRefusalReason(o), f.annotationDecision(o.annotationValue(f.Now)))
	case o.Command == Extend:
		return f.decideExtension(o)
	default:
		return decisionUnlessRefused(f.noEffectReason(o), f.annotationDecision(o.annotationValue(f.Now)))
	}
}

func (f MachineFacts) annotationDecision(value string) Decision {
	if f.AnnotationValue != nil && *f.AnnotationValue == value {
		return repeatedDecision("%s is already set: %q", f.AnnotationKey, value)
	}
	before := *cmp.Or(f.AnnotationValue, new(""))
	says := fmt.Sprintf("wrote %s: %q", f.AnnotationKey, value) + phrase.TextIf(before != "", "; before: %q", before)
	return Decision{AnnotationValue: &value, Message: says}
}

// noEffectReason returns why a command for a deletion has no effect on the machine now, or comes too late. If
// noEffectReason is empty, the command has an effect. AbandonInstance is never too late, because every stage can
// wait for the target cluster.
func (f MachineFacts) noEffectReason(o CommandOrder) string {
	drains := f.Deleting || f.NodeDraining && o.Command != AbandonInstance
	late := f.RemovalMeans == drain.MeansDelete || f.RemovalMeans == drain.MeansKill
	ofPods := slices.Contains([]Command{Extend, Force, Skip}, o.Command)
	mayWait := slices.Contains(commandsWithArgument(KindMachine, "in-advance"), string(o.Command))
	hint := phrase.TextIf(mayWait, "; with %s, %s waits for its deletion", o.argumentName("in-advance"), o.Command)
	return cmp.Or(
		phrase.TextIf(
			!drains && !o.ValidInAdvance,
			"machine %s is not being deleted: its phase is %s%s",
			f.Name,
			f.Phase,
			hint,
		),
		phrase.TextIf(f.DrainEnded && ofPods, "the drain of machine %s is over, "+
			"and its deletion is in stage %s: %s would change nothing", f.Name, f.Stage, o.Command),
		phrase.TextIf(o.Command == Extend && late, "the deadline of machine %s has passed, its pods are deleted, "+
			"and nothing is evicted again: extend comes too late", f.Name),
	)
}

// preservationRefusalReason returns why Preserve or Unpreserve has no effect, or an empty string if the command has an
// effect.
func (f MachineFacts) preservationRefusalReason(o CommandOrder) string {
	ended := !f.PreservedUntil.IsZero() && !f.Now.Before(f.PreservedUntil)
	return cmp.Or(
		phrase.TextIf(f.Deleting, "machine %s is being deleted: %s would change nothing", f.Name, o.Command),
		phrase.TextIf(
			f.NodeName != "" && f.NodePreserveValue != "",
			"node %s says %q for machine %s, which counts as long as the node is there: "+
				"annotate the node instead",
			f.NodeName,
			f.NodePreserveValue,
			f.Name,
		),
		phrase.TextIf(
			o.Command == Preserve && ended,
			"the preservation of machine %s has ended at %s, and is being removed: "+
				"try again when it is removed",
			f.Name,
			phrase.ClockText(f.PreservedUntil, f.Now),
		),
		phrase.TextIf(
			o.Command == Preserve && f.PreservedUntil.IsZero() && f.PreservationDuration <= 0,
			"machine %s cannot be preserved: its machinePreserveTimeout is %s",
			f.Name,
			phrase.DurationText(f.PreservationDuration),
		),
	)
}

// decideExtension writes the new deadline of evictions. The new deadline must be later than now, than the present
// deadline, and than an earlier extension.
func (f MachineFacts) decideExtension(o CommandOrder) Decision {
	present, from := f.Deadlines.NextDeadline(), f.Now
	if f.ExtendedUntil.After(present) { // the extension was written before the drain began
		present = f.ExtendedUntil
	}
	if present.After(from) {
		from = present
	}
	until, _ := time.Parse(time.RFC3339, o.ExtendUntil)
	if more, err := time.ParseDuration(o.ExtendFor); err == nil {
		until = from.Add(more)
	}
	until = until.Truncate(time.Second) // the annotation has a precision of one second
	clock := func(t time.Time) string { return phrase.ClockText(t, f.Now) }
	return decisionUnlessRefused(cmp.Or(
		f.noEffectReason(o),
		phrase.TextIf(!until.After(f.Now), "extend until %s is not in the future: it is %s", clock(until), clock(f.Now)),
		phrase.TextIf(
			!until.After(present),
			"extend until %s is not later than the present deadline of machine %s, %s (in %s): "+
				"extend only gives more time",
			clock(until),
			f.Name,
			clock(present),
			phrase.DurationText(present.Sub(f.Now).Truncate(time.Second)),
		),
	), f.annotationDecision(o.timeActorAndReason(until)))
}

// annotationValue returns the value of a command's annotation. For the command extend, the order must have ExtendUntil.
// The values of Preserve and Unpreserve are the values of MCM's annotation, which cannot contain actor and reason.
func (o CommandOrder) annotationValue(now time.Time) string {
	switch o.Command {
	case Preserve:
		return cmp.Or(phrase.TextIf(o.WhenFailed, "when-failed"), "now")
	case Unpreserve:
		return "false"
	case Retry:
		return o.timeActorAndReason(now)
	case Extend:
		until, _ := time.Parse(time.RFC3339, o.ExtendUntil)
		return o.timeActorAndReason(until)
	default:
		return o.actorAndReason()
	}
}

// hasWrittenValue reports whether an annotation's value was written by this order. The value of an extension by a
// duration contains the time of the request, so that a repeated execution does not extend the drain again.
func (o CommandOrder) hasWrittenValue(value string) bool {
	if o.ExtendFor != "" {
		_, value, _ = strings.Cut(value, " ")
		return value == o.actorAndReason()
	}
	return value == o.annotationValue(o.RequestedAt)
}
