// Package preserve decides whether and until when a machine is preserved, and which changes to its node, annotations
// and status are missing. The recorded end of a preservation never changes. A preservation ends at its recorded end, or
// earlier if no annotation requests the preservation any more.
package preserve

import (
	"cmp"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/nodesync"
)

// Facts holds the facts about a machine and its node.
type Facts struct {
	OnMachine   Annotation // the machine's annotation preserve
	OnNode      Annotation // the node's annotation preserve
	LastApplied Annotation // the machine's annotation that records the last applied annotation of the node
	NodeExists  bool       // the node exists; if it does not, all facts of the node are zero
	Deleting    bool       // the machine is being deleted; then Decide neither preserves it nor changes anything
	Failed      bool       // the machine is in phase Failed
	Drained     string     // result of the node's drain during this preservation; empty until the drain has ended

	Expiry  time.Time     // recorded end of the preservation; zero: the machine is not preserved
	Timeout time.Duration // duration of a preservation that begins now; zero: no machine is preserved
	Now     time.Time     // present time; zero: the end of the preservation is not evaluated

	ScaleDownDisabled Annotation // the node's annotation that stops the cluster autoscaler from removing the node
	DisabledByUs      Annotation // the node's annotation that is true if Millwright set ScaleDownDisabled
	Tainted           bool       // the node has the taint of preserved nodes
	Condition         *Condition // the node's condition Preserved; nil: none
}

// Annotation is one annotation of an object. The text of an absent annotation is empty.
type Annotation struct {
	Present bool
	Text    string
}

// Decide returns whether a machine is preserved, and which changes of node, annotations and status are missing. Decide
// returns only the changes that are still missing, so an interrupted preservation continues where it stopped.
//
// Callers also set Failed if they are about to write phase Failed. Decide then returns the end of the preservation,
// which the caller writes together with the phase.
func Decide(f Facts) Decision {
	value, known := f.requestedValue()
	switch {
	case f.Deleting:
		return Decision{}
	case !known && f.isExpired(): // even an unknown value on the node does not extend an expired preservation
		return endPreservation(f, value, annotationEffect{reason: "its time is over"})
	case !known && f.Expiry.IsZero():
		return Decision{}
	case !known:
		return Decision{IsPreserved: true, Expiry: f.Expiry}
	}
	if v := f.evaluateAnnotation(value); !v.isPreserved {
		return endPreservation(f, value, v)
	}
	return keepPreservation(f, value)
}

// PreventsReplacement reports whether preservation prevents the replacement of a Failed machine. If the machine has a
// recorded end, PreventsReplacement only checks whether the end has passed. Without a recorded end, PreventsReplacement
// evaluates the annotations. PreventsReplacement does not affect deletions that a person requested.
func PreventsReplacement(f Facts) bool {
	if !f.Expiry.IsZero() {
		return !f.isExpired()
	}
	f.Failed = true
	value, known := f.requestedValue()
	return known && f.evaluateAnnotation(value).isPreserved
}

// isExpired reports whether the recorded end has passed. With a zero Now, isExpired is false.
func (f Facts) isExpired() bool { return !f.Expiry.IsZero() && !f.Now.Before(f.Expiry) }

// annotationEffect is the effect of an annotation's value on a machine.
type annotationEffect struct {
	isPreserved bool
	// remove the annotation, so that the machine is not preserved a second time
	removesAnnotation bool
	reason            string // why the machine is not preserved
}

func (f Facts) evaluateAnnotation(value string) annotationEffect {
	asked := value == vocabulary.ValuePreserveNow ||
		f.Failed && (value == vocabulary.ValuePreserveWhenFailed || value == vocabulary.ValuePreserveAuto)
	// a preservation has ended, or would end as soon as it begins
	over := f.isExpired() || asked && f.Expiry.IsZero() && f.Timeout <= 0
	switch {
	case value == vocabulary.ValuePreserveFalse:
		return annotationEffect{reason: "the annotation says false"}
	case over:
		return annotationEffect{removesAnnotation: true, reason: "its time is over"}
	case asked:
		return annotationEffect{isPreserved: true}
	case value == "":
		return annotationEffect{reason: "nobody requests it"}
	default: // auto-preserved is for one failure, and when-failed is for every failure
		return annotationEffect{
			removesAnnotation: value == vocabulary.ValuePreserveAuto,
			reason:            "the machine has not failed",
		}
	}
}

// keepPreservation returns the missing changes of a preservation. Without a node, only the machine's status shows the
// preservation.
func keepPreservation(f Facts, value string) Decision {
	d := Decision{RequestedValue: value, IsPreserved: true, Expiry: f.Expiry}
	l := changeCollector{Decision: &d}
	if f.Expiry.IsZero() {
		d.ChangesStatus = true
		l.addReason("its end is not recorded")
		if !f.Now.IsZero() {
			// now + timeout, rounded up to whole seconds, the precision of times in the API
			d.Expiry = f.Now.Add(f.Timeout).UTC().Add(time.Second - 1).Truncate(time.Second)
		}
	}
	if f.NodeExists {
		l.disableNodeScaleDown(f)
	}
	if !d.Expiry.IsZero() {
		l.setPreservedCondition(f)
	}
	l.recordNodeAnnotation(f, false)
	l.setWhy("preserved (" + value + ")")
	return d
}

