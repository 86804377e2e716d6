package process

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// The SDK ends an activity at the time of its scheduling, which is the server's, plus its schedule-to-close timeout, by
// its own clock.
func TestAnActivityHasItsTimeOnAWorkerWhoseClockIsAhead(t *testing.T) {
	const timeout = time.Minute
	for name, row := range map[string]struct {
		ahead, timeout time.Duration
		least, most    time.Duration // that the activity has left, by the clock of the worker
	}{
		"the clock is ahead":  {10 * time.Minute, timeout, 58 * time.Second, timeout + time.Second},
		"the clock is right":  {0, timeout, 58 * time.Second, timeout + time.Second},
		"the clock is behind": {-10 * time.Minute, timeout, 0, 11*time.Minute + time.Second}, // another timeout ends it
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
					require.NoError(t, lengthen(t.Context(), "", nil, reply, nil, answered))
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
	require.NoError(t, lengthen(t.Context(), "", nil, without, nil, answered))
	assert.Nil(t, without.ScheduleToCloseTimeout, "it has no such timeout")
}

func answered(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
	return nil
}
