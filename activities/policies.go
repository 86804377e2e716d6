package activities

import (
	"cmp"
	"math/rand/v2"
	"time"
)

// This file holds the timeouts, back-offs and intervals of activities. Timeouts and retries of whole activities stand in
// workflows/policies.go.

// A decision waits so long for its caches to reach the versions that it needs, then it reads live: half a second in a local
// activity, which is many times what an event takes, and two seconds in all, which is what people notice. Source: ADR 0004.
const (
	cacheWaitLocal   = 500 * time.Millisecond
	cacheWaitRegular = 1500 * time.Millisecond
)

// targetReadTimeout bounds a live read of a target cluster; after it, a decision uses what was read last. Source: half of the
// two seconds that a decision has.
const targetReadTimeout = time.Second

// resizeWithin is the age up to which the decision to resize a MachineSet still holds when only the set's resourceVersion
// has changed. Source: the timeout of one local attempt.
const resizeWithin = 2 * time.Second

// Calls of a cloud.
const (
	// DefaultExhaustedRetry is the longest back-off after ResourceExhausted. Source: MCM flag default, --resource-exhausted-retry.
	DefaultExhaustedRetry = 10 * time.Minute

	shortRetry      = 2 * time.Second  // first back-off after a failure that may pass; it doubles with each failure
	shortRetryMost  = 2 * time.Minute  // longest back-off after such a failure
	longRetry       = 30 * time.Second // first back-off after ResourceExhausted: capacity does not come back within seconds
	jitter          = 0.2              // share of a back-off or poll interval that is added or taken off at random
	firstCallWithin = 5 * time.Second  // an attempt 1 that starts later than this may be one that an operator has reset
	heartbeatEvery  = 3 * time.Second  // a third of the heartbeat timeout in workflows/policies.go
)

// Polls of an instance that is being deleted. Source: ADR 0021.
const (
	deletePollShare = 8                      // the interval is an eighth of the time since the deletion was requested,
	deletePollLeast = 250 * time.Millisecond // at least this,
	deletePollMost  = 15 * time.Second       // and at most this
)

// Defaults of the times that a drain waits for volumes. Source: MCM flag defaults, --machine-pv-detach-timeout and
// --machine-pv-reattach-timeout.
const (
	DefaultDetachTimeout = 2 * time.Minute
	DefaultAttachTimeout = 90 * time.Second
)

// Evictions.
const (
	// requestTimeout bounds one eviction. An eviction that the client cuts off may have used its budget already, which then
	// misses that pod for two minutes although the pod stays. Source: the API server tries an eviction for 10 s when others
	// change the same budget (20 times, half a second apart); webhooks have 10 s by default, and few take a second.
	requestTimeout = 20 * time.Second
	// budgetLockTimeout is how long an eviction waits for others of the same budget before its drain looks at all pods again.
	// Source: together with one request, it is the time that a stopping worker waits for.
	budgetLockTimeout = 10 * time.Second
	// debouncedFor is how long blockers must stay the same before the drain reports them; debouncedMost is when it reports
	// blockers that keep changing. Source: what a person notices; what a cloud takes to move a volume that nothing holds.
	debouncedFor  = time.Second
	debouncedMost = 30 * time.Second
	// Up to quickLooks looks at the pods may follow each other shortestWait apart, so that a change has an effect at once. After them,
	// looks are leastPause apart: a budget, a pod and its volume change a few times each when a pod goes. Source: what people
	// notice, and what a look takes.
	shortestWait = 20 * time.Millisecond
	leastPause   = 50 * time.Millisecond
	quickLooks   = 10
	// rewatchAfter is the pause before the next attempt when the API server ends a watch, so that watches that are cut off at
	// once make no busy loop. Source: the shortest pause of client-go's own retries; API servers end a watch after half an
	// hour or more.
	rewatchAfter = time.Second
)

// backOffFor is how long to wait after a problem: what the cloud asked for, else longer after each failure in a row.
func backOffFor(known Problem, exhaustedRetry time.Duration) time.Duration {
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

// deletePoll is how long to wait before the next look at an instance whose deletion was requested that long ago.
func deletePoll(since time.Duration) time.Duration {
	return jittered(min(max(since/deletePollShare, deletePollLeast), deletePollMost))
}

// jittered changes a wait at random, so that a hundred machines do not come back at the same time.
func jittered(wait time.Duration) time.Duration {
	return wait + time.Duration((rand.Float64()*2-1)*jitter*float64(wait))
}
