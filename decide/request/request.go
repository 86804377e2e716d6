// Package request answers whether an operator request is carried out, and what it writes. An operator request is a
// command that a person gives for one machine or one deployment, beside its spec, with who wants it and why. The
// command line and the workflows ask it alike, so that both refuse for the same reasons. It knows no annotation by
// its key: the callers do.
package request

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/decide/phrase"
)

// Kind is the kind of object that a request is for, as sentences name it.
type Kind string

// The kinds that take requests.
const (
	Machine           Kind = "machine"
	MachineDeployment Kind = "deployment"
)

// Command is the name of a command, as people give it.
type Command string

// The commands. Those of a machine but the last two concern its deletion, or another drain of its node.
const (
	Extend          Command = "extend"           // evict for longer
	Retry           Command = "retry"            // ask every pod again at once
	Hold            Command = "hold"             // stay in the stage of the deletion
	Resume          Command = "resume"           // end a hold; of a deployment: a pause, too
	Force           Command = "force"            // delete all pods without a grace period
	Skip            Command = "skip"             // do not drain, or end the drain
	AbandonInstance Command = "abandon-instance" // remove the Machine without asking the provider to delete the instance
	Preserve        Command = "preserve"
	Unpreserve      Command = "unpreserve" // end the preservation, and keep the machine's set from preserving it

	Start   Command = "start"   // replace all machines, although nothing else of the template changes
	Pause   Command = "pause"   // roll out no change of the template
	Cancel  Command = "cancel"  // hold the rollout of this revision where it is, or go back
	Undo    Command = "undo"    // go back to a former revision
	Approve Command = "approve" // pass a step of the rollout
)

// Spec says what a command is given with.
type Spec struct {
	Command     Command
	NeedsReason bool
	Arguments   []string // that it accepts, as flags are called; besides who, why, and a UID
}

// Specs returns the commands of a kind, the most used ones first.
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

// Order is one request as somebody made it. It stands in histories: fields may be added, never renamed or retyped.
type Order struct {
	Command   Command   `json:"command"`
	Actor     string    `json:"actor,omitempty"`     // who wants it; empty counts as somebody
	Reason    string    `json:"reason,omitempty"`    // why; no secrets: it is shown wherever the command acts
	UID       string    `json:"uid,omitempty"`       // of the object that is meant; empty: whichever has the name
	For       string    `json:"for,omitempty"`       // a Go duration, from the present deadline or else from now
	Until     string    `json:"until,omitempty"`     // an RFC 3339 time
	InAdvance bool      `json:"inAdvance,omitempty"` // write it although the machine is not being deleted yet
	Revision  *int64    `json:"revision,omitempty"`  // to go back to (nil, 0: the one before), or that is meant (nil: any)
	Back      bool      `json:"back,omitempty"`      // go back instead of holding the rollout
	Steps     int       `json:"steps,omitempty"`     // how many are passed in all; 0: up to the one it waits at
	Asked     time.Time `json:"asked,omitzero"`      // when it was made; zero: nobody carries it out twice
	Unread    string    `json:"unread,omitempty"`    // why the request could not be read; empty when it could
	Flags     bool      `json:"-"`                   // it came from a command line: refusals name its flags
}

// Cleaned returns the order with each text that people wrote in one line of at most 200 bytes.
func (o Order) Cleaned() Order {
	for _, text := range []*string{(*string)(&o.Command), &o.Actor, &o.Reason, &o.UID, &o.For, &o.Until, &o.Unread} {
		*text = strings.Join(strings.Fields(strings.ToValidUTF8(*text, "")), " ")
		*text = strings.ToValidUTF8((*text)[:min(len(*text), mostWords)], "")
	}
	return o
}

// takers are the commands of a kind that accept an argument; all commands where the argument is empty.
func takers(kind Kind, argument string) (names []string) {
	for _, s := range Specs(kind) {
		if argument == "" || slices.Contains(s.Arguments, argument) {
			names = append(names, string(s.Command))
		}
	}
	return names
}

