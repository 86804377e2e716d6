package cache

import (
	"slices"
	"time"
)

// WorkerAbsence is a period in which no worker of this installation worked: no worker ran, or Temporal or the control
// cluster did not answer. From and To come from the clock of the control cluster's API server.
type WorkerAbsence struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// WorkerAbsences is the list of recorded absences, in the order of time, without overlaps.
type WorkerAbsences []WorkerAbsence

// DurationBetween returns the total duration of the absences between two times.
func (a WorkerAbsences) DurationBetween(from, to time.Time) (sum time.Duration) {
	for _, absence := range a {
		begin, end := absence.From, absence.To
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		sum += max(end.Sub(begin), 0)
	}
	return sum
}

// StoreWorkerAbsences replaces the recorded absences. The caller must not change the list afterwards.
func (c *Cluster) StoreWorkerAbsences(absences WorkerAbsences) { c.workerAbsences.Store(&absences) }

// AbsencesOfNamespace returns the recorded absences that affect the machines of a namespace: the absences of the
// workers, and those of AbsencesOfTarget.
func (c *Cluster) AbsencesOfNamespace(namespace string) WorkerAbsences {
	var ofWorkers WorkerAbsences
	if known := c.workerAbsences.Load(); known != nil {
		ofWorkers = *known
	}
	ofTarget := c.AbsencesOfTarget(namespace)
	if len(ofTarget) == 0 {
		return ofWorkers
	}
	return mergeAbsences(slices.Concat(ofWorkers, ofTarget))
}

// AbsencesOfTarget returns the times in which Millwright had no connection to the target of a namespace: the API server
// did not answer, or the namespace was held.
func (c *Cluster) AbsencesOfTarget(namespace string) WorkerAbsences {
	return mergeAbsences(slices.Concat(c.Target(namespace).Absences(), c.holds.holdAbsences(namespace)))
}

// mergeAbsences sorts absences by time, and joins overlapping absences.
func mergeAbsences(list WorkerAbsences) (merged WorkerAbsences) {
	slices.SortFunc(list, func(a, b WorkerAbsence) int { return a.From.Compare(b.From) })
	for _, absence := range list {
		if last := len(merged) - 1; last >= 0 && !absence.From.After(merged[last].To) {
			if absence.To.After(merged[last].To) {
				merged[last].To = absence.To
			}
			continue
		}
		merged = append(merged, absence)
	}
	return merged
}
