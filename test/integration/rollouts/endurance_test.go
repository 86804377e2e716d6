//go:build integration && endurance

package rollouts

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/test/integration/rig"
	"millwright/workflows/deployment"
	"millwright/workflows/run"
)

// slowProviderSpec is a provider spec. With it, the cloud needs two seconds to create an instance and one second to
// delete an instance.
const slowProviderSpec = `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"2s","deleteLatency":"1s"}`

// awaitMinMachinesOfEdition waits until at least n machines have the template of this edition.
func (f fleet) awaitMinMachinesOfEdition(t *testing.T, edition string, n int) {
	t.Helper()
	rig.Eventually(
		t,
		"machines of edition "+edition,
		func() (bool, any) { have := f.countMachinesOfEdition(t, edition); return have >= n, have },
	)
}

// A deployment with a hundred machines is scaled up and down, gets two more templates, and is paused and resumed. A
// further rollout is cancelled and rolled back.
func TestEnduranceChangesDuringRolloutsOfAHundredMachines(t *testing.T) {
	f := newFleetWithProviderSpec(t, "hundred", slowProviderSpec, 100, withRollingUpdate(10, 0))
	watch := f.startBoundsSampler(t)
	begun := time.Now()
	said := func(what string) { t.Logf("%6.1f s: %s", time.Since(begun).Seconds(), what) }

	f.changeTemplate(t, "2")
	f.awaitMinMachinesOfEdition(t, "2", 20)
	said("20 of edition 2; scaled to 120")
	f.Scale(t, 120)
	f.awaitMinMachinesOfEdition(t, "2", 50)
	said("50 of edition 2; edition 3 begins")
	f.changeTemplate(t, "3")
	f.awaitMinMachinesOfEdition(t, "3", 20)
	said("20 of edition 3; scaled to 80")
	f.Scale(t, 80)
	f.awaitMinMachinesOfEdition(t, "3", 50)
	said("50 of edition 3; paused")
	f.sendRequest(t, run.RequestInput{Command: "pause", Reason: "lunch"})
	f.awaitProgressingReason(t, v1alpha1.ReasonDeploymentPaused)
	f.awaitSettledSets(t)
	held := f.machineNames(t)
	f.ForceReconcile(t)
	require.Equal(t, held, f.machineNames(t), "no machine is replaced while it is paused")
	f.sendRequest(t, run.RequestInput{Command: "resume", Reason: "back"})
	said("resumed")
	f.awaitMachinesOfEdition(t, "3", 80)
	f.awaitRolloutOutcomes(t, deployment.OutcomeSuperseded, deployment.OutcomeCompleted)
	said("80 of edition 3, and no other; edition 4 begins")
	f.changeTemplate(t, "4")
	f.awaitMinMachinesOfEdition(t, "4", 30)
	f.sendRequest(t, run.RequestInput{Command: "cancel", Reason: "no", RollsBack: true})
	said("30 of edition 4; cancelled, and back")
	f.awaitMachinesOfEdition(t, "3", 80)
	said("80 of edition 3, and no other")
	watch.requireNoViolations(t)
	f.awaitRolloutOutcomes(
		t,
		deployment.OutcomeSuperseded,
		deployment.OutcomeCompleted,
		deployment.OutcomeRolledBack,
		deployment.OutcomeCompleted,
	)
	require.Len(t, f.ProviderIDs(t), 80, "no orphan")
	f.Delete(t)
	f.AwaitPoolGone(t)
}

// Worker, bridge or Temporal is killed at random every few seconds, while a rollout replaces a hundred machines.
func TestEnduranceKillsProcessesAtRandom(t *testing.T) {
	f := newFleetWithProviderSpec(t, "random", slowProviderSpec, 100, withRollingUpdate(10, 0))
	before, err := testRig.Cloud.Stats(t.Context())
	require.NoError(t, err)
	watch := f.startBoundsSampler(t)
	seed := uint64(time.Now().UnixNano())
	dice := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	begun, kills := time.Now(), map[string]int{}
	f.changeTemplate(t, "2")
	for components := []string{component.Worker, component.Bridge, component.Temporal}; f.countMachinesOfEdition(t, "2") < 100; {
		victim := components[dice.IntN(len(components))]
		require.NoError(t, testRig.Stack.KillComponent(t.Context(), victim))
		require.NoError(t, testRig.Stack.StartComponent(t.Context(), victim))
		kills[victim]++
		time.Sleep(2*time.Second + time.Duration(dice.Int64N(int64(4*time.Second)))) // wait 2 s to 6 s, at random
	}
	f.awaitMachinesOfEdition(t, "2", 100)
	t.Logf("%.0f s with kills: %v", time.Since(begun).Seconds(), kills)
	watch.requireNoViolations(t)
	after, err := testRig.Cloud.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, 100, after.CreatedInstances-before.CreatedInstances, "instances that were made for the new template")
	require.Equal(t, before.DuplicateInstances, after.DuplicateInstances)
	require.Len(t, f.ProviderIDs(t), 100, "no orphan")
	f.Delete(t)
	f.AwaitPoolGone(t)
}