// endPreservation returns the changes that end a preservation. The recorded end is removed last, because it shows that
// other changes are still missing. The autoscaler's annotations do not show whether changes are missing, because
// rollouts also set these annotations.
func endPreservation(f Facts, value string, v annotationEffect) Decision {
	d := Decision{RequestedValue: value, ChangesStatus: !f.Expiry.IsZero()}
	l := changeCollector{Decision: &d}
	state := "not preserved, as " + v.reason
	if d.ChangesStatus || f.Tainted || f.Condition != nil && f.Condition.True {
		state = "no longer preserved, as " + v.reason
		l.setStoppedCondition(f, v.reason)
		l.removeNodeMarks(f)
	}
	l.recordNodeAnnotation(f, v.removesAnnotation)
	if d.ChangesStatus {
		l.addReason("its end is still recorded")
	}
	l.setWhy(state)
	return d
}

// changeCollector collects the changes of a decision, and the reasons for the changes.
type changeCollector struct {
	*Decision
	reasons []string
}

func (l *changeCollector) addReason(reason string) { l.reasons = append(l.reasons, reason) }

func (l *changeCollector) setWhy(state string) {
	if len(l.reasons) > 0 {
		l.Why = state + ": " + strings.Join(l.reasons, ", ")
	}
}

// requestsPreservation reports whether a value requests preservation.
func requestsPreservation(value string) bool {
	return value == vocabulary.ValuePreserveNow || value == vocabulary.ValuePreserveWhenFailed ||
		value == vocabulary.ValuePreserveAuto
}

// requestedValue returns the annotation value that applies; empty: nobody requests preservation. If the node's value
// was applied and later removed, a person has ended the preservation on the node, and the machine's value does not
// apply. An unknown value of the machine counts as empty. If the node's value is unknown, known is false, and nothing
// may change until a person corrects the value.
func (f Facts) requestedValue() (value string, known bool) {
	switch {
	case f.nodeHasKnownValue():
		return f.OnNode.Text, true
	case f.NodeExists && f.OnNode.Text != "":
		return "", false
	case f.NodeExists && f.LastApplied.Text != "":
		return "", true
	case requestsPreservation(f.OnMachine.Text), f.OnMachine.Text == vocabulary.ValuePreserveFalse:
		return f.OnMachine.Text, true
	default:
		return "", true
	}
}

// nodeHasKnownValue reports whether the node has a known value.
func (f Facts) nodeHasKnownValue() bool {
	return f.NodeExists && (requestsPreservation(f.OnNode.Text) || f.OnNode.Text == vocabulary.ValuePreserveFalse)
}

// Decision says whether a machine is preserved, and which changes are missing.
type Decision struct {
	RequestedValue string    // the value that applies; empty: no request, or the node's value is unknown
	IsPreserved    bool      // the machine is preserved
	Expiry         time.Time // end of the preservation; zero: not preserved, or Now is zero and no end is recorded
	Node           NodeChanges
	Machine        MachineChanges
	ChangesStatus  bool   // write Expiry as the recorded end; if Expiry is zero, remove the recorded end
	Message        string // message for status and events, as in the node's condition; may be set even if nothing changes
	Why            string // one sentence about the missing changes; empty: none
}

// NodeChanges holds the changes to the node.
type NodeChanges struct {
	Annotations  MapEdit
	AddsTaint    bool       // add the taint of preserved nodes
	RemovesTaint bool       // remove the taint of preserved nodes
	Condition    *Condition // new condition Preserved; nil: no change
}

// MachineChanges holds the changes to the machine, except its status.
type MachineChanges struct{ Annotations MapEdit }

// MapEdit is the change of a map of annotations.
type MapEdit = nodesync.MapEdit

// IsEmpty reports whether there is no change.
func (d Decision) IsEmpty() bool {
	return d.Node.IsEmpty() && d.Machine.Annotations.IsEmpty() && !d.ChangesStatus
}

// IsEmpty reports whether there is no change.
func (c NodeChanges) IsEmpty() bool {
	return c.Annotations.IsEmpty() && !c.AddsTaint && !c.RemovesTaint && c.Condition == nil
}

