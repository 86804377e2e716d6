//go:build integration

package rollouts

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/test/checker"
	"millwright/test/integration/rig"
)

// boundsSampler samples the number of machines in the cloud and the number of schedulable nodes of a fleet.
// boundsSampler compares both numbers with the bounds in the deployment's spec. While the API server is down, the
// sampler takes no samples.
type boundsSampler struct {
	*checker.Watcher
	fleet                fleet
	stop                 func() // stop ends the sampling, and returns after the last sample
	areViolationsChecked bool
}

// startBoundsSampler samples the fleet until requireNoViolations. Machines that are being deleted count until they are
// gone.
func (f fleet) startBoundsSampler(t *testing.T) *boundsSampler {
	return f.startSamplerForBounds(t, checker.SizeBounds{ChecksDeletingMachines: true, ChecksNodes: true})
}

func (f fleet) startSamplerForBounds(t *testing.T, strict checker.SizeBounds) *boundsSampler {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	sources := checker.Clients{
		MachineClient: testRig.MachineClient,
		Kube:          testRig.Kube,
		Cloud:         testRig.Cloud,
		Temporal:      testRig.Temporal,
	}
	s := &boundsSampler{
		Watcher: checker.NewWatcher(sources, f.Namespace, strict),
		fleet:   f,
		stop:    func() { cancel(); <-over },
	}
	go func() {
		defer close(over)
		s.Run(ctx)
	}()
	t.Cleanup(func() {
		if s.stop(); !s.areViolationsChecked { // the test has already failed, and the violations may be the cause
			violations, _ := s.Violations()
			assert.Empty(t, violations)
		}
	})
	rig.Eventually(t, "the bounds of the fleet are in force", func() (bool, any) { return s.BoundsMatchSpecs(), nil })
	return s
}

// requireNoViolations waits until the bounds of the current spec are in force, and requires that no sample has violated
// the bounds.
func (s *boundsSampler) requireNoViolations(t *testing.T) {
	t.Helper()
	rig.Eventually(t, "both bounds of the size that is wanted are in force", func() (bool, any) {
		violations, _ := s.Violations()
		return s.BoundsMatchSpecs() || len(violations) > 0, s.fleet.Deployment(t).Status
	})
	s.stop()
	s.areViolationsChecked = true
	violations, samples := s.Violations()
	t.Logf("%d samples, %d machines at the most", samples, s.PeakMachineCount())
	require.Empty(t, violations)
}
