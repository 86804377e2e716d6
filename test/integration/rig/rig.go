// Tier: test-all. The tests in this package test the tools of the other packages.

//go:build integration

// Package rig connects the integration tests of test/integration to the local stack. The package has clients for all
// components, and pools of machines. The wait functions of the package report the last observed state when they fail.
// The package itself does not assert anything about machines.
package rig

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"millwright/api/generated/clientset/versioned"
	"millwright/devstack/build"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/devstack/virtualcloud/admin"
	"millwright/workflows/run"
)

// Installation is the name of the installation of Millwright on the stack.
const Installation run.Installation = component.ClusterName

// Rig is a running stack with clients.
type Rig struct {
	Stack         *stack.Stack
	MachineClient versioned.Interface
	Kube          kubernetes.Interface
	Cloud         *admin.Client
	Temporal      client.Client
	Proxies       *Proxies // set only if StartRigBehindProxies has started the stack
	Secrets       []string // further secrets of this stack's processes; FindSecretLeaks must not find them
}

// StartRig starts a stack and connects to it. The stack stops when this process exits. TestMain calls StartRig, and
// exits if StartRig returns an error.
func StartRig(ctx context.Context, dir string, options stack.Options) (*Rig, error) {
	options.Dir, options.UseFreePorts, options.EndsWithThisProcess, options.Output = dir, true, true, os.Stderr
	s, err := stack.Up(ctx, options)
	if err != nil {
		return nil, err
	}
	return connectToStack(s)
}

// connectToStack creates the clients of a running stack.
func connectToStack(s *stack.Stack) (*Rig, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.KubeconfigPath(component.TestIdentity))
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 500, 1000
	r := &Rig{Stack: s, Cloud: admin.NewClient(s.VirtualCloudURL())}
	if r.MachineClient, err = versioned.NewForConfig(config); err != nil {
		return nil, err
	}
	// use Protobuf, because test/checker lists all nodes several times per second
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	if r.Kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	temporal, err := s.TemporalClientOptions()
	if err != nil {
		return nil, err
	}
	temporal.Logger = log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	r.Temporal, err = client.NewLazyClient(temporal)
	return r, err
}

// Main starts a stack, runs the tests of a package on the stack, and stops the stack. If the tests have passed, Main
// searches for the canary in all output of Millwright. If the tests have failed, Main prints the ends of the logs. Main
// returns the exit code.
func Main(m *testing.M, options stack.Options, use func(*Rig)) int {
	return runOnStack(m, options, StartRig, use)
}

// MainBehindProxies runs the tests of a package as Main does, on a stack whose workers and bridges reach the API server
// through the rig's proxies.
func MainBehindProxies(m *testing.M, options stack.Options, use func(*Rig)) int {
	return runOnStack(m, options, StartRigBehindProxies, use)
}

// runOnStack runs the tests of a package as Main does. The function up starts the stack.
func runOnStack(
	m *testing.M,
	options stack.Options,
	up func(context.Context, string, stack.Options) (*Rig, error),
	use func(*Rig),
) int {
	dir, err := os.MkdirTemp("", "millwright-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r, err := up(context.Background(), dir, options)
	if err != nil {
		fmt.Fprintln(os.Stderr, "start stack:", err)
		return 1
	}
	use(r)
	code := m.Run()
	if code == 0 {
		code = r.checkOutput(context.Background())
	}
	if code != 0 {
		r.printLogs(options.WithClusterAPI)
	}
	if err := r.Stack.Down(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "stop stack:", err)
		return 1
	}
	return code
}

// printLogs prints the ends of the logs that are most useful for a failed test.
func (r *Rig) printLogs(clusterAPI bool) {
	logs := []string{component.Worker, component.Bridge, component.VirtualCloud}
	if clusterAPI {
		logs = append(logs, component.ClusterAPINames()...)
	}
	for _, component := range logs {
		text, _ := os.ReadFile(r.Stack.LogPath(component))
		fmt.Fprintf(os.Stderr, "--- end of the log of %s\n%s\n", component, text[max(0, len(text)-4000):])
	}
}

// checkOutput returns 1 if a process of the stack has written a secret, or if a run has shown a step that
// docs/reference/words.md does not list. Otherwise checkOutput returns 0.
func (r *Rig) checkOutput(ctx context.Context) int {
	return max(r.checkSecretLeaks(), r.checkStepNames(ctx))
}

// checkSecretLeaks returns 1 if a secret of the tests is in a place other than its Secret or its file, and otherwise 0.
func (r *Rig) checkSecretLeaks() int {
	places, histories, err := r.FindSecretLeaks(context.Background(), append(r.Secrets, CanaryToken)...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "look for the canary:", err)
		return 1
	}
	fmt.Fprintf(
		os.Stderr,
		"looked for the canary in %d histories, the logs, the metrics and the objects: found %d times\n",
		histories,
		len(places),
	)
	for _, place := range places {
		fmt.Fprintln(os.Stderr, "SECRET LEAKED into", place)
	}
	return min(len(places), 1)
}

