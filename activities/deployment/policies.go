package deployment

import "time"

// maxResizeAge is the largest age of a resize decision that ignores a changed resourceVersion of the set. Source: the
// timeout of one attempt of a local activity.
const maxResizeAge = 2 * time.Second
