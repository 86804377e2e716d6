package orphan

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bounds of a Decision: as JSON it stays below 16 KiB, whatever the fleet and however long its names.
const (
	maxSightings     = 100
	maxSightingBytes = 7 << 10
	maxTargetBytes   = 3 << 10
	maxNotes         = 10
	maxNoteBytes     = 200
	jsonOverhead     = 80 // of one sighting or target: keys, quotes and the time
)

// sightings returns those of all members for the next sweep, the oldest first, and no more than a history can hold. One that
// is left out starts its clock at a later sweep.
func sightings(orphans []group) []Sighting {
	var all []Sighting
	for _, g := range orphans {
		for i, m := range g.members {
			all = append(all, Sighting{ProviderID: m.ProviderID, UID: g.uid, Since: g.since[i]})
		}
	}
	slices.SortStableFunc(all, func(a, b Sighting) int { return a.Since.Compare(b.Since) })
	size := 0
	for i, s := range all {
		if size += len(s.ProviderID) + len(s.UID) + jsonOverhead; i == maxSightings || size > maxSightingBytes {
			return all[:i]
		}
	}
	return all
}

// size is what a target of the group takes in a history, in bytes.
func (g group) size() int {
	size := len(g.machine) + len(g.uid) + jsonOverhead
	for _, m := range g.members {
		size += len(m.ProviderID) + len(`"",`)
	}
	return size
}

func (g group) providerIDs() []string {
	ids := make([]string, len(g.members))
	for i, m := range g.members {
		ids[i] = m.ProviderID
	}
	return ids
}

func (g group) ids() string { return strings.Join(g.providerIDs(), ", ") }

// notes are the sentences of a decision.
type notes []string

func (n *notes) add(format string, args ...any) {
	*n = append(*n, shortened(fmt.Sprintf(format, args...)))
}

// bounded returns at most ten of them; the last says how many more there are.
func (n notes) bounded() []string {
	if len(n) <= maxNotes {
		return n
	}
	return append(slices.Clone(n[:maxNotes-1]), fmt.Sprintf("and %d more", len(n)-maxNotes+1))
}

func shortened(text string) string {
	if len(text) <= maxNoteBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxNoteBytes], "") + "…"
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05 MST") }
