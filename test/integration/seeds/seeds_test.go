//go:build integration

package seeds

import (
	"os"
	"testing"
	"time"

	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/test/integration/rig"
)

var r *rig.Rig

func TestMain(m *testing.M) {
	components := append(component.Names(), component.SecondBridge, component.SecondWorker)
	os.Exit(rig.MainBehindProxies(m, stack.Options{Components: components}, func(up *rig.Rig) { r = up }))
}

// The short form of the suite: always the same seeds, two minutes in all.
func TestFixedSeeds(t *testing.T) {
	keepAlive(t)
	for _, seed := range []uint64{1, 4} {
		runSeed(t, newPlan(seed, lengths{loads: 3, faults: 2, time: 15 * time.Second}))
	}
}

// whole is how much happens in a seed of the long form.
var whole = lengths{loads: 9, faults: 6, time: 40 * time.Second, long: true}
