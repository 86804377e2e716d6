//go:build integration

package rollouts

import (
	"testing"

	"github.com/stretchr/testify/require"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/test/checker"
	"millwright/test/integration/rig"
	"millwright/workflows/deployment"
)

func TestAllMachinesAreReplacedWithinTheBounds(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "plain", 12, rolling(3, 1))
	watch := f.watch(t)
	f.change(t, "2")
	f.awaitEdition(t, "2", 12)
	watch.verdict(t)
	rig.Eventually(t, "the rollout has its result", func() (bool, any) {
		list := f.outcomes(t)
		return len(list) == 1, list
	})
	result := f.outcomes(t)[0]
	require.Equal(t, deployment.OutcomeCompleted, result.Outcome)
	require.Equal(t, int64(2), result.Revision)
	require.Equal(t, 12, result.Replaced)
	require.Equal(t, 12, result.Machines)
	d := f.Deployment(t)
	require.Equal(t, "2", d.Annotations[v1alpha1.AnnotationRevision])
	require.Nil(t, d.Status.CurrentOperation)
	require.Len(t, f.Sets(t), 2, "the former set is kept for an undo")
	f.awaitMarks(t, func(v1alpha1.Machine) marks { return marks{} })
	t.Logf("took %s, slowest step %s: %s; waited %v", result.Took, result.SlowTook, result.Slowest, result.Waited)
	f.Delete(t)
	f.AwaitGone(t)
}

// In the middle of a rollout the deployment is made larger, then smaller, and its template changes twice more, the last
// time back to what it was.
func TestSizeAndTemplateChangeInTheMiddle(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "restless", 20, rolling(4, 0))
	watch := f.watch(t)
	f.change(t, "2")
	rig.Eventually(t, "the rollout has begun", func() (bool, any) { n := f.updated(t, "2"); return n >= 4, n })
	f.Scale(t, 24)
	rig.Eventually(t, "it goes on", func() (bool, any) { n := f.updated(t, "2"); return n >= 10, n })
	f.change(t, "3")
	rig.Eventually(t, "the next one has begun", func() (bool, any) { n := f.updated(t, "3"); return n >= 4, n })
	f.Scale(t, 16)
	rig.Eventually(t, "it goes on", func() (bool, any) { n := f.updated(t, "3"); return n >= 8, n })
	f.change(t, "2")
	f.awaitEdition(t, "2", 16)
	watch.verdict(t)
	rig.Eventually(t, "the rollouts have their results", func() (bool, any) { n := len(f.outcomes(t)); return n == 3, n })
	var outcomes []string
	for _, o := range f.outcomes(t) {
		outcomes = append(outcomes, o.Outcome)
	}
	require.Equal(
		t,
		[]string{deployment.OutcomeSuperseded, deployment.OutcomeSuperseded, deployment.OutcomeCompleted},
		outcomes,
	)
	f.Delete(t)
	f.AwaitGone(t)
}

// Worker, bridge and Temporal are killed in the middle of a rollout, one after the other.
func TestKillsInTheMiddleOfARollout(t *testing.T) {
	f := newFleet(t, "killed", 24, rolling(4, 0))
	before, err := r.Cloud.Stats(t.Context())
	require.NoError(t, err)
	watch := f.watch(t)
	f.change(t, "2")
	for i, component := range []string{component.Worker, component.Bridge, component.Temporal, component.Worker} {
		rig.Eventually(t, "the rollout continues", func() (bool, any) { n := f.updated(t, "2"); return n >= 3+5*i, n })
		require.NoError(t, r.Stack.Kill(t.Context(), component))
		require.NoError(t, r.Stack.Start(t.Context(), component))
	}
	f.awaitEdition(t, "2", 24)
	watch.verdict(t)
	after, err := r.Cloud.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, 24, after.Creates-before.Creates, "instances that were made for the new template")
	require.Equal(t, before.DuplicateCreates, after.DuplicateCreates)
	require.Len(t, f.Instances(t), 24, "no orphan")
	f.Delete(t)
	f.AwaitGone(t)
}

// A machine whose deletion has begun holds no place any more, where that is wanted: its successor does not wait for its
// instance.
func TestTerminationStartedFreesThePlace(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "early", 4, rolling(1, 0))
	release := f.keep(t)
	r.Policy(
		t,
		f.Namespace,
		f.Name,
		v1alpha1.RolloutPolicySpec{MachineReplacementPolicy: v1alpha1.MachineTerminationStarted},
	)
	watch := f.watchBy(t, checker.Bounds{Nodes: true})
	f.change(t, "2")
	rig.Eventually(t, "all are replaced, and no old one is gone", func() (bool, any) {
		machines := f.Machines(t)
		return len(machines) == 8 && f.updated(t, "2") == 4, f.names(t)
	})
	release()
	f.awaitEdition(t, "2", 4)
	watch.verdict(t)
	f.Delete(t)
	f.AwaitGone(t)
}
