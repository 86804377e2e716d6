//go:build integration

package fairness

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"

	"millwright/decide/scale"
	"millwright/test/integration/rig"
	"millwright/worker/serve"
)

// A worker has had few calls for some time. A set creates a batch of machines, and the calls of all these machines
// start at once. The worker has an open poll for each call, so no call waits for the polls of earlier calls.
func TestBatchOfCallsIsFetchedWithoutDelay(t *testing.T) {
	const few = 16
	var polls atomic.Int64 // open polls of the worker
	options, err := testRig.Stack.TemporalClientOptions()
	require.NoError(t, err)
	options.ConnectionOptions.DialOptions = append(options.ConnectionOptions.DialOptions, grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, request, reply any, on *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if _, isPoll := request.(*workflowservice.PollActivityTaskQueueRequest); isPoll {
				polls.Add(1)
				defer polls.Add(-1)
			}
			return invoke(ctx, method, request, reply, on, opts...)
		},
	))
	remote, err := client.Dial(options)
	require.NoError(t, err)
	defer remote.Close()
	flags := serve.CloudFlags{MaxConcurrentCalls: 200}
	cloud, err := serve.StartWorker(
		remote,
		"line-cloud",
		flags.CloudWorkerOptions(),
		serve.NewFatalErrorStore(),
		func(w worker.Registry) {
			w.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: "call"})
		},
	)
	require.NoError(t, err)
	defer cloud.Stop()
	callers, err := serve.StartWorker(
		testRig.Temporal,
		"line-callers",
		serve.WorkerOptions(),
		serve.NewFatalErrorStore(),
		func(w worker.Registry) {
			w.RegisterWorkflowWithOptions(repeatCalls, workflow.RegisterOptions{Name: "call"})
		},
	)
	require.NoError(t, err)
	defer callers.Stop()
	calls := func(n int, every time.Duration) {
		run, err := testRig.Temporal.ExecuteWorkflow(
			t.Context(),
			client.StartWorkflowOptions{TaskQueue: "line-callers"},
			"call",
			n,
			every,
		)
		require.NoError(t, err)
		require.NoError(t, run.Get(t.Context(), nil))
	}
	calls(few, 2*time.Second) // Temporal ends a poll after a second without a task
	rig.Eventually(t, "a poll is open for each call of a batch", func() (bool, any) {
		n := polls.Load()
		return n >= scale.MaxBatchSize, n
	})
	calls(scale.MaxBatchSize, 0)
}

// repeatCalls makes n calls, and waits for the duration every after each call.
func repeatCalls(ctx workflow.Context, n int, every time.Duration) error {
	ctx = workflow.WithActivityOptions(
		ctx,
		workflow.ActivityOptions{TaskQueue: "line-cloud", StartToCloseTimeout: time.Minute},
	)
	var all []workflow.Future
	for range n {
		all = append(all, workflow.ExecuteActivity(ctx, "call"))
		if every > 0 {
			if err := workflow.Sleep(ctx, every); err != nil {
				return err
			}
		}
	}
	for _, one := range all {
		if err := one.Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}
