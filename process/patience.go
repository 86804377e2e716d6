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

// lengthen gives the activities that the server hands out the time of their schedule-to-close timeout by the clock of
// this worker. Temporal's SDK compares a time of the server with its own clock: where that is ahead by more than the
// timeout, it would end each such activity as it begins, and would not even tell the server. The server ends them on
// time anyhow.
func lengthen(
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
		lengthenTask(r, time.Now())
	case *workflowservice.RespondWorkflowTaskCompletedResponse: // activities that start without a poll
		for _, task := range r.GetActivityTasks() {
			lengthenTask(task, time.Now())
		}
	}
	return nil
}

// lengthenTask adds what now is ahead of the time at which the server handed out a task.
func lengthenTask(task *workflowservice.PollActivityTaskQueueResponse, now time.Time) {
	total := task.GetScheduleToCloseTimeout().AsDuration()
	if ahead := now.Sub(task.GetStartedTime().AsTime()); total > 0 && task.GetStartedTime() != nil && ahead > 0 {
		task.ScheduleToCloseTimeout = durationpb.New(total + ahead)
	}
}

// betweenHeartbeats is the time until a heartbeat that Temporal did not take is sent again: it has 3 s in all, and a
// call that is refused at once shall not be repeated at once.
const betweenHeartbeats = 200 * time.Millisecond

// persist repeats a heartbeat of an activity until Temporal has answered it or its time is over, and then reports it as
// answered. Temporal's SDK cancels the activity otherwise, although nobody asked for it and Temporal still counts the
// attempt: the next attempt would begin while a provider that does not heed cancellations still makes an instance. The
// next heartbeat comes 3 s later; without three of them Temporal ends the attempt.
func persist(
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
		if !isHeartbeat || !unanswered(err) {
			return err
		}
		select {
		case <-ctx.Done():
			slog.Warn("Temporal has not answered a heartbeat; the call goes on", "error", err)
			return nil
		case <-time.After(betweenHeartbeats):
		}
	}
}

// unanswered reports whether an error says that Temporal did not answer, and nothing about the activity.
func unanswered(err error) bool {
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
