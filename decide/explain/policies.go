package explain

import "time"

// Waits before the next attempt, which the sentences name. workflows/run/policies.go waits so long, and says why.
const (
	RecheckStuck = time.Hour        // of a call that waits for a person
	RefusedAgain = 10 * time.Second // of a write that the API server refused
	RefusedMost  = 5 * time.Minute  // the longest after several refusals
)
