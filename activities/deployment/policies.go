package deployment

import "time"

// resizeWithin is the age up to which the decision to resize a set still holds when only its resourceVersion has
// changed. Source: the timeout of one local attempt.
const resizeWithin = 2 * time.Second
