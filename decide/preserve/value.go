package preserve

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
