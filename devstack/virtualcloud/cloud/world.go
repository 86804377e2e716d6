package cloud

import (
	"slices"
	"time"

	"millwright/provider/virtual"
)

// world has the records of all instances, and the counters. Only apply changes it, with entries that are on disk.
type world struct {
	next        int
	counters    savedCounters
	records     map[int]*record
	userData    map[int][]byte
	order       []int // numbers of all records, ascending
	perhapsLive []int // numbers of instances that may still be live; liveAt removes the others
	byUID       map[string][]int
	byToken     map[string]int // the latest instance of each client token
	linger      time.Duration  // how long visibleAt shows an instance that is gone
}

// savedCounters are the counters that survive a restart of the cloud.
type savedCounters struct {
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

// logEntry is one line on disk: the new content of a record, or the counters that a compaction kept.
type logEntry struct {
	Kind     entryKind      `json:"kind"`
	Record   *record        `json:"record,omitempty"`
	UserData []byte         `json:"userData,omitempty"` // only in entries of the kinds created and kept
	Counters *savedCounters `json:"counters,omitempty"` // only in a summary
	Next     int            `json:"next,omitempty"`     // number of the next instance; only in a summary
}

// entryKind says what happened to the record of an entry.
type entryKind string

const (
	summary     entryKind = "summary" // first line of a compacted log: the counters at its compaction
	kept        entryKind = "kept"    // record that the compaction kept; the summary has counted it
	created     entryKind = "created"
	initialized entryKind = "initialized"
	deleted     entryKind = "deleted"
	vanished    entryKind = "vanished"
	registered  entryKind = "registered"
	nodeInited  entryKind = "nodeInited"
	nodeEnded   entryKind = "nodeEnded"
	rejoined    entryKind = "rejoined" // its Node is processed from the start
)

// apply applies an entry.
func (w *world) apply(e logEntry) {
	if e.Kind == summary {
		w.counters, w.next = *e.Counters, e.Next
		return
	}
	r := e.Record
	if e.Kind == created {
		w.countCreation(r)
	}
	switch e.Kind { //nolint:exhaustive // the others are not counted
	case deleted:
		w.counters.Deletes++
	case vanished:
		w.counters.Vanished++
	}
	if _, known := w.records[r.Number]; !known {
		w.order = append(w.order, r.Number)
		w.perhapsLive = append(w.perhapsLive, r.Number)
		w.byUID[uidKey(r.Tags)] = append(w.byUID[uidKey(r.Tags)], r.Number)
		w.userData[r.Number] = e.UserData
		if r.ClientToken != "" {
			w.byToken[r.ClientToken] = r.Number
		}
		w.next = max(w.next, r.Number+1)
	}
	w.records[r.Number] = r
}

// countCreation counts a creation by its own time, so that replaying the log gives the same result.
func (w *world) countCreation(r *record) {
	w.counters.Creates++
	for _, number := range w.byUID[uidKey(r.Tags)] {
		if r.Tags.MachineUID != "" && w.records[number].existsAt(r.Accepted) {
			w.counters.DuplicateCreates++
			break
		}
	}
	w.counters.MaxLive = max(w.counters.MaxLive, len(w.liveAt(r.Accepted))+1)
}

func uidKey(tags virtual.Tags) string { return tags.Cluster + "/" + tags.MachineUID }

// liveAt returns the instances that exist at t, sorted by number. t must not be before the t of an earlier call.
func (w *world) liveAt(t time.Time) []*record {
	var records []*record
	w.perhapsLive = slices.DeleteFunc(w.perhapsLive, func(number int) bool {
		r := w.records[number]
		if r.existsAt(t) {
			records = append(records, r)
			return false
		}
		return !r.Gone.IsZero() && !r.Gone.After(t) // not one that comes to be later than t
	})
	return records
}

// visibleAt returns the instances with these numbers that a read at t shows.
func (w *world) visibleAt(numbers []int, t time.Time, wanted func(*record) bool) []virtual.Instance {
	items := []virtual.Instance{}
	for _, number := range numbers {
		r := w.records[number]
		if r != nil && !r.Accepted.After(t) && !isPast(r.Gone, t.Add(-w.linger)) && wanted(r) {
			items = append(items, r.instanceAt(t))
		}
	}
	return items
}

// forgetRecords removes records.
func (w *world) forgetRecords(unwanted func(*record) bool) {
	fresh := newWorld()
	fresh.next, fresh.counters = w.next, w.counters
	for _, number := range w.order {
		if r := w.records[number]; !unwanted(r) {
			fresh.apply(logEntry{Kind: kept, Record: r, UserData: w.userData[number]})
		}
	}
	*w = *fresh
}
