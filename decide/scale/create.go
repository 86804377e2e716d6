package scale

import (
	"fmt"
	"slices"
	"strings"
)

// Batches returns how many of n creations are sent at a time: 1, 2, 4 and so on, so that what fails for the first machine
// does not fail for all. The next batch follows when the one before has no error. None for n of 0 or less.
func Batches(n int) []int {
	var sizes []int
	for size := 1; n > 0; size *= 2 {
		size = min(size, n)
		sizes = append(sizes, size)
		n -= size
	}
	return sizes
}

// create makes what is missing, unless something blocks it.
func create(o Observed, live []Member) (Decision, bool) {
	missing := o.Replicas - len(live)
	if missing <= 0 || len(blockers(o)) > 0 {
		return Decision{}, false
	}
	n := min(missing, MaxBatch)
	return Decision{
		Create: names(o, n),
		Hold:   waits(o, live),
		Why:    fmt.Sprintf("create %s: %d wanted, %d there", machines(n), o.Replicas, len(live)),
	}, true
}

// blockers returns why the set may make no machine now, each as one sentence.
func blockers(o Observed) []string {
	var why []string
	for _, f := range o.Preflight {
		why = append(why, f.Why)
	}
	why = append(why, missing(o)...)
	if o.Frozen {
		why = append(why, "MachineSet is frozen")
	}
	if o.NoScaleUp {
		why = append(why, "MachineSet is not to scale up any more")
	}
	if runaway(o) {
		why = append(why, fmt.Sprintf("%d Machines that the MachineSet released have no owner", o.Released))
	}
	return why
}

// missing says which kinds the template names in vain.
func missing(o Observed) []string {
	switch len(o.Missing) {
	case 0:
		return nil
	case 1:
		return []string{o.Missing[0] + " does not exist"}
	default:
		return []string{strings.Join(o.Missing, " and ") + " do not exist"}
	}
}

// runaway reports whether what the set makes does not stay with it: something takes the labels off, and each machine that
// it releases would be followed by another. Source of the bound: from twice the replicas and two on MCM takes a set for
// overshot.
func runaway(o Observed) bool {
	return o.Released > 0 && len(o.live())+o.Released >= 2*o.Replicas+2
}

// waits says what the set would do if it could, and why it does not; empty when nothing waits.
func waits(o Observed, live []Member) string {
	var why []string
	if b := blockers(o); len(live) < o.Replicas && len(b) > 0 {
		why = append(why, fmt.Sprintf("%d wanted, %d there; none is created: %s", o.Replicas, len(live), strings.Join(b, "; ")))
	}
	for _, s := range postponed(o, live) {
		if !slices.Contains(why, s.message) {
			why = append(why, s.message)
		}
	}
	return strings.Join(why, "; ")
}
