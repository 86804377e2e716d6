//go:build integration

package capi

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

// Two MachineDeployments of Cluster API take turns in the order of the policy's targets. At no time are both in the
// middle of their rollouts.
func TestDeploymentsOfClusterAPIAreRolledOutOneAfterTheOther(t *testing.T) {
	t.Parallel()
	early, late := newFleet(t, "turn-z", 2), newFleet(t, "turn-a", 2)
	policy := &v1alpha1.RolloutPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: early.name, Name: "turns"},
		Spec: v1alpha1.RolloutPolicySpec{
			Targets: []v1alpha1.RolloutPolicyTarget{{Name: early.poolName}, {Name: late.poolName}},
			Turns:   &v1alpha1.RolloutTurns{MaxConcurrent: 1},
		},
	}
	_, err := testRig.MachineClient.MachineV1alpha1().
		RolloutPolicies(early.name).
		Create(t.Context(), policy, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, f := range []fleet{early, late} {
		f.awaitMachinesOfTemplate(t, f.name, 2)
	}
	early.newInfrastructureTemplate(t, "turns-2")
	ctx, stop := context.WithCancel(t.Context())
	samples := make(chan turnSamples, 1)
	go func() { samples <- early.sampleTurns(ctx, "turns-2", early.poolName, late.poolName) }()
	early.setInfrastructureTemplate(t, "turns-2")
	late.setInfrastructureTemplate(t, "turns-2")
	rig.Eventually(t, "the second one waits for its turn", func() (bool, any) {
		_, reason, message := late.readCondition(t, "Blocked")
		return reason == "Turn", message
	})
	for _, f := range []fleet{early, late} {
		f.awaitMachinesOfTemplate(t, "turns-2", 2)
	}
	stop()
	seen := <-samples
	t.Logf("%d samples", seen.count)
	assert.Equal(t, []string{early.poolName, late.poolName}, seen.began)
	assert.Equal(t, 1, seen.most, "deployments in the middle at a time")
}

// turnSamples is what the infrastructure machines showed every 100 ms.
type turnSamples struct {
	count int
	most  int      // most deployments that had machines of both templates at a time
	began []string // deployments in the order of their first new machine
}

// sampleTurns reads the infrastructure machines of the deployments until the context ends.
func (s testNamespace) sampleTurns(ctx context.Context, template string, pools ...string) (seen turnSamples) {
	for ; ctx.Err() == nil; sleepUntilDone(ctx, 100*time.Millisecond) {
		list, err := s.resourceClient(devMachineResource).List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		seen.count++
		middle := 0
		for _, pool := range pools {
			before, after := 0, 0
			for _, o := range list.Items {
				switch {
				case o.GetLabels()["pool"] != pool:
				case o.GetAnnotations()["cluster.x-k8s.io/cloned-from-name"] == template:
					after++
				default:
					before++
				}
			}
			if after > 0 && !slices.Contains(seen.began, pool) {
				seen.began = append(seen.began, pool)
			}
			if before > 0 && after > 0 {
				middle++
			}
		}
		seen.most = max(seen.most, middle)
	}
	return seen
}

func sleepUntilDone(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
