package orphan

import "time"

// This file holds the times of sweeps that no object configures.

// Defaults of Settings. Sources: the period of MCM's sweep, MCM's creation timeout, and a fifth of what a set deletes
// at a time.
const (
	DefaultConfirm     = 15 * time.Minute
	DefaultMinAge      = 20 * time.Minute
	DefaultMaxPerSweep = 10
)

// maxAllowedFor is how far in the future the end of the annotation collect-orphans may be. Source: many times the two
// sweeps that a deletion takes, and at most one day if an operator forgets the annotation.
const maxAllowedFor = 24 * time.Hour
