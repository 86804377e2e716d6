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

// secondWorkerSkew is the error of the second worker's clock. CHAOS_CLOCK sets the error; the default is zero.
var secondWorkerSkew time.Duration

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
		if err := skewSecondWorker(&options, text, folder); err != nil {
			fmt.Fprintln(os.Stderr, "CHAOS_CLOCK:", err)
			return 1
		}
	}
	return rig.MainBehindProxies(m, options, func(up *rig.Rig) { testRig = up })
}

// skewSecondWorker sets the clock error of the second worker.
func skewSecondWorker(options *stack.Options, text, folder string) (err error) {
	if secondWorkerSkew, err = time.ParseDuration(text); err != nil {
		return err
	}
	binary, err := rig.BuildSkewedWorker(folder)
	options.Binaries = map[string]string{component.SecondWorker: binary}
	options.Env = map[string][]string{component.SecondWorker: rig.ClockEnvironment(secondWorkerSkew)}
	return err
}

// The short form of the suite has fixed seeds and takes two minutes.
func TestFixedSeeds(t *testing.T) {
	restartEndedComponents(t)
	for _, seed := range []uint64{1, 4} {
		runSeed(t, newPlan(seed, shortLimits))
	}
}

// shortLimits and fullLimits are the limits of a plan in the short form and in the full form.
var (
	shortLimits = planLimits{maxLoads: 3, maxFaults: 2, beginWindow: 15 * time.Second}
	fullLimits  = planLimits{maxLoads: 9, maxFaults: 6, beginWindow: 40 * time.Second, allowsLongFaults: true}
)
