package explain

import "time"

// Pauses before the next attempt, for the texts of explanations. workflows/run/policies.go applies these pauses, and
// gives their sources.
const (
	StuckCallRetryPause       = time.Hour        // retry of a call that waits for a person
	RefusedWriteRetryPause    = 10 * time.Second // retry of a write that the API server refused
	MaxRefusedWriteRetryPause = 5 * time.Minute  // longest pause after several refused writes
)
