//go:build integration

package capi

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"millwright/test/integration/rig"
)

// The annotations of a node group of the cluster autoscaler, and the annotation with which the autoscaler marks a
// machine for deletion.
const (
	minSizeAnnotation       = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"
	maxSizeAnnotation       = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
	deleteMachineAnnotation = "cluster.x-k8s.io/delete-machine"
)

// nodeGroup sends the same requests as the provider clusterapi of the cluster autoscaler, in the same order. The
// cluster autoscaler itself cannot be built here: its Go module is not published.
type nodeGroup struct {
	testNamespace
	resource         schema.GroupVersionResource
	name             string
	minSize, maxSize int
}

// newNodeGroup gives a set or a deployment the annotations of a node group.
func (s testNamespace) newNodeGroup(
	t *testing.T,
	kind schema.GroupVersionResource,
	name string,
	minimum, maximum int,
) nodeGroup {
	t.Helper()
	s.applyMergePatch(
		t,
		kind,
		name,
		fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d",%q:"%d"}}}`, minSizeAnnotation, minimum, maxSizeAnnotation, maximum),
	)
	return nodeGroup{s, kind, name, minimum, maximum}
}

// readSize reads the subresource scale.
func (g nodeGroup) readSize(t *testing.T) int {
	t.Helper()
	scale, err := g.resourceClient(g.resource).Get(t.Context(), g.name, metav1.GetOptions{}, "scale")
	require.NoError(t, err)
	n, _, err := unstructured.NestedInt64(scale.Object, "spec", "replicas")
	require.NoError(t, err)
	return int(n)
}

// setSize writes an absolute size to the subresource scale.
func (g nodeGroup) setSize(t *testing.T, n int) {
	t.Helper()
	require.LessOrEqual(t, n, g.maxSize)
	require.GreaterOrEqual(t, n, g.minSize)
	_, err := g.resourceClient(g.resource).
		Patch(t.Context(), g.name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n), metav1.PatchOptions{}, "scale")
	require.NoError(t, err)
}

// listMachines returns all machines that spec.selector of the group matches, also the machines of other sets.
func (g nodeGroup) listMachines(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	selector, _, err := unstructured.NestedStringMap(
		g.getObject(t, g.resource, g.name).Object,
		"spec",
		"selector",
		"matchLabels",
	)
	require.NoError(t, err)
	list, err := g.resourceClient(machineResource).
		List(t.Context(), metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: selector})})
	require.NoError(t, err)
	return list.Items
}

// groupOfMachine returns the name of a machine's group: the owner of the machine's set, or the set if the set has no
// owner.
func (g nodeGroup) groupOfMachine(t *testing.T, m unstructured.Unstructured) string {
	t.Helper()
	owner := metav1.GetControllerOf(&m)
	require.NotNil(t, owner)
	set := g.getObject(t, machineSetResource, owner.Name)
	if above := metav1.GetControllerOf(set); above != nil && above.Kind == "MachineDeployment" {
		return above.Name
	}
	return set.GetName()
}

// deleteNodes marks machines for deletion, and reduces the size of the group by one after each mark.
func (g nodeGroup) deleteNodes(t *testing.T, doomed ...unstructured.Unstructured) {
	t.Helper()
	size := g.readSize(t)
	for _, m := range doomed {
		require.Equal(t, g.name, g.groupOfMachine(t, m))
		g.applyMergePatch(
			t,
			machineResource,
			m.GetName(),
			fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, deleteMachineAnnotation, time.Now().String()),
		)
		size--
		g.setSize(t, size)
	}
}

// awaitNodes waits until the group has exactly n machines, all with a node and an instance, and none of the machines in
// without.
func (g nodeGroup) awaitNodes(t *testing.T, n int, without ...unstructured.Unstructured) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("%d machines with a node", n), func() (bool, any) {
		var names []string
		nodes := 0
		for _, m := range g.listMachines(t) {
			id, _, _ := unstructured.NestedString(m.Object, "spec", "providerID")
			node, _, _ := unstructured.NestedString(m.Object, "status", "nodeRef", "name")
			if id != "" && node != "" {
				nodes++
			}
			names = append(names, m.GetName())
		}
		return nodes == n && len(names) == n && !slices.ContainsFunc(without, func(m unstructured.Unstructured) bool {
			return slices.Contains(names, m.GetName())
		}), names
	})
}

// machinesByAge returns the machines of the group, the oldest machine first.
func (g nodeGroup) machinesByAge(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	list := g.listMachines(t)
	slices.SortFunc(list, func(a, b unstructured.Unstructured) int {
		if c := a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time); c != 0 {
			return c
		}
		return strings.Compare(a.GetName(), b.GetName())
	})
	return list
}

func TestTheAutoscalerScalesASet(t *testing.T) {
	t.Parallel()
	p := newPool(t, "scaled", 1)
	g := p.newNodeGroup(t, machineSetResource, p.poolName, 1, 6)
	g.awaitNodes(t, 1)
	g.setSize(t, g.readSize(t)+3)
	g.awaitNodes(t, 4)
	doomed := g.machinesByAge(t)[:2] // without marks, the set deletes the newest machines first
	g.deleteNodes(t, doomed...)
	g.awaitNodes(t, 2, doomed...)
	assert.Equal(t, 2, g.readSize(t))
	p.awaitObjectCounts(t, 2)
}

func TestTheAutoscalerScalesADeployment(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "group", 0)
	g := f.newNodeGroup(t, machineDeploymentResource, f.poolName, 0, 6)
	assert.Zero(t, g.readSize(t))
	g.setSize(t, 3) // the autoscaler would scale up from zero replicas because of pending pods
	g.awaitNodes(t, 3)
	g.setSize(t, g.readSize(t)+1)
	g.awaitNodes(t, 4)
	doomed := g.machinesByAge(t)[:1]
	g.deleteNodes(t, doomed...)
	g.awaitNodes(t, 3, doomed...)

	f.newInfrastructureTemplate(t, "group-2")
	f.setInfrastructureTemplate(t, "group-2")
	rig.Eventually(
		t,
		"the rollout is in its middle: both templates have machines",
		func() (bool, any) { made := f.countMachinesByTemplate(t); return len(made) == 2, made },
	)
	doomed = g.machinesByAge(t)[:1]
	g.deleteNodes(t, doomed...)
	f.awaitMachinesOfTemplate(t, "group-2", 2)
	g.awaitNodes(t, 2, doomed...)
	assert.Equal(t, 2, g.readSize(t))
}
