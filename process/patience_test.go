package process

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// The SDK ends an activity when the worker's clock has reached the scheduled time plus the schedule-to-close timeout.
// The server's clock sets the scheduled time.
func TestTimeoutIsLengthenedIfWorkerClockIsAhead(t *testing.T) {
	const timeout = time.Minute
	for name, row := range map[string]struct {
		ahead, timeout time.Duration
		least, most    time.Duration // limits of the activity's remaining time, by the worker's clock
	}{
		"the clock is ahead": {10 * time.Minute, timeout, 58 * time.Second, timeout + time.Second},
		"the clock is right": {0, timeout, 58 * time.Second, timeout + time.Second},
		// the server enforces the schedule-to-close timeout
		"the clock is behind": {-10 * time.Minute, timeout, 0, 11*time.Minute + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				scheduled := time.Now().Add(-row.ahead)
				task := func() *workflowservice.PollActivityTaskQueueResponse {
					return &workflowservice.PollActivityTaskQueueResponse{
						ScheduledTime:          timestamppb.New(scheduled),
						StartedTime:            timestamppb.New(scheduled),
						ScheduleToCloseTimeout: durationpb.New(row.timeout),
					}
				}
				polled, eager := task(), task()
				for _, reply := range []any{polled, &workflowservice.RespondWorkflowTaskCompletedResponse{ActivityTasks: []*workflowservice.PollActivityTaskQueueResponse{eager}}} {
					require.NoError(t, lengthenTimeouts(t.Context(), "", nil, reply, nil, invokeWithoutError))
				}
				for _, got := range []*workflowservice.PollActivityTaskQueueResponse{polled, eager} {
					left := time.Until(got.ScheduledTime.AsTime().Add(got.ScheduleToCloseTimeout.AsDuration()))
					assert.Greater(t, left, row.least)
					assert.Less(t, left, row.most)
				}
			})
		})
	}
	without := &workflowservice.PollActivityTaskQueueResponse{StartedTime: timestamppb.New(time.Now().Add(-time.Hour))}
	require.NoError(t, lengthenTimeouts(t.Context(), "", nil, without, nil, invokeWithoutError))
	assert.Nil(t, without.ScheduleToCloseTimeout, "it has no such timeout")
}

// The SDK cancels an activity if one of its heartbeats fails with a temporary error.
func TestALostHeartbeatCancelsNoActivity(t *testing.T) {
	heartbeat := &workflowservice.RecordActivityTaskHeartbeatRequest{}
	other := &workflowservice.RespondActivityTaskCompletedRequest{}
	lost := []error{status.Error(codes.Unavailable, "no connection"), status.Error(codes.DeadlineExceeded, "no answer")}
	for name, row := range map[string]struct {
		request any
		errors  []error // errors of the first requests; later requests succeed
		want    codes.Code
		took    time.Duration
		sent    int
	}{
		"it is answered":                        {heartbeat, nil, codes.OK, 0, 1},
		"it is lost once":                       {heartbeat, lost[:1], codes.OK, heartbeatRetryDelay, 2},
		"it is lost each time":                  {heartbeat, slices.Repeat(lost, 100), codes.OK, 3100 * time.Millisecond, 16},
		"the attempt is over":                   {heartbeat, []error{status.Error(codes.NotFound, "no such attempt")}, codes.NotFound, 0, 1},
		"it has no right":                       {heartbeat, []error{status.Error(codes.PermissionDenied, "no")}, codes.PermissionDenied, 0, 1},
		"another request is for its own caller": {other, lost[:1], codes.Unavailable, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 3100*time.Millisecond)
				defer cancel()
				begun, sent := time.Now(), 0
				invoke := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
					if sent++; sent <= len(row.errors) {
						return row.errors[sent-1]
					}
					return nil
				}
				err := repeatHeartbeats(ctx, "", row.request, nil, nil, invoke)
				assert.Equal(t, row.want, status.Code(err))
				assert.Equal(t, row.took, time.Since(begun))
				assert.Equal(t, row.sent, sent)
			})
		})
	}
}

func invokeWithoutError(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
	return nil
}
