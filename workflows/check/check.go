// Package check contains the workflow in which a provider checks whether it can use a class.
package check

import (
	"errors"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/workflows/run"
)

// Input names the class and its provider. Fields may be added. Fields must not be renamed or retyped.
type Input struct {
	Class    kube.Ref
	Provider string
}

// Result is the result of the provider's check.
type Result struct {
	cloud.CheckResult

	// no worker started the check, because no worker polls the provider's task queue or all workers are busy
	NoWorker bool
	Failure  string // reason why there is no answer; empty if there is an answer
}

// Provider makes a worker of the class's provider check once whether the provider can use the class. The check takes at
// most a minute and changes nothing.
func Provider(ctx workflow.Context, in Input) (Result, error) {
	var result Result
	asked := run.ShortCloudCallOptions(ctx, in.Provider, "can provider "+in.Provider+" use class "+in.Class.Name+"?")
	err := workflow.ExecuteActivity(asked, new(cloud.Activities).CheckClass, in.Class).Get(ctx, &result.CheckResult)
	if err == nil || ctx.Err() != nil {
		return result, ctx.Err()
	}
	if late, is := errors.AsType[*temporal.TimeoutError](err); is &&
		late.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START {
		return Result{NoWorker: true, Failure: "no worker has taken the question within 20 seconds"}, nil
	}
	said := err.Error()
	if failure, is := errors.AsType[*temporal.ApplicationError](err); is {
		said = failure.Message()
	}
	return Result{Failure: run.ShortenSummary(said)}, nil
}
