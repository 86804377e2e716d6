//go:build integration

package chain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

// Many signals arrive while the runs of machines complete, and no signal is lost. Each signal that the server accepted
// is in a history, and a decision follows it in the same history.
func TestSignalsThatArriveAsRunsEndAreNotLost(t *testing.T) {
	const sentinel = -7 // generation of this test's signals; no real object has a negative generation
	testRig.CreateNamespace(t, "storm", "")
	pool := testRig.CreatePool(t, "storm", "storm", 10)
	pool.AwaitRunningMachines(t, 10)
	rig.Eventually(t, "all machines are calm", func() (bool, any) {
		open := testRig.WorkflowRuns(
			t,
			`ExecutionStatus = "Running" AND WorkflowType = "Machine" AND MachineNamespace = "storm"`,
		)
		return len(open) == 0, len(open)
	})
	lives, events := countRunsAndEvents(t)
	t.Logf("the creation of 10 machines: %d runs with %d events in the namespace", lives, events)
	var sent, failed, busy atomic.Int64
	stormy, err := client.NewLazyClient(client.Options{
		HostPort:  testRig.Stack.TemporalAddress(),
		Namespace: run.TemporalNamespace,
		Logger:    log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
		ConnectionOptions: client.ConnectionOptions{
			DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(busyErrorInterceptor(&busy))},
		},
	})
	require.NoError(t, err)
	defer stormy.Close()
	var group sync.WaitGroup
	machines := pool.Machines(t)
	for _, m := range machines {
		ref := kube.Ref{Namespace: m.Namespace, Name: m.Name, UID: string(m.UID)}
		id := rig.Installation.ID(run.KindMachine, ref)
		options := client.StartWorkflowOptions{
			ID: id, TaskQueue: rig.Installation.Shard(0).TaskQueue(run.QueueMachines),
			TypedSearchAttributes: run.StartSearchAttributes(m.Namespace, run.ParentNames{Machine: m.Name}),
		}
		signal := func() {
			changed := run.ChangeSignal{UID: ref.UID, Generation: sentinel}
			if _, err := stormy.SignalWithStartWorkflow(
				context.Background(),
				id,
				run.SignalChanged,
				changed,
				options,
				string(run.KindMachine),
				run.Input{Ref: ref},
			); err != nil {
				failed.Add(1)
				return
			}
			sent.Add(1)
		}
		// an idle run ends at once, so some signals arrive at the end of a run, and other signals start the next run
		for range 4 {
			group.Go(func() {
				for range 20 {
					signal()
				}
			})
		}
	}
	group.Wait()
	t.Logf(
		"%d signals to %d machines; %d calls failed; %d attempts were refused as BUSY_WORKFLOW",
		sent.Load(),
		len(machines),
		failed.Load(),
		busy.Load(),
	)
	require.Greater(t, sent.Load(), int64(2*len(machines)), "no storm")

	rig.Eventually(t, "the runs have ended", func() (bool, any) {
		open := testRig.WorkflowRuns(
			t,
			`ExecutionStatus = "Running" AND WorkflowType = "Machine" AND MachineNamespace = "storm"`,
		)
		return len(open) == 0, len(open)
	})
	received := int64(0)
	// Temporal updates its visibility store with a delay, so a run that has ended may not be listed yet.
	rig.Eventually(t, "each signal that the server took stands in a history", func() (bool, any) {
		received = countSignalsOfGeneration(t, sentinel)
		return received >= sent.Load(), []int64{received, sent.Load()}
	})
	runs, all := countRunsAndEvents(t)
	t.Logf("the storm: %d runs with %d events", runs-lives, all-events)
	// The server may have accepted the signal of a failed call, because only the response may have been lost.
	require.LessOrEqual(t, received, sent.Load()+failed.Load(), "signals in histories, and calls")
	pool.Delete(t)
	pool.AwaitPoolGone(t)
}

// countSignalsOfGeneration counts the signals with this generation in the histories of this test's machines.
// countSignalsOfGeneration requires that a decision follows the last signal of each run.
func countSignalsOfGeneration(t *testing.T, generation int64) (count int64) {
	t.Helper()
	for _, w := range testRig.WorkflowRuns(t, `WorkflowType = "Machine" AND MachineNamespace = "storm"`) {
		decided := true
		for _, event := range testRig.History(t, w.Execution.WorkflowId, w.Execution.RunId).Events {
			switch event.EventType {
			case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
				decided = false
				var changed run.ChangeSignal
				require.NoError(
					t,
					converter.GetDefaultDataConverter().
						FromPayloads(event.GetWorkflowExecutionSignaledEventAttributes().Input, &changed),
				)
				if changed.Generation == generation {
					count++
				}
			case enumspb.EVENT_TYPE_MARKER_RECORDED, enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
				decided = true
			default:
			}
		}
		require.True(t, decided, "a run of %s ended with a signal that it did not look at", w.Execution.WorkflowId)
	}
	return count
}

// countRunsAndEvents counts the runs of this test's objects, and the events in the histories of these runs.
func countRunsAndEvents(t *testing.T) (runs, events int) {
	t.Helper()
	for _, w := range testRig.WorkflowRuns(t, `WorkflowType IN ("Machine", "MachineSet", "MachineClass", "MachineDeployment") AND MachineNamespace = "storm"`) {
		runs++
		events += len(testRig.History(t, w.Execution.WorkflowId, w.Execution.RunId).Events)
	}
	return runs, events
}

// busyErrorInterceptor counts the call attempts that Temporal refuses with BUSY_WORKFLOW, because a run of the same
// workflow ID began less than a second ago.
func busyErrorInterceptor(n *atomic.Int64) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, in, out any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		err := invoke(ctx, method, in, out, conn, options...)
		if exhausted := new(serviceerror.ResourceExhausted); errors.As(
			serviceerror.FromStatus(status.Convert(err)),
			&exhausted,
		) {
			if exhausted.Cause == enumspb.RESOURCE_EXHAUSTED_CAUSE_BUSY_WORKFLOW {
				n.Add(1)
			}
		}
		return err
	}
}

// FindSecretLeaks finds a secret in a history and in an event, and reads the metrics of worker and bridge.
func TestLeakedSecretsAreFound(t *testing.T) {
	secret := fmt.Sprintf("leaked-on-purpose-%d", time.Now().UnixNano())
	run, err := testRig.Temporal.ExecuteWorkflow(
		t.Context(),
		client.StartWorkflowOptions{ID: "leak", TaskQueue: "nobody"},
		"Nothing",
		[]byte("x"+secret),
	)
	require.NoError(t, err)
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "leak"},
		Reason:     "Leaked",
		Message:    "token " + secret,
	}
	_, err = testRig.Kube.CoreV1().Events("default").Create(t.Context(), event, metav1.CreateOptions{})
	require.NoError(t, err)
	rig.Eventually(t, "both leaks are found", func() (bool, any) {
		places, _, err := testRig.FindSecretLeaks(t.Context(), secret)
		require.NoError(t, err)
		return len(places) == 2 && strings.HasPrefix(places[0], "history of leak") && places[1] == "events", places
	})
	require.NoError(t, testRig.Temporal.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "done"))
	places, _, err := testRig.FindSecretLeaks(t.Context(), "process_cpu_seconds_total") // each process has this metric
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"metrics of worker", "metrics of bridge"}, places)
}
