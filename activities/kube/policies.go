package kube

import (
	"cmp"
	"math/rand/v2"
	"time"
)

// This file holds the timeouts, back-offs and intervals that packages of activities share. The file
// workflows/run/policies.go holds the timeouts and retries of whole activities.

// A decision waits for its caches at most half a second in a local activity, and then at most 1.5 seconds in a regular
// activity. If the caches are still behind, the decision then reads live. Half a second is many times the usual delay
// of an event; people notice a delay of two seconds. Source: ADR 0004.
const (
	maxCacheWaitInLocalActivity   = 500 * time.Millisecond
	maxCacheWaitInRegularActivity = 1500 * time.Millisecond
)

// TargetReadTimeout is the timeout of a live read of a target cluster. After the timeout, a decision uses the cache,
// which does not prove that a node does not exist. Source: half of the two seconds that a decision waits for its
// caches.
const TargetReadTimeout = time.Second

// TokenRequestTimeout is the timeout of the requests about one bootstrap token to a target cluster. A worker has a
// limited number of slots, and a target cluster that does not answer must not occupy a slot for long. Source: the third
// of a usual timeout of a request to an API server, and many times the time that a loaded API server takes.
const TokenRequestTimeout = 10 * time.Second

// Back-offs and limits of cloud calls.
const (
	// DefaultMaxExhaustedBackOff is the longest back-off after ResourceExhausted. Source: default of MCM's flag
	// --resource-exhausted-retry.
	DefaultMaxExhaustedBackOff = 10 * time.Minute

	firstShortBackOff = 2 * time.Second // first back-off after a temporary failure; doubled with each further failure
	maxShortBackOff   = 2 * time.Minute // longest back-off after a temporary failure
	// firstLongBackOff is the first back-off after ResourceExhausted, because capacity does not come back within
	// seconds.
	firstLongBackOff  = 30 * time.Second
	jitterShare       = 0.2             // share of a back-off or poll interval that is added or subtracted at random
	MaxFirstCallDelay = 5 * time.Second // if the first attempt starts later, an operator may have reset the activity
	// for an older machine, a create call may have been made although the status does not record it. Source: ADR 0053
	MaxNewMachineAge  = 2 * time.Minute
	HeartbeatInterval = 3 * time.Second // a third of the heartbeat timeout in workflows/run/policies.go
)

// Intervals between polls of a deleted instance. Source: ADR 0021.
const (
	deletePollDivisor     = 8                      // the poll interval is one eighth of the time since the delete request
	minDeletePollInterval = 250 * time.Millisecond // shortest poll interval of a deleted instance
	maxDeletePollInterval = 15 * time.Second       // longest poll interval of a deleted instance
)

// Default timeouts of a drain's wait for volumes. Source: defaults of MCM's flags --machine-pv-detach-timeout and
// --machine-pv-reattach-timeout.
const (
	DefaultDetachTimeout = 2 * time.Minute
	DefaultAttachTimeout = 90 * time.Second
)

// BackOffAfterProblem returns the back-off after a problem: the delay that the cloud requested, or a delay that doubles
// with each failure in a row.
func BackOffAfterProblem(known Problem, exhaustedRetry time.Duration) time.Duration {
	if known.After > 0 {
		return known.After
	}
	wait, most := firstShortBackOff, maxShortBackOff
	if known.React == ReactionRetryLong {
		wait, most = firstLongBackOff, cmp.Or(exhaustedRetry, DefaultMaxExhaustedBackOff)
	}
	for range known.Failures - 1 {
		if wait >= most {
			break
		}
		wait *= 2
	}
	return addJitter(min(wait, most))
}

// DeletePollInterval returns the pause before the next poll of a deleted instance. The parameter since is the time
// since the delete request.
func DeletePollInterval(since time.Duration) time.Duration {
	return addJitter(min(max(since/deletePollDivisor, minDeletePollInterval), maxDeletePollInterval))
}

// BusyPollInterval returns the pause before the next attempt of a call whose namespace has too many calls in progress.
// The parameter since is the time since the call was scheduled. Source: the same growth as the polls of a deletion, so
// that a thousand calls that wait cost a few dozen attempts per second.
func BusyPollInterval(since time.Duration) time.Duration { return DeletePollInterval(since) }

// addJitter changes a wait at random, so that a hundred machines do not call at the same time.
func addJitter(wait time.Duration) time.Duration {
	return wait + time.Duration((rand.Float64()*2-1)*jitterShare*float64(wait))
}
