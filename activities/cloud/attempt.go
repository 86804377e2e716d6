package cloud

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"millwright/activities/kube"
)

const cloudCalledDetail = "the cloud was called"

// attemptDetail is the heartbeat detail of an activity attempt that has called the cloud. The next attempt reads the
// detail, even if an operator has reset the attempt number to 1.
type attemptDetail struct {
	Said string

	// CreatesUntil is the time until which a create call of this attempt may run, by the server's clock. CreatesUntil
	// is the end of the start-to-close timeout. CreatesUntil is zero if the attempt made no create call, or if the
	// create call has ended.
	CreatesUntil time.Time `json:",omitzero"`
}

// lastCreateDeadline returns the time until which a create call of the last attempt may still run, by this worker's
// clock. lastCreateDeadline returns zero if the last attempt made no create call, or if the create call has ended. A
// create call may still run if Temporal timed out the attempt because its worker sent no heartbeat.
func lastCreateDeadline(ctx context.Context, info activity.Info) time.Time {
	var last attemptDetail
	if !activity.HasHeartbeatDetails(ctx) {
		return time.Time{}
	}
	if err := activity.GetHeartbeatDetails(ctx, &last); err != nil || last.CreatesUntil.IsZero() {
		return time.Time{} // a worker of another version or language wrote the details
	}
	// CreatesUntil and StartedTime are both times of the server's clock
	return time.Now().Add(last.CreatesUntil.Sub(info.StartedTime))
}

// isFirstCloudCall reports whether no earlier attempt of the activity can have called the cloud. If an operator resets
// the activity, or pauses and unpauses it, the attempt number starts at 1 again. isFirstCloudCall detects a reset by
// heartbeat details, or by a start long after the activity was scheduled. The scheduled time and the start time are of
// the server's clock.
func isFirstCloudCall(info activity.Info, hasDetails bool) bool {
	return info.Attempt == 1 && !hasDetails && info.StartedTime.Sub(info.ScheduledTime) < kube.MaxFirstCallDelay
}
