//go:build integration

package rollouts

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/test/integration/rig"
)

// withInPlaceUpdate sets the strategy InPlaceUpdate without a surge.
func withInPlaceUpdate(who v1alpha1.OrchestrationType, unavailable int32) func(*v1alpha1.MachineDeployment) {
	return func(d *v1alpha1.MachineDeployment) {
		d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
			Type: v1alpha1.InPlaceUpdateMachineDeploymentStrategyType,
			InPlaceUpdate: &v1alpha1.InPlaceUpdateMachineDeployment{
				OrchestrationType: who,
				UpdateConfiguration: v1alpha1.UpdateConfiguration{
					MaxSurge:       new(intstr.FromInt32(0)),
					MaxUnavailable: new(intstr.FromInt32(unavailable)),
				},
			},
		}
	}
}

// completeNodeUpdates acts as the agents on the nodes. It marks each node that is ready for its update as updated.
func (f fleet) completeNodeUpdates(t *testing.T) {
	t.Helper()
	for _, n := range f.Nodes(t) {
		if inPlaceUpdateReason(n) != v1alpha1.ReasonReadyForUpdate {
			continue
		}
		n.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful
		if _, err := testRig.Kube.CoreV1().Nodes().Update(t.Context(), &n, metav1.UpdateOptions{}); err != nil {
			t.Logf("update of node %s, again in a moment: %v", n.Name, err)
		}
	}
}

// inPlaceUpdateReason returns the reason of a node's condition InPlaceUpdate, or an empty string without this
// condition.
func inPlaceUpdateReason(n corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == v1alpha1.NodeInPlaceUpdate {
			return c.Reason
		}
	}
	return ""
}

// selectedNodes returns the names of the nodes that are selected for an update.
func (f fleet) selectedNodes(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, n := range f.Nodes(t) {
		if n.Labels[v1alpha1.LabelSelectedForUpdate] == v1alpha1.ValueLowerTrue {
			names = append(names, n.Name)
		}
	}
	return names
}

// awaitNodesReadyForUpdate waits until exactly want nodes are ready for their update.
func (f fleet) awaitNodesReadyForUpdate(t *testing.T, want int) {
	t.Helper()
	rig.Eventually(t, "nodes are ready for their update", func() (bool, any) {
		n := 0
		for _, node := range f.Nodes(t) {
			if inPlaceUpdateReason(node) == v1alpha1.ReasonReadyForUpdate {
				n++
			}
		}
		return n == want, n
	})
}

// runAgentsUntilMachinesUpdated runs the agents until at least want machines are of edition 2.
func (f fleet) runAgentsUntilMachinesUpdated(t *testing.T, want int) {
	t.Helper()
	rig.Eventually(t, "machines are updated", func() (bool, any) {
		n := f.countMachinesOfEdition(t, "2")
		if n < want {
			f.completeNodeUpdates(t)
		}
		return n >= want, n
	})
}

// remainingMachines returns the names in former that machines of the fleet still have.
func (f fleet) remainingMachines(t *testing.T, former []string) []string {
	t.Helper()
	return slices.DeleteFunc(f.machineNames(t), func(name string) bool { return !slices.Contains(former, name) })
}

// awaitSchedulableNodes waits until all nodes are schedulable and have no label of an update.
func (f fleet) awaitSchedulableNodes(t *testing.T) {
	t.Helper()
	rig.Eventually(t, "nodes serve again", func() (bool, any) {
		for _, n := range f.Nodes(t) {
			_, candidate := n.Labels[v1alpha1.LabelCandidateForUpdate]
			_, result := n.Labels[v1alpha1.LabelUpdateResult]
			if n.Spec.Unschedulable || candidate || result {
				return false, n.Name
			}
		}
		return len(f.selectedNodes(t)) == 0, f.selectedNodes(t)
	})
}

// In an in-place update, at most two nodes are selected at a time. An agent updates each node, and each machine keeps
// its name and moves to the new MachineSet. A rollback updates the nodes in the same way and moves the machines back to
// the old MachineSet.
func TestInPlaceUpdateAndRollback(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "kept", 4, withInPlaceUpdate(v1alpha1.OrchestrationTypeAuto, 2))
	former := f.machineNames(t)
	watch := f.startBoundsSampler(t)
	rolls := func(edition string) {
		rig.Eventually(t, "all machines are updated", func() (bool, any) {
			require.LessOrEqual(t, len(f.selectedNodes(t)), 2, "nodes under update at a time")
			f.completeNodeUpdates(t)
			n := f.countMachinesOfEdition(t, edition)
			return n == 4, n
		})
		f.awaitMachinesOfEdition(t, edition, 4)
		require.Equal(t, former, f.machineNames(t), "the same machines")
		f.awaitSchedulableNodes(t)
	}
	f.changeTemplate(t, "2")
	rolls("2")
	f.Patch(t, `{"spec":{"rollbackTo":{"revision":1}}}`)
	rolls("") // the rollback removes the label that only the new template has
	f.Scale(t, 5)
	f.awaitMachinesOfEdition(t, "", 5)
	require.Subset(t, f.machineNames(t), former)
	require.Len(t, f.Sets(t), 2)
	watch.requireNoViolations(t)
	f.Delete(t)
	f.AwaitPoolGone(t)
}

