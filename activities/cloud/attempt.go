package cloud

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"millwright/activities/kube"
)

const called = "the cloud was called"

// attempt is the detail of the heartbeats of an attempt. The next attempt finds it, even if attempts count from 1 again
// by then.
type attempt struct {
	Said string

	// CreatesUntil is the time until which a create call of this attempt may run, by the server's clock: the end of the
	// start-to-close timeout. Zero: there is no such call, or it has ended.
	CreatesUntil time.Time `json:",omitzero"`
}

// lastCreation returns the time until which a create call of the last attempt may still run, by this worker's clock;
// zero: it has ended, or there was none. It may still run if Temporal gave that attempt up because its worker sent no
// heartbeat.
func lastCreation(ctx context.Context, info activity.Info) time.Time {
	var last attempt
	if !activity.HasHeartbeatDetails(ctx) {
		return time.Time{}
	}
	if err := activity.GetHeartbeatDetails(ctx, &last); err != nil || last.CreatesUntil.IsZero() {
		return time.Time{} // details of a worker of another version or language
	}
	return time.Now().Add(last.CreatesUntil.Sub(info.StartedTime)) // both are of the server's clock
}

// isFirst reports whether no attempt of an activity can have called the cloud before. An operator who resets an
// activity, or pauses it and lets it go on, makes its attempts count from 1 again: then there are details of a
// heartbeat, or the attempt has started long after the activity was scheduled. Both times are of the server's clock.
func isFirst(info activity.Info, hasDetails bool) bool {
	return info.Attempt == 1 && !hasDetails && info.StartedTime.Sub(info.ScheduledTime) < kube.FirstCallWithin
}
