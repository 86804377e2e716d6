package watch

import "time"

// Intervals and rates of signals. Source of the first two: the measurements in docs/adr/0022-bridge.md.
const (
	debounce    = 500 * time.Millisecond // from the first event of a child or node to its evaluation
	signalPause = 250 * time.Millisecond // least time between two signals to one object
	goneAfter   = 3 * time.Second        // in this time a workflow that removed its own object ends by itself
	signalRate  = 300                    // signals a second in all. Source: more than one small Temporal accepts
	senders     = 32                     // concurrent signals, each to another object
	retryFirst  = 500 * time.Millisecond // back-off after a failed signal, doubling
	retryMost   = time.Minute
	resyncEach  = time.Minute // Source: docs/adr/0007-resync.md
	// interval at which Temporal is asked how many workers serve each provider. Source: a missing worker is to be named
	// within a minute
	pollersEach = 20 * time.Second
	// interval of the search for calls of a provider that have been open for long. Source: a twelfth of the shortest time
	// that counts as long
	callsEach = 10 * time.Second
	// number of queued machines that are signaled when a drain begins or ends. Source: more than one, as some may be gone
	// meanwhile
	drainsWoken = 5
)

// DefaultOrphanPeriod is the time between two sweeps for orphans. Source: MCM's flag of the same name.
const DefaultOrphanPeriod = 15 * time.Minute

// Intervals of the schedules of sweeps. Source: docs/adr/0016-orphans.md.
const (
	checkSchedules = 10 * time.Minute // interval of the check of each schedule: somebody may have changed it
	// interval of one list of all schedules: one may have been deleted, or Temporal may have lost its data
	listSchedules   = time.Minute
	scheduleRetry   = time.Minute // after a failed request about a schedule
	triggerInterval = time.Minute // least time between two sweeps that are triggered early for one class
	catchUp         = time.Minute // a sweep that is later than this, because Temporal was unavailable, is skipped
	// each sweep begins up to a tenth of its period late, and at most jitterMost, so that not all classes are swept at
	// once
	jitterShare = 10
	jitterMost  = time.Minute
)
