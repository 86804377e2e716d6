package cache

import "time"

// Absence is a time in which no worker of this installation was at work: none ran, or Temporal or the control cluster
// did not answer. The times are those of the control cluster's API server.
type Absence struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Absences are the known absences, in the order of time. They do not overlap.
type Absences []Absence

// Between returns how much of the time from one moment to another was an absence.
func (a Absences) Between(from, to time.Time) (sum time.Duration) {
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

// SetAbsences replaces the known absences. The list must not be changed afterwards.
func (c *Cluster) SetAbsences(absences Absences) { c.absences.Store(&absences) }

// Absences returns the known absences; none before SetAbsences.
func (c *Cluster) Absences() Absences {
	if known := c.absences.Load(); known != nil {
		return *known
	}
	return nil
}
