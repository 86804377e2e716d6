package scale

import "time"

// This file holds the times of sets that no object configures.

// clockSlack is how far the clock of Temporal's server, which dates Generations, may be ahead of the API server's
// clock, which dates machines. Source: clockSlack of decide/replace. A machine created less than clockSlack before a
// generation ended counts as the next generation: it only waits longer.
const clockSlack = 10 * time.Second

// Ages after which a condition changes without a change of an object. Source: Cluster API.
const (
	staleDeletionAge = 15 * time.Minute // a deletion that lasts longer is reported by name
	youngMachineAge  = 10 * time.Second // a younger machine without an answer is not reported as unknown
)
