//go:build integration

package chaos

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"millwright/devstack/component"
	"millwright/test/checker"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

// Two bridges send signals to two workers. One worker and the leading bridge are killed while 60 machines are created,
// and are not restarted. The other worker and the other bridge finish the work, and no instance is made twice.
func TestOneOfTwoWorkersAndOneOfTwoBridgesDie(t *testing.T) {
	const wanted = 60
	const class = `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"6s","createSpread":"5s"}`
	require.NoError(t, testRig.Stack.StartComponent(t.Context(), component.SecondWorker))
	rig.Eventually(t, "one bridge leads", func() (bool, any) { return leadingBridge(t) != "", "none" })
	first := leadingBridge(t)
	t.Cleanup(func() { // the other tests run with one worker and one bridge
		ctx := context.WithoutCancel(t.Context())
		for _, name := range []string{component.Worker, first} {
			if err := testRig.Stack.StartComponent(ctx, name); err != nil {
				t.Error(err)
			}
		}
		if err := testRig.Stack.StopComponent(ctx, component.SecondWorker); err != nil {
			t.Error(err)
		}
	})

	testRig.CreateNamespace(t, "pair", class)
	watcher := checker.NewWatcher(
		checker.Clients{
			MachineClient: testRig.MachineClient,
			Kube:          testRig.Kube,
			Cloud:         testRig.Cloud,
			Temporal:      testRig.Temporal,
		},
		"pair",
		checker.SizeBounds{ChecksDeletingMachines: true},
	)
	go watcher.Run(t.Context())
	before := cloudStats(t, testRig)
	pool := testRig.CreatePool(t, "pair", "pair", wanted)
	rig.Eventually(t, "both workers call the cloud, and some machines are made", func() (bool, any) {
		calls, made := countCloudCallsByWorker(t, "pair"), 0
		for _, m := range pool.Machines(t) {
			if m.Spec.ProviderID != "" {
				made++
			}
		}
		return len(calls) == 2 && made >= 5, fmt.Sprintf("calls by worker: %v, %d made", calls, made)
	})
	require.NoError(t, testRig.Stack.KillComponent(t.Context(), component.Worker))
	require.NoError(t, testRig.Stack.KillComponent(t.Context(), first))
	require.Positive(t, cloudStats(t, testRig).PendingCreates, "no creation is in progress: the test shows nothing")

	requireOneInstancePerMachine(t, testRig, pool, before, wanted)
	require.LessOrEqual(
		t,
		countMachineCreations(t, testRig, "pair"),
		wanted,
		"Machines made: the one whose creation the killed worker waited for may not count",
	)
	deciders := map[string]int{} // number of workflow tasks that each worker has completed
	for _, history := range testRig.MachineHistories(t, "pair") {
		for _, e := range history.Events {
			if started := e.GetWorkflowTaskStartedEventAttributes(); started != nil {
				deciders[started.Identity]++
			}
		}
	}
	require.Len(t, deciders, 2, "workers that decide")
	violations, snapshots := watcher.Violations()
	require.Empty(t, violations)
	require.Positive(t, snapshots)
}

// leadingBridge returns the name of the leading bridge, or an empty string if no bridge leads.
func leadingBridge(t *testing.T) string {
	t.Helper()
	for _, b := range []string{component.Bridge, component.SecondBridge} {
		if testRig.ReadMetric(t, b, "millwright_bridge_leader") == 1 {
			return b
		}
	}
	return ""
}

// countCloudCallsByWorker returns how many calls of the cloud each worker has in progress for the machines of a
// namespace.
func countCloudCallsByWorker(t *testing.T, namespace string) map[string]int {
	t.Helper()
	calls := map[string]int{}
	for _, w := range testRig.WorkflowRuns(t, fmt.Sprintf(`ExecutionStatus = "Running" AND WorkflowType = %q AND MachineNamespace = %q`, run.KindMachine, namespace)) {
		seen, err := testRig.Temporal.DescribeWorkflowExecution(t.Context(), w.Execution.WorkflowId, w.Execution.RunId)
		require.NoError(t, err)
		for _, a := range seen.PendingActivities {
			if a.ActivityType.Name == "CreateInstance" && a.State == enumspb.PENDING_ACTIVITY_STATE_STARTED {
				calls[a.LastWorkerIdentity]++
			}
		}
	}
	return calls
}
