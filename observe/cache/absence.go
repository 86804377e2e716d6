package cache

import "time"

// Absence is a period in which no worker of this installation worked: no worker ran, or Temporal or the control cluster
// did not answer. From and To come from the clock of the control cluster's API server.
type Absence struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Absences is the list of known absences, in the order of time, without overlaps.
type Absences []Absence

// DurationBetween returns how much of the time between two moments was an absence.
func (a Absences) DurationBetween(from, to time.Time) (sum time.Duration) {
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

// SetAbsences replaces the known absences. The caller must not change the list afterwards.
func (c *Cluster) SetAbsences(absences Absences) { c.absences.Store(&absences) }

// Absences returns the known absences; nil before the first call of SetAbsences.
func (c *Cluster) Absences() Absences {
	if known := c.absences.Load(); known != nil {
		return *known
	}
	return nil
}
