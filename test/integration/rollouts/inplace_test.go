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

// inPlace is an in-place update without a surge.
func inPlace(who v1alpha1.OrchestrationType, unavailable int32) func(*v1alpha1.MachineDeployment) {
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

// agents does what the agents on the nodes do: they update a node as soon as it is ready for that.
func (f fleet) agents(t *testing.T) {
	t.Helper()
	for _, n := range f.Nodes(t) {
		if reason(n) != v1alpha1.ReasonReadyForUpdate {
			continue
		}
		n.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful
		if _, err := r.Kube.CoreV1().Nodes().Update(t.Context(), &n, metav1.UpdateOptions{}); err != nil {
			t.Logf("update of node %s, again in a moment: %v", n.Name, err)
		}
	}
}

// reason returns the reason of a node's condition InPlaceUpdate; empty if the node has no such condition.
func reason(n corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == v1alpha1.NodeInPlaceUpdate {
			return c.Reason
		}
	}
	return ""
}

// selected are the names of the nodes that are selected for an update.
func (f fleet) selected(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, n := range f.Nodes(t) {
		if n.Labels[v1alpha1.LabelSelectedForUpdate] == v1alpha1.ValueLowerTrue {
			names = append(names, n.Name)
		}
	}
	return names
}

// awaitReady waits until so many nodes wait for their agent.
func (f fleet) awaitReady(t *testing.T, want int) {
	t.Helper()
	rig.Eventually(t, "nodes are ready for their update", func() (bool, any) {
		n := 0
		for _, node := range f.Nodes(t) {
			if reason(node) == v1alpha1.ReasonReadyForUpdate {
				n++
			}
		}
		return n == want, n
	})
}

// awaitUpdated lets the agents work until so many machines are of edition 2.
func (f fleet) awaitUpdated(t *testing.T, want int) {
	t.Helper()
	rig.Eventually(t, "machines are updated", func() (bool, any) {
		n := f.updated(t, "2")
		if n < want {
			f.agents(t)
		}
		return n >= want, n
	})
}

// kept returns the names of the machines that are among the former ones.
func (f fleet) kept(t *testing.T, former []string) []string {
	t.Helper()
	return slices.DeleteFunc(f.names(t), func(name string) bool { return !slices.Contains(former, name) })
}

// awaitServing waits until all nodes take pods, and nothing of an update is left on them.
func (f fleet) awaitServing(t *testing.T) {
	t.Helper()
	rig.Eventually(t, "nodes serve again", func() (bool, any) {
		for _, n := range f.Nodes(t) {
			_, candidate := n.Labels[v1alpha1.LabelCandidateForUpdate]
			_, result := n.Labels[v1alpha1.LabelUpdateResult]
			if n.Spec.Unschedulable || candidate || result {
				return false, n.Name
			}
		}
		return len(f.selected(t)) == 0, f.selected(t)
	})
}

// In place: nodes are selected a few at a time, an agent updates them, machines keep their names and change their set.
// Undone in the same way, the former set makes machines again.
func TestInPlaceUpdateAndBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "kept", 4, inPlace(v1alpha1.OrchestrationTypeAuto, 2))
	former := f.names(t)
	watch := f.watch(t)
	rolls := func(edition string) {
		rig.Eventually(t, "all machines are updated", func() (bool, any) {
			require.LessOrEqual(t, len(f.selected(t)), 2, "nodes under update at a time")
			f.agents(t)
			n := f.updated(t, edition)
			return n == 4, n
		})
		f.awaitEdition(t, edition, 4)
		require.Equal(t, former, f.names(t), "the same machines")
		f.awaitServing(t)
	}
	f.change(t, "2")
	rolls("2")
	f.Patch(t, `{"spec":{"rollbackTo":{"revision":1}}}`)
	rolls("") // a label that the former template had not is gone again
	f.Scale(t, 5)
	f.awaitEdition(t, "", 5)
	require.Subset(t, f.names(t), former)
	require.Len(t, f.Sets(t), 2)
	watch.verdict(t)
	f.Delete(t)
	f.AwaitGone(t)
}

