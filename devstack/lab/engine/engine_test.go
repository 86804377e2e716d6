//go:build integration

package engine_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"millwright/devstack/lab/engine"
	"millwright/devstack/lab/engine/enginetest"
)

const (
	stepTimeout  = 30 * time.Second // timeout of steps that take at most a second
	pollInterval = 100 * time.Millisecond
	shellImage   = "shell:test"
)

// An engine builds an image without a registry and runs a container. After Stop nothing of the engine is left on this
// machine.
func TestStoppedEngineLeavesNothingBehind(t *testing.T) {
	enginetest.RequireSupport(t)
	e := startEngine(t)
	other := startEngine(t)
	traces, others := enginetest.NewLeftoverFinder(t, e), enginetest.NewLeftoverFinder(t, other)
	runSleepingContainer(t, e)
	out, err := e.RunDocker(t.Context(), nil, "exec", "forever", "/busybox", "cat", "/proc/self/cgroup")
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		assert.Contains(t, line, e.CgroupName, "a container is in the engine's cgroups")
	}
	assert.NotEmpty(t, traces(), "the test sees what exists of an engine")
	require.NoError(t, e.Stop(t.Context()))
	require.NoError(t, e.Stop(t.Context()), "a second time")
	assert.Empty(t, traces())

	out, err = other.RunDocker(t.Context(), nil, "ps", "--all", "--quiet")
	require.NoError(t, err, "the other one runs on")
	assert.Empty(t, out, "and has containers of its own")
	require.NoError(t, other.Stop(t.Context()))
	assert.Empty(t, others())
}

// A listener on this machine's loopback is not reachable from containers. Listen and Dial of the engine connect the two
// network namespaces.
func TestListenAndDialConnectTheNetworks(t *testing.T) {
	enginetest.RequireSupport(t)
	e := startEngine(t)
	ours, err := os.Readlink("/proc/self/ns/net") // namespace of this process's first thread
	require.NoError(t, err)
	listener, err := e.Listen("127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	address := listener.Addr().String()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(connection, "hello")
			_ = connection.Close()
		}
	}()
	_, err = net.Dial("tcp", address)
	require.Error(t, err, "the port is in the engine's network namespace only")
	const many = 50 // enough connections that every thread of this process serves at least one
	var connections errgroup.Group
	for range many {
		connections.Go(func() error {
			connection, err := e.Dial(t.Context(), address)
			if err != nil {
				return err
			}
			text, err := io.ReadAll(connection)
			if string(text) != "hello" {
				err = errors.Join(err, fmt.Errorf("read %q", text))
			}
			return errors.Join(err, connection.Close())
		})
	}
	require.NoError(t, connections.Wait())
	now, err := os.Readlink("/proc/self/ns/net")
	require.NoError(t, err)
	assert.Equal(t, ours, now, "no thread of this process stays in the engine's namespace")
}

// childFolderVariable is an environment variable of the child process that TestKilledEngineLeavesNothingBehind starts
// and kills. The variable's value is the folder of the child's engine.
const childFolderVariable = "MILLWRIGHT_TEST_ENGINE"

// When the process that started an engine is killed, the engine and its containers end. The start of the next engine
// removes the killed engine's cgroups.
func TestKilledEngineLeavesNothingBehind(t *testing.T) {
	enginetest.RequireSupport(t)
	if dir := os.Getenv(childFolderVariable); dir != "" {
		e, err := engine.Start(t.Context(), dir, engine.Options{Output: os.Stderr})
		require.NoError(t, err)
		runSleepingContainer(t, e)
		fmt.Println("engine", e.PID, e.CgroupName)
		select {} // until SIGKILL
	}
	dir := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	child.Env = append(os.Environ(), childFolderVariable+"="+dir)
	child.Stderr = os.Stderr
	output, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill() })
	killed := &engine.Engine{Dir: dir}
	for lines := bufio.NewScanner(output); killed.PID == 0 && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "engine %d %s", &killed.PID, &killed.CgroupName)
	}
	require.NotZero(t, killed.PID, "the child ended before its engine ran")
	traces := enginetest.NewLeftoverFinder(t, killed)
	require.NotEmpty(t, traces())
	require.NoError(t, child.Process.Signal(syscall.SIGKILL))
	_ = child.Wait()
	onlyCgroups := func() bool {
		for _, trace := range traces() {
			if !strings.HasPrefix(trace, "cgroup ") {
				return false
			}
		}
		return true
	}
	require.Eventually(t, onlyCgroups, stepTimeout, pollInterval)
	startEngine(t)
	assert.Empty(t, traces())
}

// startEngine starts an engine that is stopped at the end of the test.
func startEngine(t *testing.T) *engine.Engine {
	t.Helper()
	e, err := engine.Start(t.Context(), t.TempDir(), engine.Options{Output: os.Stderr})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.Stop(context.Background())) })
	return e
}

// runSleepingContainer builds an image from scratch and starts a container that sleeps.
func runSleepingContainer(t *testing.T, e *engine.Engine) {
	t.Helper()
	root, err := engine.RootFolder(t.Context(), os.Stderr)
	require.NoError(t, err)
	shell, err := os.Open(filepath.Join(root, "usr", "bin", "busybox"))
	require.NoError(t, err)
	defer func() { _ = shell.Close() }()
	build := "mkdir -p /tmp/context && cat >/tmp/context/busybox && chmod 0755 /tmp/context/busybox" +
		" && printf 'FROM scratch\nCOPY busybox /\n' | docker build --quiet --tag " + shellImage + " --file - /tmp/context"
	_, err = e.RunProgram(t.Context(), nil, shell, "busybox", "sh", "-euc", build)
	require.NoError(t, err)
	_, err = e.RunDocker(t.Context(), nil, "run", "--detach", "--name=forever", shellImage, "/busybox", "sleep", "1000000")
	require.NoError(t, err)
}
