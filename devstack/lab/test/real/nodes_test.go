//go:build integration

package real

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"millwright/devstack/component"
	"millwright/devstack/lab/incus"
	"millwright/devstack/lab/incus/incustest"
	"millwright/devstack/lab/parts"
	"millwright/devstack/stack"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Real pods run on three machines. The pods' addresses are reachable, logs and exec work, and a deleted pod continues
// to serve before it ends. At the end the pool is scaled to four machines, and to two.
func TestRealNodesRunRealPods(t *testing.T) {
	runParallelIfSupported(t)
	p := newRunningPool(t, "pods", 3)
	for _, m := range p.Machines(t) {
		node, err := testRig.Kube.CoreV1().Nodes().Get(t.Context(), m.Name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, m.Spec.ProviderID, node.Spec.ProviderID, "the kubelet has it from its instance")
		assert.NotEmpty(t, node.Spec.ProviderID)
	}
	p.DeployPods(t, "web", 3, withWorkload(10*time.Second, corev1.DoNotSchedule))
	pods := awaitReadyPods(t, p, 3)
	on := map[string]bool{}
	for _, pod := range pods {
		on[pod.Spec.NodeName] = true
		name, err := getWorkloadPodName(pod.Status.PodIP)
		require.NoError(t, err)
		assert.Equal(t, pod.Name, name, "it is reached by its address")
	}
	assert.Len(t, on, 3, "each node has one")

	first := pods[0]
	kubectl := func(arguments ...string) (string, error) {
		out, err := testRig.Stack.RunKubectl(t.Context(), append([]string{"--namespace", p.Namespace}, arguments...)...)
		return string(out), err
	}
	require.Eventually(t, func() bool { // the node's first pods may start before the kubelet has its certificate
		logs, err := kubectl("logs", first.Name)
		return err == nil && strings.Contains(logs, first.Name+" serves")
	}, 2*stepTimeout, pollInterval)
	_, err := kubectl("exec", first.Name, "--", "/workload", "--help")
	require.NoError(t, err)

	require.NoError(t, testRig.Kube.CoreV1().Pods(p.Namespace).Delete(t.Context(), first.Name, metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		logs, err := kubectl("logs", first.Name)
		return err == nil && strings.Contains(logs, "was told to end")
	}, 2*stepTimeout, pollInterval)
	name, err := getWorkloadPodName(first.Status.PodIP)
	require.NoError(t, err, "it serves on after SIGTERM")
	assert.Equal(t, first.Name, name)
	require.Eventually(t, func() bool {
		_, err := testRig.Kube.CoreV1().Pods(p.Namespace).Get(t.Context(), first.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, 2*stepTimeout, pollInterval)

	for _, size := range []int{4, 2} {
		p.Scale(t, size)
		p.AwaitRunningMachines(t, size)
		assert.Len(t, listInstances(t, p), size)
	}
	awaitReadyPods(t, p, 3)
}

// A machine with a wrong or expired token is refused and gets no Node. A machine with a valid token joins at the same
// time.
func TestAMachineWithAWrongTokenDoesNotJoin(t *testing.T) {
	runParallelIfSupported(t)
	c := cluster{testRig.Stack, incusServer(t), testRig.Kube}
	expired := c.createToken(t, "expird", -time.Minute)
	good := c.createToken(t, "abcdef", time.Hour)
	c.launchMachine(t, "wrong", "abcdef.0000000000000000")
	c.launchMachine(t, "expired", expired)
	for _, name := range []string{"wrong", "expired"} { // the API server refused the requests of both machines
		require.Eventually(t, func() bool {
			_, err := c.incusServer.RunIncus(
				t.Context(),
				"exec",
				name,
				"--",
				"grep",
				"-qE",
				"system:anonymous|Unauthorized",
				"/var/log/kubelet.log",
			)
			return err == nil
		}, 2*stepTimeout, pollInterval, name)
	}
	c.launchMachine(t, "good", good)
	c.awaitReadyNode(t, "good")
	for _, name := range []string{"wrong", "expired"} {
		_, err := c.clientset.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err), name)
	}
}

