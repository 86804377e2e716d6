package deployment

import "time"

// resizeWithin is the age up to which the decision to resize a MachineSet still holds when only the set's resourceVersion
// has changed. Source: the timeout of one local attempt.
const resizeWithin = 2 * time.Second
