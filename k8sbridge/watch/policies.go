package watch

import "time"

// Intervals and rates of signals. Source of debounce and minSignalInterval: the measurements in
// docs/adr/0022-bridge.md.
const (
	debounceDelay       = 500 * time.Millisecond // time between the first event of a child or node and the evaluation
	minSignalInterval   = 250 * time.Millisecond // minimum time between two signals to one object
	deletionGracePeriod = 3 * time.Second        // within this time, a workflow that removed its own object ends by itself
	maxSignalsPerSecond = 300                    // total signals per second. Source: more than a small Temporal accepts
	senderCount         = 32                     // maximum number of concurrent signals; each goes to a different object
	// first back-off after a failed signal; each further back-off is twice as long
	firstRetryDelay = 500 * time.Millisecond
	maxRetryDelay   = time.Minute
	resyncInterval  = time.Minute // Source: docs/adr/0007-resync.md
	// interval at which the bridge reads the number of workers per provider from Temporal. Source: a missing worker
	// must be reported within a minute
	pollerCheckInterval = 20 * time.Second
	// interval of the search for provider calls that have been open for long. Source: a twelfth of the shortest
	// duration that counts as long
	longCallCheckInterval = 10 * time.Second
	// number of queued machines that are signaled when a drain starts or ends. Source: more than one, because a
	// queued machine may have been deleted meanwhile
	machinesPerDrainEvent = 5
)

// DefaultOrphanSweepPeriod is the time between two orphan sweeps. Source: machine-controller-manager's flag of the same
// name.
const DefaultOrphanSweepPeriod = 15 * time.Minute

// Intervals of the sweep schedules. Source: docs/adr/0016-orphans.md.
const (
	scheduleCheckInterval = 10 * time.Minute // interval of the check of each schedule: a user may have changed it
	// interval of listing all schedules: a schedule may have been deleted, or Temporal may have lost its data
	scheduleListInterval  = time.Minute
	scheduleRetryInterval = time.Minute // retry interval after a failed request about a schedule
	minTriggerInterval    = time.Minute // minimum time between two early sweeps of one class
	catchUpWindow         = time.Minute // Temporal skips a sweep that would start later than this
	// each sweep starts with a random delay of up to a tenth of its period, at most maxJitter, so that the sweeps of
	// all classes do not start at once
	jitterDivisor = 10
	maxJitter     = time.Minute
)
