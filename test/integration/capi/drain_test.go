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
	drainOptInAnnotation   = "drain.machine.sapcloud.io/cluster-api"
	drainHookAnnotation    = "pre-drain.delete.hook.machine.cluster.x-k8s.io/millwright"
	excludeDrainAnnotation = "machine.cluster.x-k8s.io/exclude-node-draining"
)

// newPoolWithDrains makes a pool whose machines Millwright drains. The machines' Nodes, pods and budgets are in the
// management cluster, because the API servers of the development provider have no evictions. When the machines run, the
// kubeconfig Secret of the Cluster is changed to the management cluster. Cluster API keeps its connection to the API
// server in the provider's memory.
func newPoolWithDrains(t *testing.T, name string, replicas int) pool {
	t.Helper()
	s := newNamespace(t, name, "plane.yaml")
	s.awaitMachines(t, 0)
	s.applyMergePatch(
		t,
		clusterResource,
		s.name,
		fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, drainOptInAnnotation),
	)
	p := s.newPool(t, name, replicas)
	p.awaitReplicaStatus(t, replicas)
	all := p.awaitJoinedMachines(t, replicas)
	for _, m := range all {
		require.Contains(t, m.GetAnnotations(), drainHookAnnotation, "the Cluster opts in")
		require.Contains(t, m.GetAnnotations(), excludeDrainAnnotation)
	}
	s.applyMergePatch(t, controlPlaneResource, s.name, `{"metadata":{"annotations":{"cluster.x-k8s.io/paused":""}}}`)
	s.writeKubeconfigSecret(t, managementKubeconfig(t))
	for _, m := range all {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeNameOfMachine(m)}}
		node.Spec.ProviderID, _, _ = unstructured.NestedString(m.Object, "spec", "providerID")
		_, err := testRig.Kube.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = testRig.Kube.CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{})
		})
	}
	return p
}

// managementKubeconfig returns the kubeconfig of the tests with embedded certificates.
func managementKubeconfig(t *testing.T) []byte {
	t.Helper()
	config, err := clientcmd.LoadFromFile(testRig.Stack.KubeconfigPath(component.TestIdentity))
	require.NoError(t, err)
	require.NoError(t, clientcmdapi.FlattenConfig(config))
	text, err := clientcmd.Write(*config)
	require.NoError(t, err)
	return text
}

// writeKubeconfigSecret writes the kubeconfig Secret of the Cluster.
func (s testNamespace) writeKubeconfigSecret(t *testing.T, kubeconfig []byte) {
	t.Helper()
	secrets := testRig.Kube.CoreV1().Secrets(s.name)
	secret, err := secrets.Get(t.Context(), s.name+"-kubeconfig", metav1.GetOptions{})
	require.NoError(t, err)
	secret.Data["value"] = kubeconfig
	_, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// awaitJoinedMachines waits until n machines have a nodeRef, and returns the machines. Cluster API writes the
// conditions and the other status fields of a machine in two requests, so a machine can be Ready before it has a
// nodeRef.
func (p pool) awaitJoinedMachines(t *testing.T, n int) (all []unstructured.Unstructured) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("%d machines name their nodes", n), func() (bool, any) {
		all = p.listMachines(t)
		var names []string
		for _, m := range all {
			if name := nodeNameOfMachine(m); name != "" {
				names = append(names, name)
			}
		}
		return len(names) == n && len(all) == n, names
	})
	return all
}

func nodeNameOfMachine(m unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(m.Object, "status", "nodeRef", "name")
	return name
}

// placePod creates a ready pod with labels on a node. No kubelet runs the pod: awaitPodDeletion removes the pod after
// its deletion was requested.
func (s testNamespace) placePod(t *testing.T, name, node string, labels map[string]string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: new(int64(60)),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}},
			Containers:  []corev1.Container{{Name: "c", Image: "example.com/none"}},
		},
	}
	pods := testRig.Kube.CoreV1().Pods(s.name)
	pod, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod, err = pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	return pod
}

