// Package request decides whether an operator request is carried out, and what it writes. An operator request is a
// command for one machine or one deployment, with who gives it and why. The command line and the workflows both ask
// this package, so that both refuse for the same reasons. It does not know the keys of annotations.
package request

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// Kind is the kind of object that a request is for, as messages name it.
type Kind string

// The kinds that take requests.
const (
	Machine           Kind = "machine"
	MachineDeployment Kind = "deployment"
)

// Command is the name of a command.
type Command string

// The commands. Those of a machine, except the last two, are for its deletion or another drain of its node.
const (
	Extend          Command = "extend"           // evict for longer
	Retry           Command = "retry"            // end all pauses between requests for pods
	Hold            Command = "hold"             // stay in the present stage of the deletion
	Resume          Command = "resume"           // end a hold; of a deployment also a pause
	Force           Command = "force"            // delete all pods without a grace period
	Skip            Command = "skip"             // do not drain, or end the drain
	AbandonInstance Command = "abandon-instance" // remove the Machine without asking the provider to delete the instance
	Preserve        Command = "preserve"         // keep the machine for inspection, also when it fails
	Unpreserve      Command = "unpreserve"       // end the preservation, and forbid the machine's set to preserve it

	Start   Command = "start"   // replace all machines without another change of the template
	Pause   Command = "pause"   // do not roll out changes of the template
	Cancel  Command = "cancel"  // hold the rollout of this revision, or return to a former one
	Undo    Command = "undo"    // return to a former revision
	Approve Command = "approve" // approve the end of a rollout step
)

// Spec says what a command takes.
type Spec struct {
	Command     Command
	NeedsReason bool
	Arguments   []string // names of the flags that it accepts besides actor, reason and UID
}

// Specs returns the commands of a kind, the most used first.
func Specs(kind Kind) []Spec {
	if kind == MachineDeployment {
		return []Spec{
			{Start, false, nil},
			{Pause, false, nil},
			{Resume, false, nil},
			{Cancel, true, []string{"revision", "back"}},
			{Undo, false, []string{"revision"}},
			{Approve, false, []string{"revision", "steps"}},
		}
	}
	return []Spec{
		{Extend, false, []string{"for", "until", "in-advance"}},
		{Retry, false, nil},
		{Hold, true, []string{"in-advance"}},
		{Resume, false, nil},
		{Force, true, []string{"in-advance"}},
		{Skip, true, []string{"in-advance"}},
		{AbandonInstance, true, nil},
		{Preserve, false, nil},
		{Unpreserve, false, nil},
	}
}

// Order is a request. It is recorded in histories: fields may be added, but never renamed or retyped.
type Order struct {
	Command Command `json:"command"`          // what is asked for
	Actor   string  `json:"actor,omitempty"`  // who requests it; empty counts as somebody
	Reason  string  `json:"reason,omitempty"` // why; must contain no secret, because it is shown
	UID     string  `json:"uid,omitempty"`    // of the object; empty: any object of that name
	// extension as a Go duration: from the present deadline, or from now if there is none
	For       string `json:"for,omitempty"`
	Until     string `json:"until,omitempty"`     // an RFC 3339 time
	InAdvance bool   `json:"inAdvance,omitempty"` // for a machine that is not being deleted yet, too
	// revision to return to (0: the one before), or that the request is for (nil: any)
	Revision *int64    `json:"revision,omitempty"`
	Back     bool      `json:"back,omitempty"`   // return to a former revision instead of holding the rollout
	Steps    int       `json:"steps,omitempty"`  // number of steps approved in all; 0: up to the pause point
	Asked    time.Time `json:"asked,omitzero"`   // when it was requested; zero: the order is never repeated
	Unread   string    `json:"unread,omitempty"` // why the request could not be parsed; empty: it could
	Flags    bool      `json:"-"`                // it came from the command line: refusals name flags
}

// Cleaned returns the order with each text in one line of at most 200 bytes.
func (o Order) Cleaned() Order {
	for _, text := range []*string{(*string)(&o.Command), &o.Actor, &o.Reason, &o.UID, &o.For, &o.Until, &o.Unread} {
		*text = strings.Join(strings.Fields(strings.ToValidUTF8(*text, "")), " ")
		*text = strings.ToValidUTF8((*text)[:min(len(*text), mostWords)], "")
	}
	return o
}

// takers returns the commands of a kind that accept an argument; all commands if the argument is empty.
func takers(kind Kind, argument string) []string {
	accept := func(s Spec) bool { return argument == "" || slices.Contains(s.Arguments, argument) }
	return list.Map(list.Where(Specs(kind), accept), func(s Spec) string { return string(s.Command) })
}

