package drain

import "time"

// This file holds the timeouts, back-offs and intervals of drains that no object configures.

// The times of the ladder.
const (
	// unusableFor is how long a node must be unusable before its pods are killed, because no kubelet confirms that a pod
	// ended. Source: MCM, 5 min for a node that is not Ready or has a read-only file system.
	unusableFor = 5 * time.Minute
	// perRetry is the time for one of maxEvictRetries. Source: MCM's pause between two evictions of a pod.
	perRetry = 20 * time.Second
	// afterGrace is the time for a deletion beyond the grace period. Source: MCM's wait for a pod to end.
	afterGrace = 30 * time.Second
)

// Overdue is how long after a deadline the next step may fail to begin before that is reported. Source: a worker
// restarts in less.
const Overdue = time.Minute

// Pauses between two probes of a budget. A probe is an eviction although the status, which may be old, allows none. One
// request a minute costs the API server little, even if many nodes are drained at once.
const (
	ProbePause    = time.Minute
	BadProbePause = 5 * time.Minute // of a misconfigured budget; its correction is noticed without a probe
)

// slowVolume is how long a lane waits for a volume before the volume counts as a blocker. A cloud takes seconds to move
// a volume that nothing holds, and each blocker that comes or goes costs an event and a write of the status. Source:
// AWS and GCP move most volumes in 5 to 20 s.
const slowVolume = 30 * time.Second

// late is how long after the end of its grace period a terminating pod counts as stuck. Source: Karpenter.
const late = time.Minute

// Pauses before the next request for a pod. The sender adds jitter.
const (
	// A budget refused the eviction. Normally the budget's status decides when the pod is tried again; this pause applies
	// if status and answer differ. Source: the API server's Retry-After for a budget whose pods are not counted yet, 10 s.
	refusedPause = 10 * time.Second
	// Several budgets select the pod. The drain notices when one of them is changed.
	severalPause = time.Minute
	// The API server was busy, and asked for a shorter pause or none. Source: kubectl drain's pause after a 429.
	throttledPause = 5 * time.Second
	// Its namespace is being deleted, and the pod with it. A further request is sent only in case the pod stays.
	goingPause = 30 * time.Second
	// Failures in a row: the pause doubles. Sources: MCM tries again after 5 s; one minute is short compared with any
	// drain timeout.
	firstFailedPause   = 5 * time.Second
	longestFailedPause = time.Minute
)
