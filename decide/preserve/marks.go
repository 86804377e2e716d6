package preserve

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
		l.Node.Annotations.set(annotationDisabled, valueTrue)
		l.because("node lacks annotation " + annotationDisabled)
		if !ours {
			l.Node.Annotations.set(annotationDisabledByUs, valueTrue)
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
		l.Node.Annotations.remove(annotationDisabled)
		l.Node.Annotations.remove(annotationDisabledByUs)
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
		l.Node.Annotations.remove(annotationPreserve)
		l.because("node still asks for it")
	}
	switch {
	case f.OnMachine.Present && f.nodeDecides():
		l.Machine.Annotations.remove(annotationPreserve)
		l.because("machine has a wish beside that of its node")
	case forget && asks(f.OnMachine.Text):
		l.Machine.Annotations.remove(annotationPreserve)
		l.because("machine still asks for it")
	}
	switch {
	case nodeSays == "" && f.LastApplied.Present:
		l.Machine.Annotations.remove(annotationLastApplied)
		l.because("machine remembers a wish of its node that is gone")
	case nodeSays != f.LastApplied.Text:
		l.Machine.Annotations.set(annotationLastApplied, nodeSays)
		l.because("machine does not remember the wish of its node")
	}
}
