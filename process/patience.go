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
// clock. If the worker's clock is ahead by more than the timeout, the SDK would end each activity at its start, without
// a response to the server. The server still enforces the timeout by its own clock.
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
	// the response may contain activity tasks, which start without a poll
	case *workflowservice.RespondWorkflowTaskCompletedResponse:
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

// heartbeatRetryDelay is the delay before repeatHeartbeats sends an unanswered heartbeat again. Without the delay,
// repeatHeartbeats would send a heartbeat that fails at once in a busy loop for 3 s.
const heartbeatRetryDelay = 200 * time.Millisecond

// repeatHeartbeats sends a heartbeat again until Temporal answers or ctx is done. If ctx is done first,
// repeatHeartbeats returns nil. After a heartbeat without an answer, the SDK would cancel the activity, although nobody
// requested the cancellation and Temporal still considers the attempt active. If the provider ignores the cancellation,
// the next attempt would start while the first attempt still creates an instance. The next heartbeat follows after 3 s;
// after three missing heartbeats, Temporal times out the attempt.
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
		if !isHeartbeat || !isNoAnswerError(err) {
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

// isNoAnswerError reports whether err means that Temporal did not answer the heartbeat, so that the state of the
// activity is unknown.
func isNoAnswerError(err error) bool {
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
