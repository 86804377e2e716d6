// Package preserve answers whether a machine is kept on purpose, until when, and what its node, its annotations and its
// status have yet to say of that. Preservation is a state with a recorded end: from the moment at which the end is on
// record nothing moves it, and it is over when that end has come or the wish for it is gone.
package preserve

import (
	"cmp"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/nodesync"
)

// Facts is what the API servers say of a machine and its node.
type Facts struct {
	OnMachine   Annotation // the machine's own wish
	OnNode      Annotation // the node's
	LastApplied Annotation // the node's wish that was honoured last, as the machine remembers it
	NodeExists  bool       // false: all that is said of a node is zero
	Deleting    bool       // the machine is being deleted: it is not preserved, and nothing is tidied up on what goes with it
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
			// After the timeout and not a moment earlier, in whole seconds, as the API keeps times.
			d.Expiry = f.Now.Add(f.Timeout).UTC().Add(time.Second - 1).Truncate(time.Second)
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

// The values of the annotation that asks for preservation, on a machine or on its node. They are those of api/v1alpha1,
// which decide does not know, and so are the keys, reasons and messages of this package.
const (
	ValueNow        = "now"            // keep the machine from now on
	ValueWhenFailed = "when-failed"    // keep it when it fails
	ValueAuto       = "auto-preserved" // its set keeps it because it failed
	ValueFalse      = "false"          // do not keep it, and let no set keep it
)

// asks reports whether a value is one that may keep a machine.
func asks(value string) bool {
	return value == ValueNow || value == ValueWhenFailed || value == ValueAuto
}

// wish returns the value that counts; empty means that nobody asks. Once a node had a say its silence counts too: it means
// that preservation was stopped there. A value of the machine that is not known counts as none. Known is false where the
// value of the node is not known: who wrote it means something, and nothing may be done before it is clear what.
func (f Facts) wish() (value string, known bool) {
	switch {
	case f.nodeDecides():
		return f.OnNode.Text, true
	case f.NodeExists && f.OnNode.Text != "":
		return "", false
	case f.NodeExists && f.LastApplied.Text != "":
		return "", true
	case asks(f.OnMachine.Text), f.OnMachine.Text == ValueFalse:
		return f.OnMachine.Text, true
	default:
		return "", true
	}
}

// nodeDecides reports whether the node has a value that is known.
func (f Facts) nodeDecides() bool {
	return f.NodeExists && (asks(f.OnNode.Text) || f.OnNode.Text == ValueFalse)
}

// Decision says whether a machine is preserved, and what does not say so yet. What it does not name stays.
type Decision struct {
	Value        string    // the value that counts; empty: nobody asks, or the node's value is not known
	Preserve     bool      // the machine is kept
	Expiry       time.Time // until when; zero where it is not, or where it is to begin and Now is not known
	Node         NodeChanges
	Machine      MachineChanges
	StatusChange bool   // the end on record is to become Expiry, or nothing where that is zero
	Message      string // what people are told, as the node's condition says it; may be set where nothing is to change
	Why          string // in one sentence, what is to change; empty when nothing is
}

// NodeChanges is what is to change on the node.
type NodeChanges struct {
	Annotations Edit
	Taint       bool       // the taint of preserved nodes is to be put on
	Untaint     bool       // it is to be taken off
	Condition   *Condition // what the condition Preserved is to say; nil leaves it
}

// MachineChanges is what is to change on the machine, its status apart.
type MachineChanges struct{ Annotations Edit }

// Edit is what changes in a map.
type Edit = nodesync.Edit

// Empty reports whether there is nothing to change.
func (d Decision) Empty() bool {
	return d.Node.Empty() && d.Machine.Annotations.Empty() && !d.StatusChange
}

// Empty reports whether there is nothing to change.
func (c NodeChanges) Empty() bool {
	return c.Annotations.Empty() && !c.Taint && !c.Untaint && c.Condition == nil
}

const (
	annotationPreserve     = "node.machine.sapcloud.io/preserve"
	annotationLastApplied  = "node.machine.sapcloud.io/last-applied-node-preserve-value"
	annotationDisabled     = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	annotationDisabledByUs = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm"
	valueTrue              = "true"
)

// mark makes the node carry what keeps the autoscaler and, if the machine failed, new pods away. A failed node is tainted
// and not cordoned, so that a cordon by somebody else survives. What others disabled is theirs.
func (l *ledger) mark(f Facts) {
	ours := f.DisabledByUs.Text == valueTrue
	if !f.ScaleDownDisabled.Present || ours && f.ScaleDownDisabled.Text != valueTrue {
		l.Node.Annotations.Put(annotationDisabled, valueTrue)
		l.because("node lacks annotation " + annotationDisabled)
		if !ours {
			l.Node.Annotations.Put(annotationDisabledByUs, valueTrue)
		}
	}
	switch {
	case f.Failed && !f.Tainted:
		l.Node.Taint = true
		l.because("node of a failed machine lacks its taint")
	case !f.Failed && f.Tainted:
		l.untaint()
	}
}

// unmark takes off the node what we put on.
func (l *ledger) unmark(f Facts) {
	if f.DisabledByUs.Text == valueTrue {
		l.Node.Annotations.Drop(annotationDisabled)
		l.Node.Annotations.Drop(annotationDisabledByUs)
		l.because("node is still kept from the autoscaler")
	}
	if f.Tainted {
		l.untaint()
	}
}

func (l *ledger) untaint() {
	l.Node.Untaint = true
	l.because("node has the taint of a failed one")
}

// remember makes the machine remember what the node says, and nothing where it says nothing. A node that decides takes the
// machine's own wish away, so that there is one wish at a time. Forget removes wishes that were fulfilled; a refusal stays.
func (l *ledger) remember(f Facts, forget bool) {
	nodeSays := f.OnNode.Text
	if forget && asks(nodeSays) {
		nodeSays = ""
		l.Node.Annotations.Drop(annotationPreserve)
		l.because("node still asks for it")
	}
	switch {
	case f.OnMachine.Present && f.nodeDecides():
		l.Machine.Annotations.Drop(annotationPreserve)
		l.because("machine has a wish beside that of its node")
	case forget && asks(f.OnMachine.Text):
		l.Machine.Annotations.Drop(annotationPreserve)
		l.because("machine still asks for it")
	}
	switch {
	case nodeSays == "" && f.LastApplied.Present:
		l.Machine.Annotations.Drop(annotationLastApplied)
		l.because("machine remembers a wish of its node that is gone")
	case nodeSays != f.LastApplied.Text:
		l.Machine.Annotations.Put(annotationLastApplied, nodeSays)
		l.because("machine does not remember the wish of its node")
	}
}

// Condition is the condition Preserved of a node.
type Condition struct {
	True            bool
	Reason, Message string
}

// declare makes the node's condition say who preserves the machine and until when.
func (l *ledger) declare(f Facts) {
	l.Message = "Machine preserved until " + l.Expiry.UTC().Format(time.RFC3339) + "."
	if !f.NodeExists {
		return
	}
	if f.Failed {
		drained := map[string]string{"": "Preserved node is not drained.", vocabulary.DrainDrained: vocabulary.MessagePreservedNodeDrained}
		l.Message = cmp.Or(drained[f.Drained], vocabulary.MessagePreservedNodeNotDrained) + " " + l.Message // where nobody wanted a drain, too
	}
	c := Condition{True: true, Reason: vocabulary.ReasonPreservedByUser, Message: l.Message}
	if l.Value == ValueAuto {
		c.Reason = vocabulary.ReasonPreservedByMCM
	}
	if f.Condition == nil || *f.Condition != c {
		l.Node.Condition = &c
		l.because("node has no current condition Preserved")
	}
}

// revoke makes the node's condition say that preservation has stopped. A node that never had the condition gets none. What
// it says already stays: the reason may have been tidied away since.
func (l *ledger) revoke(f Facts, because string) {
	l.Message = "Machine is no longer preserved: " + because + "."
	switch {
	case f.Condition == nil:
		return
	case !f.Condition.True && f.Condition.Reason == vocabulary.ReasonPreservationStopped:
		l.Message = cmp.Or(f.Condition.Message, l.Message)
		return
	}
	l.Node.Condition = &Condition{Reason: vocabulary.ReasonPreservationStopped, Message: l.Message}
	l.because("node has the condition of a preserved one")
}