// maxConditionWait is the maximum wait of a test for a condition. maxConditionWait only ends a test that would
// otherwise wait for ever, and does not measure Millwright. On a computer with two idle processors, no test waits
// longer than two minutes for a condition.
const maxConditionWait = 10 * time.Minute

// Eventually calls condition every 100 ms until condition returns true, for at most 10 minutes. The failure message
// contains the last value of saw. To test a duration, compare the times that the API server, Temporal and Millwright
// have written.
func Eventually(t *testing.T, what string, condition func() (done bool, saw any)) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		done, saw := condition()
		if done {
			return
		}
		if time.Since(began) > maxConditionWait {
			require.Failf(t, "it did not happen", "%s: not within %s; saw: %v", what, maxConditionWait, saw)
		}
	}
}

// ReadMetric returns the sum of a metric of one of Millwright's processes over all labels. ReadMetric returns 0 if the
// metric has no samples.
func (r *Rig) ReadMetric(t *testing.T, component, name string) float64 {
	t.Helper()
	text, err := r.readMetrics(t.Context(), component)
	require.NoError(t, err)
	sum := 0.0
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, name); found && (rest[0] == '{' || rest[0] == ' ') {
			var value float64
			_, err := fmt.Sscan(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' '):]), &value)
			require.NoError(t, err)
			sum += value
		}
	}
	return sum
}

// CreateNamespace creates a namespace with a MachineClass for the virtual provider and the Secret with the class's
// credentials. Class and Secret have the name "small". The Secret contains the canary.
func (r *Rig) CreateNamespace(t *testing.T, name, providerSpec string) {
	t.Helper()
	ctx := t.Context()
	_, err := r.Kube.CoreV1().
		Namespaces().
		Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = r.Kube.CoreV1().Secrets(name).Create(ctx, NewClassSecret(name), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = r.MachineClient.MachineV1alpha1().
		MachineClasses(name).
		Create(ctx, NewClass(name, providerSpec), metav1.CreateOptions{})
	require.NoError(t, err)
}

// DeleteClassAndSecret deletes the class and the Secret of a namespace. DeleteClassAndSecret waits until both are gone,
// because both have finalizers.
func (r *Rig) DeleteClassAndSecret(t *testing.T, namespace string) {
	t.Helper()
	classes, secrets := r.MachineClient.MachineV1alpha1().MachineClasses(namespace), r.Kube.CoreV1().Secrets(namespace)
	require.NoError(t, classes.Delete(t.Context(), "small", metav1.DeleteOptions{}))
	require.NoError(t, secrets.Delete(t.Context(), "small", metav1.DeleteOptions{}))
	Eventually(t, "class and Secret are gone", func() (bool, any) {
		_, noClass := classes.Get(t.Context(), "small", metav1.GetOptions{})
		_, noSecret := secrets.Get(t.Context(), "small", metav1.GetOptions{})
		return apierrors.IsNotFound(noClass) && apierrors.IsNotFound(noSecret), []error{noClass, noSecret}
	})
}

// RunMillwright runs the command millwright, requires its success, and returns the printed lines. RunMillwright builds
// the binary unless the build cache has it.
func (r *Rig) RunMillwright(t *testing.T, arguments ...string) []string {
	t.Helper()
	out, err := r.TryRunMillwright(t, arguments...)
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(out), "\n")
}

// TryRunMillwright runs the command millwright and returns its output. If the command fails, the error contains the
// output.
func (r *Rig) TryRunMillwright(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	return r.runMillwrightWithKubeconfig(t, r.Stack.KubeconfigPath(component.TestIdentity), arguments...)
}

// TryRunMillwrightAs is like TryRunMillwright, but the command has the rights of this user at the API server.
func (r *Rig) TryRunMillwrightAs(t *testing.T, user string, arguments ...string) (string, error) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(r.Stack.KubeconfigPath("admin"))
	require.NoError(t, err)
	for _, account := range config.AuthInfos {
		account.Impersonate = user
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	return r.runMillwrightWithKubeconfig(t, file, arguments...)
}

func (r *Rig) runMillwrightWithKubeconfig(t *testing.T, kubeconfig string, arguments ...string) (string, error) {
	t.Helper()
	repo, err := build.FindRepo("")
	require.NoError(t, err)
	paths, err := build.Products(t.Context(), repo, os.Stderr, build.StarterFolder)
	require.NoError(t, err)
	command := exec.CommandContext(
		t.Context(),
		paths[build.StarterFolder],
		append(arguments, "--kubeconfig", kubeconfig)...)
	command.Env = append(os.Environ(), "TEMPORAL_CONFIG_FILE="+os.DevNull, "TEMPORAL_ADDRESS="+r.Stack.TemporalAddress())
	var out, failure bytes.Buffer
	command.Stdout, command.Stderr = &out, &failure
	if err = command.Run(); err != nil {
		err = fmt.Errorf("millwright %v: %w: %s%s", arguments, err, &out, &failure)
	}
	t.Logf("millwright %s\n%s%s", strings.Join(arguments, " "), &out, &failure)
	return out.String(), err
}
