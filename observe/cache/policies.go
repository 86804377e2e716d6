package cache

import "time"

// This file contains the intervals and timeouts of package cache.

// versionPollInterval is how often a waiting decision checks the versions of the caches, because the caches send no
// notification. Source: a tenth of the latency of an event from one process to another.
const versionPollInterval = 5 * time.Millisecond

// budgetCacheTimeout is how long a starting worker waits for the cache of disruption budgets. The worker then asks
// whether the target serves policy/v1, and waits equally long for the answer. Source: a list takes less than 1 s, and
// one more second does not matter at a start.
const budgetCacheTimeout = 2 * time.Second

// WatchCatchUpTime is how long after a watch was resumed the cache may still lack events from the interruption. Source:
// the API server sends these events at once, so 1 s is ample, and 1 s is short compared with a wait for volumes.
const WatchCatchUpTime = time.Second

// maxRenewalGap is the longest gap between two watches that does not count as an interruption: the API server ends each
// watch after some minutes, and the next watch continues from the same version. Source: longer than a request, shorter
// than client-go's first back-off after a failure (800 ms).
const maxRenewalGap = 500 * time.Millisecond

// versionCheckTimeout bounds the requests of one check for a restored API server. Source: each request reads one
// object.
const versionCheckTimeout = 5 * time.Second
