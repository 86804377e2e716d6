package scale

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/decide/preflight"
)

// largest is the largest number of creations that are sent at a time. Source: a client with the flag defaults of
// machine-controller-manager, 20 requests a second, sends 96 requests, three for each machine of Cluster API, within 5
// s.
const largest = 32

// BatchSizes returns how many of n creations are sent at a time: 1, 2, 4 and so on up to 32. So a cause that makes every
// creation fail makes few requests fail, because a batch is sent only after the batch before had no error. It returns
// nil for n of 0 or less.
func BatchSizes(n int) []int {
	var sizes []int
	for size := 1; n > 0; size = min(2*size, largest) {
		size = min(size, n)
		sizes = append(sizes, size)
		n -= size
	}
	return sizes
}

// create returns names for missing machines, unless something blocks creation.
func create(o *planner, active []Member) Decision {
	missing := o.Replicas - len(active)
	if missing <= 0 || len(blockers(o)) > 0 {
		return Decision{}
	}
	n := min(missing, MaxCreate)
	return Decision{
		Create: names(o, n),
		Hold:   waits(o),
		Why:    fmt.Sprintf("create %s: %d wanted, %d there", machines(n), o.Replicas, len(active)),
	}
}

// blockers returns why the set may create no machine now, each as one sentence.
func blockers(o *planner) []string {
	// Something removes the labels of new machines, so the set releases each one and would create another without end.
	// Source of the bound: MCM considers a set overshot from 2 * replicas + 2 machines on.
	runaway := o.Released > 0 && len(o.live)+o.Released >= 2*o.Replicas+2
	return append(list.Map(preflight.Decide(o.Preflight), func(f preflight.Failure) string { return f.Why }), phrase.Parts(
		missing(o),
		phrase.If(o.frozen(), "MachineSet is frozen"),
		strings.Join(o.Stopped, "; "),
		phrase.If(runaway, "%d Machines that the MachineSet released have no owner", o.Released),
	)...)
}

// missing names the kinds that the template refers to and that do not exist; empty: none.
func missing(o *planner) string {
	return phrase.If(
		len(o.Missing) > 0,
		"%s %s",
		strings.Join(o.Missing, " and "),
		phrase.OneOf(len(o.Missing), "does not exist", "do not exist"),
	)
}

// stopped says which machines the set lacks and why it may not create them; empty: it lacks none, or creates them.
func stopped(o *planner) string {
	b := blockers(o)
	return phrase.If(len(o.live) < o.Replicas && len(b) > 0,
		"%d wanted, %d there; none is created: %s", o.Replicas, len(o.live), strings.Join(b, "; "))
}

// waits says what the set cannot do now, and why; empty: nothing waits.
func waits(o *planner) string {
	why := phrase.Parts(stopped(o), cannotMove(o))
	for _, s := range o.postponed {
		if !slices.Contains(why, s.message) {
			why = append(why, s.message)
		}
	}
	return strings.Join(why, "; ")
}

// Lengths of names. Sources: a machine's name becomes a label value of its node, which has at most 63 characters;
// Kubernetes' generateName adds five random characters.
const (
	maxName = 63
	suffix  = 5
)

// names returns n names that no known machine has. A name that is too long is cut and ends with the random characters.
func names(o *planner, n int) []string {
	const letters = "bcdfghjklmnpqrstvwxz2456789" // no vowels, as in Kubernetes, so that no words appear
	taken := make(map[string]bool, len(o.Members)+len(o.Orphans))
	for _, m := range o.Members {
		taken[m.Name] = true
	}
	for _, m := range o.Orphans {
		taken[m.Name] = true
	}
	parts := o.Naming
	for len(parts) < 2 {
		parts = append(slices.Clone(parts), "")
	}
	state := o.Seed
	result := make([]string, 0, n)
	for len(result) < n {
		var bits uint64
		state, bits = splitMix(state)
		random := ""
		for range suffix {
			random += string(letters[bits%uint64(len(letters))])
			bits /= uint64(len(letters))
		}
		name := strings.Join(parts, random)
		if len(name) > maxName {
			name = name[:maxName-suffix] + random
		}
		if !taken[name] {
			taken[name] = true
			result = append(result, name)
		}
	}
	slices.Sort(result)
	return result
}

// splitMix is one step of the SplitMix64 generator. It gives the same values on every version of Go. Source of the
// constants: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
func splitMix(state uint64) (next, value uint64) {
	next = state + 0x9e3779b97f4a7c15
	z := next
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return next, z ^ (z >> 31)
}

// recheck returns the next time at which the clock alone changes the decision or the status; zero: none.
func recheck(o *planner) time.Time {
	var next time.Time
	at := func(t time.Time) {
		if t.After(o.Now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, m := range o.Members {
		if m.UpToDate == "" {
			at(m.Created.Add(youngUntil))
		}
		switch {
		case m.Deleting:
			at(m.DeletingSince.Add(staleAfter))
		case m.Ready == True:
			at(m.ReadyFrom.Add(o.MinReady))
		}
		if !m.Deleting && (m.toReplace() || m.marked()) && !ripe(o, m) {
			at(nextGeneration(o))
		}
	}
	return next
}