// The deployment is scaled up and down during an in-place update. The scale-up creates machines of the new template,
// and the scale-down deletes a machine of the old template. The in-place update continues after each change of the
// replicas.
func TestSizeChangesDuringAnInPlaceUpdate(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "resized", 4, withInPlaceUpdate(v1alpha1.OrchestrationTypeAuto, 1))
	former := f.machineNames(t)
	watch := f.startBoundsSampler(t)
	f.changeTemplate(t, "2")
	f.awaitNodesReadyForUpdate(t, 1)
	f.Scale(t, 6)
	rig.Eventually(t, "two machines come, and the node still waits for its agent", func() (bool, any) {
		s := f.Deployment(t).Status
		return len(f.Machines(t)) == 6 && f.countMachinesOfEdition(t, "2") == 2 && s.AvailableReplicas == 5 &&
			len(f.selectedNodes(t)) == 1, s
	})
	f.runAgentsUntilMachinesUpdated(t, 3)
	f.Scale(t, 5)
	rig.Eventually(t, "an old machine goes", func() (bool, any) { n := len(f.Machines(t)); return n == 5, n })
	require.Equal(t, 3, f.countMachinesOfEdition(t, "2"), "in the middle of it")
	f.runAgentsUntilMachinesUpdated(t, 5)
	f.awaitMachinesOfEdition(t, "2", 5)
	watch.requireNoViolations(t)
	require.Len(t, f.remainingMachines(t, former), 3, "machines that were updated in place")
	f.awaitSchedulableNodes(t)
	f.Delete(t)
	f.AwaitPoolGone(t)
}

// A person changes the strategy from InPlaceUpdate to RollingUpdate in the middle of an update. The machine that is
// already updated in place is not replaced. A node that waits for its agent does not block the rollout, because
// maxUnavailable is 1 and maxSurge is 1.
func TestInPlaceUpdateThatBecomesARollingUpdate(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "switched", 4, withInPlaceUpdate(v1alpha1.OrchestrationTypeAuto, 1))
	former := f.machineNames(t)
	watch := f.startBoundsSampler(t)
	f.changeTemplate(t, "2")
	f.runAgentsUntilMachinesUpdated(t, 1)
	f.awaitNodesReadyForUpdate(t, 1)
	require.Equal(t, 1, f.countMachinesOfEdition(t, "2"), "in the middle of it")
	f.Patch(
		t,
		`{"spec":{"strategy":{"type":"RollingUpdate","inPlaceUpdate":null,"rollingUpdate":{"maxSurge":1,"maxUnavailable":1}}}}`,
	)
	f.awaitMachinesOfEdition(t, "2", 4)
	watch.requireNoViolations(t)
	require.Len(t, f.remainingMachines(t, former), 1, "the machine that was updated in place")
	f.awaitSchedulableNodes(t)
	f.Delete(t)
	f.AwaitPoolGone(t)
}

// Orchestration type Manual: all old nodes are candidates for the update. Only the nodes that a person selects are
// updated, and the person may select any number of nodes at a time.
func TestManualInPlaceUpdate(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "byhand", 3, withInPlaceUpdate(v1alpha1.OrchestrationTypeManual, 1))
	former := f.machineNames(t)
	candidates := func() (names []string) {
		for _, n := range f.Nodes(t) {
			if inPlaceUpdateReason(n) == v1alpha1.ReasonCandidateForUpdate {
				names = append(names, n.Name)
			}
		}
		return names
	}
	var chosen []string
	choose := func(nodes ...string) {
		for _, node := range nodes {
			chosen = append(chosen, node)
			patch := []byte(`{"metadata":{"labels":{"` + v1alpha1.LabelSelectedForUpdate + `":"true"}}}`)
			_, err := testRig.Kube.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
			require.NoError(t, err)
		}
	}
	await := func(what string, condition func() bool) {
		rig.Eventually(t, what, func() (bool, any) {
			require.Subset(t, chosen, f.selectedNodes(t), "only a person selects")
			f.completeNodeUpdates(t)
			return condition(), fmt.Sprint(
				f.countMachinesOfEdition(t, "2"),
				candidates(),
				f.Deployment(t).Status.CurrentOperation,
			)
		})
	}
	f.changeTemplate(t, "2")
	await("all nodes are candidates", func() bool { return len(candidates()) == 3 })
	choose(candidates()[0])
	await("one is updated", func() bool { return f.countMachinesOfEdition(t, "2") == 1 })
	await("the rollout waits for a person", func() bool {
		o := f.Deployment(t).Status.CurrentOperation
		return o != nil && o.Step == vocabulary.StepAwaitMachines && len(f.selectedNodes(t)) == 0
	})
	require.Len(t, candidates(), 2)
	choose(candidates()...)
	await("all are updated", func() bool { return f.countMachinesOfEdition(t, "2") == 3 })
	f.awaitMachinesOfEdition(t, "2", 3)
	require.Equal(t, former, f.machineNames(t), "the same machines")
	f.awaitSchedulableNodes(t)
	f.Delete(t)
	f.AwaitPoolGone(t)
}
