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

// A control plane that is being upgraded, a paused Cluster, and a Cluster that is deleted, one after the other, because
// a cluster of its own takes half a minute.
func TestWhatASetDoesWhenItsClusterChanges(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "changing", "plane.yaml")
	s.awaitMachines(t, 0)
	p := s.newPool(t, "changing", 1)
	p.awaitStatus(t, 1)

	t.Run("the control plane is being upgraded", func(t *testing.T) {
		s.merge(t, controlPlanes, s.name, `{"spec":{"version":"v1.36.4"}}`)
		rig.Eventually(t, "the upgrade has begun", func() (bool, any) {
			_, _, message := conditionOf(t, s.get(t, controlPlanes, s.name), "RollingOut")
			return message != "", message
		})
		p.resize(t, 2)
		p.awaitMessage(t, "ScalingUp", "True", "ScalingUp", `is upgrading ("ControlPlaneIsStable" preflight check failed)`)
		p.awaitCounts(t, 2)
		assert.Equal(t, []string{"v1.36.4"}, reached(t, s), "not before the upgrade has ended")
	})
	f := s.newFleet(t, "changing-fleet", 1)
	f.awaitMade(t, s.name, 1)
	t.Run("the Cluster is paused", func(t *testing.T) {
		s.merge(t, clusters, s.name, `{"spec":{"paused":true}}`)
		p.awaitMessage(t, "Paused", "True", "Paused", "Cluster spec.paused is set to true")
		f.awaitMessage(t, "Paused", "True", "Paused", "Cluster spec.paused is set to true")
		p.resize(t, 3)
		f.resize(t, 2)
		p.lookAgain(t)
		f.lookAgain(t)
		p.has(t, 2)
		f.has(t, 1)
		s.merge(t, clusters, s.name, `{"spec":{"paused":false}}`)
		p.awaitCounts(t, 3)
		p.awaitMessage(t, "Paused", "False", "NotPaused", "")
		f.awaitMade(t, s.name, 2)
		f.awaitMessage(t, "Paused", "False", "NotPaused", "")
	})
	t.Run("the Cluster is deleted", func(t *testing.T) {
		require.NoError(t, s.of(clusters).Delete(t.Context(), s.name, metav1.DeleteOptions{}))
		p.gone(t)
		p.awaitCounts(t, 0)
		f.gone(t)
		f.awaitCounts(t, 0)
		s.clusterGone(t)
	})
	assert.Empty(t, r.Audit(t, forbidden), "the roles allow all that was needed")
}

// clusterGone waits until the Cluster of the space does not exist.
func (s space) clusterGone(t *testing.T) {
	t.Helper()
	rig.Eventually(t, "the Cluster is gone", func() (bool, any) {
		list, err := s.of(clusters).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0, list
	})
}

// Worker and bridge die while a Cluster is deleted with a set, and with a deployment in the middle of its rollout.
func TestAClusterIsDeletedWhileProcessesDie(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "ending", "plane.yaml")
	s.awaitMachines(t, 0)
	p, f := s.newPool(t, "ending", 2), s.newFleet(t, "ending-fleet", 2)
	p.awaitStatus(t, 2)
	f.awaitMade(t, s.name, 2)
	f.template(t, "ending-2")
	f.change(t, "ending-2")
	rig.Eventually(
		t,
		"a machine of the new template",
		func() (bool, any) { made := f.made(t); return made["ending-2"] > 0, made },
	)
	require.NoError(t, s.of(clusters).Delete(t.Context(), s.name, metav1.DeleteOptions{}))
	rig.Eventually(t, "a machine is being deleted", func() (bool, any) {
		all := append(p.members(t), f.members(t)...)
		return slices.ContainsFunc(
			all,
			func(m unstructured.Unstructured) bool { return m.GetDeletionTimestamp() != nil },
		), len(all)
	})
	crash(t, component.Worker)
	crash(t, component.Bridge)
	p.gone(t)
	f.gone(t)
	p.awaitCounts(t, 0)
	f.awaitCounts(t, 0)
	s.clusterGone(t)
}

// Worker and bridge have the roles of deploy/rbac/cluster-api besides their own. The API server refuses what these do
// not allow.
func forbidden(a rig.Audited) bool {
	return slices.Contains([]string{component.WorkerIdentity, component.BridgeIdentity}, a.User.Username) &&
		a.ResponseStatus.Code == http.StatusForbidden
}

// reached returns the versions of Kubernetes that the control plane of a space reports.
func reached(t *testing.T, s space) (versions []string) {
	t.Helper()
	status, _ := s.get(t, controlPlanes, s.name).Object["status"].(map[string]any)
	list, _ := status["versions"].([]any)
	for _, item := range list {
		versions = append(versions, item.(map[string]any)["version"].(string))
	}
	return versions
}
