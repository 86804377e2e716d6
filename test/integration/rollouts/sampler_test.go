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

// sampler watches a fleet from outside: how many machines exist, and how many of their nodes take pods, by the cloud
// and the nodes themselves. What is promised is in the spec of the deployment. While the API server is away nothing is
// seen.
type sampler struct {
	*checker.Watcher
	fleet  fleet
	stop   func() // it looks no more; returns when the last look is over
	judged bool
}

// watch samples until the verdict. Machines count until they are gone.
func (f fleet) watch(t *testing.T) *sampler {
	return f.watchBy(t, checker.Bounds{Leaving: true, Nodes: true})
}

func (f fleet) watchBy(t *testing.T, strict checker.Bounds) *sampler {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	sources := checker.Sources{Machines: r.Machines, Kube: r.Kube, Cloud: r.Cloud, Temporal: r.Temporal}
	s := &sampler{Watcher: checker.Watch(sources, f.Namespace, strict), fleet: f, stop: func() { cancel(); <-over }}
	go func() {
		defer close(over)
		s.Run(ctx)
	}()
	t.Cleanup(func() {
		if s.stop(); !s.judged { // the test fails already: this may be why
			violations, _ := s.Violations()
			assert.Empty(t, violations)
		}
	})
	rig.Eventually(t, "the bounds of the fleet are in force", func() (bool, any) { return s.InForce(), nil })
	return s
}

// verdict fails the test when a promise was broken, or when a new one never came into force.
func (s *sampler) verdict(t *testing.T) {
	t.Helper()
	rig.Eventually(t, "both bounds of the size that is wanted are in force", func() (bool, any) {
		violations, _ := s.Violations()
		return s.InForce() || len(violations) > 0, s.fleet.Deployment(t).Status
	})
	s.stop()
	s.judged = true
	violations, samples := s.Violations()
	t.Logf("%d samples, %d machines at the most", samples, s.Peak())
	require.Empty(t, violations)
}
