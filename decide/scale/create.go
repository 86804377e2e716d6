package scale

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/decide/phrase"
	"millwright/decide/preflight"
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
func create(o Observed, live []Member) Decision {
	missing := o.Replicas - len(live)
	if missing <= 0 || len(blockers(o)) > 0 {
		return Decision{}
	}
	n := min(missing, MaxBatch)
	return Decision{
		Create: names(o, n),
		Hold:   waits(o, live),
		Why:    fmt.Sprintf("create %s: %d wanted, %d there", machines(n), o.Replicas, len(live)),
	}
}

// blockers returns why the set may make no machine now, each as one sentence.
func blockers(o Observed) []string {
	var why []string
	for _, f := range preflight.Decide(o.Preflight) {
		why = append(why, f.Why)
	}
	// What the set makes does not stay with it: something takes the labels off, and each machine that it releases would be followed by
	// another. Source of the bound: from twice the replicas and two on MCM takes a set for overshot.
	runaway := o.Released > 0 && len(o.live())+o.Released >= 2*o.Replicas+2
	return append(why, phrase.Parts(
		missing(o),
		phrase.If(o.Frozen, "MachineSet is frozen"),
		phrase.If(o.NoScaleUp, "MachineSet is not to scale up any more"),
		phrase.If(runaway, "%d Machines that the MachineSet released have no owner", o.Released),
	)...)
}

// missing says which kinds the template names in vain; empty when there are none.
func missing(o Observed) string {
	return phrase.If(len(o.Missing) > 0, "%s %s", strings.Join(o.Missing, " and "), phrase.OneOf(len(o.Missing), "does not exist", "do not exist"))
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

// Lengths of names. Source: a machine's name becomes the value of a label of its node, and those have at most 63
// characters; five random ones are what Kubernetes' generateName adds.
const (
	maxName = 63
	suffix  = 5
)

// names returns n names that no known machine has: the set's name, cut where it is too long, and a random end.
func names(o Observed, n int) []string {
	const letters = "bcdfghjklmnpqrstvwxz2456789" // no vowels: no words by accident, as Kubernetes does
	taken := make(map[string]bool, len(o.Members)+len(o.Orphans)+len(o.Taken))
	for _, m := range o.Members {
		taken[m.Name] = true
	}
	for _, m := range o.Orphans {
		taken[m.Name] = true
	}
	for _, name := range o.Taken {
		taken[name] = true
	}
	prefix := o.Set + "-"
	prefix = prefix[:min(len(prefix), maxName-suffix)]
	state := o.Seed
	result := make([]string, 0, n)
	for len(result) < n {
		var bits uint64
		state, bits = splitMix(state)
		name := prefix
		for range suffix {
			name += string(letters[bits%uint64(len(letters))])
			bits /= uint64(len(letters))
		}
		if !taken[name] {
			taken[name] = true
			result = append(result, name)
		}
	}
	slices.Sort(result)
	return result
}

// splitMix is one step of the SplitMix64 generator: all the randomness that a name needs, fixed by its seed on every
// version of Go. Source of the constants: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
func splitMix(state uint64) (next, value uint64) {
	next = state + 0x9e3779b97f4a7c15
	z := next
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return next, z ^ (z >> 31)
}

// clockSlack is how much the worker's clock, which Generations is dated by, may be ahead of the API server's, which
// machines are. Source: as for the replacement budget. A machine that is made so shortly before only waits longer.
const clockSlack = 10 * time.Second

// ripe reports whether a machine that is to be replaced may be given up now. One that never joined, and that was made
// after the last generation was given up, is the next generation: it waits, so that a class that makes no usable machine
// costs less and less. All others go at once.
func ripe(o Observed, m Member) bool {
	return failures(o) == 0 || !newest(o, m) || !o.Now.Before(nextGeneration(o))
}

// newest reports whether a machine belongs to a generation that no record counts yet.
func newest(o Observed, m Member) bool {
	return !m.Joined && (failures(o) == 0 || !m.Created.Before(o.Generations.Last.Add(-clockSlack)))
}

// failures is how many generations in a row failed: none, once a machine has joined that was made after the last of them.
func failures(o Observed) int {
	if slices.ContainsFunc(o.Members, func(m Member) bool { return m.Joined && m.Created.After(o.Generations.Last) }) {
		return 0
	}
	return o.Generations.Failed
}

// nextGeneration is when the next generation may be given up.
func nextGeneration(o Observed) time.Time {
	pause, most := o.Remediation.Backoff, o.Remediation.MaxBackoff
	if most <= 0 {
		most = 365 * 24 * time.Hour // keeps the doubling from overflowing
	}
	for range failures(o) - 1 {
		if pause *= 2; pause >= most {
			break
		}
	}
	return o.Generations.Last.Add(min(pause, most))
}

// record returns what the status shall say when these machines are given up; nil when it does.
func record(o Observed, given []Member) *Generations {
	if o.Remediation.Backoff <= 0 || !slices.ContainsFunc(given, func(m Member) bool { return newest(o, m) }) {
		return nil
	}
	return &Generations{Failed: failures(o) + 1, Last: o.Now.Truncate(time.Second)}
}

// notYet says why the next generation waits.
func notYet(o Observed) string {
	until, n := nextGeneration(o).UTC().Format(time.RFC3339), phrase.Count(failures(o), "generation")
	return fmt.Sprintf("Waiting until %s because %s of machines failed in a row before they had joined", until, n)
}

// Times after which only the clock changes what is said. Source: Cluster API.
const (
	staleAfter = 15 * time.Minute // a deletion that lasts longer is told by name
	youngUntil = 10 * time.Second // a machine may take that long until it is known whether it is up to date
)

// recheck returns the next moment at which the clock alone changes what is decided or said; zero when there is none.
func recheck(o Observed) time.Time {
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
		if !m.Deleting && !ripe(o, m) && (m.toReplace() || m.marked()) {
			at(nextGeneration(o))
		}
	}
	return next
}
