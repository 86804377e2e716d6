package deployment

import "time"

// maxResizeDecisionAge is the age up to which a resize decision may ignore a changed resourceVersion of the set.
// Source: the timeout of one attempt of a local activity.
const maxResizeDecisionAge = 2 * time.Second
