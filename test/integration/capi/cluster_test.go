//go:build integration

package capi

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// The test upgrades a control plane, pauses a Cluster and deletes a Cluster, one after the other. A separate cluster
// for each test would take half a minute per test.
func TestSetFollowsChangesOfItsCluster(t *testing.T) {
	t.Parallel()
	s := newNamespace(t, "changing", "plane.yaml")
	s.awaitMachines(t, 0)
	p := s.newPool(t, "changing", 1)
	p.awaitReplicaStatus(t, 1)

	t.Run("the control plane is being upgraded", func(t *testing.T) {
		s.applyMergePatch(t, controlPlaneResource, s.name, `{"spec":{"version":"v1.36.4"}}`)
		rig.Eventually(t, "the upgrade has begun", func() (bool, any) {
			_, _, message := conditionOfObject(t, s.getObject(t, controlPlaneResource, s.name), "RollingOut")
			return message != "", message
		})
		p.scale(t, 2)
		p.awaitConditionMessage(
			t,
			"ScalingUp",
			"True",
			"ScalingUp",
			`is upgrading ("ControlPlaneIsStable" preflight check failed)`,
		)
		p.awaitObjectCounts(t, 2)
		assert.Equal(t, []string{"v1.36.4"}, controlPlaneVersions(t, s), "not before the upgrade has ended")
	})
	f := s.newFleet(t, "changing-fleet", 1)
	f.awaitMachinesOfTemplate(t, s.name, 1)
	t.Run("the Cluster is paused", func(t *testing.T) {
		s.applyMergePatch(t, clusterResource, s.name, `{"spec":{"paused":true}}`)
		p.awaitConditionMessage(t, "Paused", "True", "Paused", "Cluster spec.paused is set to true")
		f.awaitConditionMessage(t, "Paused", "True", "Paused", "Cluster spec.paused is set to true")
		p.scale(t, 3)
		f.scale(t, 2)
		p.forceReconcile(t)
		f.forceReconcile(t)
		p.requireObjectCounts(t, 2)
		f.requireObjectCounts(t, 1)
		s.applyMergePatch(t, clusterResource, s.name, `{"spec":{"paused":false}}`)
		p.awaitObjectCounts(t, 3)
		p.awaitConditionMessage(t, "Paused", "False", "NotPaused", "")
		f.awaitMachinesOfTemplate(t, s.name, 2)
		f.awaitConditionMessage(t, "Paused", "False", "NotPaused", "")
	})
	t.Run("the Cluster is deleted", func(t *testing.T) {
		require.NoError(t, s.resourceClient(clusterResource).Delete(t.Context(), s.name, metav1.DeleteOptions{}))
		p.awaitPoolGone(t)
		p.awaitObjectCounts(t, 0)
		f.awaitPoolGone(t)
		f.awaitObjectCounts(t, 0)
		s.awaitClusterGone(t)
	})
	assert.Empty(t, testRig.AuditedRequests(t, isForbiddenRequest), "the roles allow all that was needed")
}

// awaitClusterGone waits until the Cluster of the namespace does not exist.
func (s testNamespace) awaitClusterGone(t *testing.T) {
	t.Helper()
	rig.Eventually(t, "the Cluster is gone", func() (bool, any) {
		list, err := s.resourceClient(clusterResource).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0, list
	})
}

// Worker and bridge are killed while a Cluster is deleted. The Cluster has a set, and a deployment in the middle of its
// rollout.
func TestAClusterIsDeletedWhileProcessesDie(t *testing.T) {
	t.Parallel()
	s := newNamespace(t, "ending", "plane.yaml")
	s.awaitMachines(t, 0)
	p, f := s.newPool(t, "ending", 2), s.newFleet(t, "ending-fleet", 2)
	p.awaitReplicaStatus(t, 2)
	f.awaitMachinesOfTemplate(t, s.name, 2)
	f.newInfrastructureTemplate(t, "ending-2")
	f.setInfrastructureTemplate(t, "ending-2")
	rig.Eventually(
		t,
		"a machine of the new template",
		func() (bool, any) { made := f.countMachinesByTemplate(t); return made["ending-2"] > 0, made },
	)
	require.NoError(t, s.resourceClient(clusterResource).Delete(t.Context(), s.name, metav1.DeleteOptions{}))
	rig.Eventually(t, "a machine is being deleted", func() (bool, any) {
		all := append(p.listMachines(t), f.listMachines(t)...)
		return slices.ContainsFunc(
			all,
			func(m unstructured.Unstructured) bool { return m.GetDeletionTimestamp() != nil },
		), len(all)
	})
	killAndRestartProcess(t, component.Worker)
	killAndRestartProcess(t, component.Bridge)
	p.awaitPoolGone(t)
	f.awaitPoolGone(t)
	p.awaitObjectCounts(t, 0)
	f.awaitObjectCounts(t, 0)
	s.awaitClusterGone(t)
}

// isForbiddenRequest reports whether the API server refused a request of worker or bridge. Worker and bridge have the
// roles of deploy/rbac/cluster-api in addition to their own roles.
func isForbiddenRequest(a rig.AuditedRequest) bool {
	return slices.Contains([]string{component.WorkerIdentity, component.BridgeIdentity}, a.User.Username) &&
		a.ResponseStatus.Code == http.StatusForbidden
}

// controlPlaneVersions returns the Kubernetes versions in the status of the namespace's control plane.
func controlPlaneVersions(t *testing.T, s testNamespace) (versions []string) {
	t.Helper()
	status, _ := s.getObject(t, controlPlaneResource, s.name).Object["status"].(map[string]any)
	list, _ := status["versions"].([]any)
	for _, item := range list {
		versions = append(versions, item.(map[string]any)["version"].(string))
	}
	return versions
}
