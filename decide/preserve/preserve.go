// Package preserve decides whether a machine is preserved, until when, and which changes its node, its annotations and
// its status need for that. A preservation has a recorded end, which nothing moves. It is over when that end comes, or
// when nobody requests it any more.
package preserve

import (
	"cmp"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/nodesync"
)

// Facts describe a machine and its node.
type Facts struct {
	OnMachine   Annotation // the machine's annotation preserve
	OnNode      Annotation // the node's annotation preserve
	LastApplied Annotation // the machine's record of the node's annotation that was applied last
	NodeExists  bool       // false: all facts of the node are zero
	Deleting    bool       // the machine is being deleted: it is not preserved, and nothing is changed
	Failed      bool       // the machine is in phase Failed
	Drained     string     // how the drain of its node in this preservation ended; empty: it has not

	Expiry  time.Time     // the recorded end; zero: not preserved
	Timeout time.Duration // duration of a preservation that begins now; zero: no machine is preserved
	Now     time.Time     // zero: the end is not evaluated

	ScaleDownDisabled Annotation // on the node: the cluster autoscaler must not remove it
	DisabledByUs      Annotation // on the node: with the text true, we set ScaleDownDisabled
	Tainted           bool       // the node has the taint of preserved nodes
	Condition         *Condition // the node's condition Preserved; nil: none
}

// Annotation is one annotation of an object. The text of an absent annotation is empty.
type Annotation struct {
	Present bool
	Text    string
}

