package scale

import "time"

// This file holds the durations of sets that no object configures.

// clockSlack is how far the clock of Temporal's server may be ahead of the API server's clock. Temporal's clock sets
// the times of Generations, and the API server's clock sets the creation times of machines. Source: clockSlack of
// decide/replace has the same value. A machine that was created less than clockSlack before a generation ended counts
// as part of the next generation, and only waits longer.
const clockSlack = 10 * time.Second

// Ages after which a condition changes without a change of an object. Source: Cluster API.
const (
	staleDeletionAge = 15 * time.Minute // a machine whose deletion lasts longer is named in the condition
	youngMachineAge  = 10 * time.Second // a younger machine without an answer is not reported as unknown
)
