//go:build integration

package seeds

import (
	"fmt"
	"os"
	"testing"
	"time"

	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/test/integration/rig"
)

var r *rig.Rig

// clock is by how much the clock of the second worker is wrong: CHAOS_CLOCK, zero without it.
var clock time.Duration

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	options := stack.Options{Components: append(component.Names(), component.SecondBridge, component.SecondWorker)}
	if text := os.Getenv("CHAOS_CLOCK"); text != "" {
		folder, err := os.MkdirTemp("", "millwright-clock-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(folder) }()
		if err := skewSecondWorker(&options, text, folder); err != nil {
			fmt.Fprintln(os.Stderr, "CHAOS_CLOCK:", err)
			return 1
		}
	}
	return rig.MainBehindProxies(m, options, func(up *rig.Rig) { r = up })
}

// skewSecondWorker gives the second worker a wrong clock.
func skewSecondWorker(options *stack.Options, text, folder string) (err error) {
	if clock, err = time.ParseDuration(text); err != nil {
		return err
	}
	binary, err := rig.SkewedWorker(folder)
	options.Binaries = map[string]string{component.SecondWorker: binary}
	options.Env = map[string][]string{component.SecondWorker: rig.Clock(clock)}
	return err
}

// The short form of the suite: always the same seeds, two minutes in all.
func TestFixedSeeds(t *testing.T) {
	keepAlive(t)
	for _, seed := range []uint64{1, 4} {
		runSeed(t, newPlan(seed, short))
	}
}

// How much happens in a seed of the short form, and of the long one.
var (
	short = planLimits{loads: 3, faults: 2, time: 15 * time.Second}
	whole = planLimits{loads: 9, faults: 6, time: 40 * time.Second, long: true}
)
