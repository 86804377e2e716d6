package scale

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/decide/preflight"
)

// maxCreationsPerBatch is the maximum number of creations in one batch. Source: a client with
// machine-controller-manager's default of 20 requests per second sends 96 requests (three for each Cluster API machine)
// within 5 s.
const maxCreationsPerBatch = 32

// BatchSizes returns the sizes of the batches in which n creations are sent: 1, 2, 4 and so on up to 32. A batch is
// sent only after the previous batch had no error. If every creation fails, only few requests are sent. BatchSizes
// returns nil if n is not positive.
func BatchSizes(n int) []int {
	var sizes []int
	for size := 1; n > 0; size = min(2*size, maxCreationsPerBatch) {
		size = min(size, n)
		sizes = append(sizes, size)
		n -= size
	}
	return sizes
}

// createMachines returns names for missing machines, unless a reason blocks their creation.
func createMachines(o *planner, active []Member) Decision {
	missing := o.Replicas - len(active)
	if missing <= 0 || len(creationBlockers(o)) > 0 {
		return Decision{}
	}
	n := min(missing, MaxCreations)
	return Decision{
		Create: newMachineNames(o, n),
		Hold:   waitReasonsText(o),
		Why:    fmt.Sprintf("create %s: %d wanted, %d there", machineCountText(n), o.Replicas, len(active)),
	}
}

// creationBlockers returns the reasons why the set may create no machine now, each as one sentence.
func creationBlockers(o *planner) []string {
	return append(substituteBlockers(o), phrase.NonEmptyTexts(o.Remediation.SubstitutesElsewhere)...)
}

// substituteBlockers returns the reasons why no substitute of a machine of the set may be created now, whichever set of
// the deployment creates it.
func substituteBlockers(o *planner) []string {
	// If another program removes the labels of new machines, the set would release each machine and create another
	// machine forever. Source of the limit: MCM treats a set with 2 * replicas + 2 machines or more as overshot.
	runaway := o.ReleasedMachineCount > 0 && len(o.liveMembers)+o.ReleasedMachineCount >= 2*o.Replicas+2
	return append(
		list.Map(preflight.Decide(o.Preflight), func(f preflight.CheckFailure) string { return f.Why }),
		phrase.NonEmptyTexts(
			missingObjectKindsText(o),
			phrase.TextIf(o.isFrozen(), "MachineSet is frozen"),
			strings.Join(o.StopReasons, "; "),
			phrase.TextIf(runaway, "%d Machines that the MachineSet released have no owner", o.ReleasedMachineCount),
		)...)
}

// missingObjectKindsText names the kinds of the template's objects that do not exist; empty: all objects exist.
func missingObjectKindsText(o *planner) string {
	return phrase.TextIf(
		len(o.MissingObjectKinds) > 0,
		"%s %s",
		strings.Join(o.MissingObjectKinds, " and "),
		phrase.SingularOrPlural(len(o.MissingObjectKinds), "does not exist", "do not exist"),
	)
}

// stoppedCreationText returns the number of missing machines and the reasons why the set does not create them, or an
// empty string if the set needs or creates all machines.
func stoppedCreationText(o *planner) string {
	b := creationBlockers(o)
	return phrase.TextIf(len(o.liveMembers) < o.Replicas && len(b) > 0,
		"%d wanted, %d there; none is created: %s", o.Replicas, len(o.liveMembers), strings.Join(b, "; "))
}

// waitReasonsText returns the changes that the set cannot make now, with the reasons, or an empty string if no change
// waits.
func waitReasonsText(o *planner) string {
	why := phrase.NonEmptyTexts(stoppedCreationText(o), moveBlocker(o))
	for _, s := range o.postponedMembers {
		if !slices.Contains(why, s.message) {
			why = append(why, s.message)
		}
	}
	return strings.Join(why, "; ")
}

// Lengths of machine names. Sources: a machine's name becomes a label value of its node, and a label value has at most
// 63 characters. Kubernetes' generateName adds five random characters.
const (
	maxNameLength      = 63
	randomSuffixLength = 5
)

// newMachineNames returns n names that no machine in the facts has. A name that is too long is cut, and ends with the
// random characters.
func newMachineNames(o *planner, n int) []string {
	const letters = "bcdfghjklmnpqrstvwxz2456789" // no vowels, as in Kubernetes, so that the names contain no words
	taken := make(map[string]bool, len(o.Members)+len(o.Orphans))
	for _, m := range o.Members {
		taken[m.Name] = true
	}
	for _, m := range o.Orphans {
		taken[m.Name] = true
	}
	parts := o.NameParts
	for len(parts) < 2 {
		parts = append(slices.Clone(parts), "")
	}
	state := o.NameSeed
	result := make([]string, 0, n)
	for len(result) < n {
		var bits uint64
		state, bits = nextRandomValue(state)
		random := ""
		for range randomSuffixLength {
			random += string(letters[bits%uint64(len(letters))])
			bits /= uint64(len(letters))
		}
		name := strings.Join(parts, random)
		if len(name) > maxNameLength {
			name = name[:maxNameLength-randomSuffixLength] + random
		}
		if !taken[name] {
			taken[name] = true
			result = append(result, name)
		}
	}
	slices.Sort(result)
	return result
}

// nextRandomValue is one step of the SplitMix64 generator, which gives the same values with every version of Go. Source
// of the constants: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
func nextRandomValue(state uint64) (next, value uint64) {
	next = state + 0x9e3779b97f4a7c15
	z := next
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return next, z ^ (z >> 31)
}

// nextRecheckTime returns the next time at which the decision or the status changes although no object changes; zero:
// never.
func nextRecheckTime(o *planner) time.Time {
	var next time.Time
	at := func(t time.Time) {
		if t.After(o.Now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, m := range o.Members {
		if m.UpToDate == "" {
			at(m.CreatedAt.Add(youngMachineAge))
		}
		switch {
		case m.Deleting:
			at(m.DeletingSince.Add(staleDeletionAge))
		case m.Ready == ConditionTrue:
			at(m.ReadySince.Add(o.MinReadyDuration))
		}
		if !m.Deleting && (m.needsReplacement() || o.isFailedSubstitute(m) || m.isMarkedUnhealthy()) &&
			retryHoldReason(o, m) == vocabulary.ReasonRemediationBackoff {
			at(nextGenerationDeletionTime(o))
		}
	}
	return next
}
