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

// slowly are the latencies of an instance that takes two seconds to make and one to delete.
const slowly = `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"2s","deleteLatency":"1s"}`

// reaches waits until so many machines have a template.
func (f fleet) reaches(t *testing.T, edition string, n int) {
	t.Helper()
	rig.Eventually(
		t,
		"machines of edition "+edition,
		func() (bool, any) { have := f.updated(t, edition); return have >= n, have },
	)
}

// A hundred machines, whose deployment is made larger and smaller, gets two more templates, and is paused. The next
// rollout is cancelled, and goes back.
func TestEndurance_AHundredMachinesAndEverythingChanges(t *testing.T) {
	f := newFleetOf(t, "hundred", slowly, 100, rolling(10, 0))
	watch := f.watch(t)
	begun := time.Now()
	said := func(what string) { t.Logf("%6.1f s: %s", time.Since(begun).Seconds(), what) }

	f.change(t, "2")
	f.reaches(t, "2", 20)
	said("20 of edition 2; scaled to 120")
	f.Scale(t, 120)
	f.reaches(t, "2", 50)
	said("50 of edition 2; edition 3 begins")
	f.change(t, "3")
	f.reaches(t, "3", 20)
	said("20 of edition 3; scaled to 80")
	f.Scale(t, 80)
	f.reaches(t, "3", 50)
	said("50 of edition 3; paused")
	f.request(t, run.RequestInput{Command: "pause", Reason: "lunch"})
	f.awaitReason(t, v1alpha1.ReasonDeploymentPaused)
	rig.Eventually(
		t,
		"what was under way is over",
		func() (bool, any) { open := r.OpenWorkflows(t, f.Namespace); return open["Machine"] == 0, open },
	)
	held := f.names(t)
	f.LookAgain(t)
	require.Equal(t, held, f.names(t), "no machine is replaced while it is paused")
	f.request(t, run.RequestInput{Command: "resume", Reason: "back"})
	said("resumed")
	f.awaitEdition(t, "3", 80)
	f.awaitOutcomes(t, deployment.OutcomeSuperseded, deployment.OutcomeCompleted)
	said("80 of edition 3, and no other; edition 4 begins")
	f.change(t, "4")
	f.reaches(t, "4", 30)
	f.request(t, run.RequestInput{Command: "cancel", Reason: "no", Back: true})
	said("30 of edition 4; cancelled, and back")
	f.awaitEdition(t, "3", 80)
	said("80 of edition 3, and no other")
	watch.verdict(t)
	f.awaitOutcomes(
		t,
		deployment.OutcomeSuperseded,
		deployment.OutcomeCompleted,
		deployment.OutcomeRolledBack,
		deployment.OutcomeCompleted,
	)
	require.Len(t, f.Instances(t), 80, "no orphan")
	f.Delete(t)
	f.AwaitGone(t)
}

// Worker, bridge and Temporal are killed at random, every few seconds, while a hundred machines are replaced.
func TestEndurance_KillsAtRandom(t *testing.T) {
	f := newFleetOf(t, "random", slowly, 100, rolling(10, 0))
	before, err := r.Cloud.Stats(t.Context())
	require.NoError(t, err)
	watch := f.watch(t)
	seed := uint64(time.Now().UnixNano())
	dice := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	begun, kills := time.Now(), map[string]int{}
	f.change(t, "2")
	for components := []string{component.Worker, component.Bridge, component.Temporal}; f.updated(t, "2") < 100; {
		victim := components[dice.IntN(len(components))]
		require.NoError(t, r.Stack.Kill(t.Context(), victim))
		require.NoError(t, r.Stack.Start(t.Context(), victim))
		kills[victim]++
		time.Sleep(2*time.Second + time.Duration(dice.Int64N(int64(4*time.Second)))) // the next one comes at any moment
	}
	f.awaitEdition(t, "2", 100)
	t.Logf("%.0f s with kills: %v", time.Since(begun).Seconds(), kills)
	watch.verdict(t)
	after, err := r.Cloud.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, 100, after.Creates-before.Creates, "instances that were made for the new template")
	require.Equal(t, before.DuplicateCreates, after.DuplicateCreates)
	require.Len(t, f.Instances(t), 100, "no orphan")
	f.Delete(t)
	f.AwaitGone(t)
}
