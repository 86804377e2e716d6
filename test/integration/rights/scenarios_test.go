//go:build integration

package rights

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	sdk "go.temporal.io/sdk/client"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/test/integration/rig"
	workflowsorphan "millwright/workflows/orphan"
)

// newPool creates a namespace and a pool with the same name. The nodes of the pool accept pods.
func newPool(t *testing.T, name string, replicas int32, changes ...func(*v1alpha1.MachineDeployment)) *rig.Pool {
	t.Helper()
	testRig.CreateNamespace(t, name, "")
	p := testRig.CreatePool(t, name, name, replicas, append(changes, rig.WithNodeLabel)...)
	p.AwaitRunningMachines(t, int(replicas))
	return p
}

// deletePoolAndClass deletes the pool, its class and the Secret.
func deletePoolAndClass(t *testing.T, p *rig.Pool) {
	t.Helper()
	p.Delete(t)
	p.AwaitPoolGone(t)
	testRig.DeleteClassAndSecret(t, p.Namespace)
}

// patchPoolAndAwait patches the deployment, and waits until the status has observed the change and all machines run.
func patchPoolAndAwait(t *testing.T, p *rig.Pool, change string, replicas int) {
	t.Helper()
	before := p.Deployment(t).Generation
	p.Patch(t, change)
	rig.Eventually(t, "the change is seen", func() (bool, any) {
		d := p.Deployment(t)
		return d.Status.ObservedGeneration > before && d.Spec.RollbackTo == nil, d.Status
	})
	p.AwaitRunningMachines(t, replicas)
}

// runRollouts runs a rolling update, its rollback, and a rolling update after which the deployment deletes an old set.
func runRollouts(t *testing.T) {
	p := newPool(t, "rollout", 2, func(d *v1alpha1.MachineDeployment) { d.Spec.RevisionHistoryLimit = new(int32(1)) })
	for i := range 3 {
		patchPoolAndAwait(t, p, fmt.Sprintf(`{"spec":{"template":{"metadata":{"labels":{"edition":"%d"}}}}}`, i), 2)
	}
	patchPoolAndAwait(t, p, `{"spec":{"rollbackTo":{"revision":0}}}`, 2)
	testRig.CreatePolicy(t, p.Namespace, p.Name, v1alpha1.RolloutPolicySpec{})
	p.Scale(t, 1)
	p.AwaitRunningMachines(t, 1)
	deletePoolAndClass(t, p)
}

