package scale

import "time"

// This file holds the times of sets that no object configures.

// clockSlack is how far the clock of Temporal's server, which dates Generations, may be ahead of the API server's,
// which dates machines. Source: as for the replacement budget. A machine that was created less than this before a
// generation ended counts as the next generation, and only waits longer.
const clockSlack = 10 * time.Second

// Times after which a condition changes by the clock alone. Source: Cluster API.
const (
	staleAfter = 15 * time.Minute // a deletion that lasts longer is reported by name
	youngUntil = 10 * time.Second // until this age, a machine without an answer is not reported as unknown
)
