package scale

import (
	"fmt"
	"slices"
)

// priorityChosen is the priority by which the autoscaler marks the machines that it takes away. Source: MCM.
const priorityChosen = 1

// removeChosen deletes what the autoscaler chose, also when the size says otherwise: it counts on these machines going,
// and on no others. A mark that is younger than the last change of the size is not yet meant.
func removeChosen(o Observed, live []Member) (Decision, bool) {
	chosen := slices.DeleteFunc(slices.Clone(live), func(m Member) bool {
		return m.Priority != priorityChosen || m.Chosen.IsZero() || m.Chosen.After(o.Scaled) || m.protected()
	})
	why := func(n int) string {
		return fmt.Sprintf("delete %s that the autoscaler chose: %d wanted, %d there", machines(n), o.Replicas, len(live))
	}
	return remove(o, chosen, len(chosen), why)
}

// removeSurplus deletes what is too much, the least valuable first. Members that an update in place handed over are not
// too much: the set's size follows.
func removeSurplus(o Observed, live []Member) (Decision, bool) {
	all := slices.DeleteFunc(slices.Clone(live), func(m Member) bool { return m.Updated })
	why := func(n int) string {
		return fmt.Sprintf("delete %s: %d wanted, %d there", machines(n), o.Replicas, len(live))
	}
	return remove(o, all, len(all)-o.Replicas, why)
}

func remove(o Observed, from []Member, n int, why func(n int) string) (Decision, bool) {
	if n <= 0 {
		return Decision{}, false
	}
	slices.SortFunc(from, ranking(o.Order))
	from = from[:min(n, len(from), MaxBatch)]
	d := Decision{Why: why(len(from)), Hold: waits(o, o.live())}
	for _, m := range from {
		d.Delete = append(d.Delete, m.target(m.surplus()))
	}
	return d, true
}