// runDrains drains a node with a rule that selects namespaces. Pods without a budget are evicted. A budget blocks the
// eviction of a pod with a volume. The drain deletes this pod at its deadline. The second drain is a forced drain.
// After the forced drain, Millwright deletes the instance while a volume without a pod stays attached to the node.
func runDrains(t *testing.T) {
	p := newPool(t, "drain", 2, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineDrainTimeout: &metav1.Duration{Duration: 8 * time.Second},
		}
	})
	p.AwaitLabelledNodes(t, 2)
	rule := &v1alpha1.MachineDrainRule{ObjectMeta: metav1.ObjectMeta{Name: "order"}}
	rule.Spec.Drain = v1alpha1.MachineDrainRuleDrain{
		Behavior: v1alpha1.MachineDrainRuleBehaviorDrain,
		Order:    new(int32(10)),
	}
	rule.Spec.Pods = []v1alpha1.MachineDrainRulePods{{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": p.Namespace}},
	}}
	_, err := testRig.MachineClient.MachineV1alpha1().
		MachineDrainRules(p.Namespace).
		Create(t.Context(), rule, metav1.CreateOptions{})
	require.NoError(t, err)
	p.DeployPods(t, "web", 4) // each node has some of these pods
	p.RunStatefulSet(t, "db", 2)
	p.CreateBudget(t, "db", 2)
	m, _ := p.MachineWithPods(t, "db")
	p.DeleteMachine(t, m.Name)
	p.AwaitMachineGone(t, m)
	p.AwaitRunningMachines(t, 2)
	p.AwaitRunningPods(t, "db", 2)
	p.RelaxBudget(t, "db", 0)

	m, _ = p.MachineWithPods(t, "db")
	testRig.AttachVolume(t, "unclaimed", m.Labels[v1alpha1.LabelNode])
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, v1alpha1.LabelForceDeletion)
	_, err = testRig.MachineClient.MachineV1alpha1().
		Machines(p.Namespace).
		Patch(t.Context(), m.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	p.DeleteMachine(t, m.Name)
	p.AwaitMachineGone(t, m)
	require.NoError(t, testRig.Kube.AppsV1().StatefulSets(p.Namespace).Delete(t.Context(), "db", metav1.DeleteOptions{}))
	require.NoError(t, testRig.Kube.AppsV1().Deployments(p.Namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	deletePoolAndClass(t, p)
}

// runPreservation preserves a machine and then updates its node in place. Preservation and in-place update write
// conditions, taints and annotations of the node.
func runPreservation(t *testing.T) {
	p := newPool(t, "preserved", 1)
	m := p.Machines(t)[0]
	machines := testRig.MachineClient.MachineV1alpha1().Machines(p.Namespace)
	_, err := machines.Patch(
		t.Context(),
		m.Name,
		types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"node.machine.sapcloud.io/preserve":"now"}}}`),
		metav1.PatchOptions{},
	)
	require.NoError(t, err)
	hasCondition := func(kind corev1.NodeConditionType) {
		rig.Eventually(t, "the node tells "+string(kind), func() (bool, any) {
			n, err := testRig.Kube.CoreV1().Nodes().Get(t.Context(), m.Labels[v1alpha1.LabelNode], metav1.GetOptions{})
			require.NoError(t, err)
			for _, c := range n.Status.Conditions {
				if c.Type == kind {
					return true, nil
				}
			}
			return false, n.Status.Conditions
		})
	}
	hasCondition(v1alpha1.NodePreserved)
	_, err = testRig.Stack.RunKubectl(
		t.Context(),
		"label",
		"node",
		m.Labels[v1alpha1.LabelNode],
		v1alpha1.LabelCandidateForUpdate+"=true",
		v1alpha1.LabelSelectedForUpdate+"=true",
	)
	require.NoError(t, err)
	hasCondition(v1alpha1.NodeInPlaceUpdate)
	_, err = machines.Patch(
		t.Context(),
		m.Name,
		types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"node.machine.sapcloud.io/preserve":"false"}}}`),
		metav1.PatchOptions{},
	)
	require.NoError(t, err)
	deletePoolAndClass(t, p)
}

// runOrphanSweeps waits until two sweeps have found an instance without a machine, and until the instance is deleted.
func runOrphanSweeps(t *testing.T) {
	p := newPool(t, "orphan", 1)
	lost := testRig.CreateInstanceByHand(t, p.Namespace, p.Namespace+"-lost")
	const confirm = time.Second
	handle := testRig.CreateSweepSchedule(t, p.Namespace, confirm)
	rig.Eventually(t, "the instance is collected", func() (bool, any) {
		seen, err := handle.Describe(t.Context())
		require.NoError(t, err)
		if n := len(seen.Info.RecentActions); n > 0 && len(seen.Info.RunningWorkflows) == 0 {
			var last workflowsorphan.Result
			id := seen.Info.RecentActions[n-1].StartWorkflowResult.WorkflowID
			require.NoError(t, testRig.Temporal.GetWorkflow(t.Context(), id, "").Get(t.Context(), &last))
			if len(last.Collected) > 0 {
				require.Equal(t, []string{lost.ProviderID}, last.Collected)
				return true, nil
			}
		}
		if len(seen.Info.RunningWorkflows) == 0 {
			require.NoError(t, handle.Trigger(t.Context(), sdk.ScheduleTriggerOptions{}))
		}
		return false, seen.Info
	})
	deletePoolAndClass(t, p)
}

// runNodeDeletion deletes a node as a user would, and waits until Millwright has replaced the node's machine.
func runNodeDeletion(t *testing.T) {
	p := newPool(t, "replaced", 1)
	m := p.Machines(t)[0]
	require.NoError(
		t,
		testRig.Kube.CoreV1().Nodes().Delete(t.Context(), m.Labels[v1alpha1.LabelNode], metav1.DeleteOptions{}),
	)
	p.AwaitMachineGone(t, m)
	p.AwaitRunningMachines(t, 1)
	deletePoolAndClass(t, p)
}

// runRestarts restarts the processes; each new process reads the Lease of the old process.
func runRestarts(t *testing.T) {
	for _, name := range []string{component.Worker, component.Bridge, component.ProviderWorker} {
		require.NoError(t, testRig.Stack.RestartComponent(t.Context(), name))
	}
}
