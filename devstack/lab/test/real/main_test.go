// Tier: test-all. This package needs root and Incus.

//go:build integration

// Package real tests the local stack with real nodes: Incus containers with containerd and the Kubernetes kubelet. The
// containers join the stack's API server like machines in a cloud. The tests share one stack without simulated nodes,
// except one test, which starts its own stack.
package real

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/lab/incus"
	"millwright/devstack/lab/incus/incustest"
	"millwright/devstack/lab/parts"
	"millwright/devstack/stack"
	"millwright/test/integration/rig"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	stepTimeout  = time.Minute // timeout of steps that take seconds on an idle machine; rig.Eventually waits longer
	pollInterval = 100 * time.Millisecond
	// notReadyTimeout is the timeout until Kubernetes marks a node as not ready. The stack's node grace period is one
	// minute.
	notReadyTimeout = 2 * time.Minute
)

// testRig is the shared stack; nil if this machine cannot run real nodes.
var testRig *rig.Rig

func TestMain(m *testing.M) {
	if incus.CheckSupport() != nil {
		os.Exit(m.Run()) // each test is skipped with a reason
	}
	options, err := parts.Selection{WithRealMachines: true}.AddToOptions(context.Background(), stack.Options{
		Components: []string{component.ControllerManager, component.Scheduler, component.Worker, component.Bridge},
		Output:     os.Stderr,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(rig.Main(m, options, func(up *rig.Rig) { testRig = up }))
}

// newPool creates a pool of real machines in a namespace of its own. The pool's pods run only on the pool's nodes.
func newPool(t *testing.T, name string, replicas int32, changes ...func(*v1alpha1.MachineDeployment)) *rig.Pool {
	t.Helper()
	_, err := testRig.Kube.CoreV1().
		Namespaces().
		Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	text, err := parts.MachineClassManifest(testRig.Stack, name, rig.NewMachineSpec().Class.Name)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "class.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	_, err = testRig.Stack.RunKubectl(t.Context(), "apply", "--server-side", "--filename", file)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			logInstanceLogTails(t, name)
		}
	})
	return testRig.CreatePool(t, name, name, replicas, append(changes, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": name}
	})...)
}

// newRunningPool is like newPool, and returns when all machines run and their nodes accept pods.
func newRunningPool(t *testing.T, name string, replicas int32, changes ...func(*v1alpha1.MachineDeployment)) *rig.Pool {
	t.Helper()
	p := newPool(t, name, replicas, changes...)
	p.AwaitRunningMachines(t, int(replicas))
	p.AwaitLabelledNodes(t, int(replicas))
	return p
}

// instance is a container in the output of `incus list`.
type instance struct {
	Name   string
	Status string
	Config map[string]string
}

// logInstanceLogTails logs the ends of the boot and kubelet logs of a pool's containers.
func logInstanceLogTails(t *testing.T, pool string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := parts.OpenIncus(testRig.Stack)
	if err != nil {
		t.Log(err)
		return
	}
	list, err := s.RunIncus(ctx, "list", "--format=csv", "--columns=n", "^"+pool+"-")
	t.Logf("containers: %s %v", list, err)
	for name := range strings.FieldsSeq(string(list)) {
		text, err := s.RunIncus(
			ctx,
			"exec",
			name,
			"--",
			"tail",
			"-n",
			"8",
			"/var/log/first-boot.log",
			"/var/log/images.log",
			"/var/log/kubelet.log",
			"/etc/kubernetes/kubelet.flags",
		)
		t.Logf("%s: %s %v", name, text, err)
	}
}

// listInstances returns the containers whose names begin with the pool's name.
func listInstances(t *testing.T, p *rig.Pool) []instance {
	t.Helper()
	text, err := incusServer(t).RunIncus(t.Context(), "list", "--format=json")
	require.NoError(t, err)
	var all, found []instance
	require.NoError(t, json.Unmarshal(text, &all))
	for _, i := range all {
		if strings.HasPrefix(i.Name, p.Name+"-") {
			found = append(found, i)
		}
	}
	return found
}

func incusServer(t *testing.T) *incus.Server {
	t.Helper()
	s, err := parts.OpenIncus(testRig.Stack)
	require.NoError(t, err)
	return s
}

// runParallelIfSupported runs a test in parallel with others, and skips it on a machine that cannot run real nodes.
func runParallelIfSupported(t *testing.T) {
	t.Helper()
	incustest.RequireSupport(t)
	t.Parallel()
}

// withWorkload returns a function that changes a pod template. Pods of the changed template run the workload, which
// serves for the time linger after SIGTERM, and are spread over the nodes.
func withWorkload(linger time.Duration, spread corev1.UnsatisfiableConstraintAction) func(*corev1.PodTemplateSpec) {
	return func(template *corev1.PodTemplateSpec) {
		template.Spec.TerminationGracePeriodSeconds = new(int64(60))
		template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: spread,
			LabelSelector: &metav1.LabelSelector{MatchLabels: template.Labels},
		}}
		template.Spec.Containers = []corev1.Container{{
			Name: "serve", Image: incus.WorkloadImage, Args: []string{"--linger=" + linger.String()},
			ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(8080)},
			}},
		}}
	}
}

// awaitReadyPods waits until exactly n pods of the app "web" are ready, and returns these pods.
func awaitReadyPods(t *testing.T, p *rig.Pool, n int) []corev1.Pod {
	t.Helper()
	var ready []corev1.Pod
	rig.Eventually(t, fmt.Sprintf("%d pods are ready", n), func() (bool, any) {
		ready = nil
		for _, pod := range p.Pods(t, "web") {
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
					ready = append(ready, pod)
				}
			}
		}
		return len(ready) == n, len(ready)
	})
	return ready
}

// getWorkloadPodName sends a request to the workload at an address and returns the response, which is the name of the
// workload's pod.
func getWorkloadPodName(address string) (string, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	response, err := client.Get("http://" + net.JoinHostPort(address, "8080"))
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return strings.TrimSpace(string(text)), err
}
