// Package preserve answers whether a machine is kept on purpose, until when, and what its node, its annotations and its
// status have yet to say of that. Preservation is a state with a recorded end: from the moment at which the end is on
// record nothing moves it, and it is over when that end has come or the wish for it is gone.
package preserve

import (
	"strings"
	"time"
)

// Facts is what the API servers say of a machine and its node.
type Facts struct {
	OnMachine   Annotation // the machine's own wish
	OnNode      Annotation // the node's
	LastApplied Annotation // the node's wish that was honoured last, as the machine remembers it
	NodeExists  bool       // false: all that is said of a node is zero
	Deleting    bool       // the machine is to go: it is not preserved, and nothing is tidied up on what goes with it
	Failed      bool       // the machine's phase
	Drained     string     // how the drain of its node ended in this preservation; empty before

	Expiry  time.Time     // the end that is on record; zero means not preserved
	Timeout time.Duration // how long a preservation lasts that begins now; zero means that nothing is kept
	Now     time.Time     // zero means that no end is judged: whoever asks knows no time

	ScaleDownDisabled Annotation // on the node: the cluster autoscaler must not remove it
	DisabledByUs      Annotation // on the node: with the text true it proves that we disabled it
	Tainted           bool       // the node has the taint of preserved nodes
	Condition         *Condition // Preserved, on the node; nil when it has none
}

// Annotation is one annotation of an object. Where it is not there, its text is empty.
type Annotation struct {
	Present bool
	Text    string
}

// Decide says whether a machine is preserved and what is to change so that everything says so. Of steps that were made
// already it says nothing, so that what was interrupted goes on where it stopped.
//
// For a machine that is about to fail it is asked with Failed set: then it says whether the machine is kept, and the end
// that is to be written together with the phase.
func Decide(f Facts) Decision {
	value, known := f.wish()
	switch {
	case f.Deleting:
		return Decision{}
	case !known && f.expired(): // what nobody can read keeps nothing for ever
		return release(f, value, verdict{because: "its time is over"})
	case !known && f.Expiry.IsZero():
		return Decision{}
	case !known:
		return Decision{Preserve: true, Expiry: f.Expiry}
	}
	if v := f.judge(value); !v.preserve {
		return release(f, value, v)
	}
	return keep(f, value)
}

// Protected reports whether a Failed machine is kept from those who replace failed machines. While an end is on record
// that alone counts; else it is the wish. Deletions that somebody asked for are not in question.
func Protected(f Facts) bool {
	if !f.Expiry.IsZero() {
		return !f.expired()
	}
	f.Failed = true
	value, known := f.wish()
	return known && f.judge(value).preserve
}

// expired reports whether the end on record has come. A time that is not known is before any end.
func (f Facts) expired() bool { return !f.Expiry.IsZero() && !f.Now.Before(f.Expiry) }

// verdict is what a wish comes to.
type verdict struct {
	preserve bool
	forget   bool   // the wish was fulfilled: it goes too, so that it does not begin anew
	because  string // why the machine is not preserved
}

func (f Facts) judge(value string) verdict {
	asked := value == ValueNow || f.Failed && (value == ValueWhenFailed || value == ValueAuto)
	over := f.expired() || asked && f.Expiry.IsZero() && f.Timeout <= 0 // it would end when it begins
	switch {
	case value == ValueFalse:
		return verdict{because: "the annotation says false"}
	case over:
		return verdict{forget: true, because: "its time is over"}
	case asked:
		return verdict{preserve: true}
	case value == "":
		return verdict{because: "nobody asks for it"}
	default: // auto-preserved is the answer to one failure, when-failed a wish for all of them
		return verdict{forget: value == ValueAuto, because: "the machine has not failed"}
	}
}

// keep makes everything say that the machine is preserved. Without a node only its status does.
func keep(f Facts, value string) Decision {
	d := Decision{Value: value, Preserve: true, Expiry: f.Expiry}
	l := ledger{Decision: &d}
	if f.Expiry.IsZero() {
		d.StatusChange = true
		l.because("its end is not on record")
		if !f.Now.IsZero() {
			d.Expiry = end(f.Now, f.Timeout)
		}
	}
	if f.NodeExists {
		l.mark(f)
	}
	if !d.Expiry.IsZero() {
		l.declare(f)
	}
	l.remember(f, false)
	l.close("preserved (" + value + ")")
	return d
}

// end returns when a preservation ends that begins now: after the timeout and not a moment earlier, in whole seconds, as
// the API keeps times.
func end(now time.Time, timeout time.Duration) time.Time {
	exact := now.Add(timeout).UTC()
	whole := exact.Truncate(time.Second)
	if whole.Before(exact) {
		whole = whole.Add(time.Second)
	}
	return whole
}

// release takes back what says that the machine is preserved. The end on record goes last: until then it shows that there
// is something to take back. The marks for the autoscaler do not show that, because rollouts use them as well.
func release(f Facts, value string, v verdict) Decision {
	d := Decision{Value: value, StatusChange: !f.Expiry.IsZero()}
	l := ledger{Decision: &d}
	state := "not preserved, as " + v.because
	if d.StatusChange || f.Tainted || f.Condition != nil && f.Condition.True {
		state = "no longer preserved, as " + v.because
		l.revoke(f, v.because)
		l.unmark(f)
	}
	l.remember(f, v.forget)
	if d.StatusChange {
		l.because("its end is still on record")
	}
	l.close(state)
	return d
}

// ledger notes in a decision what is to change, and why.
type ledger struct {
	*Decision
	reasons []string
}

func (l *ledger) because(reason string) { l.reasons = append(l.reasons, reason) }

func (l *ledger) close(state string) {
	if len(l.reasons) > 0 {
		l.Why = state + ": " + strings.Join(l.reasons, ", ")
	}
}
