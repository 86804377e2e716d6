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

func TestRollingUpdateKeepsMaxSurgeAndMaxUnavailable(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "plain", 12, withRollingUpdate(3, 1))
	watch := f.startBoundsSampler(t)
	f.changeTemplate(t, "2")
	f.awaitMachinesOfEdition(t, "2", 12)
	watch.requireNoViolations(t)
	rig.Eventually(t, "the rollout has its result", func() (bool, any) {
		list := f.rolloutResults(t)
		return len(list) == 1, list
	})
	result := f.rolloutResults(t)[0]
	require.Equal(t, deployment.OutcomeCompleted, result.Outcome)
	require.Equal(t, int64(2), result.Revision)
	require.Equal(t, 12, result.Replaced)
	require.Equal(t, 12, result.Machines)
	d := f.Deployment(t)
	require.Equal(t, "2", d.Annotations[v1alpha1.AnnotationRevision])
	require.Nil(t, d.Status.CurrentOperation)
	require.Len(t, f.Sets(t), 2, "the former set is kept for an undo")
	f.awaitRolloutMarks(t, func(v1alpha1.Machine) rolloutMarks { return rolloutMarks{} })
	t.Logf("took %s, slowest step %s: %s; waited %v", result.Took, result.SlowTook, result.Slowest, result.Waited)
	f.Delete(t)
	f.AwaitPoolGone(t)
}

// During a rollout the deployment is scaled up and then down. The template of the deployment changes two more times,
// the second time back to the template of the first rollout.
func TestRolloutContinuesAfterSizeAndTemplateChange(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "restless", 20, withRollingUpdate(4, 0))
	watch := f.startBoundsSampler(t)
	f.changeTemplate(t, "2")
	rig.Eventually(
		t,
		"the rollout has begun",
		func() (bool, any) { n := f.countMachinesOfEdition(t, "2"); return n >= 4, n },
	)
	f.Scale(t, 24)
	rig.Eventually(t, "it goes on", func() (bool, any) { n := f.countMachinesOfEdition(t, "2"); return n >= 10, n })
	f.changeTemplate(t, "3")
	rig.Eventually(
		t,
		"the next one has begun",
		func() (bool, any) { n := f.countMachinesOfEdition(t, "3"); return n >= 4, n },
	)
	f.Scale(t, 16)
	rig.Eventually(t, "it goes on", func() (bool, any) { n := f.countMachinesOfEdition(t, "3"); return n >= 8, n })
	f.changeTemplate(t, "2")
	f.awaitMachinesOfEdition(t, "2", 16)
	watch.requireNoViolations(t)
	rig.Eventually(
		t,
		"the rollouts have their results",
		func() (bool, any) { n := len(f.rolloutResults(t)); return n == 3, n },
	)
	var outcomes []string
	for _, o := range f.rolloutResults(t) {
		outcomes = append(outcomes, o.Outcome)
	}
	require.Equal(
		t,
		[]string{deployment.OutcomeSuperseded, deployment.OutcomeSuperseded, deployment.OutcomeCompleted},
		outcomes,
	)
	f.Delete(t)
	f.AwaitPoolGone(t)
}

// Worker, bridge, Temporal and again the worker are killed one after the other during a rollout.
func TestRolloutContinuesAfterProcessesAreKilled(t *testing.T) {
	f := newFleet(t, "killed", 24, withRollingUpdate(4, 0))
	before, err := testRig.Cloud.Stats(t.Context())
	require.NoError(t, err)
	watch := f.startBoundsSampler(t)
	f.changeTemplate(t, "2")
	for i, component := range []string{component.Worker, component.Bridge, component.Temporal, component.Worker} {
		rig.Eventually(
			t,
			"the rollout continues",
			func() (bool, any) { n := f.countMachinesOfEdition(t, "2"); return n >= 3+5*i, n },
		)
		require.NoError(t, testRig.Stack.KillComponent(t.Context(), component))
		require.NoError(t, testRig.Stack.StartComponent(t.Context(), component))
	}
	f.awaitMachinesOfEdition(t, "2", 24)
	watch.requireNoViolations(t)
	after, err := testRig.Cloud.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, 24, after.CreatedInstances-before.CreatedInstances, "instances that were made for the new template")
	require.Equal(t, before.DuplicateInstances, after.DuplicateInstances)
	require.Len(t, f.ProviderIDs(t), 24, "no orphan")
	f.Delete(t)
	f.AwaitPoolGone(t)
}

// With the replacement policy TerminationStarted, machines that are being deleted do not count for the bounds. A new
// machine is created before the instance of the old machine is gone.
func TestPolicyTerminationStartedIgnoresTerminatingMachines(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "early", 4, withRollingUpdate(1, 0))
	release := f.blockMachineDeletions(t)
	testRig.CreatePolicy(
		t,
		f.Namespace,
		f.Name,
		v1alpha1.RolloutPolicySpec{MachineReplacementPolicy: v1alpha1.MachineTerminationStarted},
	)
	watch := f.startSamplerForBounds(t, checker.SizeBounds{ChecksNodes: true})
	f.changeTemplate(t, "2")
	rig.Eventually(t, "all are replaced, and no old one is gone", func() (bool, any) {
		machines := f.Machines(t)
		return len(machines) == 8 && f.countMachinesOfEdition(t, "2") == 4, f.machineNames(t)
	})
	release()
	f.awaitMachinesOfEdition(t, "2", 4)
	watch.requireNoViolations(t)
	f.Delete(t)
	f.AwaitPoolGone(t)
}
