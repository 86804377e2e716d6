package orphan

import "time"

// This file holds the durations of sweeps that no object configures.

// Defaults of a sweep's Settings. Sources of the defaults: the period of MCM's sweep, MCM's creation timeout, and one
// fifth of the machines that a set deletes at a time.
const (
	DefaultConfirmTime = 15 * time.Minute
	DefaultMinAge      = 20 * time.Minute
	DefaultMaxPerSweep = 10
)

// maxAllowanceDuration is how far in the future the end of the annotation collect-orphans may be. Source of
// maxAllowanceDuration: one day is much longer than the two sweeps that a deletion takes, and limits the effect of a
// forgotten annotation.
const maxAllowanceDuration = 24 * time.Hour