// Down leaves no process, mount or cgroup of a stack with a machine. After a kill of the supervisor no process is left,
// and Down removes the cgroups.
func TestStoppedStackLeavesNothingBehind(t *testing.T) {
	runParallelIfSupported(t)
	c := startCluster(t, t.TempDir())
	traces := incustest.NewLeftoverFinder(t, c.incusServer)
	c.launchMachine(t, "m-1", c.createToken(t, "abcdef", time.Hour))
	c.awaitReadyNode(t, "m-1")
	require.NotEmpty(t, traces())
	require.NoError(t, parts.StopStack(t.Context(), c.stack.Dir()))
	require.Empty(t, traces())

	c = startCluster(t, c.stack.Dir()) // the machine starts again
	traces = incustest.NewLeftoverFinder(t, c.incusServer)
	state, err := c.stack.State()
	require.NoError(t, err)
	supervisor, err := os.FindProcess(state.Supervisor.PID)
	require.NoError(t, err)
	require.NoError(t, supervisor.Kill())
	require.Eventually(t, func() bool {
		for _, trace := range traces() {
			if !strings.HasPrefix(trace, "cgroup ") {
				return false
			}
		}
		return true
	}, 2*stepTimeout, pollInterval, "all but cgroups")
	require.NoError(t, parts.StopStack(t.Context(), c.stack.Dir()))
	assert.Empty(t, traces())
}

// cluster is a running stack in which the test itself creates the machines.
type cluster struct {
	stack       *stack.Stack
	incusServer *incus.Server
	clientset   kubernetes.Interface
}

// startCluster starts a small stack in a folder.
func startCluster(t *testing.T, dir string) cluster {
	t.Helper()
	options, err := parts.Selection{WithRealMachines: true}.AddToOptions(t.Context(), stack.Options{
		Dir: dir, UseFreePorts: true, EndsWithThisProcess: true, Output: os.Stderr,
		Components: []string{component.ControllerManager, component.Bootstrap},
	})
	require.NoError(t, err)
	s, err := stack.Up(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, parts.StopStack(context.Background(), dir)) })
	server, err := parts.OpenIncus(s)
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", s.KubeconfigPath(component.TestIdentity))
	require.NoError(t, err)
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(s.LogPath(parts.Incusd))
			t.Logf("log of incusd:\n%s", log)
		}
	})
	return cluster{s, server, clients}
}

// createToken creates a bootstrap token that expires after the given time.
func (c cluster) createToken(t *testing.T, id string, expires time.Duration) string {
	t.Helper()
	const secret = "0123456789abcdef"
	_, err := c.clientset.CoreV1().Secrets(metav1.NamespaceSystem).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true",
			"expiration": time.Now().Add(expires).UTC().Format(time.RFC3339),
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return id + "." + secret
}

// launchMachine creates a container with the stack's user data, like a provider.
func (c cluster) launchMachine(t *testing.T, name, token string) {
	t.Helper()
	text, err := parts.UserData(c.stack)
	require.NoError(t, err)
	text = strings.NewReplacer("<<MACHINE_NAME>>", name, "<<BOOTSTRAP_TOKEN>>", token).Replace(text)
	_, err = c.incusServer.RunIncus(
		t.Context(),
		"launch",
		"--quiet",
		incus.NodeImageAlias,
		name,
		"--config",
		"user.user-data="+text,
	)
	require.NoError(t, err)
}

func (c cluster) awaitReadyNode(t *testing.T, name string) {
	t.Helper()
	began := time.Now()
	require.Eventually(t, func() bool {
		node, err := c.clientset.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return node.Spec.ProviderID == "incus:///default/"+name
			}
		}
		return false
	}, 2*stepTimeout, pollInterval, name)
	t.Logf("%s is ready, %s after the call", name, time.Since(began).Round(pollInterval))
}
