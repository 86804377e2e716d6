package cache

import "time"

// WorkerAbsence is a period in which no worker of this installation worked: no worker ran, or Temporal or the control
// cluster did not answer. From and To come from the clock of the control cluster's API server.
type WorkerAbsence struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// WorkerAbsences is the list of known absences, in the order of time, without overlaps.
type WorkerAbsences []WorkerAbsence

// DurationBetween returns how much of the time between two moments was an absence.
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

// StoreWorkerAbsences replaces the known absences. The caller must not change the list afterwards.
func (c *Cluster) StoreWorkerAbsences(absences WorkerAbsences) { c.workerAbsences.Store(&absences) }

// WorkerAbsences returns the known absences; nil before the first call of StoreWorkerAbsences.
func (c *Cluster) WorkerAbsences() WorkerAbsences {
	if known := c.workerAbsences.Load(); known != nil {
		return *known
	}
	return nil
}
