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

var testRig *rig.Rig

// secondWorkerClockSkew is the error of the second worker's clock. CHAOS_CLOCK sets the error; the default is zero.
var secondWorkerClockSkew time.Duration

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	options := stack.Options{Components: append(component.Names(), component.SecondBridge, component.SecondWorker)}
	if text := os.Getenv("CHAOS_CLOCK"); text != "" {
		folder, err := os.MkdirTemp("", "millwright-clock-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(folder) }()
		if err := skewSecondWorkerClock(&options, text, folder); err != nil {
			fmt.Fprintln(os.Stderr, "CHAOS_CLOCK:", err)
			return 1
		}
	}
	return rig.MainBehindProxies(m, options, func(up *rig.Rig) { testRig = up })
}

// skewSecondWorkerClock sets the clock error of the second worker.
func skewSecondWorkerClock(options *stack.Options, text, folder string) (err error) {
	if secondWorkerClockSkew, err = time.ParseDuration(text); err != nil {
		return err
	}
	binary, err := rig.BuildClockSkewedWorker(folder)
	options.BinaryPaths = map[string]string{component.SecondWorker: binary}
	options.Env = map[string][]string{component.SecondWorker: rig.ClockEnvironment(secondWorkerClockSkew)}
	return err
}

// The short form of the suite has fixed seeds and takes two minutes.
func TestFixedSeeds(t *testing.T) {
	restartExitedComponents(t)
	for _, seed := range []uint64{1, 4} {
		runSeed(t, newPlan(seed, shortPlanLimits))
	}
}

// shortPlanLimits and fullPlanLimits are the limits of a plan in the short form and in the full form.
var (
	shortPlanLimits = planLimits{maxLoads: 3, maxFaults: 2, beginWindow: 15 * time.Second}
	fullPlanLimits  = planLimits{maxLoads: 9, maxFaults: 6, beginWindow: 40 * time.Second, allowsLongFaults: true}
)