// Check says why an order is invalid for every object of the kind, or is for another object than the one with this UID;
// empty: it is valid. uid is empty while it is not known.
func Check(kind Kind, uid string, o Order) (refused string) {
	o = o.Cleaned()
	specs := Specs(kind)
	at := slices.IndexFunc(specs, func(s Spec) bool { return s.Command == o.Command })
	switch {
	case o.Unread != "":
		return "the request cannot be read: " + o.Unread
	case at < 0:
		return fmt.Sprintf("there is no command %q: the commands are %s", o.Command, strings.Join(takers(kind, ""), ", "))
	}
	given := []bool{o.For != "", o.Until != "", o.InAdvance, o.Revision != nil, o.Back, o.Steps != 0}
	for i, argument := range []string{"for", "until", "in-advance", "revision", "back", "steps"} {
		if given[i] && !slices.Contains(specs[at].Arguments, argument) {
			others := takers(kind, argument)
			return fmt.Sprintf("%s does not take %q", o.Command, o.called(argument)) +
				phrase.If(len(others) > 0, ": it is for %s", strings.Join(others, ", "))
		}
	}
	return cmp.Or(
		phrase.If(specs[at].NeedsReason && o.Reason == "", "%s needs a reason: %s TEXT", o.Command, o.called("reason")),
		phrase.If(number(o.Revision) < 0, "%d is not a revision: revisions count from 1", number(o.Revision)),
		phrase.If(o.Steps < 0, "%s is %d: steps count from 1", o.called("steps"), o.Steps),
		phrase.If(o.UID != "" && uid != "" && o.UID != uid,
			"the request is for a %s with UID %s, and this one has UID %s", kind, o.UID, uid),
		phrase.If(o.Command == Extend, "%s", o.checkTimes()),
	)
}

func (o Order) checkTimes() string {
	more, err := time.ParseDuration(o.For)
	_, unread := time.Parse(time.RFC3339, o.Until)
	byFor, byUntil := o.called("for"), o.called("until")
	return cmp.Or(
		phrase.If((o.For == "") == (o.Until == "") || err == nil && more == 0,
			"extend needs either %s DURATION or %s TIME", byFor, byUntil),
		phrase.If(o.For != "" && err != nil, "%s is not a duration such as 1h30m: %v", byFor, err),
		phrase.If(more < 0, "%s %s would shorten the drain; extend only gives more time", byFor, phrase.Length(more)),
		phrase.If(
			o.Until != "" && unread != nil,
			"%s is not an RFC 3339 time such as 2026-11-21T18:00:00Z: %v",
			byUntil,
			unread,
		),
	)
}

// Facts describe the object that a request is for: MachineFacts or DeploymentFacts.
type Facts interface {
	object() (kind Kind, uid string)
	decide(o Order) Decision
}

// Decision is the answer to a request, and what it writes: each field that is not nil. If it is Refused or the Same, it
// writes nothing.
type Decision struct {
	Refused     string  // why it is refused, in one sentence; empty: it is not
	Same        bool    // the order was carried out before: nothing is written
	Says        string  // what is written, in one sentence without a full stop; empty if Refused
	Annotation  *string // value of the command's annotation; empty: the annotation is removed
	Paused      *bool
	RollbackTo  *int64
	RestartedAt *string // restart time, for the template or for spec.rollout.after
	Record      string  // of a deployment: identifies this order if it is carried out again
}

// unless returns a refusal if there is a reason for one, and d otherwise.
func unless(why string, d Decision) Decision {
	if why != "" {
		return Decision{Refused: why}
	}
	return d
}

func refused(format string, values ...any) Decision {
	return Decision{Refused: fmt.Sprintf(format, values...)}
}

func same(format string, values ...any) Decision {
	return Decision{Same: true, Says: fmt.Sprintf(format, values...)}
}

// Decide says what an order writes on an object, or why it is refused: it is invalid, it would have no effect, or it is
// too late. An order with a time Asked may be carried out again: it is then not refused because of its own first
// effect, and has no second effect.
func Decide(o Order, f Facts) Decision {
	o = o.Cleaned()
	kind, uid := f.object()
	return unless(Check(kind, uid, o), f.decide(o))
}

// Bounds of the parts of a request that are shown.
const (
	mostWords     = 200 // bytes of each text that people wrote. Source: as for annotations that are shown
	mostRevisions = 10  // revisions that a sentence names
)

// Summary says who requested what, and why.
func (o Order) Summary() string {
	o = o.Cleaned()
	return cmp.Or(o.Actor, "somebody") + " requested " + cmp.Or(string(o.Command), "?") +
		phrase.If(o.Back, " and return") +
		phrase.If(o.Revision != nil, " (revision %d)", number(o.Revision)) +
		phrase.If(o.Steps != 0, " (steps: %d)", o.Steps) +
		phrase.If(o.Reason != "", ": %s", o.Reason)
}

// words says who requests it and why. For an extension by a duration it includes the time of the request.
func (o Order) words() string {
	at := phrase.If(o.For != "" && !o.Asked.IsZero(), " (at %s)", o.Asked.UTC().Format(time.RFC3339Nano))
	return cmp.Or(o.Actor, "somebody") + at + phrase.If(o.Reason != "", ": %s", o.Reason)
}

// stamped returns a time in whole seconds, with who requests it and why.
func (o Order) stamped(t time.Time) string { return t.UTC().Format(time.RFC3339) + " " + o.words() }

// called returns the name of an argument as the sender writes it: a flag or a field.
func (o Order) called(argument string) string {
	if o.Flags {
		return "--" + argument
	}
	return strings.Replace(argument, "in-advance", "inAdvance", 1)
}

// number returns a revision, or 0 for nil.
func number(revision *int64) int64 { return *cmp.Or(revision, new(int64)) }

// rollout names the rollout in messages.
func (f DeploymentFacts) rollout() string {
	return fmt.Sprintf("the rollout of revision %d of deployment %s", f.Revision, f.Name)
}

// former lists the former revisions, the newest first.
func (f DeploymentFacts) former() string {
	newestFirst := list.Sorted(f.Revisions, func(a, b int64) int { return cmp.Compare(b, a) })
	return phrase.List(
		list.Map(newestFirst, func(revision int64) string { return fmt.Sprint(revision) }),
		mostRevisions,
		", ",
	)
}
