//go:build integration

package fairness

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"

	"millwright/test/integration/rig"
	"millwright/worker/serve"
)

// A worker has had few calls for a while, and Temporal is 1.5 s away: what a busy machine adds is small beside that. When a set makes a batch
// of machines, their calls of the cloud start at once: a call does not wait until those before it have been fetched one by one.
func TestABatchOfCallsIsFetchedAtOnce(t *testing.T) {
	const few, batch, roundTrip = 16, 50, 1500 * time.Millisecond
	const passed = 3 * roundTrip // two polls, and one more for each task that is late, need five
	options, err := r.Stack.TemporalOptions()
	require.NoError(t, err)
	options.ConnectionOptions.DialOptions = append(options.ConnectionOptions.DialOptions, grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, request, reply any, on *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			time.Sleep(roundTrip)
			return invoke(ctx, method, request, reply, on, opts...)
		}))
	remote, err := client.Dial(options)
	require.NoError(t, err)
	defer remote.Close()
	flags := serve.CloudFlags{Calls: 200}
	cloud, err := serve.Start(remote, "line-cloud", flags.Options(), serve.NewFatal(), func(w worker.Registry) {
		w.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: "call"})
	})
	require.NoError(t, err)
	defer cloud.Stop()
	callers, err := serve.Start(r.Temporal, "line-callers", serve.Options(), serve.NewFatal(), func(w worker.Registry) {
		w.RegisterWorkflowWithOptions(call, workflow.RegisterOptions{Name: "call"})
	})
	require.NoError(t, err)
	defer callers.Stop()
	waits := func(n int, every time.Duration) (list []time.Duration) {
		run, err := r.Temporal.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: "line-callers"}, "call", n, every)
		require.NoError(t, err)
		require.NoError(t, run.Get(t.Context(), nil))
		for _, a := range rig.Activities(r.History(t, run.GetID(), run.GetRunID())) {
			list = append(list, a.Started.Sub(a.Scheduled))
		}
		slices.Sort(list)
		return list
	}
	waits(few, 2*time.Second)
	list := waits(batch, 0)
	require.Len(t, list, batch)
	t.Logf("of %d calls one waited for %s at the median, and the last for %s", batch, list[batch/2], list[batch-1])
	require.Less(t, list[batch-1], passed)
}

// call makes n calls, one each time.
func call(ctx workflow.Context, n int, every time.Duration) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: "line-cloud", StartToCloseTimeout: time.Minute})
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
