//go:build integration

package life

import (
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

// A test restore copies all Machines of a pool into another namespace. The copies have the provider IDs and the node
// labels of the originals. A rollout, a scale-down and the deletion of the copies must not delete an instance that an
// original Machine still uses. When an original Machine is deleted, its node is drained.
func TestCopiesOfMachinesNeverDeleteInstancesOfTheOriginals(t *testing.T) {
	t.Parallel()
	const name, copies, size = "originals", "copies", 10
	testRig.CreateNamespace(t, name, "")
	p := testRig.CreatePool(t, name, name, size, rig.WithNodeLabel)
	p.AwaitRunningMachines(t, size)
	p.AwaitLabelledNodes(t, size)
	p.AwaitSyncedNodes(t)
	p.DeployPods(t, "web", 2*size)

	testRig.CreateNamespace(t, copies, "")
	for _, m := range p.Machines(t) {
		c := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: copies, Name: m.Name, Labels: m.Labels}, Spec: m.Spec}
		_, err := testRig.MachineClient.MachineV1alpha1().Machines(copies).Create(t.Context(), c, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	rig.Eventually(t, "each copy says that its instance is another Machine's", func() (bool, any) {
		all, err := testRig.MachineClient.MachineV1alpha1().Machines(copies).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		said := 0
		for _, m := range all.Items {
			if o := m.Status.CurrentOperation; o != nil && len(o.BlockedBy) > 0 && o.BlockedBy[0] == "AlreadyExists" {
				said++
			}
		}
		return said == size, said
	})

	drained := watchDrainResults(t, name)
	p.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"edition":"2"}}}}}`)
	rig.Eventually(t, "all machines are of the new template", func() (bool, any) {
		n, all := 0, p.Machines(t)
		for _, m := range all {
			if m.Labels["edition"] == "2" {
				n++
			}
		}
		return n == size && len(all) == size, fmt.Sprintf("%d of %d", n, len(all))
	})
	p.AwaitRunningMachines(t, size)
	p.Scale(t, size/2)
	p.AwaitRunningMachines(t, size/2)
	rig.Eventually(t, "all ends were seen", func() (bool, any) {
		n := len(drained())
		return n == size+size/2, n
	})
	for machine, how := range drained() {
		assert.Equal(t, "Drained", how, "node of machine %s", machine)
	}

	var kept []string
	for _, m := range p.Machines(t) {
		kept = append(kept, m.Spec.ProviderID)
	}
	require.Len(t, kept, size/2)
	require.NoError(t, testRig.Kube.CoreV1().Namespaces().Delete(t.Context(), copies, metav1.DeleteOptions{}))
	rig.Eventually(t, "the copies are gone", func() (bool, any) {
		_, err := testRig.Kube.CoreV1().Namespaces().Get(t.Context(), copies, metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
	require.ElementsMatch(t, kept, p.ProviderIDs(t), "those of the originals, and no other")
	p.AwaitRunningMachines(t, size/2)
	require.NoError(t, testRig.Kube.AppsV1().Deployments(name).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	p.Delete(t)
	p.AwaitPoolGone(t)
}

// watchDrainResults watches the machines of a namespace. The returned function returns the reason of the condition
// Drained of each machine that is gone, by the machine's name.
func watchDrainResults(t *testing.T, namespace string) func() map[string]string {
	t.Helper()
	events, err := testRig.MachineClient.MachineV1alpha1().Machines(namespace).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	t.Cleanup(events.Stop)
	var mu sync.Mutex
	how := map[string]string{}
	go func() {
		for e := range events.ResultChan() {
			m, is := e.Object.(*v1alpha1.Machine)
			if !is || e.Type != watch.Deleted {
				continue
			}
			reason := "no condition"
			for _, c := range m.Status.Conditions {
				if c.Type == v1alpha1.MachineDrained {
					reason = c.Reason
				}
			}
			mu.Lock()
			how[m.Name] = reason
			mu.Unlock()
		}
	}()
	return func() map[string]string {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(how)
	}
}

// While an instance boots, a person creates a Node with the machine's name and another provider ID. The machine does
// not join with this Node, and Millwright does not write to the Node, so the Node's creator can delete it at once.
func TestANodeOfAnotherInstanceIsNotJoined(t *testing.T) {
	t.Parallel()
	const name = "squatted"
	testRig.CreateNamespace(t, name, `{"region":"eu","zone":"eu-1","instanceType":"small","bootLatency":"1h"}`)
	p := testRig.CreatePool(t, name, name, 1)
	var m v1alpha1.Machine
	rig.Eventually(t, "the instance is on record", func() (bool, any) {
		machines := p.Machines(t)
		if len(machines) == 1 {
			m = machines[0]
		}
		return m.Spec.ProviderID != "", machines
	})
	nodes := testRig.Kube.CoreV1().Nodes()
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	_, err := nodes.Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.Name},
		Spec:       corev1.NodeSpec{ProviderID: "other:///x/i-77777"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	testRig.ForceReconcile(t, run.KindMachine, name, m.Name)
	require.Equal(t, v1alpha1.MachinePending, p.Machines(t)[0].Status.CurrentStatus.Phase)
	now, err := nodes.Get(t.Context(), m.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Empty(t, now.Finalizers)
	require.NotContains(t, now.Labels, v1alpha1.LabelMachineName)
	require.NoError(t, nodes.Delete(t.Context(), m.Name, metav1.DeleteOptions{}))
	require.Empty(t, p.Nodes(t), "no finalizer holds it")
	p.Delete(t)
	p.AwaitPoolGone(t)
}
