// Tier: test-all. The package tests the local stack, which all other packages use.

//go:build integration

// Package devstack shows that the local stack behaves as a real cluster does, that each of its processes can be killed,
// and that no process outlives the stack.
package devstack

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"millwright/devstack/build"
	"millwright/devstack/component"
	"millwright/devstack/stack"
)

const (
	// awaitTimeout is long because tests share two processor cores with compilers.
	awaitTimeout = 3 * time.Minute
	pollInterval = 50 * time.Millisecond
)

// startStack starts a stack with its own folder and ports. The stack stops at the end of the test.
func startStack(t *testing.T, components ...string) *stack.Stack {
	t.Helper()
	dir := t.TempDir()
	s, err := stack.Up(t.Context(), stack.Options{
		Dir: dir, UseFreePorts: true, EndsWithThisProcess: true, Components: components, Output: t.Output(),
	})
	t.Cleanup(func() { assert.NoError(t, stack.Down(context.Background(), dir)) })
	require.NoError(t, err)
	return s
}

func newClient(t *testing.T, s *stack.Stack, identity string) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.KubeconfigPath(identity))
	require.NoError(t, err)
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return clients
}

// commandLinesWithFolder returns the command lines of all processes that contain the folder. The command lines of all
// processes of a stack contain the stack's folder.
func commandLinesWithFolder(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var found []string
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err == nil && bytes.Contains(line, []byte(dir)) { // an error means that the process has ended
			found = append(found, string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return found
}

func requireNoProcessWithFolder(t *testing.T, dir string) {
	t.Helper()
	require.Eventually(
		t,
		func() bool { return len(commandLinesWithFolder(t, dir)) == 0 },
		awaitTimeout,
		pollInterval,
		"left: %v",
		commandLinesWithFolder(t, dir),
	)
}

// pidsByComponent returns the process ID of each component of a stack.
func pidsByComponent(t *testing.T, s *stack.Stack) map[string]int {
	t.Helper()
	status, err := s.Status(t.Context())
	require.NoError(t, err)
	found := map[string]int{}
	for _, c := range status {
		found[c.Name] = c.Process.PID
	}
	return found
}

func componentState(t *testing.T, s *stack.Stack, name string) stack.ComponentState {
	t.Helper()
	status, err := s.Status(t.Context())
	require.NoError(t, err)
	for _, c := range status {
		if c.Name == name {
			return c.State
		}
	}
	return ""
}

func TestKilledComponentIsRestarted(t *testing.T) {
	s := startStack(t, component.ControllerManager)
	before := pidsByComponent(t, s)
	require.Len(t, before, 3, "what it needs, and no more")

	again, err := stack.Up(t.Context(), stack.Options{Dir: s.Dir(), Components: []string{component.ControllerManager}})
	require.NoError(t, err)
	assert.Equal(t, before, pidsByComponent(t, again), "a second up changes nothing")

	clients := newClient(t, s, component.TestIdentity)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "before"}}
	_, err = clients.CoreV1().ConfigMaps("default").Create(t.Context(), config, metav1.CreateOptions{})
	require.NoError(t, err)

	require.NoError(t, s.KillComponent(t.Context(), component.APIServer))
	assert.Equal(t, stack.StateExited, componentState(t, s, component.APIServer))
	_, err = clients.CoreV1().ConfigMaps("default").Get(t.Context(), "before", metav1.GetOptions{})
	require.Error(t, err)
	require.NoError(t, s.KillComponent(t.Context(), component.APIServer), "killing the dead")

	require.NoError(t, s.StartComponent(t.Context(), component.APIServer))
	_, err = clients.CoreV1().ConfigMaps("default").Get(t.Context(), "before", metav1.GetOptions{})
	require.NoError(t, err, "usable at once, on the old port, with the old data")
	after := pidsByComponent(t, s)
	assert.NotEqual(t, before[component.APIServer], after[component.APIServer])
	assert.Equal(t, before[component.Etcd], after[component.Etcd])

	require.NoError(t, s.KillComponent(t.Context(), component.ControllerManager))
	_, err = stack.Up(t.Context(), stack.Options{Dir: s.Dir(), Components: []string{component.ControllerManager}})
	require.NoError(t, err)
	assert.Equal(t, stack.StateReady, componentState(t, s, component.ControllerManager), "up starts what has died")

	require.NoError(t, s.SignalComponent(t.Context(), component.ControllerManager, syscall.SIGSTOP))
	require.Eventually(
		t,
		func() bool { return componentState(t, s, component.ControllerManager) == stack.StatePaused },
		awaitTimeout,
		pollInterval,
	)
	require.NoError(t, s.SignalComponent(t.Context(), component.ControllerManager, syscall.SIGCONT))
	require.Eventually(
		t,
		func() bool { return componentState(t, s, component.ControllerManager) == stack.StateReady },
		awaitTimeout,
		pollInterval,
	)

	out, err := s.RunKubectl(t.Context(), "get", "configmap", "before", "-o", "name")
	require.NoError(t, err)
	assert.Equal(t, "configmap/before\n", string(out))
	_, err = s.RunKubectl(t.Context(), "get", "nonsense")
	require.ErrorContains(t, err, "nonsense")
	assert.ErrorContains(t, s.KillComponent(t.Context(), component.Worker), "no component")

	audit, err := os.ReadFile(s.AuditLogPath())
	require.NoError(t, err)
	assert.Contains(t, string(audit), `"username":"test"`)
	assert.NotContains(t, string(audit), `"username":"system:kube-controller-manager"`)

	require.NoError(t, s.Down(t.Context()))
	assert.Empty(t, commandLinesWithFolder(t, s.Dir()))
	_, err = stack.Open(s.Dir())
	assert.ErrorIs(t, err, stack.ErrNotRunning)
}

