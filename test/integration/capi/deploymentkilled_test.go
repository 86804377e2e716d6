//go:build integration

package capi

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"millwright/devstack/component"
	"millwright/test/integration/rig"
	"millwright/workflows"
	"millwright/workflows/run"
)

// A change of one label hands five machines from Cluster API to Millwright, and a second change of the label hands them
// back. No machine is replaced. In the end, neither controller writes to the objects any more.
func TestADeploymentIsHandedOverAndBackWithoutReplacingAMachine(t *testing.T) {
	t.Parallel()
	f := newFleet(
		t,
		"given",
		5,
		component.WatchFilterLabel+": "+component.MillwrightFilterValue,
		component.WatchFilterLabel+": "+component.UpstreamFilterValue,
		"labels: {pool: NAME}",
		fmt.Sprintf("labels: {pool: given, %s: %s}", component.WatchFilterLabel, component.UpstreamFilterValue),
	)
	f.awaitMachinesOfTemplate(t, f.name, 5)
	before := f.machineUIDs(t)
	require.Len(t, f.listSets(t), 1)
	set := f.listSets(t)[0]
	assert.Equal(t, []string{upstreamSetFinalizer}, set.GetFinalizers(), "Cluster API has made it")
	t.Logf("made by Cluster API, written by %v", f.fieldManagers(t))

	f.handOver(t, component.MillwrightFilterValue, millwrightFinalizer)
	f.awaitOnlySet(t, set.GetName(), component.MillwrightFilterValue, millwrightFinalizer)
	f.awaitNoWrites(t)
	assert.ElementsMatch(t, before, f.machineUIDs(t), "Millwright keeps the machines of Cluster API")
	written := f.fieldManagers(t)
	t.Logf("Millwright's, written by %v", written)
	assert.Subset(
		t,
		written["set"],
		[]string{"capi-machinedeployment", "millwright-machinedeployment"},
		"each has its own fields",
	)
	verdict := f.watchBounds(t, rolloutBounds{maxMachines: 6, minAvailable: 5})
	f.scale(t, 6)
	f.awaitMachinesOfTemplate(t, f.name, 6)
	verdict()
	assert.Subset(t, f.machineUIDs(t), before)
	f.scale(t, 5)
	f.awaitMachinesOfTemplate(t, f.name, 5)
	before = f.machineUIDs(t)

	f.handOver(t, component.UpstreamFilterValue, upstreamDeploymentFinalizer)
	f.awaitOnlySet(t, set.GetName(), component.UpstreamFilterValue, upstreamSetFinalizer)
	f.awaitNoWrites(t)
	assert.ElementsMatch(t, before, f.machineUIDs(t), "Cluster API keeps the machines of Millwright")
	assert.Len(t, f.listSets(t), 1, "and the set")
	written = f.fieldManagers(t)
	t.Logf("Cluster API's again, written by %v", written)
	assert.Contains(t, written["deployment"], "kubectl", "who has made the deployment can still take fields away")
	status, _, message := f.readCondition(t, "Progressing")
	assert.Empty(t, status, "Cluster API would never change it: %s", message)
	f.scale(t, 4)
	f.awaitMachinesOfTemplate(t, f.name, 4)
	assert.Subset(t, before, f.machineUIDs(t))
}

// awaitOnlySet waits until the fleet has exactly one set, with this name, this value of the watch filter, and this
// finalizer.
func (f fleet) awaitOnlySet(t *testing.T, name, filter, finalizer string) {
	t.Helper()
	want := fmt.Sprint([]string{name, filter, finalizer})
	rig.Eventually(t, "the only set: "+want, func() (bool, any) {
		var seen []string
		for _, s := range f.listSets(t) {
			seen = append(
				seen,
				fmt.Sprint(append([]string{s.GetName(), s.GetLabels()[component.WatchFilterLabel]}, s.GetFinalizers()...)),
			)
		}
		return len(seen) == 1 && seen[0] == want, seen
	})
}

// In the middle of a rollout of five machines, each process is killed once. In the end there are exactly five machines,
// each with its clones.
func TestADeploymentIsRolledOutWhileProcessesDie(t *testing.T) {
	f := newFleet(t, "doomed", 5, rolloutReplacement("{strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 2}}}")...)
	f.awaitMachinesOfTemplate(t, f.name, 5)
	f.newInfrastructureTemplate(t, "doomed-2")
	verdict := f.watchBounds(t, rolloutBounds{maxMachines: 7, minAvailable: 5})
	f.setInfrastructureTemplate(t, "doomed-2")
	for i, name := range []string{component.Worker, component.Bridge, component.Temporal, component.ClusterAPICore} {
		rig.Eventually(t, "more machines of the new template", func() (bool, any) {
			made := f.countMachinesByTemplate(t)
			return made["doomed-2"] > i, fmt.Sprint(made, f.conditionLines(t))
		})
		t.Logf("%s is killed when %v machines are there", name, f.countMachinesByTemplate(t))
		killAndRestartProcess(t, name)
	}
	f.awaitMachinesOfTemplate(t, "doomed-2", 5)
	verdict()
	f.requireCreatedMachineCount(t, 10) // five machines of each template
	f.replayHistories(t)
}

// replayHistories replays the histories of all runs of the fleet: of the deployment, its rollouts and its sets. A
// worker that takes over a run also replays its history.
func (f fleet) replayHistories(t *testing.T) {
	t.Helper()
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{
		DisableRegistrationAliasing: true, DisableDeadlockDetection: true,
	})
	require.NoError(t, err)
	workflows.Register(replayer)
	kinds := map[string]int{}
	for _, w := range testRig.WorkflowRuns(t, fmt.Sprintf("MachineDeployment = %q", f.poolName)) {
		history := testRig.History(t, w.Execution.WorkflowId, w.Execution.RunId)
		require.NoError(
			t,
			replayer.ReplayWorkflowHistory(log.NewStructuredLogger(slog.New(slog.DiscardHandler)), history),
			w.Execution.WorkflowId,
		)
		kinds[w.Type.Name]++
	}
	t.Logf("replayed: %v", kinds)
	for _, kind := range []run.Kind{run.KindClusterAPIDeployment, run.KindClusterAPIRollout, run.KindClusterAPISet} {
		assert.Positive(t, kinds[string(kind)], kind)
	}
}
