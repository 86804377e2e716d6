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

// Five machines made by Cluster API go to Millwright by one label, and back by one label. Nobody replaces a machine,
// and in the end nobody writes any more.
func TestADeploymentIsHandedOverAndBackWithoutReplacingAMachine(t *testing.T) {
	t.Parallel()
	f := newFleet(
		t,
		"given",
		5,
		component.WatchFilterLabel+": "+component.OurFilter,
		component.WatchFilterLabel+": "+component.UpstreamFilter,
		"labels: {pool: NAME}",
		fmt.Sprintf("labels: {pool: given, %s: %s}", component.WatchFilterLabel, component.UpstreamFilter),
	)
	f.awaitMade(t, f.name, 5)
	before := f.uids(t)
	require.Len(t, f.sets(t), 1)
	set := f.sets(t)[0]
	assert.Equal(t, []string{theirFinalizer}, set.GetFinalizers(), "Cluster API has made it")
	t.Logf("made by Cluster API, written by %v", f.managers(t))

	f.give(t, component.OurFilter, ourFinalizer)
	f.awaitSets(t, set.GetName(), component.OurFilter, ourFinalizer)
	f.calm(t)
	assert.ElementsMatch(t, before, f.uids(t), "Millwright keeps the machines of Cluster API")
	written := f.managers(t)
	t.Logf("Millwright's, written by %v", written)
	assert.Subset(
		t,
		written["set"],
		[]string{"capi-machinedeployment", "millwright-machinedeployment"},
		"each has its own fields",
	)
	verdict := f.guard(t, bounds{most: 6, least: 5})
	f.resize(t, 6)
	f.awaitMade(t, f.name, 6)
	verdict()
	assert.Subset(t, f.uids(t), before)
	f.resize(t, 5)
	f.awaitMade(t, f.name, 5)
	before = f.uids(t)

	f.give(t, component.UpstreamFilter, theirDeploymentsFinalizer)
	f.awaitSets(t, set.GetName(), component.UpstreamFilter, theirFinalizer)
	f.calm(t)
	assert.ElementsMatch(t, before, f.uids(t), "Cluster API keeps the machines of Millwright")
	assert.Len(t, f.sets(t), 1, "and the set")
	written = f.managers(t)
	t.Logf("Cluster API's again, written by %v", written)
	assert.Contains(t, written["deployment"], "kubectl", "who has made the deployment can still take fields away")
	status, _, message := f.condition(t, "Progressing")
	assert.Empty(t, status, "Cluster API would never change it: %s", message)
	f.resize(t, 4)
	f.awaitMade(t, f.name, 4)
	assert.Subset(t, before, f.uids(t))
}

// awaitSets waits until the only set of the fleet has this name, this value of the watch filter, and this finalizer.
func (f fleet) awaitSets(t *testing.T, name, filter, finalizer string) {
	t.Helper()
	want := fmt.Sprint([]string{name, filter, finalizer})
	rig.Eventually(t, "the only set: "+want, func() (bool, any) {
		var seen []string
		for _, s := range f.sets(t) {
			seen = append(
				seen,
				fmt.Sprint(append([]string{s.GetName(), s.GetLabels()[component.WatchFilterLabel]}, s.GetFinalizers()...)),
			)
		}
		return len(seen) == 1 && seen[0] == want, seen
	})
}

// In the middle of a rollout of five machines each process dies once. In the end there are exactly five machines, each
// with its clones.
func TestADeploymentIsRolledOutWhileProcessesDie(t *testing.T) {
	f := newFleet(t, "doomed", 5, strategy("{strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 2}}}")...)
	f.awaitMade(t, f.name, 5)
	f.template(t, "doomed-2")
	verdict := f.guard(t, bounds{most: 7, least: 5})
	f.change(t, "doomed-2")
	for i, name := range []string{component.Worker, component.Bridge, component.Temporal, component.ClusterAPICore} {
		rig.Eventually(t, "more machines of the new template", func() (bool, any) {
			made := f.made(t)
			return made["doomed-2"] > i, fmt.Sprint(made, f.says(t))
		})
		t.Logf("%s is killed when %v machines are there", name, f.made(t))
		crash(t, name)
	}
	f.awaitMade(t, "doomed-2", 5)
	verdict()
	f.created(t, 10) // five of each template
	f.replay(t)
}

// replay replays the histories of all runs of the fleet: the deployment's, its rollouts' and its sets'. A worker that
// takes a run over does the same.
func (f fleet) replay(t *testing.T) {
	t.Helper()
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{
		DisableRegistrationAliasing: true, DisableDeadlockDetection: true,
	})
	require.NoError(t, err)
	workflows.Register(replayer)
	kinds := map[string]int{}
	for _, w := range r.Workflows(t, fmt.Sprintf("MachineDeployment = %q", f.set)) {
		history := r.History(t, w.Execution.WorkflowId, w.Execution.RunId)
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
