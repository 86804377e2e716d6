package health

import "time"

// This file holds the times of health that no object configures.

// steadyAtMost bounds how long a node must be healthy before the health clock starts anew. After a recovery shorter
// than this and shorter than a tenth of the health timeout, the earlier clock continues, so that a node that flaps does
// not postpone its timeout for ever. Source: MCM's issue was about nodes that flapped several times a minute.
const steadyAtMost = time.Minute
