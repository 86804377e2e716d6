//go:build integration && endurance

package seeds

import (
	"testing"
	"time"
)

// The test runs random seeds for ten minutes. The name of each subtest contains its seed, so that CHAOS_SEED can repeat
// the seed.
func TestEndurance_RandomSeeds(t *testing.T) {
	restartExitedComponents(t)
	begun := time.Now()
	for seed := uint64(begun.Unix()); time.Since(begun) < 10*time.Minute; seed++ {
		runSeed(t, newPlan(seed, fullPlanLimits))
	}
}
