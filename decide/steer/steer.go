// Package steer answers whether people may change the rollout of a deployment, and what each of their verbs writes on it. The
// command line and the workflows ask it alike, so that every door opens for the same reasons. It knows no annotation by its
// key: those who ask do.
package steer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/decide/verb"
)

// Verb is the name of a verb, as people give it.
type Verb string

// The verbs.
const (
	Start   Verb = "start"   // make all machines anew, although nothing else of the template changes
	Pause   Verb = "pause"   // roll no change of the template out
	Resume  Verb = "resume"  // take a pause off, and a hold
	Cancel  Verb = "cancel"  // hold the rollout of this revision where it is, or go back
	Undo    Verb = "undo"    // go back to a former revision
	Approve Verb = "approve" // pass a stage
)

// Names returns all verbs, in the order in which people reach for them.
func Names() []Verb { return []Verb{Start, Pause, Resume, Cancel, Undo, Approve} }

// NeedsReason reports whether a verb is refused without a reason.
func (v Verb) NeedsReason() bool { return v == Cancel }

// Order is one verb as somebody gave it. It is a part of histories: fields may be added, never renamed or retyped.
type Order struct {
	Verb   Verb
	Actor  string `json:",omitempty"` // who wants it; empty counts as somebody
	Reason string `json:",omitempty"` // why; people read it wherever the verb acts
	// Revision to go back to: undo, and cancel with Back; nil and 0 mean the one before. Of approve and of cancel without Back
	// it is the revision that is meant; nil: whichever is rolled out.
	Revision *int64    `json:",omitempty"`
	Back     bool      `json:",omitempty"` // cancel: do not hold the rollout, but go back
	Stages   int       `json:",omitempty"` // approve: how many stages are passed in all, reached or not; 0: up to the one it waits at
	Door     verb.Door `json:",omitempty"`
	UID      string    `json:",omitempty"` // of the deployment that is meant; empty: whichever has the name
	Asked    time.Time `json:",omitzero"`  // when it was given, for an order that may be carried out twice; zero: it is carried out once
	Unread   string    `json:",omitempty"` // why nothing of the above could be read; empty when it could
}

// Cleaned returns the order with the words of people each in one line of at most 200 bytes.
func (o Order) Cleaned() Order {
	for _, text := range []*string{(*string)(&o.Verb), &o.Actor, &o.Reason, &o.UID, &o.Unread} {
		*text = verb.OneLine(*text)
	}
	return o
}

// Check says why an order makes no sense, whatever the deployment is; empty when it does.
func Check(o Order) (refused string) {
	o = o.Cleaned()
	switch {
	case o.Unread != "":
		return "the order cannot be read: " + o.Unread
	case !slices.Contains(Names(), o.Verb):
		return fmt.Sprintf("there is no verb %q: the verbs are %s", o.Verb, list(Names()))
	case o.Verb.NeedsReason() && o.Reason == "":
		return fmt.Sprintf("%s needs a reason for those who come after you: %s TEXT", o.Verb, o.Door.Call("reason"))
	case o.Revision != nil && !slices.Contains([]Verb{Cancel, Undo, Approve}, o.Verb):
		return fmt.Sprintf("%s takes no revision: that is for cancel, undo and approve", o.Verb)
	case o.Revision != nil && *o.Revision < 0:
		return fmt.Sprintf("%d is no revision: they count from 1", *o.Revision)
	case o.Back && o.Verb != Cancel:
		return fmt.Sprintf("%s cannot go back: %s is for cancel", o.Verb, o.Door.Call("back"))
	case o.Stages != 0 && o.Verb != Approve:
		return fmt.Sprintf("%s passes no stages: %s is for approve", o.Verb, o.Door.Call("stages"))
	case o.Stages < 0:
		return fmt.Sprintf("%s is %d, and no number of stages", o.Door.Call("stages"), o.Stages)
	default:
		return ""
	}
}

// Meant says that an order is for another deployment than the one with this UID; empty when it is for this one.
func Meant(o Order, uid string) (refused string) {
	if o.UID == "" || o.UID == uid {
		return ""
	}
	return fmt.Sprintf("the order is for a deployment with UID %s, and this one has UID %s", verb.OneLine(o.UID), uid)
}

func list(verbs []Verb) string {
	names := make([]string, len(verbs))
	for i, v := range verbs {
		names[i] = string(v)
	}
	return strings.Join(names, ", ")
}