// disableNodeScaleDown adds the annotation that stops the autoscaler from removing the node. If the machine is Failed,
// disableNodeScaleDown also adds the taint that keeps new pods away. disableNodeScaleDown does not change a cordon or
// an annotation that another party set.
func (l *changeCollector) disableNodeScaleDown(f Facts) {
	ours := f.DisabledByUs.Text == vocabulary.ValueScaleDownDisabled
	if !f.ScaleDownDisabled.Present || ours && f.ScaleDownDisabled.Text != vocabulary.ValueScaleDownDisabled {
		l.Node.Annotations.SetKey(vocabulary.AnnotationScaleDownDisabled, vocabulary.ValueScaleDownDisabled)
		l.addReason("node lacks annotation " + vocabulary.AnnotationScaleDownDisabled)
		if !ours {
			l.Node.Annotations.SetKey(vocabulary.AnnotationScaleDownDisabledByMCM, vocabulary.ValueScaleDownDisabled)
		}
	}
	switch {
	case f.Failed && !f.Tainted:
		l.Node.AddsTaint = true
		l.addReason("node of a failed machine lacks its taint")
	case !f.Failed && f.Tainted:
		l.removeTaint()
	}
}

// removeNodeMarks removes Millwright's annotations and taint from the node.
func (l *changeCollector) removeNodeMarks(f Facts) {
	if f.DisabledByUs.Text == vocabulary.ValueScaleDownDisabled {
		l.Node.Annotations.RemoveKey(vocabulary.AnnotationScaleDownDisabled)
		l.Node.Annotations.RemoveKey(vocabulary.AnnotationScaleDownDisabledByMCM)
		l.addReason("node still has our annotations against the autoscaler")
	}
	if f.Tainted {
		l.removeTaint()
	}
}

func (l *changeCollector) removeTaint() {
	l.Node.RemovesTaint = true
	l.addReason("node has the taint of a preserved failed machine")
}

// recordNodeAnnotation copies the node's value to the machine's record. If the node has a known value,
// recordNodeAnnotation removes the machine's own annotation, so that only one annotation applies. If forget is true,
// recordNodeAnnotation also removes the annotation that requested the preservation, except the value false.
func (l *changeCollector) recordNodeAnnotation(f Facts, forget bool) {
	nodeSays := f.OnNode.Text
	if forget && requestsPreservation(nodeSays) {
		nodeSays = ""
		l.Node.Annotations.RemoveKey(vocabulary.AnnotationPreserve)
		l.addReason("node still requests it")
	}
	switch {
	case f.OnMachine.Present && f.nodeHasKnownValue():
		l.Machine.Annotations.RemoveKey(vocabulary.AnnotationPreserve)
		l.addReason("machine and node both have the annotation")
	case forget && requestsPreservation(f.OnMachine.Text):
		l.Machine.Annotations.RemoveKey(vocabulary.AnnotationPreserve)
		l.addReason("machine still requests it")
	}
	switch {
	case nodeSays == "" && f.LastApplied.Present:
		l.Machine.Annotations.RemoveKey(vocabulary.AnnotationLastAppliedPreserve)
		l.addReason("machine records an annotation that its node no longer has")
	case nodeSays != f.LastApplied.Text:
		l.Machine.Annotations.SetKey(vocabulary.AnnotationLastAppliedPreserve, nodeSays)
		l.addReason("machine does not record the annotation of its node")
	}
}

// Condition is the condition Preserved of a node.
type Condition struct {
	True            bool
	Reason, Message string
}

// setPreservedCondition writes into the node's condition why the machine is preserved, and until when.
func (l *changeCollector) setPreservedCondition(f Facts) {
	const until = "Machine preserved until "
	l.Message = until + l.Expiry.UTC().Format(time.RFC3339) + "."
	if !f.NodeExists {
		return
	}
	mcms := until + l.Expiry.UTC().String() + "." // the message in the format of machine-controller-manager
	if f.Failed {
		drained := map[string]string{
			"":                            "Preserved node is not drained.",
			vocabulary.DrainResultDrained: vocabulary.MessagePreservedNodeDrained,
		}
		// after a skipped drain, the message also states that the node was not drained
		drain := cmp.Or(drained[f.Drained], vocabulary.MessagePreservedNodeNotDrained) + " "
		l.Message, mcms = drain+l.Message, drain+mcms
	}
	c := Condition{True: true, Reason: vocabulary.ReasonPreservedByUser, Message: l.Message}
	if l.RequestedValue == vocabulary.ValuePreserveAuto {
		c.Reason = vocabulary.ReasonPreservedByMCM
	}
	if is := f.Condition; is == nil || *is != c && *is != (Condition{c.True, c.Reason, mcms}) {
		l.Node.Condition = &c
		l.addReason("node has no current condition Preserved")
	}
}

// setStoppedCondition writes into the node's condition that the preservation has stopped. A node without the condition
// gets no condition. A condition with the reason PreservationStopped keeps its message, because the annotation that
// explains the message may be gone.
func (l *changeCollector) setStoppedCondition(f Facts, because string) {
	l.Message = "Machine is no longer preserved: " + because + "."
	switch {
	case f.Condition == nil:
		return
	case !f.Condition.True && f.Condition.Reason == vocabulary.ReasonPreservationStopped:
		l.Message = cmp.Or(f.Condition.Message, l.Message)
		return
	}
	l.Node.Condition = &Condition{Reason: vocabulary.ReasonPreservationStopped, Message: l.Message}
	l.addReason("node has the condition of a preserved machine")
}