// While nodes are updated in place, the deployment is made larger, which brings machines of the new template, and
// smaller, which takes one of the old. Both times the update continues.
func TestSizeChangesDuringAnInPlaceUpdate(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "resized", 4, inPlace(v1alpha1.OrchestrationTypeAuto, 1))
	former := f.names(t)
	watch := f.watch(t)
	f.change(t, "2")
	f.awaitReady(t, 1)
	f.Scale(t, 6)
	rig.Eventually(t, "two machines come, and the node still waits for its agent", func() (bool, any) {
		s := f.Deployment(t).Status
		return len(f.Machines(t)) == 6 && f.updated(t, "2") == 2 && s.AvailableReplicas == 5 && len(f.selected(t)) == 1, s
	})
	f.awaitUpdated(t, 3)
	f.Scale(t, 5)
	rig.Eventually(t, "an old machine goes", func() (bool, any) { n := len(f.Machines(t)); return n == 5, n })
	require.Equal(t, 3, f.updated(t, "2"), "in the middle of it")
	f.awaitUpdated(t, 5)
	f.awaitEdition(t, "2", 5)
	watch.verdict(t)
	require.Len(t, f.kept(t, former), 3, "machines that were updated in place")
	f.awaitServing(t)
	f.Delete(t)
	f.AwaitGone(t)
}

// Somebody has enough of agents, and lets the rest be replaced: what was updated in place stays, and a node that waits
// for its agent holds up nobody where the bounds leave room for one more.
func TestInPlaceUpdateThatBecomesARollingUpdate(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "switched", 4, inPlace(v1alpha1.OrchestrationTypeAuto, 1))
	former := f.names(t)
	watch := f.watch(t)
	f.change(t, "2")
	f.awaitUpdated(t, 1)
	f.awaitReady(t, 1)
	require.Equal(t, 1, f.updated(t, "2"), "in the middle of it")
	f.Patch(
		t,
		`{"spec":{"strategy":{"type":"RollingUpdate","inPlaceUpdate":null,"rollingUpdate":{"maxSurge":1,"maxUnavailable":1}}}}`,
	)
	f.awaitEdition(t, "2", 4)
	watch.verdict(t)
	require.Len(t, f.kept(t, former), 1, "the machine that was updated in place")
	f.awaitServing(t)
	f.Delete(t)
	f.AwaitGone(t)
}

// Manual: all old nodes are candidates, and only those are updated that a person selects, as many at a time as the
// person wants.
func TestInPlaceUpdateByHand(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "byhand", 3, inPlace(v1alpha1.OrchestrationTypeManual, 1))
	former := f.names(t)
	candidates := func() (names []string) {
		for _, n := range f.Nodes(t) {
			if reason(n) == v1alpha1.ReasonCandidateForUpdate {
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
			_, err := r.Kube.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
			require.NoError(t, err)
		}
	}
	await := func(what string, condition func() bool) {
		rig.Eventually(t, what, func() (bool, any) {
			require.Subset(t, chosen, f.selected(t), "only a person selects")
			f.agents(t)
			return condition(), fmt.Sprint(f.updated(t, "2"), candidates(), f.Deployment(t).Status.CurrentOperation)
		})
	}
	f.change(t, "2")
	await("all nodes are candidates", func() bool { return len(candidates()) == 3 })
	choose(candidates()[0])
	await("one is updated", func() bool { return f.updated(t, "2") == 1 })
	await("the rollout waits for a person", func() bool {
		o := f.Deployment(t).Status.CurrentOperation
		return o != nil && o.Step == vocabulary.StepAwaitMachines && len(f.selected(t)) == 0
	})
	require.Len(t, candidates(), 2)
	choose(candidates()...)
	await("all are updated", func() bool { return f.updated(t, "2") == 3 })
	f.awaitEdition(t, "2", 3)
	require.Equal(t, former, f.names(t), "the same machines")
	f.awaitServing(t)
	f.Delete(t)
	f.AwaitGone(t)
}
