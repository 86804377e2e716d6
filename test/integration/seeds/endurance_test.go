//go:build integration && endurance

package seeds

import (
	"testing"
	"time"
)

// Ten minutes of seeds that no run had before. The name of a subtest has its seed: CHAOS_SEED repeats it.
func TestEndurance_RandomSeeds(t *testing.T) {
	keepAlive(t)
	begun := time.Now()
	for seed := uint64(begun.Unix()); time.Since(begun) < 10*time.Minute; seed++ {
		runSeed(t, newPlan(seed, whole))
	}
}