// newBudget makes a disruption budget that keeps one pod with the label app.
func (s testNamespace) newBudget(t *testing.T, app string) {
	t.Helper()
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: app}}
	b.Spec.MinAvailable = new(intstr.FromInt32(1))
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	_, err := testRig.Kube.PolicyV1().PodDisruptionBudgets(s.name).Create(t.Context(), b, metav1.CreateOptions{})
	require.NoError(t, err)
}

// awaitPodDeletion waits until the deletion of a pod is requested, and then removes the pod, as a kubelet does.
func (s testNamespace) awaitPodDeletion(t *testing.T, name string) {
	t.Helper()
	pods := testRig.Kube.CoreV1().Pods(s.name)
	rig.Eventually(t, "pod "+name+" has a deletion timestamp", func() (bool, any) {
		pod, err := pods.Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && pod.DeletionTimestamp != nil, err
	})
	require.NoError(t, pods.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
}

// requirePodNotDeleted asserts that a pod has no deletion timestamp.
func (s testNamespace) requirePodNotDeleted(t *testing.T, name string) {
	t.Helper()
	pod, err := testRig.Kube.CoreV1().Pods(s.name).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Nil(t, pod.DeletionTimestamp)
}

// awaitBlockedDrain waits until the condition Drained of a machine is False with the reason Blocked and a message
// with this text.
func (s testNamespace) awaitBlockedDrain(t *testing.T, machine, part string) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("Drained is False/Blocked with %q", part), func() (bool, any) {
		is, why, text := conditionOfObject(t, s.getObject(t, machineResource, machine), "Drained")
		return is == "False" && why == "Blocked" && strings.Contains(text, part), fmt.Sprint(is, " ", why, " ", text)
	})
}

func (s testNamespace) awaitMachineGone(t *testing.T, name string) {
	t.Helper()
	rig.Eventually(t, "machine "+name+" is gone", func() (bool, any) {
		m, err := s.resourceClient(machineResource).Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		_, reason, message := conditionOfObject(t, m, "Deleting")
		return false, fmt.Sprint(reason, " ", message, " ", m.GetAnnotations())
	})
}

// countEvictions returns how many evictions of each pod of the namespace the API server has accepted.
func (s testNamespace) countEvictions(t *testing.T) map[string]int {
	t.Helper()
	times := map[string]int{}
	for _, a := range testRig.AuditedRequests(t, func(a rig.AuditedRequest) bool {
		return a.ObjectRef.Namespace == s.name && a.ObjectRef.Subresource == "eviction" && a.ResponseStatus.Code == 201
	}) {
		times[a.ObjectRef.Name]++
	}
	return times
}

// Millwright drains a node in place of Cluster API, and a budget blocks the drain. The machine and the command line
// name the budget. The worker is killed while the budget blocks the drain. After the budget allows the eviction, the
// pod is evicted once, and Cluster API continues the deletion.
func TestBudgetBlocksADrainUntilItAllowsTheEviction(t *testing.T) {
	t.Parallel()
	p := newPoolWithDrains(t, "budgeted", 1)
	m := p.listMachines(t)[0]
	name, node := m.GetName(), nodeNameOfMachine(m)
	p.placePod(t, "web", node, map[string]string{"app": "web"})
	p.placePod(t, "other", node, nil)
	p.newBudget(t, "web")

	p.scale(t, 0)
	p.awaitPodDeletion(t, "other")
	budget := "PodDisruptionBudget " + p.name + "/web"
	p.awaitBlockedDrain(t, name, budget)
	_, reason, message := conditionOfObject(t, p.getObject(t, machineResource, name), "Deleting")
	assert.Equal(t, "WaitingForPreDrainHook", reason)
	assert.Contains(t, message, drainHookAnnotation)
	cordoned, err := testRig.Kube.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	require.NoError(t, err)
	assert.True(t, cordoned.Spec.Unschedulable)

	killAndRestartProcess(t, component.Worker)
	text := strings.Join(testRig.RunMillwright(t, "drain", "explain", p.name+"/"+name), "\n")
	assert.Contains(t, text, budget)
	assert.Contains(t, text, "means Evict")
	list := strings.Join(testRig.RunMillwright(t, "drain", "list", "-n", p.name), "\n")
	assert.Contains(t, list, budget)
	p.requirePodNotDeleted(t, "web")

	_, err = testRig.Kube.PolicyV1().
		PodDisruptionBudgets(p.name).
		Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"minAvailable":0}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	p.awaitPodDeletion(t, "web")
	p.awaitMachineGone(t, name)
	assert.Equal(t, map[string]int{"web": 1, "other": 1}, p.countEvictions(t))
}

