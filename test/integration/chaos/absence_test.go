//go:build integration

package chaos

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// The worker is killed in the middle of the creations, and restarted after the creation timeout. The timeout does not
// include the time without a worker, so no machine fails.
func TestTimeWithoutAWorkerDoesNotCountForTheCreationTimeout(t *testing.T) {
	const made, timeout = 5, 70 * time.Second
	testRig.CreateNamespace(t, "absence", slowProviderSpec)
	before := cloudStats(t, testRig)
	pool := testRig.CreatePool(t, "absence", "absence", made, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineCreationTimeout: &metav1.Duration{Duration: timeout},
		}
	})
	rig.Eventually(t, "creations are in flight", func() (bool, any) {
		now := cloudStats(t, testRig)
		return now.PendingCreates > 0, now
	})
	require.NoError(t, testRig.Stack.KillComponent(t.Context(), component.Worker))
	for _, m := range pool.Machines(t) {
		// the outage ends after the timeout; one second is added because a creation timestamp has whole seconds
		time.Sleep(time.Until(m.CreationTimestamp.Add(timeout + time.Second)))
	}
	require.NoError(t, testRig.Stack.StartComponent(t.Context(), component.Worker))
	pool.AwaitRunningMachines(t, made)
	require.Equal(t, made, cloudStats(t, testRig).CreatedInstances-before.CreatedInstances, "instances made")
	require.Equal(t, made, countMachineCreations(t, testRig, "absence"), "no machine was replaced")
	pool.Delete(t)
	pool.AwaitPoolGone(t)
}