func TestStacksRunSideBySide(t *testing.T) {
	one, two := startStack(t, component.APIServer), startStack(t, component.APIServer)
	assert.NotEqual(t, one.APIServerURL(), two.APIServerURL())
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	_, err := newClient(
		t,
		one,
		component.TestIdentity,
	).CoreV1().
		ConfigMaps("default").
		Create(t.Context(), config, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = newClient(
		t,
		two,
		component.TestIdentity,
	).CoreV1().
		ConfigMaps("default").
		Get(t.Context(), "mine", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)

	require.NoError(t, one.Down(t.Context()))
	requireNoProcessWithFolder(t, one.Dir())
	_, err = newClient(
		t,
		two,
		component.TestIdentity,
	).CoreV1().
		Namespaces().
		Get(t.Context(), "default", metav1.GetOptions{})
	require.NoError(t, err, "the other one lives")
}

// The test starts the whole stack, to show that components of every kind end with their supervisor.
func TestWholeStackDiesWithItsSupervisor(t *testing.T) {
	s := startStack(t)
	state, err := s.State()
	require.NoError(t, err)
	t.Logf("ready after %s", state.StartDuration)

	product := newClient(t, s, component.BridgeIdentity)
	_, err = product.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err, "the bridge may look")
	err = product.CoreV1().Nodes().Delete(t.Context(), "any", metav1.DeleteOptions{})
	require.True(t, apierrors.IsForbidden(err), "and touch nothing: %v", err)
	out, err := s.RunKubectl(t.Context(), "get", "machines,machinesets,machinedeployments,machineclasses")
	require.NoError(t, err, "%s", out)

	require.Greater(t, len(commandLinesWithFolder(t, s.Dir())), len(component.Names())-2)
	require.NoError(t, syscall.Kill(state.Supervisor.PID, syscall.SIGKILL))
	requireNoProcessWithFolder(t, s.Dir())
	_, err = stack.Open(s.Dir())
	require.ErrorIs(t, err, stack.ErrNotRunning)

	again, err := stack.Up(
		t.Context(),
		stack.Options{Dir: s.Dir(), UseFreePorts: true, EndsWithThisProcess: true, Output: t.Output()},
	)
	require.NoError(t, err, "up on the stale state and the old data")
	require.NoError(t, again.Down(t.Context()))
	assert.Empty(t, commandLinesWithFolder(t, s.Dir()))
}

func TestAttachedStackEndsWithItsParentProcess(t *testing.T) {
	repo, err := build.FindRepo("")
	require.NoError(t, err)
	products, err := build.Products(t.Context(), repo, t.Output(), build.DevstackFolder)
	require.NoError(t, err)
	dir := t.TempDir()
	owner := exec.Command(
		products[build.DevstackFolder],
		"up",
		"--attached",
		"--free-ports",
		"--components",
		component.Etcd,
		"--dir",
		dir,
	)
	require.NoError(t, owner.Start())
	require.Eventually(t, func() bool {
		s, err := stack.Open(dir)
		return err == nil && componentState(t, s, component.Etcd) == stack.StateReady
	}, awaitTimeout, pollInterval)

	require.NoError(t, owner.Process.Kill())
	_ = owner.Wait()
	requireNoProcessWithFolder(t, dir)
}

func TestUnfinishedStartIsCleanedUp(t *testing.T) {
	for name, interrupt := range map[string]func(cancel func(), dir string) error{
		"down":   func(_ func(), dir string) error { return stack.Down(t.Context(), dir) },
		"cancel": func(cancel func(), _ string) error { cancel(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			failed := make(chan error, 1)
			go func() {
				_, err := stack.Up(ctx, stack.Options{Dir: dir, UseFreePorts: true, Components: []string{component.APIServer}})
				failed <- err
			}()
			require.Eventually(t, func() bool {
				s, err := stack.Open(dir)
				return err == nil && pidsByComponent(t, s)[component.Etcd] != 0
			}, awaitTimeout, pollInterval)
			require.NoError(t, interrupt(cancel, dir))
			require.Error(t, <-failed)
			assert.Empty(t, commandLinesWithFolder(t, dir))
		})
	}
}

func TestComponentThatCannotStartSaysWhy(t *testing.T) {
	dir := t.TempDir()
	_, err := stack.Up(t.Context(), stack.Options{
		Dir: dir, UseFreePorts: true, EndsWithThisProcess: true, Components: []string{component.APIServer},
		Args: map[string][]string{component.APIServer: {"--no-such-flag"}},
	})
	require.ErrorContains(t, err, "start kube-apiserver: it ended before it was ready")
	require.ErrorContains(t, err, "unknown flag: --no-such-flag", "with the end of its log")
	requireNoProcessWithFolder(t, dir)
	require.NoError(t, stack.Down(t.Context(), dir))
}
