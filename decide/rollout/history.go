package rollout

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// longestHistory is how many former revisions a set keeps in its annotation. Source: ours; MCM's list has no end, and an
// annotation may have 256 KiB.
const longestHistory = 20

// Revise gives the current set its revision.
type Revise struct {
	Target
	Revision int64
	History  string // its former revisions, the last ones only; as before where the revision does not change
}

// revision returns what the current set's revision is or shall be: the highest of all.
func (b *book) revision() int64 {
	highest := int64(0)
	for _, s := range b.o.Sets {
		if b.now == nil || s.UID != b.now.UID {
			highest = max(highest, s.Revision)
		}
	}
	if b.now != nil && b.now.Revision > highest {
		return b.now.Revision
	}
	return highest + 1
}

// revise numbers the current set when it is not the highest. Only a new number makes an entry in the history.
func (b *book) revise() *Revise {
	revision := b.revision()
	if b.now == nil || b.now.Revision == revision {
		return nil
	}
	history := b.now.History
	if b.now.Revision > 0 {
		list := slices.DeleteFunc(strings.Split(history, ","), func(s string) bool { return s == "" })
		list = append(list, strconv.FormatInt(b.now.Revision, 10))
		history = strings.Join(list[max(len(list)-longestHistory, 0):], ",")
	}
	return &Revise{b.now.target(phrase("it is revision %d now", revision)), revision, history}
}

// cleanup returns old sets that nobody needs any more: without machines, and older than those that are kept for an undo.
// The one with the lowest revision goes first.
func (b *book) cleanup() []Target {
	if b.o.HistoryLimit == nil {
		return nil
	}
	old := b.old()
	slices.SortStableFunc(old, func(x, y *entry) int { return cmp.Compare(x.Revision, y.Revision) })
	var list []Target
	for _, e := range old[:max(len(old)-max(*b.o.HistoryLimit, 0), 0)] {
		empty := e.size == 0 && e.Replicas == 0 && len(e.Machines) == 0 && e.Counted == 0 && e.Seen == 0
		if empty && len(list) < MaxBatch {
			list = append(list, e.target(phrase("%d old sets are kept", *b.o.HistoryLimit)))
		}
	}
	return list
}
