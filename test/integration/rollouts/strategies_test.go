//go:build integration

package rollouts

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

func withStrategyType(kind v1alpha1.MachineDeploymentStrategyType) func(*v1alpha1.MachineDeployment) {
	return func(d *v1alpha1.MachineDeployment) { d.Spec.Strategy.Type = kind }
}

// With the strategy Recreate, no machine of the new template exists before the last old machine is gone.
func TestRecreateMakesNoNewMachineBeforeTheLastOldOneIsGone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "recreated", 5, withStrategyType(v1alpha1.RecreateMachineDeploymentStrategyType))
	watch := f.startBoundsSampler(t)
	f.changeTemplate(t, "2")
	rig.Eventually(t, "the first new machine", func() (bool, any) {
		machines, updated := f.Machines(t), 0 // both counts use the same list of machines
		for _, m := range machines {
			if m.Labels["edition"] == "2" {
				updated++
			}
		}
		require.False(t, updated > 0 && updated < len(machines), "both templates at a time")
		return updated > 0, len(machines)
	})
	f.awaitMachinesOfEdition(t, "2", 5)
	watch.requireNoViolations(t)
	f.Delete(t)
	f.AwaitPoolGone(t)
}

// With the strategy OnDelete, an old machine stays until somebody deletes it.
func TestOnDeleteReplacesOnlyDeletedMachines(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "patient", 3, withStrategyType(v1alpha1.OnDeleteMachineDeploymentStrategyType))
	f.changeTemplate(t, "2")
	rig.Eventually(t, "the rollout waits", func() (bool, any) {
		list := testRig.WorkflowRuns(
			t,
			`WorkflowType = "Rollout" AND ExecutionStatus = "Running" AND MachineNamespace = "patient"`,
		)
		return len(list) == 1 && len(f.Sets(t)) == 2, len(list)
	})
	for n := range 3 {
		require.Equal(t, n, f.countMachinesOfEdition(t, "2"))
		for _, m := range f.Machines(t) {
			if m.Labels["edition"] == "" {
				require.NoError(
					t,
					testRig.MachineClient.MachineV1alpha1().Machines("patient").Delete(t.Context(), m.Name, metav1.DeleteOptions{}),
				)
				break
			}
		}
		rig.Eventually(t, "another one comes in its place", func() (bool, any) {
			machines := f.Machines(t)
			return len(machines) == 3 && f.countMachinesOfEdition(t, "2") == n+1 &&
					f.Deployment(t).Status.ReadyReplicas == 3, len(
					machines,
				)
		})
	}
	f.awaitMachinesOfEdition(t, "2", 3)
	f.Delete(t)
	f.AwaitPoolGone(t)
}
