// Tier: test for a budget, the ladder of means, volumes, rules and requests; test-all for kills, crowds and lost data.

//go:build integration

// Package drain shows how the nodes of machines are emptied: pods leave as their budgets allow, pods with volumes one
// after the other, and the deadline removes the rest.
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

var r *rig.Rig

// most is how many nodes are drained at a time here.
const most = rig.MaxDrains

func TestMain(m *testing.M) {
	os.Exit(rig.MainShared(m, func(up *rig.Rig) { r = up }))
}

const small = `{"region":"eu","zone":"eu-1","instanceType":"small"}`

// pool makes a namespace with a pool of its name, whose nodes take only pods of that namespace. Template is JSON that
// is added to the spec of its machines.
func pool(t *testing.T, name string, replicas int32, template string) *rig.Pool {
	t.Helper()
	r.Namespace(t, name, small)
	p := r.Pool(t, name, name, replicas, rig.LabelNodes, func(d *v1alpha1.MachineDeployment) {
		if template != "" {
			require.NoError(t, json.Unmarshal([]byte(template), &d.Spec.Template.Spec))
		}
	})
	p.AwaitRunning(t, int(replicas))
	p.AwaitHosts(t, int(replicas))
	return p
}

func machine(t *testing.T, was v1alpha1.Machine) *v1alpha1.Machine {
	t.Helper()
	list, err := r.Machines.MachineV1alpha1().Machines(was.Namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, m := range list.Items {
		if m.UID == was.UID {
			return &m
		}
	}
	return nil
}

func awaitGone(t *testing.T, m v1alpha1.Machine) {
	t.Helper()
	rig.Eventually(t, "machine "+m.Name+" is gone", func() (bool, any) {
		now := machine(t, m)
		if now == nil {
			return true, nil
		}
		return false, []any{now.Status.LastOperation, now.Status.Deletion, now.Status.CurrentOperation, drained(now)}
	})
}

// drained returns the condition Drained of a machine.
func drained(m *v1alpha1.Machine) corev1.NodeCondition {
	for _, c := range m.Status.Conditions {
		if c.Type == v1alpha1.MachineDrained {
			return c
		}
	}
	return corev1.NodeCondition{}
}
