package health

import "time"

// This file holds the durations of package health that no object configures.

// minRecoveryTime is the longest time that a node must be healthy before the health clock restarts. A shorter recovery,
// which is also shorter than a tenth of the health timeout, does not stop the clock. Otherwise a flapping node could
// postpone its timeout forever. Source of minRecoveryTime: an issue of MCM describes nodes that flapped several times a
// minute.
const minRecoveryTime = time.Minute
