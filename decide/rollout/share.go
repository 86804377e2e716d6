package rollout

import (
	"cmp"
	"math"
	"slices"
)

// share takes a surplus off sets in proportion to their sizes; what rounding leaves goes off the largest. Machines that the
// autoscaler chose go first, wherever they are; no set gives an available machine that is needed. Source of the proportion:
// MCM, size times what is allowed now, divided by what was allowed when the set got its size.
func (b *book) share(active []*entry, over int) {
	if over <= 0 {
		return
	}
	why := phrase("%d wanted in all, each set gives its part", b.o.Replicas)
	take := func(e *entry, n int) { over -= b.lower(e, min(n, over), why) }
	for _, e := range active {
		take(e, e.chosen)
	}
	slices.SortStableFunc(active, func(x, y *entry) int { return cmp.Compare(y.size, x.size) })
	parts := make([]int, len(active))
	total := sum(active, size)
	for i, e := range active {
		before := e.Max
		if before <= 0 || before < total-over {
			before = total
		}
		parts[i] = e.size - int(math.Round(float64(e.size)*float64(b.o.Replicas+b.surge)/float64(before)))
	}
	for i, e := range active {
		take(e, parts[i])
	}
	for _, e := range active {
		take(e, over)
	}
}
