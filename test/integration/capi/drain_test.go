//go:build integration

package capi

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// Annotations of the drain of a machine.
const (
	drainOptIn = "drain.machine.sapcloud.io/cluster-api"
	drainHook  = "pre-drain.delete.hook.machine.cluster.x-k8s.io/millwright"
	noDrain    = "machine.cluster.x-k8s.io/exclude-node-draining"
)

// drained is a pool whose machines Millwright drains. Their Nodes, pods and budgets are in the management cluster,
// because the API servers of the development provider have no evictions: the Secret of the Cluster names the management
// cluster once its machines run. Cluster API keeps its connection to the API server in the provider's memory.
func drainedPool(t *testing.T, name string, replicas int) pool {
	t.Helper()
	s := newSpace(t, name, "plane.yaml")
	s.awaitMachines(t, 0)
	s.merge(t, clusters, s.name, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, drainOptIn))
	p := s.newPool(t, name, replicas)
	p.awaitStatus(t, replicas)
	all := p.joined(t, replicas)
	for _, m := range all {
		require.Contains(t, m.GetAnnotations(), drainHook, "the Cluster opts in")
		require.Contains(t, m.GetAnnotations(), noDrain)
	}
	s.merge(t, controlPlanes, s.name, `{"metadata":{"annotations":{"cluster.x-k8s.io/paused":""}}}`)
	s.connect(t, managementKubeconfig(t))
	for _, m := range all {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeOf(m)}}
		node.Spec.ProviderID, _, _ = unstructured.NestedString(m.Object, "spec", "providerID")
		_, err := r.Kube.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = r.Kube.CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{})
		})
	}
	return p
}

// managementKubeconfig is the kubeconfig of the tests, with its certificates in it.
func managementKubeconfig(t *testing.T) []byte {
	t.Helper()
	config, err := clientcmd.LoadFromFile(r.Stack.Kubeconfig(component.Test))
	require.NoError(t, err)
	require.NoError(t, clientcmdapi.FlattenConfig(config))
	text, err := clientcmd.Write(*config)
	require.NoError(t, err)
	return text
}

// connect writes the kubeconfig of the Cluster.
func (s space) connect(t *testing.T, kubeconfig []byte) {
	t.Helper()
	secrets := r.Kube.CoreV1().Secrets(s.name)
	secret, err := secrets.Get(t.Context(), s.name+"-kubeconfig", metav1.GetOptions{})
	require.NoError(t, err)
	secret.Data["value"] = kubeconfig
	_, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// joined waits until so many machines name their nodes, and returns the machines. Cluster API writes the conditions of
// a machine first and the rest of the status in another request: a machine can be Ready before it names its node.
func (p pool) joined(t *testing.T, n int) (all []unstructured.Unstructured) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("%d machines name their nodes", n), func() (bool, any) {
		all = p.members(t)
		var names []string
		for _, m := range all {
			if name := nodeOf(m); name != "" {
				names = append(names, name)
			}
		}
		return len(names) == n && len(all) == n, names
	})
	return all
}

func nodeOf(m unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(m.Object, "status", "nodeRef", "name")
	return name
}

// place puts a ready pod on a node, with labels. No kubelet runs it: end() removes it after its deletion was requested.
func (s space) place(t *testing.T, name, node string, labels map[string]string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: new(int64(60)),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}},
			Containers:  []corev1.Container{{Name: "c", Image: "example.com/none"}},
		},
	}
	pods := r.Kube.CoreV1().Pods(s.name)
	pod, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod, err = pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	return pod
}

// budget makes a disruption budget that keeps one pod with the label app.
func (s space) budget(t *testing.T, app string) {
	t.Helper()
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: app}}
	b.Spec.MinAvailable = new(intstr.FromInt32(1))
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	_, err := r.Kube.PolicyV1().PodDisruptionBudgets(s.name).Create(t.Context(), b, metav1.CreateOptions{})
	require.NoError(t, err)
}

// told waits until the deletion of a pod is requested, and removes the pod, as a kubelet does.
func (s space) told(t *testing.T, name string) {
	t.Helper()
	pods := r.Kube.CoreV1().Pods(s.name)
	rig.Eventually(t, "pod "+name+" has a deletion timestamp", func() (bool, any) {
		pod, err := pods.Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && pod.DeletionTimestamp != nil, err
	})
	require.NoError(t, pods.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
}

// stays asserts that the deletion of a pod is not requested.
func (s space) stays(t *testing.T, name string) {
	t.Helper()
	pod, err := r.Kube.CoreV1().Pods(s.name).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Nil(t, pod.DeletionTimestamp)
}

// awaitBlocked waits until the condition Drained of a machine says that its drain is blocked, with this text.
func (s space) awaitBlocked(t *testing.T, machine, part string) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("Drained is False/Blocked with %q", part), func() (bool, any) {
		is, why, text := conditionOf(t, s.get(t, machines, machine), "Drained")
		return is == "False" && why == "Blocked" && strings.Contains(text, part), fmt.Sprint(is, " ", why, " ", text)
	})
}

