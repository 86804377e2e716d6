package drain

import (
	"cmp"
	"fmt"
	"math"
	"strings"
)

// What is done with a pod. A drain rule uses the same words.
const (
	Drain         = "Drain"
	Skip          = "Skip"          // it stays, whatever the means
	WaitCompleted = "WaitCompleted" // it is not evicted, but waited for
)

// Treatment is what becomes of a pod.
type Treatment struct {
	Do    string // Drain, Skip or WaitCompleted
	Order int32  // pods of a lower order go first
	Why   string // empty for a pod that is drained like most
}

// Treat says what becomes of a pod, by what it is and by what its owner wants. The label beats rules. A finished pod is
// evicted before the others and holds none of them back; one that was to complete is done, and goes with the node.
func Treat(p Pod) Treatment {
	switch {
	case p.Mirror:
		return Treatment{Do: Skip, Why: "static pod"}
	case p.DaemonSet:
		return Treatment{Do: Skip, Why: "pod of a DaemonSet"}
	case p.Returned:
		return Treatment{Do: Skip, Why: "came after the drain began: it tolerates the cordon"}
	}
	t := wanted(p)
	switch {
	case !p.Finished || t.Do == Skip:
		return t
	case t.Do == WaitCompleted:
		return Treatment{Do: Skip, Why: "completed"}
	default:
		return Treatment{Do: Drain, Order: math.MinInt32, Why: "finished"}
	}
}

// wanted is what the owner of a pod and the drain rules want.
func wanted(p Pod) Treatment {
	switch strings.ToLower(p.Label) {
	case "skip":
		return Treatment{Do: Skip, Why: "its label opts out"}
	case "wait-completed":
		return Treatment{Do: WaitCompleted, Why: "its label asks to let it complete"}
	}
	if p.Rule == nil {
		return Treatment{Do: Drain}
	}
	why := "drain rule " + p.Rule.Name
	switch p.Rule.Behavior {
	case Drain:
		return Treatment{Do: Drain, Order: p.Rule.Order, Why: why}
	case Skip, WaitCompleted:
		return Treatment{Do: p.Rule.Behavior, Why: why}
	default: // admission refuses such a rule; here the pod is drained like most, so that the node gets empty
		return Treatment{Do: Drain, Why: fmt.Sprintf("%s has the unknown behavior %q", why, p.Rule.Behavior)}
	}
}

// leaving reports whether a pod goes already, or is gone and still seen. Such a pod is waited for.
func (p Pod) leaving() bool {
	return !p.DeletedAt.IsZero() || p.Tries.Accepted || p.Tries.Result == Gone
}

func (p Pod) key() string { return p.Namespace + "/" + p.Name }

func byName(a, b Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}
