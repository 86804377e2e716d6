package kube

import (
	"cmp"
	"math/rand/v2"
	"time"
)

// This file holds the timeouts, back-offs and intervals that packages of activities share. Timeouts and retries of
// whole activities are in workflows/run/policies.go.

// How long a decision waits for its caches to reach the versions that it needs, before it reads live: half a second in
// a local activity, which is many times the delay of an event, and two seconds in all, which people notice. Source: ADR
// 0004.
const (
	cacheWaitLocal   = 500 * time.Millisecond
	cacheWaitRegular = 1500 * time.Millisecond
)

// TargetReadTimeout bounds a live read of a target cluster. After it, a decision uses the cache, which does not prove
// that a node does not exist. Source: half of the two seconds of a decision.
const TargetReadTimeout = time.Second

// Calls of a cloud.
const (
	// DefaultExhaustedRetry is the longest back-off after ResourceExhausted. Source: MCM flag default,
	// --resource-exhausted-retry.
	DefaultExhaustedRetry = 10 * time.Minute

	shortRetry     = 2 * time.Second // first back-off after a failure that may pass; it doubles with each failure
	shortRetryMost = 2 * time.Minute // longest back-off after such a failure
	// first back-off after ResourceExhausted: capacity does not come back within seconds
	longRetry       = 30 * time.Second
	jitter          = 0.2             // share of a back-off or poll interval that is added or taken off at random
	FirstCallWithin = 5 * time.Second // a first attempt that starts later than this may be one that an operator has reset
	NewMachineFor   = 2 * time.Minute // a machine older than this counts as tried in any case. Source: ADR 0053
	HeartbeatEvery  = 3 * time.Second // a third of the heartbeat timeout in workflows/run/policies.go
)

// Intervals at which a deleted instance is polled. Source: ADR 0021.
const (
	deletePollShare = 8                      // the interval is an eighth of the time since the deletion was requested,
	deletePollLeast = 250 * time.Millisecond // at least this,
	deletePollMost  = 15 * time.Second       // and at most this
)

// Defaults for how long a drain waits for volumes. Source: MCM flag defaults, --machine-pv-detach-timeout and
// --machine-pv-reattach-timeout.
const (
	DefaultDetachTimeout = 2 * time.Minute
	DefaultAttachTimeout = 90 * time.Second
)

// BackOffFor returns how long to wait after a problem: as long as the cloud asked for, else twice as long after each
// failure in a row.
func BackOffFor(known Problem, exhaustedRetry time.Duration) time.Duration {
	if known.After > 0 {
		return known.After
	}
	wait, most := shortRetry, shortRetryMost
	if known.React == RetryLong {
		wait, most = longRetry, cmp.Or(exhaustedRetry, DefaultExhaustedRetry)
	}
	for range known.Failures - 1 {
		if wait >= most {
			break
		}
		wait *= 2
	}
	return jittered(min(wait, most))
}

// DeletePoll returns how long to wait before the next poll of a deleted instance. since is the time since its deletion
// was requested.
func DeletePoll(since time.Duration) time.Duration {
	return jittered(min(max(since/deletePollShare, deletePollLeast), deletePollMost))
}

// jittered changes a wait at random, so that a hundred machines do not call at the same time.
func jittered(wait time.Duration) time.Duration {
	return wait + time.Duration((rand.Float64()*2-1)*jitter*float64(wait))
}
