//go:build integration

package rig

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millwright/devstack/component"
	"millwright/devstack/stack"
)

// StartMCMPair starts the two processes of a machine-controller-manager for one namespace, as Gardener runs them for a
// shoot, and returns the processes. The stack's own components MCMManager and MCMMachineController must run, because
// StartMCMPair copies their command lines. The processes end with the test.
func (r *Rig) StartMCMPair(t *testing.T, namespace string, flags ...string) (pair []stack.Process) {
	t.Helper()
	for _, name := range []string{component.MCMManager, component.MCMMachineController} {
		arguments := append(r.componentCommandLine(t, name), "--namespace", namespace, "--port", strconv.Itoa(freePort(t)))
		arguments = append(arguments, flags...)
		command := exec.CommandContext(t.Context(), arguments[0], arguments[1:]...)
		command.Stdout, command.Stderr = io.Discard, io.Discard
		require.NoError(t, command.Start())
		t.Cleanup(func() { _ = command.Wait() })
		process, err := stack.ProcessWithPID(command.Process.Pid)
		require.NoError(t, err)
		pair = append(pair, process)
	}
	return pair
}

// componentCommandLine returns the program and the arguments of a running component.
func (r *Rig) componentCommandLine(t *testing.T, name string) []string {
	t.Helper()
	list, err := r.Stack.Status(t.Context())
	require.NoError(t, err)
	for _, c := range list {
		if c.Name != name {
			continue
		}
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.Process.PID))
		require.NoError(t, err)
		return strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	}
	require.Failf(t, "no process", "component %s does not run", name)
	return nil
}

// freePort returns a port of the loopback address that no process uses now.
func freePort(t *testing.T) int {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}
