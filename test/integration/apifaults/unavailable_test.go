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

// The API server is away again and again, each time for longer than a machine may be unhealthy. Half of the nodes fall
// ill before, and are well again before the API server is back. The health timeouts fire meanwhile, and nobody may be
// judged by what was seen last.
func TestAnApiServerThatComesAndGoesFailsNoMachine(t *testing.T) {
	const (
		size, sick = 8, 4
		timeout    = 12 * time.Second // for so long an illness can be seen
		away       = 14 * time.Second
		calm       = 2 * time.Second // more than a tenth of the timeout: the next illness has a clock of its own
	)
	r.Namespace(t, "flaps", "")
	verify, before := watched(t, "flaps"), stats(t)
	pool := r.Pool(t, "flaps", "flaps", size, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineHealthTimeout: &metav1.Duration{Duration: timeout},
		}
	})
	pool.AwaitRunning(t, size)
	first := phases(t, pool)
	var ill []string
	for _, m := range pool.Machines(t)[:sick] {
		ill = append(ill, m.Labels[v1alpha1.LabelNode])
	}

	for _, faults := range []rig.APIFaults{{Unavailable: 1}, {Unavailable: 1}, {Unavailable: 0.7, Lost: 0.3}} {
		sicken(t, ill, true)
		rig.Eventually(t, "the illness is on record", func() (bool, any) {
			unknown := 0
			for _, phase := range phases(t, pool) {
				if phase == v1alpha1.MachineUnknown {
					unknown++
				}
			}
			return unknown == sick, unknown
		})
		r.Proxies.SetFor(t, faults)
		r.Proxies.CutWatches(away)
		begun := time.Now()
		sicken(t, ill, false)
		time.Sleep(time.Until(begun.Add(away))) // the fault lasts this long
		r.Proxies.Set(rig.APIFaults{})
		r.Proxies.AwaitWatches(t)
		pool.AwaitRunning(t, size)
		time.Sleep(calm) // the nodes have to be well for so long
	}
	require.Equal(t, first, phases(t, pool), "each machine runs still: Failed is final")
	made(t, before, size)
	verify()
	told(t, "unavailable", "cut")
	pool.Delete(t)
	pool.AwaitGone(t)
}

// sicken makes the kubelets of nodes report that they are not ready if sick is true, and otherwise that they are ready.
func sicken(t *testing.T, nodes []string, sick bool) {
	t.Helper()
	change := "node-not-ready.stage.kwok.x-k8s.io-"
	if sick {
		change = "node-not-ready.stage.kwok.x-k8s.io=true"
	}
	_, err := r.Stack.Kubectl(
		t.Context(),
		slices.Concat([]string{"label", "--overwrite", "node"}, nodes, []string{change})...)
	require.NoError(t, err)
}
