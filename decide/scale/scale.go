// Package scale answers which machines a set should create and which it should delete next, given its members. The
// DecideScale activity calls it with what it read. It knows no API kind, creates nothing and deletes nothing.
package scale

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// MaxBatch is how many machines one decision creates or deletes at the most. It bounds the decision's size in history.
// Source: 50 decisions of a few dozen bytes stay far below the 16 KiB that one may take there.
const MaxBatch = 50

// Member is a machine that the set owns.
type Member struct {
	Name      string
	UID       string
	Version   string // resourceVersion that was read
	Phase     string
	Deleting  bool
	Replace   bool // failed, and to be replaced now
	Preserved bool // kept on purpose: the last to go
	Kept      bool // by its set, because it failed
	Dismissed bool // nobody wants it kept
	Priority  int  // lower is deleted first; 3 where the annotation is absent
	Created   time.Time
}

// Observed is what DecideScale read, at one moment.
type Observed struct {
	Set      string   // name of the set; prefix of the names of new machines
	Deleting bool     // the set itself is to go
	Replicas int      // machines wanted
	Members  []Member // in any order
	Keep     int      // failed members to keep at the most
	Taken    []string // names of machines that are not members: new names avoid them too
	Seed     uint64   // source of new names
}

// Target names a machine to delete, as it was seen.
type Target struct {
	Name    string
	UID     string
	Version string
	Why     string
}

// Decision says what to do next. At most one of its lists is filled; all are empty when the number is right.
type Decision struct {
	Create []string // names of machines to create
	Delete []Target
	Keep   []Target // failed machines to preserve
	Why    string   `json:"Plan"` // not Why: whoever embeds a Decision has a Why too, and JSON would drop this one
}

// Decide brings the number of members that are not being deleted to Replicas, at most MaxBatch at a time. Members to be
// replaced are deleted first, and counted as gone from then on. A set that is to go deletes all its members. The same input
// gives the same output.
func Decide(o Observed) Decision {
	live := slices.DeleteFunc(slices.Clone(o.Members), func(m Member) bool { return m.Deleting })
	if o.Deleting {
		return remove(live, len(live), fmt.Sprintf("delete all %d machines: the set is being deleted", len(live)))
	}
	if keep := toKeep(o, live); len(keep) > 0 {
		return Decision{Keep: keep, Why: fmt.Sprintf("keep %d failed machines, of at most %d", len(keep), o.Keep)}
	}
	failed := 0
	for _, m := range live {
		if m.Replace {
			failed++
		}
	}
	surplus := len(live) - o.Replicas
	switch {
	case surplus < 0:
		n := min(-surplus, MaxBatch)
		return Decision{
			Create: names(o, n),
			Why:    fmt.Sprintf("create %d machines: %d wanted, %d there", n, o.Replicas, len(live)),
		}
	case surplus > 0 || failed > 0:
		n := max(surplus, failed)
		return remove(live, n, fmt.Sprintf("delete %d machines: %d wanted, %d there, %d of them failed", min(n, MaxBatch), o.Replicas, len(live), failed))
	default:
		return Decision{Why: fmt.Sprintf("%d machines wanted and there", o.Replicas)}
	}
}

// toKeep returns the failed members to preserve instead of replacing them: the oldest first, as many as may be kept.
func toKeep(o Observed, live []Member) []Target {
	left := o.Keep
	var failed []Member
	for _, m := range live {
		switch {
		case m.Kept:
			left--
		case m.Phase == "Failed" && !m.Preserved && !m.Dismissed:
			failed = append(failed, m)
		}
	}
	slices.SortFunc(failed, func(a, b Member) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name)) })
	var keep []Target
	for _, m := range failed[:max(min(left, len(failed), MaxBatch), 0)] {
		keep = append(keep, Target{Name: m.Name, UID: m.UID, Version: m.Version, Why: "failed"})
	}
	return keep
}

// remove deletes the first n machines of the deletion order.
func remove(live []Member, n int, why string) Decision {
	slices.SortFunc(live, byDeletionOrder)
	d := Decision{Why: why}
	for _, m := range live[:min(n, MaxBatch)] {
		d.Delete = append(d.Delete, Target{Name: m.Name, UID: m.UID, Version: m.Version, Why: reason(m)})
	}
	return d
}

func reason(m Member) string {
	if m.Phase == "Failed" {
		return "failed"
	}
	return fmt.Sprintf("surplus (priority %d, phase %s)", m.Priority, phaseName(m.Phase))
}

func phaseName(phase string) string {
	if phase == "" {
		return "new"
	}
	return phase
}

// byDeletionOrder puts the machine that is least worth first: lower priority, then the phase that is furthest from
// Running, then the younger one, then the name.
func byDeletionOrder(a, b Member) int {
	return cmp.Or(
		cmp.Compare(rank(a), rank(b)),
		cmp.Compare(a.Priority, b.Priority),
		cmp.Compare(worth(a.Phase), worth(b.Phase)),
		b.Created.Compare(a.Created),
		cmp.Compare(a.Name, b.Name),
	)
}

// rank puts those to be replaced first, then the other failed ones, and those that are kept on purpose last.
func rank(m Member) int {
	switch {
	case m.Replace:
		return 0
	case m.Preserved:
		return 3
	case m.Phase == "Failed":
		return 1
	default:
		return 2
	}
}

// worth ranks phases by what is lost with a machine. A new machine has cost nothing yet, but it is not more deletable
// than one that keeps crashing (D37).
func worth(phase string) int {
	order := []string{"Terminating", "CrashLoopBackOff", "Unknown", "", "Pending", "Available", "Running"}
	if i := slices.Index(order, phase); i >= 0 {
		return i
	}
	return len(order) // in-place update phases: as dear as a running one
}

// names returns n names that no known machine has.
func names(o Observed, n int) []string {
	const (
		letters = "bcdfghjklmnpqrstvwxz2456789" // no vowels: no words by accident, as Kubernetes does
		length  = 5
	)
	taken := make(map[string]bool, len(o.Members)+len(o.Taken))
	for _, m := range o.Members {
		taken[m.Name] = true
	}
	for _, name := range o.Taken {
		taken[name] = true
	}
	state := o.Seed
	result := make([]string, 0, n)
	for len(result) < n {
		var bits uint64
		state, bits = splitMix(state)
		suffix := make([]byte, length)
		for i := range suffix {
			suffix[i] = letters[bits%uint64(len(letters))]
			bits /= uint64(len(letters))
		}
		if name := o.Set + "-" + string(suffix); !taken[name] {
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
