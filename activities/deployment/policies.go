package deployment

import "time"

// maxResizeDecisionAge is the largest age of a decision on a set's size that ignores a changed resourceVersion of the
// set. Source: the timeout of one attempt of a local activity.
const maxResizeDecisionAge = 2 * time.Second
