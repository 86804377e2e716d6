// Package request decides whether an operator request is executed, and what the request writes. An operator request is
// a command for one machine or one deployment, with an actor and a reason. The command line and the workflows both call
// this package, so both refuse requests for the same reasons. The package contains no annotation keys.
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

// The kinds of objects for which requests exist.
const (
	KindMachine           Kind = "machine"
	KindMachineDeployment Kind = "deployment"
)

// Command is the name of a command.
type Command string

// The commands that operators can request. The commands for a machine affect the machine's deletion or another drain of
// its node, except the last two commands.
const (
	Extend          Command = "extend"           // extend the deadline for evictions
	Retry           Command = "retry"            // evict the pods at once; for a deployment, end the pin and roll out again
	Hold            Command = "hold"             // keep the deletion in its present stage
	Resume          Command = "resume"           // end a hold; for a deployment, also end a pause
	Force           Command = "force"            // delete all pods without a grace period
	Skip            Command = "skip"             // skip or end the drain
	AbandonInstance Command = "abandon-instance" // remove the Machine; the provider does not delete the instance
	Preserve        Command = "preserve"         // keep the machine for inspection, even if the machine fails
	Unpreserve      Command = "unpreserve"       // end the preservation, also by the set

	Start   Command = "start"   // replace all machines without a change of the template
	Pause   Command = "pause"   // stop the rollout of template changes
	Cancel  Command = "cancel"  // stop the rollout of this revision, or roll back to an earlier revision
	Undo    Command = "undo"    // roll back to an earlier revision
	Approve Command = "approve" // approve the end of a rollout step
)

// CommandSpec describes a command.
type CommandSpec struct {
	Command     Command
	NeedsReason bool
	Arguments   []string // names of the flags that the command accepts besides actor, reason and UID
}

// CommandSpecs returns the commands of a kind, with the most frequent commands first.
func CommandSpecs(kind Kind) []CommandSpec {
	if kind == KindMachineDeployment {
		return []CommandSpec{
			{Start, false, nil},
			{Pause, false, nil},
			{Resume, false, nil},
			{Cancel, true, []string{"revision", "back"}},
			{Undo, false, []string{"revision", "pin"}},
			{Retry, false, []string{"revision"}},
			{Approve, false, []string{"revision", "steps"}},
		}
	}
	return []CommandSpec{
		{Extend, false, []string{"for", "until", "in-advance"}},
		{Retry, false, nil},
		{Hold, true, []string{"in-advance"}},
		{Resume, false, nil},
		{Force, true, []string{"in-advance"}},
		{Skip, true, []string{"in-advance"}},
		{AbandonInstance, true, nil},
		{Preserve, false, []string{"when-failed"}},
		{Unpreserve, false, nil},
	}
}

// CommandOrder is a request. CommandOrder is recorded in histories: fields may be added, but never renamed or retyped.
type CommandOrder struct {
	Command Command `json:"command"`         // name of the command
	Actor   string  `json:"actor,omitempty"` // who requests the command; empty: not known
	// reason for the request; must not contain a secret, because the reason is displayed
	Reason string `json:"reason,omitempty"`
	UID    string `json:"uid,omitempty"` // UID of the object; empty: the request is for any object with the name
	// extension as a Go duration, counted from the present deadline, or from now without a deadline
	ExtendFor      string `json:"for,omitempty"`
	ExtendUntil    string `json:"until,omitempty"`     // end of the extension as an RFC 3339 time
	ValidInAdvance bool   `json:"inAdvance,omitempty"` // also valid for a machine that is not being deleted yet
	// revision to roll back to (0: the previous revision), or revision that the request is for (nil: any)
	Revision          *int64    `json:"revision,omitempty"`
	RollsBack         bool      `json:"back,omitempty"`       // roll back to an earlier revision instead of stopping the rollout
	PinsMachines      bool      `json:"pin,omitempty"`        // keep the template, and pin the machines to the earlier revision
	ApprovedStepCount int       `json:"steps,omitempty"`      // total number of approved steps; 0: up to the pause point
	WhenFailed        bool      `json:"whenFailed,omitempty"` // preserve the machine when it fails, and not before
	RequestedAt       time.Time `json:"asked,omitzero"`       // time of the request; zero: the order is executed only once
	ParseError        string    `json:"unread,omitempty"`     // why the request could not be parsed; empty: the request was parsed
	FromCommandLine   bool      `json:"-"`                    // the order came from the command line, so refusals name flags
}

