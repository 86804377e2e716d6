// Tier: test for a budget, the steps of a drain, volumes, rules and requests; test-all for kills, many drains and lost
// data.

//go:build integration

// Package drain tests how the nodes of machines are drained. Pods are evicted as their budgets allow, and pods with
// volumes are evicted one after the other. After the deadline, the remaining pods are deleted.
package drain

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

var testRig *rig.Rig

// maxDrains is the maximum number of nodes that the shared stack drains at a time.
const maxDrains = rig.MaxDrains

func TestMain(m *testing.M) {
	os.Exit(rig.MainOnSharedStack(m, func(up *rig.Rig) { testRig = up }))
}

const smallProviderSpec = `{"region":"eu","zone":"eu-1","instanceType":"small"}`

// newPool makes a namespace and a pool with the same name. The pool's nodes accept only pods of this namespace. The
// parameter template is JSON that is merged into the spec of the pool's machines.
func newPool(t *testing.T, name string, replicas int32, template string) *rig.Pool {
	t.Helper()
	testRig.CreateNamespace(t, name, smallProviderSpec)
	p := testRig.CreatePool(t, name, name, replicas, rig.WithNodeLabel, func(d *v1alpha1.MachineDeployment) {
		if template != "" {
			require.NoError(t, json.Unmarshal([]byte(template), &d.Spec.Template.Spec))
		}
	})
	p.AwaitRunningMachines(t, int(replicas))
	p.AwaitLabelledNodes(t, int(replicas))
	return p
}

func readMachine(t *testing.T, was v1alpha1.Machine) *v1alpha1.Machine {
	t.Helper()
	list, err := testRig.MachineClient.MachineV1alpha1().Machines(was.Namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, m := range list.Items {
		if m.UID == was.UID {
			return &m
		}
	}
	return nil
}

func awaitMachineGone(t *testing.T, m v1alpha1.Machine) {
	t.Helper()
	rig.Eventually(t, "machine "+m.Name+" is gone", func() (bool, any) {
		now := readMachine(t, m)
		if now == nil {
			return true, nil
		}
		return false, []any{now.Status.LastOperation, now.Status.Deletion, now.Status.CurrentOperation, drainedCondition(now)}
	})
}

// drainedCondition returns the condition Drained of a machine.
func drainedCondition(m *v1alpha1.Machine) corev1.NodeCondition {
	for _, c := range m.Status.Conditions {
		if c.Type == v1alpha1.MachineDrained {
			return c
		}
	}
	return corev1.NodeCondition{}
}
