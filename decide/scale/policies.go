package scale

import "time"

// This file holds the durations of sets that no object configures.

// maxClockSkew is how far the clock of Temporal's server may be ahead of the API server's clock. Temporal's clock sets
// the times in Generations, and the API server's clock sets the creation times of machines. Source: maxClockSkew of
// decide/replace has the same value. A machine that was created less than maxClockSkew before a generation ended
// belongs to the next generation, and is deleted later.
const maxClockSkew = 10 * time.Second

// Ages at which a condition changes although no object changes. Source: Cluster API.
const (
	staleDeletionAge = 15 * time.Minute // the condition names a machine whose deletion lasts longer
	youngMachineAge  = 10 * time.Second // the condition does not report a younger machine as unknown
)
