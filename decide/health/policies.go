package health

import "time"

// This file holds the times of health that no object configures.

// maxSteadyTime is the longest time that a node must be healthy before the health clock restarts. A recovery that is
// shorter than maxSteadyTime, and shorter than a tenth of the health timeout, does not stop the clock: a flapping
// node does not postpone its timeout without end. Source of maxSteadyTime: MCM's issue was about nodes that flapped
// several times a minute.
const maxSteadyTime = time.Minute