func (s space) awaitMachineGone(t *testing.T, name string) {
	t.Helper()
	rig.Eventually(t, "machine "+name+" is gone", func() (bool, any) {
		m, err := s.of(machines).Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		_, reason, message := conditionOf(t, m, "Deleting")
		return false, fmt.Sprint(reason, " ", message, " ", m.GetAnnotations())
	})
}

// evicted returns how often an eviction of each pod of the space was accepted.
func (s space) evicted(t *testing.T) map[string]int {
	t.Helper()
	times := map[string]int{}
	for _, a := range r.Audit(t, func(a rig.Audited) bool {
		return a.ObjectRef.Namespace == s.name && a.ObjectRef.Subresource == "eviction" && a.ResponseStatus.Code == 201
	}) {
		times[a.ObjectRef.Name]++
	}
	return times
}

// A budget blocks the drain that Millwright does in place of Cluster API; the machine and the command line say which
// budget. The worker is killed meanwhile. Once the budget allows it, the pod is evicted once, and Cluster API goes on
// with the deletion.
func TestABudgetBlocksAndTheMachineGoesOnceItAllows(t *testing.T) {
	t.Parallel()
	p := drainedPool(t, "budgeted", 1)
	m := p.members(t)[0]
	name, node := m.GetName(), nodeOf(m)
	p.place(t, "web", node, map[string]string{"app": "web"})
	p.place(t, "other", node, nil)
	p.budget(t, "web")

	p.resize(t, 0)
	p.told(t, "other")
	budget := "PodDisruptionBudget " + p.name + "/web"
	p.awaitBlocked(t, name, budget)
	_, reason, message := conditionOf(t, p.get(t, machines, name), "Deleting")
	assert.Equal(t, "WaitingForPreDrainHook", reason)
	assert.Contains(t, message, drainHook)
	cordoned, err := r.Kube.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	require.NoError(t, err)
	assert.True(t, cordoned.Spec.Unschedulable)

	crash(t, component.Worker)
	text := strings.Join(r.Millwright(t, "drain", "explain", p.name+"/"+name), "\n")
	assert.Contains(t, text, budget)
	assert.Contains(t, text, "means Evict")
	list := strings.Join(r.Millwright(t, "drain", "list", "-n", p.name), "\n")
	assert.Contains(t, list, budget)
	p.stays(t, "web")

	_, err = r.Kube.PolicyV1().
		PodDisruptionBudgets(p.name).
		Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"minAvailable":0}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	p.told(t, "web")
	p.awaitMachineGone(t, name)
	assert.Equal(t, map[string]int{"web": 1, "other": 1}, p.evicted(t))
}

