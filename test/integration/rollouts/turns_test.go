//go:build integration

package rollouts

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// turnSampler reads the machines of a namespace every 100 ms. A deployment is in the middle of its rollout while it has
// machines of two editions.
type turnSampler struct {
	mu      sync.Mutex
	samples int
	most    []string // the largest set of deployments that were in the middle in one sample
	began   []string // deployments in the order in which they got their first new machine
	stop    func()
}

func startTurnSampler(t *testing.T, namespace string) *turnSampler {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	s := &turnSampler{stop: func() { cancel(); <-over }}
	t.Cleanup(s.stop)
	go func() {
		defer close(over)
		for ctx.Err() == nil {
			list, err := testRig.MachineClient.MachineV1alpha1().Machines(namespace).List(ctx, metav1.ListOptions{})
			if err == nil {
				s.add(list.Items)
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return s
}

func (s *turnSampler) add(machines []v1alpha1.Machine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples++
	editions := map[string]map[string]bool{}
	for _, m := range machines {
		pool, edition := m.Labels["pool"], m.Labels["edition"]
		if editions[pool] == nil {
			editions[pool] = map[string]bool{}
		}
		editions[pool][edition] = true
		if edition != "" && !slices.Contains(s.began, pool) {
			s.began = append(s.began, pool)
		}
	}
	maps.DeleteFunc(editions, func(_ string, of map[string]bool) bool { return len(of) < 2 })
	if len(editions) > len(s.most) {
		s.most = slices.Sorted(maps.Keys(editions))
	}
}

// newTurnFleets creates three deployments of three machines, and a policy for them.
func newTurnFleets(t *testing.T, namespace string, spec v1alpha1.RolloutPolicySpec) map[string]fleet {
	t.Helper()
	testRig.CreateNamespace(t, namespace, fastProviderSpec)
	fleets := map[string]fleet{}
	for _, name := range []string{"apple", "berry", "cherry"} {
		fleets[name] = fleet{testRig.CreatePool(t, namespace, name, 3, withRollingUpdate(1, 0))}
	}
	for _, f := range fleets {
		f.AwaitRunningMachines(t, 3)
	}
	policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "turns"}, Spec: spec}
	_, err := testRig.MachineClient.MachineV1alpha1().
		RolloutPolicies(namespace).
		Create(t.Context(), policy, metav1.CreateOptions{})
	require.NoError(t, err)
	return fleets
}

func (f fleet) awaitWaitsFor(t *testing.T, text string) {
	t.Helper()
	rig.Eventually(t, f.Name+" waits for "+text, func() (bool, any) {
		operation := f.Deployment(t).Status.CurrentOperation
		return operation != nil && strings.Contains(operation.WaitsFor, text), operation
	})
}

func (f fleet) awaitFirstNewMachine(t *testing.T) {
	t.Helper()
	rig.Eventually(t, "a new machine of "+f.Name, func() (bool, any) {
		n := f.countMachinesOfEdition(t, "2")
		return n > 0, n
	})
}

// Three deployments take turns in the order of the policy's targets, whatever order their templates change in. At no
// time are two of them in the middle, and the pause between them holds. The worker is killed in the middle of two
// rollouts.
func TestDeploymentsAreRolledOutOneAfterTheOther(t *testing.T) {
	const pause = 3 * time.Second
	fleets := newTurnFleets(t, "turns", v1alpha1.RolloutPolicySpec{
		Targets: []v1alpha1.RolloutPolicyTarget{{Name: "cherry"}, {}},
		Turns:   &v1alpha1.RolloutTurns{MaxConcurrent: 1, PauseBetween: &metav1.Duration{Duration: pause}},
	})
	samples := startTurnSampler(t, "turns")
	fleets["cherry"].changeTemplate(t, "2")
	fleets["cherry"].awaitFirstNewMachine(t)
	fleets["berry"].changeTemplate(t, "2")
	fleets["apple"].changeTemplate(t, "2")

	berry := fleets["berry"]
	berry.awaitWaitsFor(t, "MachineDeployment cherry is rolled out first: RolloutPolicy turns allows 1 rollout at a time")
	berry.awaitProgressingReason(t, vocabulary.ReasonWaitingForTurn)
	require.Equal(t, []string{vocabulary.BlockedByTurn}, berry.Deployment(t).Status.CurrentOperation.BlockedBy)
	for _, command := range [][]string{{"rollout", "status"}, {"rollout", "plan"}, {"explain", "machinedeployment"}} {
		said := strings.Join(testRig.RunMillwright(t, append(command, "turns/berry")...), "\n")
		require.Contains(t, said, "MachineDeployment cherry is rolled out first", command)
	}
	restartWorker(t)
	fleets["apple"].awaitFirstNewMachine(t)
	restartWorker(t)
	for _, f := range fleets {
		f.awaitMachinesOfEdition(t, "2", 3)
	}
	samples.stop()
	t.Logf("%d samples; in the middle at a time: %v", samples.samples, samples.most)
	require.Equal(t, []string{"cherry", "apple", "berry"}, samples.began)
	require.Len(t, samples.most, 1)
	requirePause(t, pause, fleets["cherry"], fleets["apple"])
	requirePause(t, pause, fleets["apple"], fleets["berry"])
}

// requirePause requires that no new machine of a deployment was created before the pause after the former rollout.
func requirePause(t *testing.T, pause time.Duration, former, next fleet) {
	t.Helper()
	turn := former.Deployment(t).Status.Rollout.Turn
	require.NotNil(t, turn.EndedAt)
	for _, m := range next.Machines(t) {
		require.False(
			t, m.CreationTimestamp.Time.Before(turn.EndedAt.Add(pause)),
			"%s was created at %s, and the rollout of %s ended at %s", m.Name, m.CreationTimestamp, former.Name, turn.EndedAt,
		)
	}
}

func restartWorker(t *testing.T) {
	t.Helper()
	require.NoError(t, testRig.Stack.KillComponent(t.Context(), component.Worker))
	require.NoError(t, testRig.Stack.StartComponent(t.Context(), component.Worker))
}

// After an automatic rollback, no other deployment begins its rollout until the template of the failed one changes.
// Deployments whose templates change at the same moment never begin together.
func TestFailedRolloutStopsTheNextOnes(t *testing.T) {
	fleets := newTurnFleets(t, "train", v1alpha1.RolloutPolicySpec{
		Turns:             &v1alpha1.RolloutTurns{MaxConcurrent: 1},
		AutomaticRollback: &v1alpha1.AutomaticRollback{MaxFailedMachines: new(int32)},
	})
	samples := startTurnSampler(t, "train")
	apple := fleets["apple"]
	apple.createNeverBootingClass(t)
	apple.Patch(t, `{"spec":{"template":{"spec":{"creationTimeout":"3s","class":{"name":"broken"}}}}}`)
	apple.awaitRollbackPin(t)
	var together sync.WaitGroup
	for _, name := range []string{"berry", "cherry"} {
		together.Go(func() { fleets[name].changeTemplate(t, "2") })
	}
	together.Wait()
	for _, name := range []string{"berry", "cherry"} {
		fleets[name].awaitWaitsFor(
			t,
			"the rollout of MachineDeployment apple failed: RolloutPolicy turns begins no other rollout",
		)
	}
	apple.Patch(
		t,
		`{"spec":{"template":{"metadata":{"labels":{"edition":"2"}},"spec":{"creationTimeout":null,"class":{"name":"small"}}}}}`,
	)
	for _, f := range fleets {
		f.awaitMachinesOfEdition(t, "2", 3)
	}
	samples.stop()
	require.Equal(t, []string{"apple", "berry", "cherry"}, samples.began)
	require.Len(t, samples.most, 1)
}
