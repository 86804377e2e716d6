//go:build integration

package apifaults

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

// The API server becomes unavailable several times, each time for longer than the health timeout of a machine. Before
// each outage, half of the nodes become unhealthy; they recover before the outage ends. The health timeouts end during
// the outage. No machine may fail because of an old observation.
func TestIntermittentAPIServerDoesNotFailMachines(t *testing.T) {
	const (
		size, sick = 8, 4
		timeout    = 12 * time.Second // health timeout of the machines
		away       = 14 * time.Second
		// more than a tenth of the timeout, so that the next unhealthy phase starts a new health timeout
		calm = 2 * time.Second
	)
	testRig.CreateNamespace(t, "flaps", "")
	verify, before := startNamespaceChecker(t, "flaps"), cloudStats(t)
	pool := testRig.CreatePool(t, "flaps", "flaps", size, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineHealthTimeout: &metav1.Duration{Duration: timeout},
		}
	})
	pool.AwaitRunningMachines(t, size)
	first := phasesByMachineUID(t, pool)
	var ill []string
	for _, m := range pool.Machines(t)[:sick] {
		ill = append(ill, m.Labels[v1alpha1.LabelNode])
	}

	for _, faults := range []rig.APIFaults{{UnavailableChance: 1}, {UnavailableChance: 1}, {UnavailableChance: 0.7, LostAnswerChance: 0.3}} {
		setNodesUnhealthy(t, ill, true)
		rig.Eventually(t, "the illness is on record", func() (bool, any) {
			unknown := 0
			for _, phase := range phasesByMachineUID(t, pool) {
				if phase == v1alpha1.MachineUnknown {
					unknown++
				}
			}
			return unknown == sick, unknown
		})
		testRig.Proxies.SetFaultsForTest(t, faults)
		testRig.Proxies.CutWatches(away)
		begun := time.Now()
		setNodesUnhealthy(t, ill, false)
		time.Sleep(time.Until(begun.Add(away))) // the fault lasts for the time away
		testRig.Proxies.SetFaults(rig.APIFaults{})
		testRig.Proxies.AwaitWatches(t)
		pool.AwaitRunningMachines(t, size)
		time.Sleep(calm) // the nodes must be healthy for this time
	}
	require.Equal(t, first, phasesByMachineUID(t, pool), "each machine runs still: Failed is final")
	requireCreateCount(t, before, size)
	verify()
	requireFaults(t, "unavailable", "cut")
	pool.Delete(t)
	pool.AwaitPoolGone(t)
}

// setNodesUnhealthy makes the kubelets of nodes report NotReady if sick is true, and Ready otherwise.
func setNodesUnhealthy(t *testing.T, nodes []string, sick bool) {
	t.Helper()
	change := "node-not-ready.stage.kwok.x-k8s.io-"
	if sick {
		change = "node-not-ready.stage.kwok.x-k8s.io=true"
	}
	_, err := testRig.Stack.RunKubectl(
		t.Context(),
		slices.Concat([]string{"label", "--overwrite", "node"}, nodes, []string{change})...)
	require.NoError(t, err)
}
