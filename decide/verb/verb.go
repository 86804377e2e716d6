// Package verb answers whether a machine may be given a verb, and what that writes on it. A verb is what a person wants of one
// machine, beside its spec: an annotation with who wants it and why. The command line and the workflows ask it alike, so that
// every door opens for the same reasons. It knows no annotation by its key: those who ask do.
package verb

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Verb is the name of a verb, as people give it.
type Verb string

// The verbs. All but the last two steer the deletion of a machine.
const (
	Extend     Verb = "extend"  // evict for longer
	Retry      Verb = "retry"   // ask every pod again at once
	Hold       Verb = "hold"    // stay in the stage of the deletion
	Resume     Verb = "resume"  // take the hold off
	Force      Verb = "force"   // delete all pods without a grace period
	Skip       Verb = "skip"    // do not drain, or not any more
	Release    Verb = "release" // let the object go without asking the provider
	Preserve   Verb = "preserve"
	Unpreserve Verb = "unpreserve" // keep it no longer, and let no set keep it either
)

// The values that the last two write. Source: MCM's annotation, which has no room for who and why.
const (
	keepNow  = "now"
	keepNone = "false"
)

// Names returns all verbs, in the order in which people reach for them.
func Names() []Verb {
	return []Verb{Extend, Retry, Hold, Resume, Force, Skip, Release, Preserve, Unpreserve}
}

// NeedsReason reports whether a verb is refused without a reason.
func (v Verb) NeedsReason() bool { return slices.Contains([]Verb{Hold, Force, Skip, Release}, v) }

// MayWait reports whether a verb that steers a deletion may be given before the machine is deleted.
func (v Verb) MayWait() bool { return slices.Contains([]Verb{Extend, Hold, Force, Skip}, v) }

// ofPods reports whether a verb means nothing when the drain is over.
func (v Verb) ofPods() bool { return slices.Contains([]Verb{Extend, Force, Skip}, v) }

// Door is where an order came in. It only decides how the parts of the order are called when one of them is wrong.
type Door string

// The doors.
const (
	Temporal    Door = "" // a signal or an update, with fields
	CommandLine Door = "command line"
)

// Call is the name of a part of the order, which is given as it is on a command line.
func (d Door) Call(part string) string {
	if d == CommandLine {
		return "--" + part
	}
	first, second, two := strings.Cut(part, "-")
	if two {
		first += strings.ToUpper(second[:1]) + second[1:]
	}
	return first
}

// Order is one verb as somebody gave it. It is a part of histories: fields may be added, never renamed or retyped.
type Order struct {
	Verb      Verb
	Actor     string    `json:",omitempty"` // who wants it; empty counts as somebody
	Reason    string    `json:",omitempty"` // why; people read it wherever the verb acts
	For       string    `json:",omitempty"` // extend: by how much, as a Go duration, from the present deadline or from now where there is none
	Until     string    `json:",omitempty"` // extend: until when, as an RFC 3339 time
	InAdvance bool      `json:",omitempty"` // give it although the machine is not being deleted yet
	Door      Door      `json:",omitempty"`
	UID       string    `json:",omitempty"` // of the machine that is meant; empty: whichever has the name
	Asked     time.Time `json:",omitzero"`  // when it was given, for an order that may be carried out twice; zero: it is carried out once
	Unread    string    `json:",omitempty"` // why nothing of the above could be read; empty when it could
}

// mostWords bounds what people wrote, in bytes. Source: what is told again of an annotation.
const mostWords = 200

// Cleaned returns the order with the words of people each in one line of at most 200 bytes.
func (o Order) Cleaned() Order {
	for _, text := range []*string{(*string)(&o.Verb), &o.Actor, &o.Reason, &o.For, &o.Until, &o.UID, &o.Unread} {
		*text = OneLine(*text)
	}
	return o
}

// Check says why an order makes no sense, whatever the machine is; empty when it does.
func Check(o Order) (refused string) {
	o = o.Cleaned()
	switch {
	case o.Unread != "":
		return "the order cannot be read: " + o.Unread
	case !slices.Contains(Names(), o.Verb):
		return fmt.Sprintf("there is no verb %q: the verbs are %s", o.Verb, list(Names()))
	case o.Verb.NeedsReason() && o.Reason == "":
		return fmt.Sprintf("%s needs a reason for those who come after you: %s TEXT", o.Verb, o.Door.Call("reason"))
	case o.Verb == Extend:
		return o.checkTimes()
	case o.For != "" || o.Until != "":
		return fmt.Sprintf("%s takes no time: %s and %s are for extend", o.Verb, o.Door.Call("for"), o.Door.Call("until"))
	default:
		return ""
	}
}

func (o Order) checkTimes() string {
	byFor, byUntil := o.Door.Call("for"), o.Door.Call("until")
	if (o.For == "") == (o.Until == "") {
		return fmt.Sprintf("extend needs either %s DURATION or %s TIME", byFor, byUntil)
	}
	if o.Until != "" {
		if _, err := time.Parse(time.RFC3339, o.Until); err != nil {
			return fmt.Sprintf("%s is no RFC 3339 time, such as 2026-11-21T18:00:00Z: %v", byUntil, err)
		}
		return ""
	}
	more, err := time.ParseDuration(o.For)
	switch {
	case err != nil:
		return fmt.Sprintf("%s is no duration, such as 1h30m: %v", byFor, err)
	case more < 0:
		return fmt.Sprintf("%s %s would shorten; extend only gives more time", byFor, more)
	case more == 0:
		return fmt.Sprintf("extend needs either %s DURATION or %s TIME", byFor, byUntil)
	default:
		return ""
	}
}

// Meant says that an order is for another machine than the one with this UID; empty when it is for this one.
func Meant(o Order, uid string) (refused string) {
	if o.UID == "" || o.UID == uid {
		return ""
	}
	return fmt.Sprintf("the order is for a machine with UID %s, and this one has UID %s", OneLine(o.UID), uid)
}