// Decide says whether a machine is preserved, and which changes are left so that every object shows it. Completed
// changes are not returned, so an interrupted preservation continues where it stopped.
//
// For a machine that is about to fail, call it with Failed set: it returns whether the machine is preserved, and the
// end to write together with the phase.
func Decide(f Facts) Decision {
	value, known := f.requested()
	switch {
	case f.Deleting:
		return Decision{}
	case !known && f.expired(): // an unknown value does not preserve for ever
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

// Protected reports whether a Failed machine is preserved from being replaced. A recorded end decides alone; without
// one, the annotations do. Deletions that somebody requested are not affected.
func Protected(f Facts) bool {
	if !f.Expiry.IsZero() {
		return !f.expired()
	}
	f.Failed = true
	value, known := f.requested()
	return known && f.judge(value).preserve
}

// expired reports whether the recorded end has come. With a zero Now it has not.
func (f Facts) expired() bool { return !f.Expiry.IsZero() && !f.Now.Before(f.Expiry) }

// verdict says what follows from an annotation's value.
type verdict struct {
	preserve bool
	forget   bool   // the request was met: its annotation is removed, so that the preservation does not begin again
	because  string // why the machine is not preserved
}

func (f Facts) judge(value string) verdict {
	asked := value == vocabulary.PreserveNow ||
		f.Failed && (value == vocabulary.PreserveWhenFailed || value == vocabulary.PreserveAuto)
	over := f.expired() || asked && f.Expiry.IsZero() && f.Timeout <= 0 // it would end when it begins
	switch {
	case value == vocabulary.PreserveFalse:
		return verdict{because: "the annotation says false"}
	case over:
		return verdict{forget: true, because: "its time is over"}
	case asked:
		return verdict{preserve: true}
	case value == "":
		return verdict{because: "nobody requests it"}
	default: // auto-preserved is for one failure, when-failed for all
		return verdict{forget: value == vocabulary.PreserveAuto, because: "the machine has not failed"}
	}
}

// keep returns the changes that show a preservation. Without a node they are in the machine's status only.
func keep(f Facts, value string) Decision {
	d := Decision{Value: value, Preserve: true, Expiry: f.Expiry}
	l := ledger{Decision: &d}
	if f.Expiry.IsZero() {
		d.StatusChange = true
		l.because("its end is not recorded")
		if !f.Now.IsZero() {
			// now + timeout, rounded up to whole seconds, the precision of times in the API
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

// release returns the changes that end a preservation. The recorded end is removed last, because it shows that changes
// are left. The annotations against the autoscaler cannot show this, because rollouts set them as well.
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
		l.because("its end is still recorded")
	}
	l.close(state)
	return d
}

// ledger collects the changes of a decision, and the reasons for them.
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

// asks reports whether a value requests preservation.
func asks(value string) bool {
	return value == vocabulary.PreserveNow || value == vocabulary.PreserveWhenFailed || value == vocabulary.PreserveAuto
}

// requested returns the value that counts; empty: nobody requests preservation. Once a node's value was applied, its
// absence counts too: somebody ended the preservation on the node. An unknown value of the machine counts as none. With
// an unknown value of the node, known is false: nothing may change until the value is corrected.
func (f Facts) requested() (value string, known bool) {
	switch {
	case f.nodeDecides():
		return f.OnNode.Text, true
	case f.NodeExists && f.OnNode.Text != "":
		return "", false
	case f.NodeExists && f.LastApplied.Text != "":
		return "", true
	case asks(f.OnMachine.Text), f.OnMachine.Text == vocabulary.PreserveFalse:
		return f.OnMachine.Text, true
	default:
		return "", true
	}
}

// nodeDecides reports whether the node has a known value.
func (f Facts) nodeDecides() bool {
	return f.NodeExists && (asks(f.OnNode.Text) || f.OnNode.Text == vocabulary.PreserveFalse)
}

// Decision says whether a machine is preserved, and which changes are left to show it.
type Decision struct {
	Value        string    // the value that counts; empty: no request, or the node's value is unknown
	Preserve     bool      // the machine is preserved
	Expiry       time.Time // the end; zero: not preserved, or it would begin now and Now is zero
	Node         NodeChanges
	Machine      MachineChanges
	StatusChange bool   // set the recorded end to Expiry, or remove it if that is zero
	Message      string // the message for status and events, as in the node's condition; may be set without a change
	Why          string // what is to change, in one sentence; empty: nothing
}

// NodeChanges are the changes to the node.
type NodeChanges struct {
	Annotations Edit
	Taint       bool       // add the taint of preserved nodes
	Untaint     bool       // remove it
	Condition   *Condition // the new condition Preserved; nil: no change
}

// MachineChanges are the changes to the machine without its status.
type MachineChanges struct{ Annotations Edit }

// Edit is the change of a map.
type Edit = nodesync.Edit

// Empty reports whether there is no change.
func (d Decision) Empty() bool {
	return d.Node.Empty() && d.Machine.Annotations.Empty() && !d.StatusChange
}

// Empty reports whether there is no change.
func (c NodeChanges) Empty() bool {
	return c.Annotations.Empty() && !c.Taint && !c.Untaint && c.Condition == nil
}

// mark makes the node carry the annotation against the autoscaler and, if the machine failed, the taint against new
// pods. The taint does not change a cordon by somebody else. An annotation that others set is not changed.
func (l *ledger) mark(f Facts) {
	ours := f.DisabledByUs.Text == vocabulary.ValueLowerTrue
	if !f.ScaleDownDisabled.Present || ours && f.ScaleDownDisabled.Text != vocabulary.ValueLowerTrue {
		l.Node.Annotations.Put(vocabulary.AnnotationScaleDownDisabled, vocabulary.ValueLowerTrue)
		l.because("node lacks annotation " + vocabulary.AnnotationScaleDownDisabled)
		if !ours {
			l.Node.Annotations.Put(vocabulary.AnnotationScaleDownDisabledByMCM, vocabulary.ValueLowerTrue)
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

// unmark removes our annotations and our taint from the node.
func (l *ledger) unmark(f Facts) {
	if f.DisabledByUs.Text == vocabulary.ValueLowerTrue {
		l.Node.Annotations.Drop(vocabulary.AnnotationScaleDownDisabled)
		l.Node.Annotations.Drop(vocabulary.AnnotationScaleDownDisabledByMCM)
		l.because("node still has our annotations against the autoscaler")
	}
	if f.Tainted {
		l.untaint()
	}
}

func (l *ledger) untaint() {
	l.Node.Untaint = true
	l.because("node has the taint of a preserved failed machine")
}

// remember makes the machine record the node's value. If the node has a known value, the machine's own annotation is
// removed, so that only one counts. forget removes annotations whose request was met; the value false stays.
func (l *ledger) remember(f Facts, forget bool) {
	nodeSays := f.OnNode.Text
	if forget && asks(nodeSays) {
		nodeSays = ""
		l.Node.Annotations.Drop(vocabulary.AnnotationPreserve)
		l.because("node still requests it")
	}
	switch {
	case f.OnMachine.Present && f.nodeDecides():
		l.Machine.Annotations.Drop(vocabulary.AnnotationPreserve)
		l.because("machine and node both have the annotation")
	case forget && asks(f.OnMachine.Text):
		l.Machine.Annotations.Drop(vocabulary.AnnotationPreserve)
		l.because("machine still requests it")
	}
	switch {
	case nodeSays == "" && f.LastApplied.Present:
		l.Machine.Annotations.Drop(vocabulary.AnnotationLastAppliedPreserve)
		l.because("machine records an annotation that its node no longer has")
	case nodeSays != f.LastApplied.Text:
		l.Machine.Annotations.Put(vocabulary.AnnotationLastAppliedPreserve, nodeSays)
		l.because("machine does not record the annotation of its node")
	}
}

// Condition is the condition Preserved of a node.
type Condition struct {
	True            bool
	Reason, Message string
}

// declare makes the node's condition say why the machine is preserved, and until when.
func (l *ledger) declare(f Facts) {
	const until = "Machine preserved until "
	l.Message = until + l.Expiry.UTC().Format(time.RFC3339) + "."
	if !f.NodeExists {
		return
	}
	mcms := until + l.Expiry.UTC().String() + "." // the same, as machine-controller-manager writes it
	if f.Failed {
		drained := map[string]string{
			"":                      "Preserved node is not drained.",
			vocabulary.DrainDrained: vocabulary.MessagePreservedNodeDrained,
		}
		drain := cmp.Or(drained[f.Drained], vocabulary.MessagePreservedNodeNotDrained) + " " // also if no drain was wanted
		l.Message, mcms = drain+l.Message, drain+mcms
	}
	c := Condition{True: true, Reason: vocabulary.ReasonPreservedByUser, Message: l.Message}
	if l.Value == vocabulary.PreserveAuto {
		c.Reason = vocabulary.ReasonPreservedByMCM
	}
	if is := f.Condition; is == nil || *is != c && *is != (Condition{c.True, c.Reason, mcms}) {
		l.Node.Condition = &c
		l.because("node has no current condition Preserved")
	}
}

// revoke makes the node's condition say that preservation has stopped. A node without the condition gets none. A
// condition that says so already keeps its message, because the reason may have been removed since.
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
	l.because("node has the condition of a preserved machine")
}
