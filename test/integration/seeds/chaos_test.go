//go:build integration && chaos

package seeds

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestConsecutiveSeeds runs consecutive seeds. CHAOS_SEED is the first seed (default: the current time). CHAOS_SEEDS is
// the number of seeds (default: 1, or no limit if CHAOS_TIME is set). TestConsecutiveSeeds starts no seed after the
// duration CHAOS_TIME. If CHAOS_SHORT is set, the plans have fewer loads and faults.
func TestConsecutiveSeeds(t *testing.T) {
	restartExitedComponents(t)
	begun := time.Now()
	number := func(name string, otherwise uint64) uint64 {
		text := os.Getenv(name)
		if text == "" {
			return otherwise
		}
		n, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, name)
		return n
	}
	limit, most := time.Duration(0), uint64(1)
	if text := os.Getenv("CHAOS_TIME"); text != "" {
		var err error
		limit, err = time.ParseDuration(text)
		require.NoError(t, err, "CHAOS_TIME")
		most = 1 << 32
	}
	seed := number("CHAOS_SEED", uint64(begun.Unix()))
	form := fullPlanLimits
	if os.Getenv("CHAOS_SHORT") != "" {
		form = shortPlanLimits
	}
	for end := seed + number("CHAOS_SEEDS", most); seed < end && (limit == 0 || time.Since(begun) < limit); seed++ {
		runSeed(t, newPlan(seed, form))
	}
}
