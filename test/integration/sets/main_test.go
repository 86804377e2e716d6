// Tier: test for the life of a set, adoption and orphans; test-all for kills and large sets.

//go:build integration

// Package sets tests that a MachineSet reaches exactly the number of machines in its spec. The number is reached even
// if a process is killed, a request is refused, or a user interferes.
package sets

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/devstack/virtualcloud/admin"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

var testRig *rig.Rig

func TestMain(m *testing.M) {
	flag := "--control-plane=" +
		strings.Join(
			[]string{controlPlaneResource.Group, controlPlaneResource.Version, controlPlaneResource.Resource, "default", "main"},
			"/",
		)
	options := stack.Options{Args: map[string][]string{
		component.Worker: {
			flag,
		},
		component.Bridge: {flag},
		component.Etcd:   {fmt.Sprintf("--max-request-bytes=%d", maxEtcdRequestBytes)},
	}}
	os.Exit(rig.Main(m, options, func(up *rig.Rig) {
		testRig = up
		if err := installControlPlaneCRD(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "install control planes:", err)
			os.Exit(1)
		}
	}))
}

// testMachineSet is a MachineSet without a deployment. One namespace may have several such sets.
type testMachineSet struct{ namespace, name string }

// createSet makes a set whose machines carry the label pool with the set's name.
func createSet(
	t *testing.T,
	namespace, name string,
	replicas int32,
	changes ...func(*v1alpha1.MachineSet),
) testMachineSet {
	t.Helper()
	labels := map[string]string{"pool": name}
	s := &v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: v1alpha1.MachineSetSpec{
			Replicas: replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1alpha1.MachineTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: rig.NewMachineSpec()},
		},
	}
	for _, change := range changes {
		change(s)
	}
	_, err := testRig.MachineClient.MachineV1alpha1().MachineSets(namespace).Create(t.Context(), s, metav1.CreateOptions{})
	require.NoError(t, err)
	return testMachineSet{namespace, name}
}

func (s testMachineSet) readSet(t *testing.T) *v1alpha1.MachineSet {
	t.Helper()
	set, err := testRig.MachineClient.MachineV1alpha1().
		MachineSets(s.namespace).
		Get(t.Context(), s.name, metav1.GetOptions{})
	require.NoError(t, err)
	return set
}

func (s testMachineSet) patch(t *testing.T, patch string) {
	t.Helper()
	_, err := testRig.MachineClient.MachineV1alpha1().
		MachineSets(s.namespace).
		Patch(t.Context(), s.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

func (s testMachineSet) forceReconcile(t *testing.T) {
	t.Helper()
	testRig.ForceReconcile(t, run.KindMachineSet, s.namespace, s.name)
}

func (s testMachineSet) scale(t *testing.T, replicas int) {
	t.Helper()
	s.patch(t, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// readMachines reads the machines that the set controls. If the API server is unavailable, the result is empty.
func (s testMachineSet) readMachines(t *testing.T) []v1alpha1.Machine {
	t.Helper()
	list, err := testRig.MachineClient.MachineV1alpha1().Machines(s.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(list.Items, func(m v1alpha1.Machine) bool {
		owner := metav1.GetControllerOf(&m)
		return owner == nil || owner.Name != s.name
	})
}

// awaitRunningMachines waits until the set has exactly n machines, all of them run, and the set's status reports this.
func (s testMachineSet) awaitRunningMachines(t *testing.T, n int) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("%d machines of set %s run", n, s.name), func() (bool, any) {
		machines, running := s.readMachines(t), 0
		for _, m := range machines {
			if m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning && m.DeletionTimestamp == nil {
				running++
			}
		}
		if len(machines) != n || running != n {
			return false, []int{len(machines), running}
		}
		status := s.readSet(t).Status
		return int(status.Replicas) == n && int(status.ReadyReplicas) == n && int(status.AvailableReplicas) == n, status
	})
}

// readCondition returns a condition of the set.
func (s testMachineSet) readCondition(
	t *testing.T,
	kind v1alpha1.MachineSetConditionType,
) v1alpha1.MachineSetCondition {
	t.Helper()
	for _, c := range s.readSet(t).Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return v1alpha1.MachineSetCondition{}
}

// awaitCondition waits until a condition of the set has this status and this reason.
func (s testMachineSet) awaitCondition(
	t *testing.T,
	kind v1alpha1.MachineSetConditionType,
	status v1alpha1.ConditionStatus,
	reason string,
) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("%s is %s: %s", kind, status, reason), func() (bool, any) {
		c := s.readCondition(t, kind)
		return c.Status == status && c.Reason == reason, c
	})
}

func (s testMachineSet) deleteSet(t *testing.T) {
	t.Helper()
	require.NoError(
		t,
		testRig.MachineClient.MachineV1alpha1().MachineSets(s.namespace).Delete(t.Context(), s.name, metav1.DeleteOptions{}),
	)
	rig.Eventually(t, "nothing is left of set "+s.name, func() (bool, any) {
		_, err := testRig.MachineClient.MachineV1alpha1().
			MachineSets(s.namespace).
			Get(context.Background(), s.name, metav1.GetOptions{})
		left := len(s.readMachines(t))
		return err != nil && left == 0, left
	})
}

func readCloudStats(t *testing.T) admin.Stats {
	t.Helper()
	s, err := testRig.Cloud.Stats(t.Context())
	require.NoError(t, err)
	return s
}

// countMachineCreateRequests reads the API server's audit log. countMachineCreateRequests returns how many Machines of
// a namespace were ever created, and how many create requests were refused. Dry runs are not counted.
func countMachineCreateRequests(t *testing.T, namespace string) (created, refused int) {
	t.Helper()
	for _, line := range testRig.AuditedRequests(t, func(line rig.AuditedRequest) bool {
		o := line.ObjectRef
		return line.Verb == "create" && o.Resource == "machines" && o.Namespace == namespace && o.Subresource == "" && !strings.Contains(line.RequestURI, "dryRun")
	}) {
		if line.ResponseStatus.Code == 201 {
			created++
		} else {
			refused++
		}
	}
	return created, refused
}
