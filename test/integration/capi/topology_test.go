//go:build integration

package capi

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"millwright/observe/capi"
	"millwright/test/integration/rig"
)

// topologyWakeInterval is the interval between two changes of the Cluster that wake core.
const topologyWakeInterval = 5 * time.Second

// awaitReconciledTopology waits until core has written the present topology to all objects of the Cluster. Core's
// filter drops the events of Millwright's MachineDeployments, so core looks at the topology only at its sync period of
// ten minutes, or when another object of the Cluster changes. awaitReconciledTopology changes the Cluster.
func (s testNamespace) awaitReconciledTopology(t *testing.T) {
	t.Helper()
	var woken time.Time
	rig.Eventually(t, "the topology is reconciled", func() (bool, any) {
		if time.Since(woken) > topologyWakeInterval {
			woken = time.Now()
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/wake":%q}}}`, woken)
			_, err := s.resourceClient(clusterResource).
				Patch(t.Context(), s.name, types.MergePatchType, patch, metav1.PatchOptions{})
			require.NoError(t, err)
		}
		cluster := s.getObject(t, clusterResource, s.name)
		conditions, _, _ := unstructured.NestedSlice(cluster.Object, "status", "conditions")
		for _, item := range conditions {
			c, _ := item.(map[string]any)
			if c["type"] == "TopologyReconciled" {
				return c["status"] == "True" && c["observedGeneration"] == cluster.GetGeneration(), c
			}
		}
		return false, conditions
	})
}

// patchTopology changes the topology of the Cluster by a JSON patch.
func (s testNamespace) patchTopology(t *testing.T, patch string) {
	t.Helper()
	s.applyJSONPatch(t, clusterResource, patch)
}

// applyJSONPatch applies a JSON patch to the object with the name of the namespace.
func (s testNamespace) applyJSONPatch(t *testing.T, resource schema.GroupVersionResource, patch string) {
	t.Helper()
	_, err := s.resourceClient(resource).
		Patch(t.Context(), s.name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

// awaitOnlyTemplatesOfClass waits until the Cluster and all its objects are gone, and only these templates are left.
func (s testNamespace) awaitOnlyTemplatesOfClass(t *testing.T, want ...string) {
	t.Helper()
	rig.Eventually(t, "only the templates of the class are left", func() (bool, any) {
		var left []string
		for _, kind := range []schema.GroupVersionResource{
			clusterResource, machineDeploymentResource, machineSetResource, machineResource,
			bootstrapTemplateResource, devMachineTemplateResource,
		} {
			list, err := s.resourceClient(kind).List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			for _, o := range list.Items {
				left = append(left, kind.Resource+" "+o.GetName())
			}
		}
		return slices.Equal(left, want), left
	})
}

// A ClusterClass makes the MachineDeployments of most Clusters. Core reconciles the topology, and Millwright the
// MachineDeployment: creation, a new size, an upgrade, and the deletion of the Cluster.
func TestMillwrightReconcilesTheMachineDeploymentOfATopology(t *testing.T) {
	t.Parallel()
	s := newNamespace(t, "topology", "topology.yaml")
	s.awaitMachines(t, 2)
	s.awaitReconciledTopology(t)
	list, err := s.resourceClient(machineDeploymentResource).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	assert.Contains(t, list.Items[0].GetFinalizers(), capi.Finalizer, "Millwright reconciles the deployment")

	s.patchTopology(t, `[{"op":"replace","path":"/spec/topology/workers/machineDeployments/0/replicas","value":3}]`)
	s.awaitMachines(t, 3)
	s.awaitReconciledTopology(t)

	s.patchTopology(t, `[{"op":"replace","path":"/spec/topology/version","value":"v1.36.3"}]`)
	rig.Eventually(t, "all machines have the new version", func() (bool, any) {
		machines, err := s.resourceClient(machineResource).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		var versions []string
		for _, m := range machines.Items {
			version, _, _ := unstructured.NestedString(m.Object, "spec", "version")
			versions = append(versions, version)
		}
		old := slices.Contains(versions, "v1.36.2")
		return len(versions) == 4 && !old, versions
	})
	s.awaitMachines(t, 3)
	s.awaitReconciledTopology(t)

	require.NoError(t, s.resourceClient(clusterResource).Delete(t.Context(), s.name, metav1.DeleteOptions{}))
	s.awaitOnlyTemplatesOfClass(t, "kubeadmconfigtemplates "+s.name, "devmachinetemplates "+s.name)
}