// WithCleanTexts returns the order with each text in one line of at most 200 bytes.
func (o CommandOrder) WithCleanTexts() CommandOrder {
	for _, text := range []*string{(*string)(&o.Command), &o.Actor, &o.Reason, &o.UID, &o.ExtendFor, &o.ExtendUntil, &o.ParseError} {
		*text = strings.Join(strings.Fields(strings.ToValidUTF8(*text, "")), " ")
		*text = strings.ToValidUTF8((*text)[:min(len(*text), maxTextBytes)], "")
	}
	return o
}

// commandsWithArgument returns the commands of a kind that accept an argument; all commands if the argument is empty.
func commandsWithArgument(kind Kind, argument string) []string {
	accept := func(s CommandSpec) bool { return argument == "" || slices.Contains(s.Arguments, argument) }
	return list.Map(list.Filter(CommandSpecs(kind), accept), func(s CommandSpec) string { return string(s.Command) })
}

// CheckOrder returns why an order is invalid for every object of the kind, or is for an object with another UID. If the
// reason is empty, the order is valid. An empty uid means that the UID is not known.
func CheckOrder(kind Kind, uid string, o CommandOrder) (refused string) {
	o = o.WithCleanTexts()
	specs := CommandSpecs(kind)
	at := slices.IndexFunc(specs, func(s CommandSpec) bool { return s.Command == o.Command })
	switch {
	case o.ParseError != "":
		return "the request cannot be read: " + o.ParseError
	case at < 0:
		return fmt.Sprintf(
			"there is no command %q: the commands are %s",
			o.Command,
			strings.Join(commandsWithArgument(kind, ""), ", "),
		)
	}
	given := []bool{
		o.ExtendFor != "",
		o.ExtendUntil != "",
		o.ValidInAdvance,
		o.Revision != nil,
		o.RollsBack,
		o.ApprovedStepCount != 0,
		o.PinsMachines,
		o.WhenFailed,
	}
	for i, argument := range []string{"for", "until", "in-advance", "revision", "back", "steps", "pin", "when-failed"} {
		if given[i] && !slices.Contains(specs[at].Arguments, argument) {
			others := commandsWithArgument(kind, argument)
			return fmt.Sprintf("%s does not take %q", o.Command, o.argumentName(argument)) +
				phrase.TextIf(len(others) > 0, ": it is for %s", strings.Join(others, ", "))
		}
	}
	return cmp.Or(
		phrase.TextIf(
			specs[at].NeedsReason && o.Reason == "",
			"%s needs a reason: %s TEXT",
			o.Command,
			o.argumentName("reason"),
		),
		phrase.TextIf(
			revisionOrZero(o.Revision) < 0,
			"%d is not a revision: revisions count from 1",
			revisionOrZero(o.Revision),
		),
		phrase.TextIf(o.ApprovedStepCount < 0, "%s is %d: steps count from 1", o.argumentName("steps"), o.ApprovedStepCount),
		phrase.TextIf(o.UID != "" && uid != "" && o.UID != uid,
			"the request is for a %s with UID %s, and this one has UID %s", kind, o.UID, uid),
		phrase.TextIf(o.Command == Extend, "%s", o.extensionProblem()),
	)
}

func (o CommandOrder) extensionProblem() string {
	more, err := time.ParseDuration(o.ExtendFor)
	_, unread := time.Parse(time.RFC3339, o.ExtendUntil)
	byFor, byUntil := o.argumentName("for"), o.argumentName("until")
	return cmp.Or(
		phrase.TextIf((o.ExtendFor == "") == (o.ExtendUntil == "") || err == nil && more == 0,
			"extend needs either %s DURATION or %s TIME", byFor, byUntil),
		phrase.TextIf(o.ExtendFor != "" && err != nil, "%s is not a duration such as 1h30m: %v", byFor, err),
		phrase.TextIf(
			more < 0,
			"%s %s would shorten the drain; extend only gives more time",
			byFor,
			phrase.DurationText(more),
		),
		phrase.TextIf(
			o.ExtendUntil != "" && unread != nil,
			"%s is not an RFC 3339 time such as 2026-11-21T18:00:00Z: %v",
			byUntil,
			unread,
		),
	)
}

// Facts holds the facts about the object of a request: MachineFacts or DeploymentFacts.
type Facts interface {
	kindAndUID() (kind Kind, uid string)
	decideOrder(o CommandOrder) Decision
}

