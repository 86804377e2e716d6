package preserve

import (
	"slices"
	"time"
)

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

// Edit is what changes in a map. What it does not name stays.
type Edit struct {
	Set    map[string]string // keys to add or to overwrite
	Remove []string          // sorted
}

// Empty reports whether there is nothing to change.
func (d Decision) Empty() bool {
	return d.Node.Empty() && d.Machine.Annotations.Empty() && !d.StatusChange
}

// Empty reports whether there is nothing to change.
func (c NodeChanges) Empty() bool {
	return c.Annotations.Empty() && !c.Taint && !c.Untaint && c.Condition == nil
}

// Empty reports whether there is nothing to change.
func (e Edit) Empty() bool { return len(e.Set) == 0 && len(e.Remove) == 0 }

func (e *Edit) set(key, value string) {
	if e.Set == nil {
		e.Set = map[string]string{}
	}
	e.Set[key] = value
}

func (e *Edit) remove(key string) {
	e.Remove = append(e.Remove, key)
	slices.Sort(e.Remove)
}
