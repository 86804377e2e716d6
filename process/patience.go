package process

import (
	"context"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
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
