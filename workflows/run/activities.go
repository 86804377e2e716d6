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

// PendingWrite waits until a started activity that writes has ended, and decodes its result.
type PendingWrite func(ctx workflow.Context, result any) error

// ActivityID returns an activity ID for the next activity with this name. The ID is the name, or name-N if this run
// has already used up N-1 IDs of this name (see RecordCancelledActivity).
func (o *WorkflowState) ActivityID(name string) string {
	if n := o.usedActivityIDs[name]; n > 0 {
		return fmt.Sprintf("%s-%d", name, n+1)
	}
	return name
}

// RecordCancelledActivity records how a cancelled activity ended. If the activity ended before its cancellation, this
// run cannot use its ID again. The SDK fails every workflow task (TMPRL1100) if a second activity has this ID.
func (o *WorkflowState) RecordCancelledActivity(name string, end error) {
	if !temporal.IsCanceledError(end) {
		o.usedActivityIDs[name]++
	}
}

// RunUntilChanged runs a regular activity of the clusters. A signal, or a future that is ready, cancels the activity.
// RunUntilChanged reports whether the activity succeeded.
func (o *WorkflowState) RunUntilChanged(
	ctx workflow.Context,
	summary string,
	activity, input, result any,
	futures ...workflow.Future,
) (bool, error) {
	options, cancel := workflow.WithCancel(clusterActivityOptions(ctx, QueueMachines, summary))
	defer cancel()
	future := workflow.ExecuteActivity(options, activity, input)
	if err := o.AwaitChange(ctx, append(futures, future)...); err != nil || !future.IsReady() {
		o.Live = true // the next decision must read the change that ended the wait
		return false, err
	}
	err := future.Get(ctx, result)
	return err == nil, err
}

// RunWhileNeeded runs a long activity for a node. After each signal RunWhileNeeded calls wanted; if wanted returns
// false, RunWhileNeeded cancels the activity. RunWhileNeeded returns only after the activity has ended, so two of these
// activities never run at once. If cancelled is true, result holds data only if the activity ended before its
// cancellation.
func (o *WorkflowState) RunWhileNeeded(
	ctx workflow.Context, name string, activity, input, result any, wanted func() (bool, error),
) (cancelled bool, err error) {
	options, cancel := workflow.WithCancel(nodeWaitOptions(ctx, o.ActivityID(name), o.Shown.Why))
	defer cancel()
	future := workflow.ExecuteActivity(options, activity, input)
	for !future.IsReady() {
		keep := true
		if err = o.AwaitChange(ctx, future); err == nil && o.ReceiveSignals() && !future.IsReady() {
			keep, err = wanted()
		}
		if err != nil || !keep {
			cancel()
			o.RecordCancelledActivity(name, future.Get(ctx, result))
			return true, cmp.Or(err, ctx.Err())
		}
	}
	return false, future.Get(ctx, result)
}

// isNonRetryable reports whether err is a non-retryable application error.
func isNonRetryable(err error) bool {
	application, ok := errors.AsType[*temporal.ApplicationError](err)
	return ok && application.NonRetryable()
}

// IsFailureOfType reports whether err is an application error of the type failure.
func IsFailureOfType(err error, failure string) bool {
	application, ok := errors.AsType[*temporal.ApplicationError](err)
	return ok && application.Type() == failure
}

// IsTimeout reports whether an activity has timed out, either during an attempt, or because the next attempt would
// start after the schedule-to-close timeout.
func IsTimeout(err error) bool {
	_, timeout := errors.AsType[*temporal.TimeoutError](err)
	activity, ok := errors.AsType[*temporal.ActivityError](err)
	return timeout || ok && activity.RetryState() == enumspb.RETRY_STATE_TIMEOUT
}

// RefusalMessage returns the API server's message if the API server refused a write. Otherwise RefusalMessage returns
// "".
func RefusalMessage(err error) string {
	if application, ok := errors.AsType[*temporal.ApplicationError](
		err,
	); ok &&
		application.Type() == kube.FailureTypeRefused {
		return application.Message()
	}
	return ""
}
