package scale

import (
	"cmp"
	"fmt"
	"hash/fnv"
)

// ranking orders members by what is lost with them, the first to be deleted first:
//  1. those that are preserved on purpose come last of all; of these, those that the set itself kept, then those whose
//     time is over first
//  2. those with the annotation cluster.x-k8s.io/delete-machine
//  3. lower priority
//  4. those that the autoscaler chose, the longer ago the sooner
//  5. failed; then those whose creation keeps failing; under update; without a node; with an unhealthy one; the others
//  6. age, by the order that the set wants
//  7. name
//
// Ranks 1 and 3 to 5 are MCM's, 2, 5 and 6 Cluster API's. Neither a fresh machine nor one under update goes before one
// that failed. Under Random only healthy members are mixed; of the others the name decides, as it does of equals.
func ranking(order Order) func(a, b Member) int {
	return func(a, b Member) int {
		return cmp.Or(
			byPreservation(a, b),
			boolean(b.DeleteFirst, a.DeleteFirst),
			cmp.Compare(a.Priority, b.Priority),
			byChoice(a, b),
			cmp.Compare(a.worth(), b.worth()),
			byOrder(order, a, b),
			cmp.Compare(a.Name, b.Name),
		)
	}
}

func byPreservation(a, b Member) int {
	if !a.Preserved || !b.Preserved {
		return boolean(a.Preserved, b.Preserved)
	}
	return cmp.Or(boolean(b.Kept, a.Kept), a.PreservedUntil.Compare(b.PreservedUntil))
}

func byChoice(a, b Member) int {
	if a.Chosen.IsZero() || b.Chosen.IsZero() {
		return boolean(a.Chosen.IsZero(), b.Chosen.IsZero())
	}
	return a.Chosen.Compare(b.Chosen)
}

func byOrder(order Order, a, b Member) int {
	switch order {
	case Oldest:
		return byAge(a, b)
	case Random:
		if a.worth() == worthHealthy && !a.DeleteFirst {
			return cmp.Compare(hash(a.Name), hash(b.Name))
		}
		return 0
	default:
		return byAge(b, a)
	}
}

// byAge puts the older first. One without a time of creation counts as the youngest.
func byAge(a, b Member) int {
	if a.Created.IsZero() || b.Created.IsZero() {
		return boolean(a.Created.IsZero(), b.Created.IsZero())
	}
	return a.Created.Compare(b.Created)
}

// boolean puts false first.
func boolean(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

func hash(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	_, mixed := splitMix(h.Sum64())
	return mixed
}

// worth is what is lost with a machine of like priority; less goes first.
type worth int

const (
	worthFailed worth = iota
	worthCrashing
	worthUpdating
	worthNodeless
	worthUnhealthy
	worthHealthy
)

func (m Member) worth() worth {
	switch {
	case m.Failed:
		return worthFailed
	case m.Crashing:
		return worthCrashing
	case m.Updating:
		return worthUpdating
	case m.Node == NoNode && !m.Serves:
		return worthNodeless
	case m.Node == NodeUnhealthy, m.HealthCheck == False:
		return worthUnhealthy
	default:
		return worthHealthy
	}
}

// Sick reports whether a member goes before any healthy one that is worth the same to people.
func (m Member) Sick() bool { return m.worth() < worthHealthy }

// surplus says why just this member goes.
func (m Member) surplus() string {
	switch {
	case m.DeleteFirst:
		return "surplus: marked to be deleted first"
	case !m.Chosen.IsZero():
		return "surplus: the autoscaler chose it"
	case m.Failed:
		return "surplus: failed"
	default:
		return fmt.Sprintf("surplus (priority %d, phase %s)", m.Priority, cmp.Or(m.Phase, "new"))
	}
}
