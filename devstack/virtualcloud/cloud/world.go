package cloud

import (
	"slices"
	"time"

	"millwright/provider/virtual"
)

// cloudState has the records of all instances, and the counters. Only applyEntry sets a record, with an entry that is
// on disk.
type cloudState struct {
	nextInstanceNumber  int
	counters            savedCounters
	records             map[int]*instanceRecord
	userData            map[int][]byte
	recordNumbers       []int // numbers of all records, in ascending order
	possiblyLiveNumbers []int // numbers of the instances that may still be live; liveRecords removes ended instances
	recordNumbersByUID  map[string][]int
	latestNumberByToken map[string]int // number of the latest instance, by client token
	lingerTime          time.Duration  // time for which visibleInstances shows an instance that is gone
}

// savedCounters are the counters that survive a restart of the cloud.
type savedCounters struct {
	CreatedInstances   int `json:"creates"`
	DeletedInstances   int `json:"deletes"`
	VanishedInstances  int `json:"vanished"`
	MaxLiveInstances   int `json:"maxLive"`
	DuplicateInstances int `json:"duplicateCreates"`
}

func newCloudState() *cloudState {
	return &cloudState{
		nextInstanceNumber: 1, records: map[int]*instanceRecord{}, userData: map[int][]byte{},
		recordNumbersByUID: map[string][]int{}, latestNumberByToken: map[string]int{},
	}
}

// logEntry is one line of the log: the new content of a record, or the counters at a compaction.
type logEntry struct {
	Kind               entryKind       `json:"kind"`
	Record             *instanceRecord `json:"record,omitempty"`
	UserData           []byte          `json:"userData,omitempty"` // only in entries of the kinds created and kept
	Counters           *savedCounters  `json:"counters,omitempty"` // only in a summary
	NextInstanceNumber int             `json:"next,omitempty"`     // number of the next instance; only in a summary
}

// entryKind names the change of a record that a logEntry contains.
type entryKind string

const (
	entrySummary          entryKind = "summary" // first line of a compacted log, with the counters
	entryKept             entryKind = "kept"    // record that a compaction kept; the summary's counters include the record
	entryCreated          entryKind = "created"
	entryInitialized      entryKind = "initialized"
	entryDeleted          entryKind = "deleted"
	entryVanished         entryKind = "vanished"
	entryRegistered       entryKind = "registered"
	entryNodeInitialized  entryKind = "nodeInited"
	entryNodeSyncFinished entryKind = "nodeEnded"
	entryNodeResynced     entryKind = "rejoined" // the registry processes the Node again from the start
)

// applyEntry applies one log entry to the state.
func (w *cloudState) applyEntry(e logEntry) {
	if e.Kind == entrySummary {
		w.counters, w.nextInstanceNumber = *e.Counters, e.NextInstanceNumber
		return
	}
	r := e.Record
	if e.Kind == entryCreated {
		w.countCreation(r)
	}
	switch e.Kind { //nolint:exhaustive // no other kind is counted here
	case entryDeleted:
		w.counters.DeletedInstances++
	case entryVanished:
		w.counters.VanishedInstances++
	}
	if _, known := w.records[r.Number]; !known {
		w.recordNumbers = append(w.recordNumbers, r.Number)
		w.possiblyLiveNumbers = append(w.possiblyLiveNumbers, r.Number)
		w.recordNumbersByUID[uidKey(r.Tags)] = append(w.recordNumbersByUID[uidKey(r.Tags)], r.Number)
		w.userData[r.Number] = e.UserData
		if r.ClientToken != "" {
			w.latestNumberByToken[r.ClientToken] = r.Number
		}
		w.nextInstanceNumber = max(w.nextInstanceNumber, r.Number+1)
	}
	w.records[r.Number] = r
}

// countCreation counts a creation at the record's own time, so that a replay of the log gives the same counters.
func (w *cloudState) countCreation(r *instanceRecord) {
	w.counters.CreatedInstances++
	for _, number := range w.recordNumbersByUID[uidKey(r.Tags)] {
		if r.Tags.MachineUID != "" && w.records[number].existsAtTime(r.AcceptedAt) {
			w.counters.DuplicateInstances++
			break
		}
	}
	w.counters.MaxLiveInstances = max(w.counters.MaxLiveInstances, len(w.liveRecords(r.AcceptedAt))+1)
}

func uidKey(tags virtual.Tags) string { return tags.Cluster + "/" + tags.MachineUID }

// liveRecords returns the records of the instances that exist at t, sorted by number. The time t must not be before the
// t of an earlier call.
func (w *cloudState) liveRecords(t time.Time) []*instanceRecord {
	var records []*instanceRecord
	w.possiblyLiveNumbers = slices.DeleteFunc(w.possiblyLiveNumbers, func(number int) bool {
		r := w.records[number]
		if r.existsAtTime(t) {
			records = append(records, r)
			return false
		}
		return !r.GoneAt.IsZero() && !r.GoneAt.After(t) // an instance accepted after t stays in possiblyLiveNumbers
	})
	return records
}

// visibleInstances returns the wanted instances among these numbers that a read at t shows.
func (w *cloudState) visibleInstances(
	numbers []int,
	t time.Time,
	wanted func(*instanceRecord) bool,
) []virtual.Instance {
	items := []virtual.Instance{}
	for _, number := range numbers {
		r := w.records[number]
		if r != nil && !r.AcceptedAt.After(t) && !isPast(r.GoneAt, t.Add(-w.lingerTime)) && wanted(r) {
			items = append(items, r.instanceAtTime(t))
		}
	}
	return items
}

// removeRecords removes the unwanted records.
func (w *cloudState) removeRecords(unwanted func(*instanceRecord) bool) {
	fresh := newCloudState()
	fresh.nextInstanceNumber, fresh.counters = w.nextInstanceNumber, w.counters
	for _, number := range w.recordNumbers {
		if r := w.records[number]; !unwanted(r) {
			fresh.applyEntry(logEntry{Kind: entryKept, Record: r, UserData: w.userData[number]})
		}
	}
	*w = *fresh
}
