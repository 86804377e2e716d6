package run

import (
	"cmp"
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/kube"
)

// Writing waits for the end of a started write and reads its result.
type Writing func(ctx workflow.Context, result any) error

// ActivityID returns the ID for the next activity of that name: the name, with a number appended once an earlier ID
// cannot be reused.
func (o *Object) ActivityID(name string) string {
	if n := o.spent[name]; n > 0 {
		return fmt.Sprintf("%s-%d", name, n+1)
	}
	return name
}

// GivenUp records how a cancelled activity ended. If it ended by itself nevertheless, its ID cannot be reused in this
// run: the SDK would take another activity with that ID for a mistake, and would fail every workflow task (TMPRL1100).
func (o *Object) GivenUp(name string, end error) {
	if !temporal.IsCanceledError(end) {
		o.spent[name]++
	}
}

// UntilChanged runs a regular activity of the clusters, and cancels it when a signal arrives or one of the futures is
// ready. It reports whether the activity succeeded.
func (o *Object) UntilChanged(
	ctx workflow.Context,
	summary string,
	activity, input, result any,
	futures ...workflow.Future,
) (bool, error) {
	options, cancel := workflow.WithCancel(cluster(ctx, QueueMachines, summary))
	defer cancel()
	future := workflow.ExecuteActivity(options, activity, input)
	if err := o.AwaitChange(ctx, append(futures, future)...); err != nil || !future.IsReady() {
		o.Live = true // the next decision must see the change that ended the wait
		return false, err
	}
	err := future.Get(ctx, result)
	return err == nil, err
}

// WhileWanted runs a long activity for a node. After each signal it calls wanted, and cancels the activity if the
// answer is false. It returns only after the activity has ended, so that two never run at once. If cancelled is true,
// the result is zero, or that of an activity that ended by itself before the cancellation reached it.
func (o *Object) WhileWanted(
	ctx workflow.Context, name string, activity, input, result any, wanted func() (bool, error),
) (cancelled bool, err error) {
	options, cancel := workflow.WithCancel(draining(ctx, o.ActivityID(name), o.Shown.Why))
	defer cancel()
	future := workflow.ExecuteActivity(options, activity, input)
	for !future.IsReady() {
		keep := true
		if err = o.AwaitChange(ctx, future); err == nil && o.Receive() && !future.IsReady() {
			keep, err = wanted()
		}
		if err != nil || !keep {
			cancel()
			o.GivenUp(name, future.Get(ctx, result))
			return true, cmp.Or(err, ctx.Err())
		}
	}
	return false, future.Get(ctx, result)
}

// final reports whether a failure is not retryable.
func final(err error) bool {
	application, ok := errors.AsType[*temporal.ApplicationError](err)
	return ok && application.NonRetryable()
}

// FailedWith reports whether an activity failed with an application error of that type.
func FailedWith(err error, failure string) bool {
	application, ok := errors.AsType[*temporal.ApplicationError](err)
	return ok && application.Type() == failure
}

// TimedOut reports whether an activity was given up because its time was over: while it ran, or because the next
// attempt would have started too late.
func TimedOut(err error) bool {
	_, timeout := errors.AsType[*temporal.TimeoutError](err)
	activity, ok := errors.AsType[*temporal.ActivityError](err)
	return timeout || ok && activity.RetryState() == enumspb.RETRY_STATE_TIMEOUT
}

// Refused returns the API server's message if it refused a write; empty for any other err, also nil.
func Refused(err error) string {
	if application, ok := errors.AsType[*temporal.ApplicationError](err); ok && application.Type() == kube.TypeRefused {
		return application.Message()
	}
	return ""
}
