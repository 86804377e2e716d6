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

// lengthenTimeouts makes the schedule-to-close timeout longer for each activity that the server hands out while the
// clock of this worker is ahead of the server's. Temporal's SDK counts this timeout from a time of the server and
// compares the end with the worker's clock: if that clock is ahead by more than the timeout, the SDK would end each
// such activity as it begins, without telling the server. The server itself still ends the activities on time.
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
	case *workflowservice.RespondWorkflowTaskCompletedResponse: // activities that start without a poll
		for _, task := range r.GetActivityTasks() {
			lengthenTimeout(task, time.Now())
		}
	}
	return nil
}

// lengthenTimeout adds to a task's timeout the time by which now is ahead of the server's time of handing out the task.
func lengthenTimeout(task *workflowservice.PollActivityTaskQueueResponse, now time.Time) {
	total := task.GetScheduleToCloseTimeout().AsDuration()
	if ahead := now.Sub(task.GetStartedTime().AsTime()); total > 0 && task.GetStartedTime() != nil && ahead > 0 {
		task.ScheduleToCloseTimeout = durationpb.New(total + ahead)
	}
}

// betweenHeartbeats is the wait before a heartbeat that Temporal did not answer is sent again. Without it, a heartbeat
// that is refused at once would be repeated at once, for 3 s in all.
const betweenHeartbeats = 200 * time.Millisecond

// repeatHeartbeats repeats a heartbeat of an activity until Temporal has answered it or its time is over, and then
// reports it as answered. Otherwise Temporal's SDK would cancel the activity, although nobody asked for that and
// Temporal still counts the attempt: the next attempt would begin while a provider that does not heed cancellations
// still makes an instance. The next heartbeat comes 3 s later; without three of them Temporal ends the attempt.
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
