package cloud

import (
	"slices"
	"time"

	"millwright/provider/virtual"
)

// world is every instance, and their counters. Only apply changes it, with entries that are on disk.
type world struct {
	next     int
	counters counters
	records  map[int]*record
	userData map[int][]byte
	order    []int // numbers in records, ascending
	living   []int // those that may still be live; live() removes others
	byUID    map[string][]int
	byToken  map[string]int // the latest instance of each client token
	linger   time.Duration  // how long visible shows an instance that is gone
}

// counters are those that survive a restart.
type counters struct {
	Creates          int `json:"creates"`
	Deletes          int `json:"deletes"`
	Vanished         int `json:"vanished"`
	MaxLive          int `json:"maxLive"`
	DuplicateCreates int `json:"duplicateCreates"`
}

func newWorld() *world {
	return &world{
		next: 1, records: map[int]*record{}, userData: map[int][]byte{},
		byUID: map[string][]int{}, byToken: map[string]int{},
	}
}

// entry is one line on disk: the new content of a record, or the counters that a compaction kept.
type entry struct {
	Kind     kind      `json:"kind"`
	Record   *record   `json:"record,omitempty"`
	UserData []byte    `json:"userData,omitempty"` // with kinds created and kept
	Counters *counters `json:"counters,omitempty"` // with kind summary
	Next     int       `json:"next,omitempty"`     // with kind summary
}

// kind says what happened to the record of an entry.
type kind string

const (
	summary     kind = "summary" // of all that was compacted; if present, the first line of a log
	kept        kind = "kept"    // counted in the summary
	created     kind = "created"
	initialized kind = "initialized"
	deleted     kind = "deleted"
	vanished    kind = "vanished"
	registered  kind = "registered"
	nodeInited  kind = "nodeInited"
	nodeEnded   kind = "nodeEnded"
	rejoined    kind = "rejoined" // its Node is processed from the start
)

// apply applies an entry.
func (w *world) apply(e entry) {
	if e.Kind == summary {
		w.counters, w.next = *e.Counters, e.Next
		return
	}
	r := e.Record
	if e.Kind == created {
		w.count(r)
	}
	switch e.Kind { //nolint:exhaustive // the others are not counted
	case deleted:
		w.counters.Deletes++
	case vanished:
		w.counters.Vanished++
	}
	if _, known := w.records[r.Number]; !known {
		w.order = append(w.order, r.Number)
		w.living = append(w.living, r.Number)
		w.byUID[uidKey(r.Tags)] = append(w.byUID[uidKey(r.Tags)], r.Number)
		w.userData[r.Number] = e.UserData
		if r.ClientToken != "" {
			w.byToken[r.ClientToken] = r.Number
		}
		w.next = max(w.next, r.Number+1)
	}
	w.records[r.Number] = r
}

// count counts a creation by its own time, so that replaying the log gives the same result.
func (w *world) count(r *record) {
	w.counters.Creates++
	for _, number := range w.byUID[uidKey(r.Tags)] {
		if r.Tags.MachineUID != "" && w.records[number].live(r.Accepted) {
			w.counters.DuplicateCreates++
			break
		}
	}
	w.counters.MaxLive = max(w.counters.MaxLive, len(w.live(r.Accepted))+1)
}

func uidKey(tags virtual.Tags) string { return tags.Cluster + "/" + tags.MachineUID }

// live returns the instances that exist at t, sorted by number. t must not be before the t of an earlier call.
func (w *world) live(t time.Time) []*record {
	var records []*record
	w.living = slices.DeleteFunc(w.living, func(number int) bool {
		r := w.records[number]
		if r.live(t) {
			records = append(records, r)
			return false
		}
		return !r.Gone.IsZero() && !r.Gone.After(t) // not one that comes to be later than t
	})
	return records
}

// visible returns those of the numbers that a read at t shows.
func (w *world) visible(numbers []int, t time.Time, wanted func(*record) bool) []virtual.Instance {
	items := []virtual.Instance{}
	for _, number := range numbers {
		r := w.records[number]
		if r != nil && !r.Accepted.After(t) && !happened(r.Gone, t.Add(-w.linger)) && wanted(r) {
			items = append(items, r.at(t))
		}
	}
	return items
}

// forget removes records.
func (w *world) forget(unwanted func(*record) bool) {
	fresh := newWorld()
	fresh.next, fresh.counters = w.next, w.counters
	for _, number := range w.order {
		if r := w.records[number]; !unwanted(r) {
			fresh.apply(entry{Kind: kept, Record: r, UserData: w.userData[number]})
		}
	}
	*w = *fresh
}