// One machine for each subtest: what Millwright's drain does for a machine of Cluster API.
func TestDrainsForClusterAPI(t *testing.T) {
	t.Parallel()
	p := drainedPool(t, "drains", 5)
	all := p.members(t)
	next := func(t *testing.T) (name, node string) {
		t.Helper()
		m := all[0]
		all = all[1:]
		return m.GetName(), nodeOf(m)
	}
	remove := func(t *testing.T, name string) {
		t.Helper()
		p.merge(t, machines, name, `{"metadata":{"annotations":{"cluster.x-k8s.io/delete-machine":""}}}`)
		p.resize(t, len(all))
		rig.Eventually(t, "machine "+name+" is deleted", func() (bool, any) {
			m := p.get(t, machines, name)
			return m.GetDeletionTimestamp() != nil, m.GetAnnotations()
		})
	}

	t.Run("rules of Cluster API order pods, keep them, and wait for their work", func(t *testing.T) {
		name, node := next(t)
		for rule, spec := range map[string]string{
			"late": `{"drain":{"behavior":"Drain","order":10},"pods":[{"selector":{"matchLabels":{"app":"late"}}}]}`,
			"job":  fmt.Sprintf(`{"drain":{"behavior":"WaitCompleted"},"machines":[{"clusterSelector":{"matchLabels":{"team":"blue"}}}],"pods":[{"selector":{"matchLabels":{"app":"job"}},"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":%q}}}]}`, p.name),
		} {
			p.rule(t, rule, spec)
		}
		p.merge(t, clusters, p.name, `{"metadata":{"labels":{"team":"blue"}}}`)
		p.place(t, "early", node, nil)
		p.place(t, "late", node, map[string]string{"app": "late"})
		p.place(t, "job", node, map[string]string{"app": "job"})
		p.place(t, "kept", node, map[string]string{"cluster.x-k8s.io/drain": "Skip"})
		remove(t, name)
		p.told(t, "early")
		p.awaitBlocked(t, name, "waits for "+p.name+"/job to complete")
		p.stays(t, "late")
		done, err := r.Kube.CoreV1().Pods(p.name).Get(t.Context(), "job", metav1.GetOptions{})
		require.NoError(t, err)
		done.Status.Phase = corev1.PodSucceeded
		_, err = r.Kube.CoreV1().Pods(p.name).UpdateStatus(t.Context(), done, metav1.UpdateOptions{})
		require.NoError(t, err)
		p.told(t, "late")
		p.awaitMachineGone(t, name)
		p.stays(t, "kept")
		p.stays(t, "job")
	})
	t.Run("hold, resume, and skip", func(t *testing.T) {
		name, node := next(t)
		p.place(t, "blocked", node, map[string]string{"app": "blocked"})
		p.budget(t, "blocked")
		r.Millwright(t, "drain", "hold", "--in-advance", "--reason", "a look at the node", p.name+"/"+name)
		remove(t, name)
		p.awaitBlocked(t, name, "a look at the node")
		r.Millwright(t, "drain", "resume", p.name+"/"+name)
		p.awaitBlocked(t, name, "PodDisruptionBudget "+p.name+"/blocked")
		r.Millwright(t, "drain", "retry", p.name+"/"+name)
		_, err := r.TryMillwright(t, "drain", "extend", "--for", "1h", p.name+"/"+name)
		assert.ErrorContains(t, err, "nodeDrainTimeoutSeconds is not set")
		_, err = r.TryMillwright(t, "drain", "abandon-instance", "--yes", "--reason", "x", p.name+"/"+name)
		assert.ErrorContains(t, err, "of Cluster API")
		r.Millwright(t, "drain", "skip", "--reason", "nothing to save", p.name+"/"+name)
		p.awaitMachineGone(t, name)
		p.stays(t, "blocked")
	})
	t.Run("the timeout ends the evictions, and the ladder goes on", func(t *testing.T) {
		name, node := next(t)
		p.place(t, "slow", node, map[string]string{"app": "slow"})
		p.budget(t, "slow")
		remove(t, name)
		p.awaitBlocked(t, name, "PodDisruptionBudget "+p.name+"/slow")
		p.merge(t, machineSets, p.set, `{"spec":{"template":{"spec":{"deletion":{"nodeDrainTimeoutSeconds":1}}}}}`)
		p.told(t, "slow")
		p.awaitMachineGone(t, name)
		assert.NotContains(t, p.evicted(t), "slow", "it was deleted, whatever its budget says")
		p.merge(t, machineSets, p.set, `{"spec":{"template":{"spec":{"deletion":null}}}}`)
	})
	t.Run("a cluster that cannot be reached", func(t *testing.T) {
		const secret = "canary-of-a-kubeconfig"
		name, node := next(t)
		p.place(t, "far", node, nil)
		p.connect(t, []byte("users: ["+secret))
		remove(t, name)
		p.awaitBlocked(t, name, fmt.Sprintf("Secret %s/%s-kubeconfig: the value of value is no kubeconfig", p.name, p.name))
		text := strings.Join(r.Millwright(t, "drain", "explain", p.name+"/"+name), "\n")
		assert.Contains(t, text, "the nodes of Cluster "+p.name+" cannot be read")
		places, _, err := r.Leaks(t.Context(), secret)
		require.NoError(t, err)
		assert.Empty(t, places)
		p.connect(t, managementKubeconfig(t))
		p.told(t, "far")
		p.awaitMachineGone(t, name)
	})
	t.Run("opted out, and handed over", func(t *testing.T) {
		name, _ := next(t)
		hooked := func(want bool) {
			t.Helper()
			rig.Eventually(t, fmt.Sprintf("the machine has the hook: %v", want), func() (bool, any) {
				has := p.get(t, machines, name).GetAnnotations()
				_, hook := has[drainHook]
				_, excluded := has[noDrain]
				return hook == want && excluded == want, has
			})
		}
		p.merge(t, machineSets, p.set, fmt.Sprintf(`{"metadata":{"annotations":{%q:"false"}}}`, drainOptIn))
		hooked(false)
		p.merge(t, machineSets, p.set, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, drainOptIn))
		hooked(true)
		p.give(t, component.UpstreamFilter, theirFinalizer)
		hooked(false)
	})
}

// rule makes a MachineDrainRule of Cluster API.
func (s space) rule(t *testing.T, name, spec string) {
	t.Helper()
	o := &unstructured.Unstructured{
		Object: map[string]any{
			"apiVersion": "cluster.x-k8s.io/v1beta2",
			"kind":       "MachineDrainRule",
			"metadata":   map[string]any{"name": name},
		},
	}
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(spec), &fields))
	o.Object["spec"] = fields
	_, err := s.of(kind("", "machinedrainrules")).Create(t.Context(), o, metav1.CreateOptions{})
	require.NoError(t, err)
}
