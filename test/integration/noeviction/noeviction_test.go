// Tier: test-all. The package tests another kind of cluster.

//go:build integration

// Package noeviction tests a drain in a cluster that cannot evict pods, because its API server runs without policy/v1.
package noeviction

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/test/integration/rig"
)

var testRig *rig.Rig

func TestMain(m *testing.M) {
	options := stack.Options{
		Args: map[string][]string{component.APIServer: {"--runtime-config=policy/v1=false"}},
		// The scheduler would never become ready, because it would wait for its cache of disruption budgets.
		Components: slices.DeleteFunc(component.Names(), func(name string) bool { return name == component.Scheduler }),
	}
	os.Exit(rig.Main(m, options, func(up *rig.Rig) { testRig = up }))
}

// The worker starts although the API server has no disruption budgets to cache. A drain deletes pods with their own
// grace period, because it cannot evict them. A drain does not delete pods that it only waits for.
func TestDrainDeletesPodsIfEvictionIsNotServed(t *testing.T) {
	const namespace = "noeviction"
	testRig.CreateNamespace(t, namespace, `{"region":"eu","zone":"eu-1","instanceType":"small"}`)
	p := testRig.CreatePool(t, namespace, namespace, 1, rig.WithNodeLabel)
	p.AwaitRunningMachines(t, 1)
	m := p.Machines(t)[0]
	runPod(t, m, "job", func(pod *corev1.Pod) { pod.Labels = map[string]string{v1alpha1.LabelDrain: "wait-completed"} })
	for _, name := range []string{"web-0", "web-1"} {
		runPod(t, m, name, func(*corev1.Pod) {})
	}
	err := testRig.Kube.CoreV1().
		Pods(namespace).
		EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-0"}})
	require.Error(t, err, "the API server evicts nothing")
	t.Logf("what the API server answers to an eviction: %v", err)

	seen, err := testRig.Kube.CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer seen.Stop()
	p.Scale(t, 0)
	for ending := map[string]bool{}; len(ending) < 2; { // the pods terminate with their own grace period
		event, open := <-seen.ResultChan()
		require.True(t, open, "the watch has ended; terminating: %v", ending)
		if pod, isPod := event.Object.(*corev1.Pod); isPod && pod.DeletionTimestamp != nil && !ending[pod.Name] {
			require.Equal(t, int64(20), *pod.DeletionGracePeriodSeconds, pod.Name)
			ending[pod.Name] = true
		}
	}
	rig.Eventually(t, "they are gone, and the drain waits for the job", func() (bool, any) {
		left, now := podsInNamespace(t, namespace), p.Machines(t)
		return len(left) == 1 && left[0].Name == "job" && len(now) == 1 &&
			drainedCondition(now[0]).Reason == vocabulary.ReasonBlocked, now
	})
	now := p.Machines(t)[0]
	require.Equal(t, "DeleteInOrder", now.Status.Deletion.Drain.Means)
	require.Equal(t, v1alpha1.MachineStateProcessing, now.Status.LastOperation.State, "to wait is no failure")
	require.Equal(t, vocabulary.StepDeleteInOrder, now.Status.CurrentOperation.Step)
	require.Contains(t, awaitEvent(t, m, vocabulary.ReasonCannotEvict), "deletes in order")
	require.Contains(t, awaitEvent(t, m, vocabulary.ReasonCannotEvict), "the API server does not serve policy/v1")
	require.Equal(
		t,
		[]string{"delete web-0 200", "delete web-1 200"},
		listPodRequests(t, namespace),
		"no eviction is tried",
	)

	require.NoError(t, testRig.Kube.CoreV1().Pods(namespace).Delete(t.Context(), "job", metav1.DeleteOptions{}))
	rig.Eventually(t, "the machine and its instance are gone", func() (bool, any) {
		left := p.Machines(t)
		return len(left) == 0 && len(p.ProviderIDs(t)) == 0, left
	})
	require.Contains(t, awaitEvent(t, m, vocabulary.DrainResultDrained), "all pods are gone")
}

// runPod creates a pod on the node of a machine, without the scheduler, and returns when the pod runs. The pod
// terminates 5 seconds after its deletion, well within its grace period.
func runPod(t *testing.T, m v1alpha1.Machine, name string, change func(*corev1.Pod)) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{"pod-delete.stage.kwok.x-k8s.io/delay": "5s"},
		},
		Spec: corev1.PodSpec{
			NodeName:                      m.Labels[v1alpha1.LabelNode],
			TerminationGracePeriodSeconds: new(int64(20)),
			Containers:                    []corev1.Container{{Name: "c", Image: "none"}},
		},
	}
	change(pod)
	rig.Eventually(t, "pod "+name+" is made: its namespace has a service account", func() (bool, any) {
		_, err := testRig.Kube.CoreV1().Pods(m.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		return err == nil, err
	})
	rig.Eventually(t, "pod "+name+" runs", func() (bool, any) {
		now, err := testRig.Kube.CoreV1().Pods(m.Namespace).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		return now.Status.Phase == corev1.PodRunning, now.Status
	})
}

func podsInNamespace(t *testing.T, namespace string) []corev1.Pod {
	t.Helper()
	list, err := testRig.Kube.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return list.Items
}

// drainedCondition returns the condition Drained of a machine.
func drainedCondition(m v1alpha1.Machine) corev1.NodeCondition {
	for _, c := range m.Status.Conditions {
		if c.Type == v1alpha1.MachineDrained {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// awaitEvent waits for an event of a machine with this reason, and returns the event's message.
func awaitEvent(t *testing.T, m v1alpha1.Machine, reason string) (message string) {
	t.Helper()
	rig.Eventually(t, "event "+reason+" of "+m.Name, func() (bool, any) {
		events, err := testRig.Kube.CoreV1().
			Events(m.Namespace).
			List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + m.Name + ",reason=" + reason})
		require.NoError(t, err)
		for _, e := range events.Items {
			message = e.Message
		}
		return message != "", len(events.Items)
	})
	return message
}

// listPodRequests returns the worker's requests about the pods of a namespace, from the audit log, sorted.
func listPodRequests(t *testing.T, namespace string) []string {
	t.Helper()
	var found []string
	for _, line := range testRig.AuditedRequests(t, func(line rig.AuditedRequest) bool {
		return line.ObjectRef.Resource == "pods" && line.ObjectRef.Namespace == namespace && line.User.Username == component.WorkerIdentity
	}) {
		switch {
		case line.ObjectRef.Subresource == "eviction":
			found = append(found, fmt.Sprintf("evict %s %d", line.ObjectRef.Name, line.ResponseStatus.Code))
		case line.Verb == "delete":
			found = append(found, fmt.Sprintf("delete %s %d", line.ObjectRef.Name, line.ResponseStatus.Code))
		}
	}
	slices.Sort(found)
	return found
}
