//go:build integration

package capi

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

func TestUpstreamAloneCreatesAWorkloadCluster(t *testing.T) {
	t.Parallel()
	s := newNamespace(t, "alone", "cluster.yaml")
	begun := time.Now()
	since := func(what string) {
		t.Logf("%s after %s", what, time.Since(begun).Round(time.Second/10))
		begun = time.Now()
	}
	s.awaitMachines(t, 3)
	since("1 + 3 machines run")

	nodes := s.workloadClient(t).CoreV1().Nodes()
	s.awaitNodes(t, 4)
	list, err := nodes.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, n := range list.Items { // the machine of a node has the same name and the same provider ID
		id, _, err := unstructured.NestedString(s.getObject(t, machineResource, n.Name).Object, "spec", "providerID")
		require.NoError(t, err)
		assert.NotEmpty(t, id)
		assert.Equal(t, id, n.Spec.ProviderID)
	}

	scale := []byte(`{"spec":{"replicas":1}}`)
	_, err = s.resourceClient(machineDeploymentResource).
		Patch(t.Context(), s.name, types.MergePatchType, scale, metav1.PatchOptions{}, "scale")
	require.NoError(t, err)
	s.awaitMachines(t, 1)
	s.awaitNodes(t, 2)
	since("1 + 1 machines")

	s.deleteCluster(t)
	since("everything is gone")
	_, err = nodes.List(t.Context(), metav1.ListOptions{})
	require.Error(t, err, "its API server is gone, too")
}

// deleteCluster deletes the Cluster, and waits until all its objects are gone.
func (s testNamespace) deleteCluster(t *testing.T) {
	t.Helper()
	require.NoError(t, s.resourceClient(clusterResource).Delete(t.Context(), s.name, metav1.DeleteOptions{}))
	below := []schema.GroupVersionResource{
		clusterResource,
		machineDeploymentResource,
		machineSetResource,
		machineResource,
		kubeadmConfigResource,
		bootstrapTemplateResource,
		controlPlaneResource,
		devClusterResource,
		devMachineResource,
		devMachineTemplateResource,
		{Version: "v1", Resource: "secrets"},
	}
	rig.Eventually(t, "everything of the cluster is gone", func() (bool, any) {
		var left []string
		for _, kind := range below {
			objects, err := s.resourceClient(kind).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			for _, o := range objects.Items {
				left = append(left, kind.Resource+" "+o.GetName())
			}
		}
		return len(left) == 0, left
	})
}

// awaitNodes waits until the workload cluster has this many nodes.
func (s testNamespace) awaitNodes(t *testing.T, count int) {
	t.Helper()
	nodes := s.workloadClient(t).CoreV1().Nodes()
	rig.Eventually(t, fmt.Sprintf("%d nodes", count), func() (bool, any) {
		list, err := nodes.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		return len(list.Items) == count, len(list.Items)
	})
}

// Core's watch filter tests the label of the object of an event, not of the object that core reconciles because of the
// event. When a Cluster is paused, core begins to reconcile a MachineSet that its filter excludes. The admission policy
// of the stack refuses core's writes to Millwright's sets and deployments. If a later version of core no longer writes
// to the MachineSet theirs, the policy can be removed.
func TestUpstreamReconcilesNoObjectsWithMillwrightsWatchFilter(t *testing.T) {
	t.Parallel()
	s := newNamespace(t, "filters", "filters.yaml")
	before := s.getObject(t, machineSetResource, "ours")
	require.Equal(
		t,
		s.name,
		before.GetLabels()[clusterLabel],
		"core's webhook has set the label by which core finds the sets of a cluster",
	)
	require.Equal(
		t,
		s.name,
		s.getObject(t, machineDeploymentResource, "ours").GetLabels()[clusterLabel],
		"and its deployments",
	)

	refused := func(kind schema.GroupVersionResource) int {
		return len(testRig.AuditedRequests(t, func(a rig.AuditedRequest) bool {
			return a.User.Username == component.ClusterAPIIdentity && a.ObjectRef.Namespace == s.name &&
				a.ObjectRef.Resource == kind.Resource && a.ObjectRef.Name == "ours" && a.ResponseStatus.Code == http.StatusForbidden
		}))
	}
	paused := false
	rig.Eventually(t, "core works with theirs, and is refused ours", func() (bool, any) {
		paused = !paused
		patch := fmt.Appendf(nil, `{"spec":{"paused":%t}}`, paused)
		if _, err := s.resourceClient(clusterResource).
			Patch(t.Context(), s.name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return false, err
		}
		time.Sleep(2 * time.Second) // core reconciles an object at most once a second
		theirs, sets, deployments := s.getObject(
			t,
			machineSetResource,
			"theirs",
		), refused(
			machineSetResource,
		), refused(
			machineDeploymentResource,
		)
		return len(theirs.GetFinalizers()) > 0 && sets > 0 &&
				deployments > 0, fmt.Sprint(
				theirs.GetFinalizers(),
				sets,
				deployments,
			)
	})
	written := testRig.AuditedRequests(t, func(a rig.AuditedRequest) bool {
		return a.User.Username == component.ClusterAPIIdentity && a.ObjectRef.Namespace == s.name &&
			a.ObjectRef.Name == "ours" &&
			slices.Contains([]string{"update", "patch", "create", "delete"}, a.Verb) &&
			a.ResponseStatus.Code < 300
	})
	assert.Empty(t, written, "core has changed nothing")
}
