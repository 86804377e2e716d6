//go:build integration && bench

package takeover

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/test/integration/rig"
)

const (
	pairCount   = 10 // number of clusters, each with the two processes of MCM
	settlePause = time.Minute
	idleTime    = 5 * time.Minute
)

// TestTenPairsOfMCMRest measures what ten clusters without machines cost with MCM: the memory and the processor time of
// the twenty processes, and their requests to the control cluster and the target clusters.
func TestTenPairsOfMCMRest(t *testing.T) {
	killComponents(t, component.Bridge, component.Worker)
	var processes []stack.Process
	for n := range pairCount {
		namespace := fmt.Sprintf("rest-%d", n)
		testRig.CreateNamespace(t, namespace, "")
		processes = append(processes, testRig.StartMCMPair(
			t, namespace,
			"--leader-elect-lease-duration", "15s", "--leader-elect-renew-deadline", "10s", "--leader-elect-retry-period", "2s",
		)...)
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
