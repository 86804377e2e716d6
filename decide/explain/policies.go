package explain

import "time"

// Pauses before the next attempt, as the sentences name them. workflows/run/policies.go applies them, and has their
// sources.
const (
	RecheckStuck = time.Hour        // of a call that waits for a person
	RefusedAgain = 10 * time.Second // of a write that the API server refused
	RefusedMost  = 5 * time.Minute  // the longest after several refusals
)
