package scale

import "time"

// Times after which only the clock changes what is said. Source: Cluster API.
const (
	staleAfter = 15 * time.Minute // a deletion that lasts longer is told by name
	youngUntil = 10 * time.Second // a machine may take that long until it is known whether it is up to date
)

// recheck returns the next moment at which the clock alone changes what is decided or said; zero when there is none.
func recheck(o Observed) time.Time {
	var next time.Time
	at := func(t time.Time) {
		if t.After(o.Now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, m := range o.Members {
		if m.UpToDate == "" {
			at(m.Created.Add(youngUntil))
		}
		switch {
		case m.Deleting:
			at(m.DeletingSince.Add(staleAfter))
		case m.Ready == True:
			at(m.ReadyFrom.Add(o.MinReady))
		}
		if !m.Deleting && !ripe(o, m) && (m.toReplace() || m.Marked && m.HealthCheck == False) {
			at(nextGeneration(o))
		}
	}
	return next
}
