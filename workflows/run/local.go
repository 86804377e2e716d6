package run

import (
	"context"

	"go.temporal.io/sdk/workflow"

	capi "millwright/activities/capi/deployment"
	"millwright/activities/kube"
	"millwright/activities/request"
)

// LocalActivity is an activity that may run as a local activity. Temporal records the result of a local activity only
// when the workflow task completes. If the worker dies before that, another worker runs the activity again, and may
// read different data. Declare an activity as a LocalActivity only if a second run does no harm. All other activities
// run as regular activities, which start only after the decision is in the history. ADR 0020.
type LocalActivity[In, Out any] struct{ Activity any }

// NewLocalActivity declares an activity that may run twice without harm, even if the second run reads different data.
func NewLocalActivity[In, Out any](activity func(context.Context, In) (Out, error)) LocalActivity[In, Out] {
	return LocalActivity[In, Out]{activity}
}

// These activities write an operator request on an object of Millwright or of Cluster API.
var (
	applyRequestActivity           = NewLocalActivity(new(request.Activities).ApplyRequest)
	applyClusterAPIRequestActivity = NewLocalActivity(new(capi.Activities).ApplyClusterAPIRequest)
)

// Start starts an activity that makes n writes, or one decision (n = 1). If n is at most MaxWritesOnOwnQueue, Start
// runs a local activity. If n is larger, or if the local attempt fails, Start runs a regular activity with the given
// options.
func (a LocalActivity[In, Out]) Start(
	ctx, options workflow.Context,
	o *WorkflowState,
	summary string,
	n int,
	in In,
) PendingWrite {
	if n > MaxWritesOnOwnQueue {
		return workflow.ExecuteActivity(options, a.Activity, in).Get
	}
	first := workflow.ExecuteLocalActivity(localActivityOptions(ctx, summary), a.Activity, in)
	return func(ctx workflow.Context, result any) error {
		if err := first.Get(ctx, result); isConclusive(ctx, err) {
			return err
		}
		// set the attributes now, because the regular activity may run for more than a second
		if err := o.SetSearchAttributes(ctx); err != nil {
			return err
		}
		return workflow.ExecuteActivity(options, a.Activity, in).Get(ctx, result)
	}
}

// isConclusive reports whether a longer attempt cannot change the outcome of a local attempt.
func isConclusive(ctx workflow.Context, err error) bool {
	return err == nil || isNonRetryable(err) || ctx.Err() != nil
}

// RunLocalFirst runs an activity as a local activity. If that attempt fails, RunLocalFirst runs it as a regular
// activity until it succeeds. Temporal's timeline shows the summary.
func (a LocalActivity[In, Out]) RunLocalFirst(
	ctx workflow.Context,
	o *WorkflowState,
	summary string,
	in In,
) (out Out, err error) {
	err = a.Start(ctx, clusterActivityOptions(ctx, QueueMachines, summary), o, summary, 1, in)(ctx, &out)
	return out, err
}

// WriteObject is RunLocalFirst for an activity that changes the object. Later decisions wait until the caches contain
// the written version.
func WriteObject[In any](
	ctx workflow.Context,
	o *WorkflowState,
	summary string,
	activity LocalActivity[In, string],
	in In,
) error {
	version, err := activity.RunLocalFirst(ctx, o, summary, in)
	if err == nil {
		o.RequireWrittenVersion(version)
	}
	return err
}

// ReportMachineStatus is WriteObject for an activity that writes the status of a Machine. ReportMachineStatus then
// copies the status message into the workflow's details in Temporal.
func ReportMachineStatus[In any](
	ctx workflow.Context,
	o *WorkflowState,
	summary string,
	activity LocalActivity[In, kube.ReportResult],
	in In,
) error {
	reported, err := activity.RunLocalFirst(ctx, o, summary, in)
	if err == nil {
		o.RequireWrittenVersion(reported.Version)
		o.AddWaitMessage(ctx, reported)
	}
	return err
}

// RunLocalAttempt makes only the local attempt of RunLocalFirst, for at most two seconds. over is false if a longer
// attempt may succeed.
func (a LocalActivity[In, Out]) RunLocalAttempt(
	ctx workflow.Context,
	summary string,
	in In,
) (out Out, over bool, err error) {
	err = workflow.ExecuteLocalActivity(localActivityOptions(ctx, summary), a.Activity, in).Get(ctx, &out)
	return out, isConclusive(ctx, err), err
}

// RunUnlessChanged is RunLocalFirst for an activity that may take long because another cluster does not answer. A
// signal, or a future that is ready, cancels the activity. done reports whether the activity succeeded.
func (a LocalActivity[In, Out]) RunUnlessChanged(
	ctx workflow.Context, o *WorkflowState, summary string, in In, futures ...workflow.Future,
) (out Out, done bool, err error) {
	if out, over, err := a.RunLocalAttempt(ctx, summary, in); over {
		return out, err == nil, err
	}
	done, err = o.RunUntilChanged(ctx, summary, a.Activity, in, &out, futures...)
	return out, done, err
}
