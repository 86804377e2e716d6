package health

import "time"

// This file holds the durations of package health that no object configures.

// minRecoveryTime is how long a node must be healthy before the health timeout starts again. For a health timeout of
// less than ten minutes, a tenth of the timeout is enough. Without this limit, a flapping node could postpone its
// timeout forever. Source of minRecoveryTime: an issue of MCM describes nodes that flapped several times a minute.
const minRecoveryTime = time.Minute
