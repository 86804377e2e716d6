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

// pool makes a namespace with a pool of its name, whose nodes take pods.
func pool(t *testing.T, name string, replicas int32, changes ...func(*v1alpha1.MachineDeployment)) *rig.Pool {
	t.Helper()
	r.Namespace(t, name, "")
	p := r.Pool(t, name, name, replicas, append(changes, rig.LabelNodes)...)
	p.AwaitRunning(t, int(replicas))
	return p
}

// remove deletes the pool, its class and the Secret.
func remove(t *testing.T, p *rig.Pool) {
	t.Helper()
	p.Delete(t)
	p.AwaitGone(t)
	r.DeleteClassAndSecret(t, p.Namespace)
}

// edition gives the pool another template, and waits until all machines have it.
func edition(t *testing.T, p *rig.Pool, change string, replicas int) {
	t.Helper()
	before := p.Deployment(t).Generation
	p.Patch(t, change)
	rig.Eventually(t, "the change is seen", func() (bool, any) {
		d := p.Deployment(t)
		return d.Status.ObservedGeneration > before && d.Spec.RollbackTo == nil, d.Status
	})
	p.AwaitRunning(t, replicas)
}

// A rolling update, its rollback, and one that makes the deployment forget an old set.
func rollout(t *testing.T) {
	p := pool(t, "rollout", 2, func(d *v1alpha1.MachineDeployment) { d.Spec.RevisionHistoryLimit = new(int32(1)) })
	for i := range 3 {
		edition(t, p, fmt.Sprintf(`{"spec":{"template":{"metadata":{"labels":{"edition":"%d"}}}}}`, i), 2)
	}
	edition(t, p, `{"spec":{"rollbackTo":{"revision":0}}}`, 2)
	r.Policy(t, p.Namespace, p.Name, v1alpha1.RolloutPolicySpec{})
	p.Scale(t, 1)
	p.AwaitRunning(t, 1)
	remove(t, p)
}

// A drain with a rule about namespaces: pods without a budget are evicted, one with a volume is kept by its budget and
// deleted at the deadline. A volume that nobody detaches is left at the node of an instance that is gone.
func drain(t *testing.T) {
	p := pool(t, "drain", 2, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineDrainTimeout: &metav1.Duration{Duration: 8 * time.Second},
		}
	})
	p.AwaitHosts(t, 2)
	rule := &v1alpha1.MachineDrainRule{ObjectMeta: metav1.ObjectMeta{Name: "order"}}
	rule.Spec.Drain = v1alpha1.MachineDrainRuleDrain{
		Behavior: v1alpha1.MachineDrainRuleBehaviorDrain,
		Order:    new(int32(10)),
	}
	rule.Spec.Pods = []v1alpha1.MachineDrainRulePods{{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": p.Namespace}},
	}}
	_, err := r.Machines.MachineV1alpha1().MachineDrainRules(p.Namespace).Create(t.Context(), rule, metav1.CreateOptions{})
	require.NoError(t, err)
	p.Deploy(t, "web", 4) // some on each node
	p.RunStatefulSet(t, "db", 2)
	p.Budget(t, "db", 2)
	m, _ := p.Host(t, "db")
	p.Remove(t, m.Name)
	p.AwaitDeleted(t, m)
	p.AwaitRunning(t, 2)
	p.AwaitPods(t, "db", 2)
	p.RelaxBudget(t, "db", 0)

	m, _ = p.Host(t, "db")
	r.Attach(t, "unclaimed", m.Labels[v1alpha1.LabelNode])
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, v1alpha1.LabelForceDeletion)
	_, err = r.Machines.MachineV1alpha1().
		Machines(p.Namespace).
		Patch(t.Context(), m.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	p.Remove(t, m.Name)
	p.AwaitDeleted(t, m)
	require.NoError(t, r.Kube.AppsV1().StatefulSets(p.Namespace).Delete(t.Context(), "db", metav1.DeleteOptions{}))
	require.NoError(t, r.Kube.AppsV1().Deployments(p.Namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	remove(t, p)
}

// A machine that is preserved, and one whose node is updated in place: conditions, taints and annotations of nodes.
func preserved(t *testing.T) {
	p := pool(t, "preserved", 1)
	m := p.Machines(t)[0]
	machines := r.Machines.MachineV1alpha1().Machines(p.Namespace)
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
			n, err := r.Kube.CoreV1().Nodes().Get(t.Context(), m.Labels[v1alpha1.LabelNode], metav1.GetOptions{})
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
	_, err = r.Stack.Kubectl(
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
	remove(t, p)
}

// An instance without a machine is found twice, and goes.
func orphan(t *testing.T) {
	p := pool(t, "orphan", 1)
	lost := r.CreateByHand(t, p.Namespace, p.Namespace+"-lost")
	const confirm = time.Second
	handle := r.Sweeps(t, p.Namespace, confirm)
	rig.Eventually(t, "the instance is collected", func() (bool, any) {
		seen, err := handle.Describe(t.Context())
		require.NoError(t, err)
		if n := len(seen.Info.RecentActions); n > 0 && len(seen.Info.RunningWorkflows) == 0 {
			var last workflowsorphan.Result
			id := seen.Info.RecentActions[n-1].StartWorkflowResult.WorkflowID
			require.NoError(t, r.Temporal.GetWorkflow(t.Context(), id, "").Get(t.Context(), &last))
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
	remove(t, p)
}

// A machine whose node is deleted by hand is replaced.
func replaced(t *testing.T) {
	p := pool(t, "replaced", 1)
	m := p.Machines(t)[0]
	require.NoError(t, r.Kube.CoreV1().Nodes().Delete(t.Context(), m.Labels[v1alpha1.LabelNode], metav1.DeleteOptions{}))
	p.AwaitDeleted(t, m)
	p.AwaitRunning(t, 1)
	remove(t, p)
}

// Processes that begin again find the leases of those before.
func restarted(t *testing.T) {
	for _, name := range []string{component.Worker, component.Bridge, component.ProviderWorker} {
		require.NoError(t, r.Stack.Restart(t.Context(), name))
	}
}
