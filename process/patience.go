package process

import (
	"context"
	"log/slog"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// lengthenTimeouts lengthens the schedule-to-close timeout of each activity task if this worker's clock is ahead of the
// server's clock. The SDK adds this timeout to a time of the server's clock and compares the sum with the worker's
// clock. If the worker's clock is ahead by more than the timeout, the SDK would end each activity as it begins, without
// an answer to the server. The server itself still times out the activities on time.
func lengthenTimeouts(
	ctx context.Context,
	method string,
	request, reply any,
	connection *grpc.ClientConn,
	invoke grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	err := invoke(ctx, method, request, reply, connection, options...)
	if err != nil {
		return err
	}
	switch r := reply.(type) {
	case *workflowservice.PollActivityTaskQueueResponse:
		lengthenTimeout(r, time.Now())
	case *workflowservice.RespondWorkflowTaskCompletedResponse: // has activity tasks that start without a poll
		for _, task := range r.GetActivityTasks() {
			lengthenTimeout(task, time.Now())
		}
	}
	return nil
}

// lengthenTimeout adds the difference between now and the server's start time of the task to the task's timeout.
func lengthenTimeout(task *workflowservice.PollActivityTaskQueueResponse, now time.Time) {
	total := task.GetScheduleToCloseTimeout().AsDuration()
	if ahead := now.Sub(task.GetStartedTime().AsTime()); total > 0 && task.GetStartedTime() != nil && ahead > 0 {
		task.ScheduleToCloseTimeout = durationpb.New(total + ahead)
	}
}

// heartbeatRetryDelay is the pause before a heartbeat that Temporal did not answer is sent again. Without the pause, a
// heartbeat that is refused at once would be repeated without delay, for 3 s in total.
const heartbeatRetryDelay = 200 * time.Millisecond

// repeatHeartbeats repeats a heartbeat until Temporal has answered the heartbeat or ctx ends, and then reports the
// heartbeat as answered. After an unanswered heartbeat, the SDK would cancel the activity, although nobody requested a
// cancellation and Temporal still counts the attempt. The next attempt would then begin while a provider that ignores
// cancellations still creates an instance. The next heartbeat follows after 3 s; after three missing heartbeats,
// Temporal times out the attempt.
func repeatHeartbeats(
	ctx context.Context,
	method string,
	request, reply any,
	connection *grpc.ClientConn,
	invoke grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	_, isHeartbeat := request.(*workflowservice.RecordActivityTaskHeartbeatRequest)
	for {
		err := invoke(ctx, method, request, reply, connection, options...)
		if !isHeartbeat || !isUnanswered(err) {
			return err
		}
		select {
		case <-ctx.Done():
			slog.Warn("Temporal has not answered a heartbeat; the call goes on", "error", err)
			return nil
		case <-time.After(heartbeatRetryDelay):
		}
	}
}

// isUnanswered reports whether an error means that Temporal did not answer, without any statement about the activity.
func isUnanswered(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable,
		codes.DeadlineExceeded,
		codes.Canceled,
		codes.ResourceExhausted,
		codes.Aborted,
		codes.Internal,
		codes.Unknown:
		return true
	default:
		return false
	}
}
