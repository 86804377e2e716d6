package drain

import "time"

// Timeouts and pauses of evictions.
const (
	// evictionRequestTimeout is the timeout of one eviction request. An eviction that the client cancels may already have
	// used its budget. The budget then counts the pod as disrupted for two minutes, although the pod stays. Source: if
	// other requests change the same budget, the API server tries an eviction for 10 s (20 times, half a second apart).
	// Webhooks have a default timeout of 10 s, and few webhooks take a second.
	evictionRequestTimeout = 20 * time.Second
	// budgetLockTimeout is how long an eviction waits for other evictions of the same budget. After budgetLockTimeout,
	// the drain checks all pods again. Source: a stopping worker waits at most budgetLockTimeout plus
	// evictionRequestTimeout.
	budgetLockTimeout = 10 * time.Second
	// debounceDelay is how long blockers must stay the same before the drain reports them. maxDebounceDelay is the
	// delay after which the drain reports blockers that keep changing. Source: a person notices a delay of a second,
	// and can follow one change every 30 seconds.
	debounceDelay    = time.Second
	maxDebounceDelay = 30 * time.Second
	// The drain may check the pods up to checkBurst times at intervals of minTimerWait, so that a change takes effect at
	// once. Later checks are minCheckInterval apart, because a budget, a pod and its volume each change a few times
	// while a pod is removed. Source: the delay that people notice, and the duration of one check.
	minTimerWait     = 20 * time.Millisecond
	minCheckInterval = 50 * time.Millisecond
	checkBurst       = 10
	// A pod that arrives during a drain is evicted at once, up to arrivalBurst pods. Later pods are evicted at
	// intervals of arrivalEvictionInterval. Otherwise, a client that places pods on the node by name, or a scheduler that
	// does not see the cordon yet, would replace each evicted pod at once. Source: the node controller evicts 0.1 pods per
	// second by default.
	arrivalBurst            = 10
	arrivalEvictionInterval = 10 * time.Second
	// slowDetachDelay is how long the stage Detach lasts before the status names the attached volumes. slowDetachDelay
	// is shorter than the delay in a drain, because the drain has already waited for most volumes. Source: how long a
	// cloud takes to detach a volume that several pods used.
	slowDetachDelay = 5 * time.Second
	// rewatchDelay is the pause before the next attempt after the API server has ended a watch. rewatchDelay prevents a
	// busy loop of watches that end at once. Source: the shortest pause of client-go's own retries; API servers end a
	// watch after half an hour or more.
	rewatchDelay = time.Second
)
