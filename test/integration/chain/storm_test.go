//go:build integration

package chain

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"millwright/activities"
	"millwright/test/integration/rig"
	"millwright/workflows"
)

// A storm of signals at the moment of completion loses none: each signal that the server took stands in a history, and is
// followed there by a decision.
func TestStormAtCompletionLosesNoSignal(t *testing.T) {
	const (
		sentinel = -7 // generation of the storm's signals, which no real object has
		linger   = 20 * time.Second
	)
	r.Namespace(t, "storm", "")
	pool := r.Pool(t, "storm", "storm", 10)
	pool.AwaitRunning(t, 10, time.Minute)
	rig.Eventually(t, time.Minute, "all machines are calm", func() (bool, any) {
		open := r.Workflows(t, `ExecutionStatus = "Running" AND WorkflowType = "Machine" AND MachineNamespace = "storm"`)
		return len(open) == 0, len(open)
	})
	var sent, failed atomic.Int64
	var group sync.WaitGroup
	machines := pool.Machines(t)
	for _, m := range machines {
		ref := activities.Ref{Namespace: m.Namespace, Name: m.Name, UID: string(m.UID)}
		id := workflows.ID(workflows.KindMachine, ref)
		options := client.StartWorkflowOptions{
			ID: id, TaskQueue: workflows.QueueMachines,
			TypedSearchAttributes: workflows.StartAttributes(m.Namespace, workflows.Owner{Machine: m.Name}),
		}
		signal := func() {
			changed := workflows.Changed{UID: ref.UID, Generation: sentinel}
			if _, err := r.Temporal.SignalWithStartWorkflow(context.Background(), id, workflows.SignalChanged, changed, options, string(workflows.KindMachine), workflows.Input{Ref: ref}); err != nil {
				failed.Add(1)
				return
			}
			sent.Add(1)
		}
		group.Go(func() {
			signal()
			start := time.Now()
			time.Sleep(linger - 200*time.Millisecond)
			for time.Since(start) < linger+1500*time.Millisecond {
				signal()
			}
		})
	}
	group.Wait()
	t.Logf("%d signals to %d machines; %d calls failed", sent.Load(), len(machines), failed.Load())
	require.Greater(t, sent.Load(), int64(2*len(machines)), "no storm")

	rig.Eventually(t, 2*time.Minute, "the runs have ended", func() (bool, any) {
		open := r.Workflows(t, `ExecutionStatus = "Running" AND WorkflowType = "Machine" AND MachineNamespace = "storm"`)
		return len(open) == 0, len(open)
	})
	received := int64(0)
	for _, w := range r.Workflows(t, `WorkflowType = "Machine" AND MachineNamespace = "storm"`) {
		decided := true
		for _, event := range r.History(t, w.Execution.WorkflowId, w.Execution.RunId).Events {
			switch event.EventType {
			case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
				decided = false
				var changed workflows.Changed
				require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(event.GetWorkflowExecutionSignaledEventAttributes().Input, &changed))
				if changed.Generation == sentinel {
					received++
				}
			case enumspb.EVENT_TYPE_MARKER_RECORDED, enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
				decided = true
			default:
			}
		}
		require.True(t, decided, "a run of %s ended with a signal that it did not look at", w.Execution.WorkflowId)
	}
	require.GreaterOrEqual(t, received, sent.Load(), "signals in histories, and signals that the server took")
	// Of a call that failed nobody knows here whether the server took it: it may have timed out on its way back.
	require.LessOrEqual(t, received, sent.Load()+failed.Load(), "signals in histories, and calls")
	pool.Delete(t)
	pool.AwaitGone(t, time.Minute)
}

// The check for leaked secrets finds one that is there.
func TestLeakIsSeen(t *testing.T) {
	secret := fmt.Sprintf("leaked-on-purpose-%d", time.Now().UnixNano())
	run, err := r.Temporal.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "leak", TaskQueue: "nobody"}, "Nothing", []byte("x"+secret))
	require.NoError(t, err)
	rig.Eventually(t, 20*time.Second, "the leak is found", func() (bool, any) {
		places, _, err := r.Leaks(t.Context(), secret)
		require.NoError(t, err)
		return len(places) == 1, places
	})
	require.NoError(t, r.Temporal.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "done"))
}
