//go:build integration

package capi

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"millwright/devstack/build"
	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

var (
	crdResource = schema.GroupVersionResource{
		Group:    "apiextensions.k8s.io",
		Version:  "v1",
		Resource: "customresourcedefinitions",
	}
	secretResource = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// runClusterctl runs clusterctl, and returns its output.
func runClusterctl(t *testing.T, program string, arguments ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, arguments...)
	home := t.TempDir()
	command.Env = append(
		os.Environ(),
		"HOME="+home,
		"XDG_CONFIG_HOME="+home,
		"NO_COLOR=true",
		"CLUSTERCTL_DISABLE_VERSIONCHECK=true",
	)
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// movedKinds are the kinds that clusterctl moves, the Cluster last: an object of a missing Cluster would not count as
// paused.
func movedKinds() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		machineDeploymentResource, machineSetResource, machineResource, devMachineResource, kubeadmConfigResource,
		controlPlaneResource, bootstrapTemplateResource, devMachineTemplateResource, devClusterResource, secretResource,
		clusterResource,
	}
}

// uidsOfMovedObjects returns the UIDs of the objects that clusterctl moves, by kind and name.
func (s testNamespace) uidsOfMovedObjects(t *testing.T) map[string]types.UID {
	t.Helper()
	uids := map[string]types.UID{}
	for _, kind := range movedKinds() {
		list, err := s.resourceClient(kind).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, o := range list.Items {
			uids[kind.Resource+" "+o.GetName()] = o.GetUID()
		}
	}
	return uids
}

// loseObjects removes all objects of a paused Cluster, as if their API server were lost: no controller acts on the
// deletions.
func (s testNamespace) loseObjects(t *testing.T) {
	t.Helper()
	for _, kind := range movedKinds() {
		list, err := s.resourceClient(kind).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, o := range list.Items {
			s.applyMergePatch(t, kind, o.GetName(), `{"metadata":{"finalizers":null,"ownerReferences":null}}`)
		}
		for _, o := range list.Items {
			err := s.resourceClient(kind).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{})
			if !apierrors.IsNotFound(err) {
				require.NoError(t, err)
			}
		}
	}
	rig.Eventually(t, "all objects are gone", func() (bool, any) {
		left := s.uidsOfMovedObjects(t)
		return len(left) == 0, left
	})
}

// clusterctl writes a Cluster with two MachineDeployments of Millwright to files. After the loss of all objects,
// clusterctl restores them from the files, with other UIDs and without a status. Millwright keeps all machines, and the
// deployments work as before. The same happens a second time, while no worker and no bridge run.
func TestClusterctlMovesAClusterAndBack(t *testing.T) {
	repo, err := build.FindRepo("")
	require.NoError(t, err)
	program, err := build.ClusterctlPath(t.Context(), repo, os.Stderr)
	require.NoError(t, err)
	kubeconfig := testRig.Stack.KubeconfigPath(component.TestIdentity)
	s := newStartedNamespace(t, "moved")
	first, second := s.newFleet(t, "first", 2), s.newFleet(t, "second", 3)
	first.awaitMachinesOfTemplate(t, s.name, 2)
	second.awaitReplicaStatus(t, 3)
	definitions, err := s.client.Resource(crdResource).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, d := range definitions.Items { // clusterctl init sets this label; clusterctl moves only kinds with the label
		if strings.HasSuffix(d.GetName(), "cluster.x-k8s.io") {
			_, err := s.client.Resource(crdResource).Patch(t.Context(), d.GetName(), types.MergePatchType,
				[]byte(`{"metadata":{"labels":{"clusterctl.cluster.x-k8s.io":""}}}`), metav1.PatchOptions{})
			require.NoError(t, err)
		}
	}

	for _, stopped := range [][]string{nil, {component.Worker, component.Bridge}} {
		before := s.uidsOfMovedObjects(t)
		created, deleted := s.countMachineWrites(t)
		dir := t.TempDir()
		runClusterctl(t, program, "move", "--kubeconfig", kubeconfig, "--namespace", s.name, "--to-directory", dir)
		for _, name := range stopped {
			require.NoError(t, testRig.Stack.KillComponent(t.Context(), name))
		}
		s.setClusterPaused(t, true)
		rig.Eventually(t, "core sees the pause", func() (bool, any) {
			for _, m := range first.listMachines(t) {
				if status, _, _ := (pool{s, machineResource, m.GetName()}).readCondition(t, "Paused"); status != "True" {
					return false, m.GetName()
				}
			}
			return true, nil
		})
		s.loseObjects(t)
		runClusterctl(t, program, "move", "--to-kubeconfig", kubeconfig, "--from-directory", dir)
		for _, name := range stopped {
			require.NoError(t, testRig.Stack.RestartComponent(t.Context(), name))
		}
		first.awaitReplicaStatus(t, 2)
		second.awaitReplicaStatus(t, 3)
		after := s.uidsOfMovedObjects(t)
		var names, namesAfter []string
		for name, uid := range before {
			names = append(names, name)
			assert.NotEqual(t, uid, after[name], name)
		}
		for name := range after {
			namesAfter = append(namesAfter, name)
		}
		slices.SortFunc(names, cmp.Compare[string])
		slices.SortFunc(namesAfter, cmp.Compare[string])
		assert.Equal(t, names, namesAfter)
		createdAfter, deletedAfter := s.countMachineWrites(t)
		assert.Equal(
			t,
			created[component.WorkerIdentity],
			createdAfter[component.WorkerIdentity],
			"Millwright makes no machine",
		)
		assert.Equal(
			t,
			deleted[component.WorkerIdentity],
			deletedAfter[component.WorkerIdentity],
			"Millwright deletes no machine",
		)
		t.Logf("%d objects restored; created by %v, deleted by %v", len(after), createdAfter, deletedAfter)
	}
	first.scale(t, 3)
	first.awaitReplicaStatus(t, 3)
	s.newInfrastructureTemplate(t, "second")
	second.setInfrastructureTemplate(t, "second")
	rig.Eventually(t, "the second deployment is rolled out", func() (bool, any) {
		made := second.countMachinesByTemplate(t)
		return made["second"] == 3, fmt.Sprint(made, second.conditionLines(t))
	})
}
