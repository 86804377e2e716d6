package seeds

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/devstack/component"
)

func TestSameSeedMakesTheSamePlan(t *testing.T) {
	l := planLimits{maxLoads: 7, maxFaults: 4, beginWindow: time.Minute, allowsLongFaults: true}
	found := map[string]bool{}
	for seed := range uint64(300) {
		p := newPlan(seed, l)
		assert.Equal(t, p, newPlan(seed, l))
		for _, s := range append(p.loads, p.faults...) {
			found[s.Kind] = true
			assert.Less(t, s.BeginOffset, l.beginWindow)
		}
	}
	assert.Len(t, found, 34, "each load and each fault is in some plan")
}

func TestPlanWithAnEtcdRestoreHasOnlyCompatibleLoads(t *testing.T) {
	restores := 0
	for seed := range uint64(500) {
		p := newPlan(seed, planLimits{maxLoads: 9, maxFaults: 6, beginWindow: time.Minute, allowsLongFaults: true})
		if !p.restoresEtcd() {
			continue
		}
		restores++
		assert.Zero(t, p.earlyDeletionOffset)
		assert.Empty(t, p.podDisruptionBudget)
		assert.False(t, p.areMachinesDeletedOnlyByRollouts() || p.areNodesRemovedOnlyByDeploymentChanges())
		for _, s := range p.faults {
			assert.True(
				t,
				s.Kind == faultRestoreEtcd ||
					s.FaultTarget != component.Etcd && s.FaultTarget != component.APIServer &&
						s.FaultTarget != component.ControllerManager,
				s,
			)
		}
		for _, s := range p.loads {
			assert.Zero(t, s.Duration, s)
		}
	}
	assert.Greater(t, restores, 10)
}

func TestShortPlansHaveShortFaults(t *testing.T) {
	for seed := range uint64(300) {
		for _, s := range newPlan(seed, planLimits{maxLoads: 7, maxFaults: 4, beginWindow: time.Minute}).faults {
			assert.LessOrEqual(t, s.Duration, 30*time.Second, s)
		}
	}
}
