package preserve

import (
	"cmp"
	"time"
)

// Condition is the condition Preserved of a node.
type Condition struct {
	True    bool
	Reason  string
	Message string
}

const (
	reasonByUser  = "Preserved by user."
	reasonByMCM   = "Preserved by MCM."
	reasonStopped = "Preservation stopped."

	messageDrained    = "Preserved node drained successfully."
	messageUndrained  = "Preserved node could not be drained."
	messageNotDrained = "Preserved node is not drained."
)

// declare makes the node's condition say who preserves the machine and until when.
func (l *ledger) declare(f Facts) {
	l.Message = until(l.Expiry)
	if !f.NodeExists {
		return
	}
	if f.Failed {
		l.Message = drained(f.Drained) + " " + l.Message
	}
	c := Condition{True: true, Reason: reasonByUser, Message: l.Message}
	if l.Value == ValueAuto {
		c.Reason = reasonByMCM
	}
	if f.Condition == nil || *f.Condition != c {
		l.Node.Condition = &c
		l.because("node has no current condition Preserved")
	}
}

// drained says how the drain of the node ended. One that nobody wanted left pods where they are.
func drained(result string) string {
	switch result {
	case "":
		return messageNotDrained
	case "Drained":
		return messageDrained
	default:
		return messageUndrained
	}
}

func until(end time.Time) string {
	return "Machine preserved until " + end.UTC().Format(time.RFC3339) + "."
}

// revoke makes the node's condition say that preservation has stopped. A node that never had the condition gets none. What
// it says already stays: the reason may have been tidied away since.
func (l *ledger) revoke(f Facts, because string) {
	l.Message = "Machine is no longer preserved: " + because + "."
	switch {
	case f.Condition == nil:
		return
	case !f.Condition.True && f.Condition.Reason == reasonStopped:
		l.Message = cmp.Or(f.Condition.Message, l.Message)
		return
	}
	l.Node.Condition = &Condition{Reason: reasonStopped, Message: l.Message}
	l.because("node has the condition of a preserved one")
}
