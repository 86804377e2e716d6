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

// The annotations of a node group of the cluster autoscaler, and the one with which it marks a machine for deletion.
const (
	minSize       = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"
	maxSize       = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
	deleteMachine = "cluster.x-k8s.io/delete-machine"
)

// nodeGroup makes the requests of the cluster autoscaler's provider clusterapi, in its order. The program itself cannot
// be built here: its module is not published where Go finds modules.
type nodeGroup struct {
	space
	kind     schema.GroupVersionResource
	name     string
	min, max int
}

// newNodeGroup gives a set or a deployment the annotations of a group.
func (s space) newNodeGroup(
	t *testing.T,
	kind schema.GroupVersionResource,
	name string,
	minimum, maximum int,
) nodeGroup {
	t.Helper()
	s.merge(
		t,
		kind,
		name,
		fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d",%q:"%d"}}}`, minSize, minimum, maxSize, maximum),
	)
	return nodeGroup{s, kind, name, minimum, maximum}
}

// size reads the subresource scale.
func (g nodeGroup) size(t *testing.T) int {
	t.Helper()
	scale, err := g.of(g.kind).Get(t.Context(), g.name, metav1.GetOptions{}, "scale")
	require.NoError(t, err)
	n, _, err := unstructured.NestedInt64(scale.Object, "spec", "replicas")
	require.NoError(t, err)
	return int(n)
}

// setSize writes an absolute size to the subresource scale.
func (g nodeGroup) setSize(t *testing.T, n int) {
	t.Helper()
	require.LessOrEqual(t, n, g.max)
	require.GreaterOrEqual(t, n, g.min)
	_, err := g.of(g.kind).
		Patch(t.Context(), g.name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n), metav1.PatchOptions{}, "scale")
	require.NoError(t, err)
}

// machines returns the machines that spec.selector of the group matches, whichever set owns them.
func (g nodeGroup) machines(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	selector, _, err := unstructured.NestedStringMap(g.get(t, g.kind, g.name).Object, "spec", "selector", "matchLabels")
	require.NoError(t, err)
	list, err := g.of(machines).
		List(t.Context(), metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: selector})})
	require.NoError(t, err)
	return list.Items
}

// group returns the name of the group of a machine: the owner of its set, or the set if it has none.
func (g nodeGroup) group(t *testing.T, m unstructured.Unstructured) string {
	t.Helper()
	owner := metav1.GetControllerOf(&m)
	require.NotNil(t, owner)
	set := g.get(t, machineSets, owner.Name)
	if above := metav1.GetControllerOf(set); above != nil && above.Kind == "MachineDeployment" {
		return above.Name
	}
	return set.GetName()
}

// deleteNodes marks each machine, and makes the group smaller by one after each mark.
func (g nodeGroup) deleteNodes(t *testing.T, doomed ...unstructured.Unstructured) {
	t.Helper()
	size := g.size(t)
	for _, m := range doomed {
		require.Equal(t, g.name, g.group(t, m))
		g.merge(
			t,
			machines,
			m.GetName(),
			fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, deleteMachine, time.Now().String()),
		)
		size--
		g.setSize(t, size)
	}
}

// await waits until the machines of the group are exactly these, all with a node and an instance.
func (g nodeGroup) await(t *testing.T, n int, without ...unstructured.Unstructured) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("%d machines with a node", n), func() (bool, any) {
		var names []string
		nodes := 0
		for _, m := range g.machines(t) {
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

// oldest returns the machines of the group, the oldest first.
func (g nodeGroup) oldest(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	list := g.machines(t)
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
	g := p.newNodeGroup(t, machineSets, p.set, 1, 6)
	g.await(t, 1)
	g.setSize(t, g.size(t)+3)
	g.await(t, 4)
	doomed := g.oldest(t)[:2] // by itself the set deletes the newest first
	g.deleteNodes(t, doomed...)
	g.await(t, 2, doomed...)
	assert.Equal(t, 2, g.size(t))
	p.awaitCounts(t, 2)
}

func TestTheAutoscalerScalesADeployment(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "group", 0)
	g := f.newNodeGroup(t, machineDeployments, f.set, 0, 6)
	assert.Zero(t, g.size(t))
	g.setSize(t, 3) // from zero, for pods that wait
	g.await(t, 3)
	g.setSize(t, g.size(t)+1)
	g.await(t, 4)
	doomed := g.oldest(t)[:1]
	g.deleteNodes(t, doomed...)
	g.await(t, 3, doomed...)

	f.template(t, "group-2")
	f.change(t, "group-2")
	rig.Eventually(
		t,
		"the rollout is in its middle: both templates have machines",
		func() (bool, any) { made := f.made(t); return len(made) == 2, made },
	)
	doomed = g.oldest(t)[:1]
	g.deleteNodes(t, doomed...)
	f.awaitMade(t, "group-2", 2)
	g.await(t, 2, doomed...)
	assert.Equal(t, 2, g.size(t))
}