// Decision is the answer to a request. Each field of a Decision that is not nil is written. If RefusalReason is set, or
// Repeated is true, nothing is written.
type Decision struct {
	RefusalReason   string  // why the request is refused, in one sentence; empty: the request is accepted
	Repeated        bool    // the order was executed before, so nothing is written now
	Message         string  // what is written, in one sentence without a full stop; empty if Refused is set
	AnnotationValue *string // new value of the command's annotation; empty: the annotation is removed
	Paused          *bool
	RollbackTo      *int64
	PinRevision     *int64  // revision to which Annotation pins the deployment
	RemovesPin      bool    // the request for a pin is removed
	RemovesHold     bool    // the hold is removed
	RestartedAt     *string // restart time, for the template or for spec.rollout.after
	Record          string  // for a deployment: identifies a repeated execution of the same order
}

// decisionUnlessRefused returns a refusal with the reason why, or d if why is empty.
func decisionUnlessRefused(why string, d Decision) Decision {
	if why != "" {
		return Decision{RefusalReason: why}
	}
	return d
}

func refusedDecision(format string, values ...any) Decision {
	return Decision{RefusalReason: fmt.Sprintf(format, values...)}
}

func repeatedDecision(format string, values ...any) Decision {
	return Decision{Repeated: true, Message: fmt.Sprintf(format, values...)}
}

// Decide returns what an order writes on an object, or why the order is refused. An order is refused if it is invalid,
// has no effect, or comes too late. An order with a time RequestedAt may be executed more than once. A second execution
// is not refused because of the first execution, and changes nothing.
func Decide(o CommandOrder, f Facts) Decision {
	o = o.WithCleanTexts()
	kind, uid := f.kindAndUID()
	return decisionUnlessRefused(CheckOrder(kind, uid, o), f.decideOrder(o))
}

// Limits of the displayed parts of a request.
const (
	maxTextBytes            = 200 // maximum length in bytes of each text by a person, as for displayed annotations
	maxRevisionsPerSentence = 10  // maximum number of revisions that a sentence names
)

// Summary returns a sentence with the command, the actor and the reason.
func (o CommandOrder) Summary() string {
	o = o.WithCleanTexts()
	return cmp.Or(o.Actor, "somebody") + " requested " + cmp.Or(string(o.Command), "?") +
		phrase.TextIf(o.RollsBack, " and return") +
		phrase.TextIf(o.PinsMachines, " by a pin") +
		phrase.TextIf(o.WhenFailed, " when it fails") +
		phrase.TextIf(o.Revision != nil, " (revision %d)", revisionOrZero(o.Revision)) +
		phrase.TextIf(o.ApprovedStepCount != 0, " (steps: %d)", o.ApprovedStepCount) +
		phrase.TextIf(o.Reason != "", ": %s", o.Reason)
}

// actorAndReason returns actor and reason. For an extension by a duration, actorAndReason also contains the time of
// the request.
func (o CommandOrder) actorAndReason() string {
	at := phrase.TextIf(
		o.ExtendFor != "" && !o.RequestedAt.IsZero(),
		" (at %s)",
		o.RequestedAt.UTC().Format(time.RFC3339Nano),
	)
	return cmp.Or(o.Actor, "somebody") + at + phrase.TextIf(o.Reason != "", ": %s", o.Reason)
}

// timeActorAndReason returns a time in whole seconds, with actor and reason.
func (o CommandOrder) timeActorAndReason(t time.Time) string {
	return t.UTC().Format(time.RFC3339) + " " + o.actorAndReason()
}

// argumentName returns the name of an argument as the sender wrote it: a flag or a field.
func (o CommandOrder) argumentName(argument string) string {
	if o.FromCommandLine {
		return "--" + argument
	}
	return strings.NewReplacer("in-advance", "inAdvance", "when-failed", "whenFailed").Replace(argument)
}

// revisionOrZero returns a revision, or 0 for nil.
func revisionOrZero(revision *int64) int64 { return *cmp.Or(revision, new(int64)) }

// rolloutName returns the name of the rollout for messages.
func (f DeploymentFacts) rolloutName() string {
	return fmt.Sprintf("the rollout of revision %d of deployment %s", f.Revision, f.Name)
}

// earlierRevisionsText returns the list of earlier revisions for messages, the newest first.
func (f DeploymentFacts) earlierRevisionsText() string {
	newestFirst := list.SortedCopy(f.EarlierRevisions, func(a, b int64) int { return cmp.Compare(b, a) })
	return phrase.JoinNames(
		list.Map(newestFirst, func(revision int64) string { return fmt.Sprint(revision) }),
		maxRevisionsPerSentence,
		", ",
	)
}