// Check says why an order makes no sense for any object of a kind, or is not for the one with this UID; empty when
// all is well. An empty UID is one that is not known yet.
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
		phrase.If(number(o.Revision) < 0, "%d is no revision: revisions count from 1", number(o.Revision)),
		phrase.If(o.Steps < 0, "%s is %d, and no number of steps", o.called("steps"), o.Steps),
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
		phrase.If(o.For != "" && err != nil, "%s is no duration, such as 1h30m: %v", byFor, err),
		phrase.If(more < 0, "%s %s would shorten; extend only gives more time", byFor, more),
		phrase.If(o.Until != "" && unread != nil, "%s is no RFC 3339 time, such as 2026-11-21T18:00:00Z: %v", byUntil, unread),
	)
}

// Facts are what is known of the object that a request is for: MachineFacts or DeploymentFacts.
type Facts interface {
	object() (kind Kind, uid string)
	decide(o Order) Decision
}

// Decision is the answer to a request, and what it writes: each field that is not nil. What is refused, or the Same,
// writes nothing.
type Decision struct {
	Refused     string  // why not, in one sentence; empty when it is carried out
	Same        bool    // it was carried out before: nothing has to be written
	Says        string  // what is written, in a sentence without its full stop; empty when it was refused
	Annotation  *string // value of the command's annotation; empty: the annotation is removed
	Paused      *bool
	RollbackTo  *int64
	RestartedAt *string // in the template
	Record      string  // of a deployment: by what this order is known when it is carried out again
}

// unless is the decision, or the refusal where there is a reason for one.
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

// Decide says what an order writes on an object, or why it is refused: it makes no sense, the object has no use for
// it, or it comes too late. An order that may be carried out twice is not refused for what it brought about the first
// time, and does not bring it about again.
func Decide(o Order, f Facts) Decision {
	o = o.Cleaned()
	kind, uid := f.object()
	return unless(Check(kind, uid, o), f.decide(o))
}

// Bounds of what is repeated of a request.
const (
	mostWords     = 200 // bytes of each text that people wrote. Source: what is repeated of an annotation
	mostRevisions = 10  // that a sentence names
)

// Summary says who requested what, and why.
func (o Order) Summary() string {
	o = o.Cleaned()
	return cmp.Or(o.Actor, "somebody") + " requested " + cmp.Or(string(o.Command), "?") + phrase.If(o.Back, " and return") +
		phrase.If(o.Revision != nil, " (revision %d)", number(o.Revision)) + phrase.If(o.Steps != 0, " (steps: %d)", o.Steps) +
		phrase.If(o.Reason != "", ": %s", o.Reason)
}

// words say who wants it, and why. An extension from the present deadline has its time among them.
func (o Order) words() string {
	at := phrase.If(o.For != "" && !o.Asked.IsZero(), " (at %s)", o.Asked.UTC().Format(time.RFC3339Nano))
	return cmp.Or(o.Actor, "somebody") + at + phrase.If(o.Reason != "", ": %s", o.Reason)
}

// stamped is a time in whole seconds, with who wants it and why.
func (o Order) stamped(t time.Time) string { return t.UTC().Format(time.RFC3339) + " " + o.words() }

// called is how whoever made the request writes the name of an argument.
func (o Order) called(argument string) string {
	if o.Flags {
		return "--" + argument
	}
	return strings.Replace(argument, "in-advance", "inAdvance", 1)
}

// number is a revision, or 0 where none is given.
func number(revision *int64) int64 { return *cmp.Or(revision, new(int64)) }

// rollout names the rollout that is under way.
func (f DeploymentFacts) rollout() string {
	return fmt.Sprintf("the rollout of revision %d of deployment %s", f.Revision, f.Name)
}

// former lists the former revisions, the newest first.
func (f DeploymentFacts) former() string {
	sorted := slices.Sorted(slices.Values(f.Revisions))
	slices.Reverse(sorted)
	newest := sorted[:min(len(sorted), mostRevisions)]
	text := strings.ReplaceAll(strings.Trim(fmt.Sprint(newest), "[]"), " ", ", ")
	return text + phrase.If(len(sorted) > len(newest), " and %d older ones", len(sorted)-len(newest))
}