// Each subtest has one machine, and shows one property of Millwright's drain for a machine of Cluster API.
func TestDrainsOfClusterAPIMachines(t *testing.T) {
	t.Parallel()
	p := newPoolWithDrains(t, "drains", 5)
	all := p.listMachines(t)
	next := func(t *testing.T) (name, node string) {
		t.Helper()
		m := all[0]
		all = all[1:]
		return m.GetName(), nodeNameOfMachine(m)
	}
	remove := func(t *testing.T, name string) {
		t.Helper()
		p.applyMergePatch(t, machineResource, name, `{"metadata":{"annotations":{"cluster.x-k8s.io/delete-machine":""}}}`)
		p.scale(t, len(all))
		rig.Eventually(t, "machine "+name+" is deleted", func() (bool, any) {
			m := p.getObject(t, machineResource, name)
			return m.GetDeletionTimestamp() != nil, m.GetAnnotations()
		})
	}

	t.Run("rules of Cluster API order pods, keep them, and wait for their work", func(t *testing.T) {
		name, node := next(t)
		for rule, spec := range map[string]string{
			"late": `{"drain":{"behavior":"Drain","order":10},"pods":[{"selector":{"matchLabels":{"app":"late"}}}]}`,
			"job":  fmt.Sprintf(`{"drain":{"behavior":"WaitCompleted"},"machines":[{"clusterSelector":{"matchLabels":{"team":"blue"}}}],"pods":[{"selector":{"matchLabels":{"app":"job"}},"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":%q}}}]}`, p.name),
		} {
			p.newDrainRule(t, rule, spec)
		}
		p.applyMergePatch(t, clusterResource, p.name, `{"metadata":{"labels":{"team":"blue"}}}`)
		p.placePod(t, "early", node, nil)
		p.placePod(t, "late", node, map[string]string{"app": "late"})
		p.placePod(t, "job", node, map[string]string{"app": "job"})
		p.placePod(t, "kept", node, map[string]string{"cluster.x-k8s.io/drain": "Skip"})
		remove(t, name)
		p.awaitPodDeletion(t, "early")
		p.awaitBlockedDrain(t, name, "waits for "+p.name+"/job to complete")
		p.requirePodNotDeleted(t, "late")
		done, err := testRig.Kube.CoreV1().Pods(p.name).Get(t.Context(), "job", metav1.GetOptions{})
		require.NoError(t, err)
		done.Status.Phase = corev1.PodSucceeded
		_, err = testRig.Kube.CoreV1().Pods(p.name).UpdateStatus(t.Context(), done, metav1.UpdateOptions{})
		require.NoError(t, err)
		p.awaitPodDeletion(t, "late")
		p.awaitMachineGone(t, name)
		p.requirePodNotDeleted(t, "kept")
		p.requirePodNotDeleted(t, "job")
	})
	t.Run("hold, resume, and skip", func(t *testing.T) {
		name, node := next(t)
		p.placePod(t, "blocked", node, map[string]string{"app": "blocked"})
		p.newBudget(t, "blocked")
		testRig.RunMillwright(t, "drain", "hold", "--in-advance", "--reason", "a look at the node", p.name+"/"+name)
		remove(t, name)
		p.awaitBlockedDrain(t, name, "a look at the node")
		testRig.RunMillwright(t, "drain", "resume", p.name+"/"+name)
		p.awaitBlockedDrain(t, name, "PodDisruptionBudget "+p.name+"/blocked")
		testRig.RunMillwright(t, "drain", "retry", p.name+"/"+name)
		_, err := testRig.TryRunMillwright(t, "drain", "extend", "--for", "1h", p.name+"/"+name)
		assert.ErrorContains(t, err, "nodeDrainTimeoutSeconds is not set")
		_, err = testRig.TryRunMillwright(t, "drain", "abandon-instance", "--yes", "--reason", "x", p.name+"/"+name)
		assert.ErrorContains(t, err, "of Cluster API")
		testRig.RunMillwright(t, "drain", "skip", "--reason", "nothing to save", p.name+"/"+name)
		p.awaitMachineGone(t, name)
		p.requirePodNotDeleted(t, "blocked")
	})
	t.Run("the timeout ends the evictions, and the ladder goes on", func(t *testing.T) {
		name, node := next(t)
		p.placePod(t, "slow", node, map[string]string{"app": "slow"})
		p.newBudget(t, "slow")
		remove(t, name)
		p.awaitBlockedDrain(t, name, "PodDisruptionBudget "+p.name+"/slow")
		p.applyMergePatch(
			t,
			machineSetResource,
			p.poolName,
			`{"spec":{"template":{"spec":{"deletion":{"nodeDrainTimeoutSeconds":1}}}}}`,
		)
		p.awaitPodDeletion(t, "slow")
		p.awaitMachineGone(t, name)
		assert.NotContains(t, p.countEvictions(t), "slow", "it was deleted, whatever its budget says")
		p.applyMergePatch(t, machineSetResource, p.poolName, `{"spec":{"template":{"spec":{"deletion":null}}}}`)
	})
	t.Run("a cluster that cannot be reached", func(t *testing.T) {
		const secret = "canary-of-a-kubeconfig"
		name, node := next(t)
		p.placePod(t, "far", node, nil)
		p.writeKubeconfigSecret(t, []byte("users: ["+secret))
		remove(t, name)
		p.awaitBlockedDrain(
			t,
			name,
			fmt.Sprintf("Secret %s/%s-kubeconfig: the value of value is no kubeconfig", p.name, p.name),
		)
		text := strings.Join(testRig.RunMillwright(t, "drain", "explain", p.name+"/"+name), "\n")
		assert.Contains(t, text, "the nodes of Cluster "+p.name+" cannot be read")
		places, _, err := testRig.FindSecretLeaks(t.Context(), secret)
		require.NoError(t, err)
		assert.Empty(t, places)
		p.writeKubeconfigSecret(t, managementKubeconfig(t))
		p.awaitPodDeletion(t, "far")
		p.awaitMachineGone(t, name)
	})
	t.Run("opted out, and handed over", func(t *testing.T) {
		name, _ := next(t)
		hooked := func(want bool) {
			t.Helper()
			rig.Eventually(t, fmt.Sprintf("the machine has the hook: %v", want), func() (bool, any) {
				has := p.getObject(t, machineResource, name).GetAnnotations()
				_, hook := has[drainHookAnnotation]
				_, excluded := has[excludeDrainAnnotation]
				return hook == want && excluded == want, has
			})
		}
		p.applyMergePatch(
			t,
			machineSetResource,
			p.poolName,
			fmt.Sprintf(`{"metadata":{"annotations":{%q:"false"}}}`, drainOptInAnnotation),
		)
		hooked(false)
		p.applyMergePatch(
			t,
			machineSetResource,
			p.poolName,
			fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, drainOptInAnnotation),
		)
		hooked(true)
		p.handOver(t, component.UpstreamFilterValue, upstreamSetFinalizer)
		hooked(false)
	})
}

// newDrainRule makes a MachineDrainRule of Cluster API.
func (s testNamespace) newDrainRule(t *testing.T, name, spec string) {
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
	_, err := s.resourceClient(newResource("", "machinedrainrules")).Create(t.Context(), o, metav1.CreateOptions{})
	require.NoError(t, err)
}
