package run

import (
	"context"

	"go.temporal.io/sdk/workflow"

	capi "millwright/activities/capi/deployment"
	"millwright/activities/kube"
	"millwright/activities/request"
)

// Local is an activity that may run as a local activity. The decision or write of a local activity is not in the
// history before its workflow task ends: if the worker dies, another worker decides or writes a second time, and may
// see other facts. So only activities whose second run does no harm, whatever it sees, are declared with this type. All
// others are regular activities, which start after the decision that they carry out is in the history. ADR 0020.
type Local[In, Out any] struct{ Activity any }

// Repeatable marks an activity whose second run does no harm whatever it sees.
func Repeatable[In, Out any](activity func(context.Context, In) (Out, error)) Local[In, Out] {
	return Local[In, Out]{activity}
}

// The activities that write a request on an object, of Millwright and of Cluster API.
var (
	applyRequest           = Repeatable(new(request.Activities).ApplyRequest)
	applyClusterAPIRequest = Repeatable(new(capi.Activities).ApplyClusterAPIRequest)
)

// Start starts n writes, or one decision with n = 1. Up to FewWrites run as a local activity. More, or a local attempt
// that failed, run as a regular activity with the options.
func (a Local[In, Out]) Start(ctx, options workflow.Context, o *Object, summary string, n int, in In) Writing {
	if n > FewWrites {
		return workflow.ExecuteActivity(options, a.Activity, in).Get
	}
	first := workflow.ExecuteLocalActivity(quickly(ctx, summary), a.Activity, in)
	return func(ctx workflow.Context, result any) error {
		if err := first.Get(ctx, result); settled(ctx, err) {
			return err
		}
		if err := o.SetSearchAttributes(ctx); err != nil { // the regular activity may take longer than a second
			return err
		}
		return workflow.ExecuteActivity(options, a.Activity, in).Get(ctx, result)
	}
}

// settled reports whether a longer attempt would not change the outcome of a local one.
func settled(ctx workflow.Context, err error) bool {
	return err == nil || final(err) || ctx.Err() != nil
}

// RunLocalFirst runs an activity as a local one; if that fails, as a regular one until it succeeds. The timeline shows
// the summary.
func (a Local[In, Out]) RunLocalFirst(ctx workflow.Context, o *Object, summary string, in In) (out Out, err error) {
	err = a.Start(ctx, cluster(ctx, QueueMachines, summary), o, summary, 1, in)(ctx, &out)
	return out, err
}

// Write is RunLocalFirst for an activity that changes the object: later decisions wait until the caches have the
// written version.
func Write[In any](ctx workflow.Context, o *Object, summary string, activity Local[In, string], in In) error {
	version, err := activity.RunLocalFirst(ctx, o, summary, in)
	if err == nil {
		o.Wrote(version)
	}
	return err
}

// Report is Write for an activity that writes the status of a Machine. Afterwards the page of the workflow shows what
// the status says.
func Report[In any](ctx workflow.Context, o *Object, summary string, activity Local[In, kube.Reported], in In) error {
	reported, err := activity.RunLocalFirst(ctx, o, summary, in)
	if err == nil {
		o.Wrote(reported.Version)
		o.Explain(ctx, reported)
	}
	return err
}

// Attempt is the local half of RunLocalFirst; it takes at most two seconds. over is false if a longer attempt may
// succeed.
func (a Local[In, Out]) Attempt(ctx workflow.Context, summary string, in In) (out Out, over bool, err error) {
	err = workflow.ExecuteLocalActivity(quickly(ctx, summary), a.Activity, in).Get(ctx, &out)
	return out, settled(ctx, err), err
}

// UnlessChanged is RunLocalFirst for an activity that may take long because another cluster does not answer. It gives
// up when a signal arrives or one of the futures is ready, and reports whether the activity succeeded.
func (a Local[In, Out]) UnlessChanged(
	ctx workflow.Context, o *Object, summary string, in In, futures ...workflow.Future,
) (out Out, done bool, err error) {
	if out, over, err := a.Attempt(ctx, summary, in); over {
		return out, err == nil, err
	}
	done, err = o.UntilChanged(ctx, summary, a.Activity, in, &out, futures...)
	return out, done, err
}
