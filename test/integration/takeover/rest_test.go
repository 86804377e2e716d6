//go:build integration && bench

package takeover

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/test/integration/rig"
)

const (
	pairCount   = 10 // number of clusters, each with the two processes of MCM
	settlePause = time.Minute
	idleTime    = 5 * time.Minute
)

// mcmArguments returns the arguments of a running component of MCM, with the namespace of another cluster and with the
// default durations of MCM's Leases.
func mcmArguments(t *testing.T, name, namespace string, port int) []string {
	t.Helper()
	list, err := testRig.Stack.Status(t.Context())
	require.NoError(t, err)
	for _, c := range list {
		if c.Name != name {
			continue
		}
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.Process.PID))
		require.NoError(t, err)
		return append(
			strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00"),
			"--namespace", namespace, "--port", strconv.Itoa(port),
			"--leader-elect-lease-duration", "15s", "--leader-elect-renew-deadline", "10s", "--leader-elect-retry-period", "2s",
		)
	}
	require.Failf(t, "no process", "component %s does not run", name)
	return nil
}

// TestTenPairsOfMCMRest measures what ten clusters without machines cost with MCM: the memory and the processor time of
// the twenty processes, and their requests to the control cluster and the target clusters.
func TestTenPairsOfMCMRest(t *testing.T) {
	killComponents(t, component.Bridge, component.Worker)
	var processes []stack.Process
	for n := range pairCount {
		namespace := fmt.Sprintf("rest-%d", n)
		testRig.CreateNamespace(t, namespace, "")
		for i, name := range []string{component.MCMManager, component.MCMMachineController} {
			arguments := mcmArguments(t, name, namespace, 17000+2*n+i)
			command := exec.CommandContext(t.Context(), arguments[0], arguments[1:]...)
			command.Stdout, command.Stderr = io.Discard, io.Discard
			require.NoError(t, command.Start())
			t.Cleanup(func() { _ = command.Wait() })
			process, err := stack.ProcessWithPID(command.Process.Pid)
			require.NoError(t, err)
			processes = append(processes, process)
		}
	}
	killComponents(t, component.MCMMachineController, component.MCMManager)
	time.Sleep(settlePause)
	cpuBefore := time.Duration(0)
	for _, p := range processes {
		cpu, _ := p.ResourceUsage()
		cpuBefore += cpu
	}
	since := time.Now()
	time.Sleep(idleTime)
	memoryBytes, cpuAfter := int64(0), time.Duration(0)
	for _, p := range processes {
		cpu, memory := p.ResourceUsage()
		cpuAfter, memoryBytes = cpuAfter+cpu, memoryBytes+memory
	}
	counts, total := map[string]int{}, 0
	for _, a := range testRig.AuditedRequests(t, func(a rig.AuditedRequest) bool {
		return a.User.Username == component.MCMIdentity && a.Stage == "ResponseComplete" &&
			a.RequestReceivedTimestamp.After(since)
	}) {
		counts[a.Verb+" "+a.ObjectRef.Resource]++
		total++
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%s: %d requests in %s", name, counts[name], idleTime)
	}
	t.Logf(
		"a cluster: %.1f MiB, %.2f s of processor time in %s, %.1f requests a minute",
		float64(memoryBytes)/(1<<20)/pairCount,
		(cpuAfter-cpuBefore).Seconds()/pairCount,
		idleTime,
		float64(total)/pairCount/idleTime.Minutes(),
	)
}
