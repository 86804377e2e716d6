package drain

import "time"

// This file holds the timeouts, back-offs and intervals of drains that no object configures.

// The times of a drain's EscalationFacts.
const (
	// unusableNodeTimeout is how long a node must be unusable before its pods are killed. On an unusable node, no kubelet
	// confirms that a pod ended. Source of unusableNodeTimeout: MCM, 5 min for a node that is not Ready or has a read-only
	// file system.
	unusableNodeTimeout = 5 * time.Minute
	// timePerEvictRetry is how much time each of the maxEvictRetries adds to the deadline of evictions. Source of
	// timePerEvictRetry: MCM's pause between two evictions of a pod.
	timePerEvictRetry = 20 * time.Second
	// extraWaitAfterGrace is how long a drain waits for a deleted pod after the pod's grace period. Source of
	// extraWaitAfterGrace: MCM waits 30 s for a pod to end.
	extraWaitAfterGrace = 30 * time.Second
)

// StepOverdueAfter is how late a step may begin after its deadline before the delay is reported. Source of
// StepOverdueAfter: a worker restarts in less than a minute.
const StepOverdueAfter = time.Minute

// Pauses between two probes of a budget that allows no eviction. A probe is an eviction that the budget's status, which
// may be old, does not allow. One request per minute is a small load for the API server, even if many nodes are drained
// at once.
const (
	ProbePause              = time.Minute
	MisconfiguredProbePause = 5 * time.Minute // for a misconfigured budget; a corrected budget is noticed without a probe
)

// slowVolumeAfter is how long a lane waits for a volume before the volume counts as a blocker. Each blocker that begins
// or ends causes an event and a status write. Source of slowVolumeAfter: AWS and GCP need 5 to 20 s to move most
// volumes that no pod uses.
const slowVolumeAfter = 30 * time.Second

// stuckPodAfter is how long after its grace period a terminating pod counts as stuck. Source of stuckPodAfter:
// Karpenter uses the same value.
const stuckPodAfter = time.Minute

// Pauses before the next request for a pod. The activity that sends the request adds jitter.
const (
	// Pause after a budget refused the eviction. Normally a new status of the budget ends the pause; the pause has its
	// full length if the status already allows the eviction. Source of refusedPause: the API server's Retry-After of 10
	// s for a budget whose pods are not counted yet.
	refusedPause = 10 * time.Second
	// Pause if several budgets select the pod. A change of one of these budgets ends the pause.
	severalBudgetsPause = time.Minute
	// Shortest pause after a 429 (Too Many Requests). Source of throttledPause: kubectl drain also pauses after a 429.
	throttledPause = 5 * time.Second
	// Pause if the pod's namespace is being deleted. The namespace controller deletes the pod; a further request is
	// sent in case the pod stays.
	namespaceDeletingPause = 30 * time.Second
	// Pauses after failures in a row: each pause is twice as long as the previous pause. Sources of the pauses: MCM
	// retries after 5 s, and one minute is short compared with a drain timeout.
	firstFailurePause   = 5 * time.Second
	longestFailurePause = time.Minute
)
