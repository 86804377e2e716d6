//go:build integration && bench

package targets

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/observe/cache"
	"millwright/observe/target"
	"millwright/test/integration/rig"
)

// targetCount is the number of targets, and idleTime is how long the test counts the requests at rest.
const (
	targetCount = 300
	idleTime    = 5 * time.Minute
)

// deadTargetChanges change a kubeconfig so that its cluster cannot be used, in five ways.
func deadTargetChanges(t *testing.T, server string) []func(*clientcmdapi.Cluster) {
	t.Helper()
	tarpit := "https://" + startSilentServer(t)
	slow := startForwarder(t, server, 15*time.Second).address
	return []func(*clientcmdapi.Cluster){
		func(c *clientcmdapi.Cluster) { c.Server = "https://127.0.0.1:1" },
		func(c *clientcmdapi.Cluster) { c.Server = tarpit },
		func(c *clientcmdapi.Cluster) {
			c.Server = startForwarder(t, server, 0).address
			c.CertificateAuthorityData = nil
		},
		func(c *clientcmdapi.Cluster) { c.Server = slow },
		func(c *clientcmdapi.Cluster) { c.Server = "https://no-such-host.invalid" },
	}
}

// readProcessUsage is the resident memory in MiB and the processor time in seconds of worker and bridge.
func readProcessUsage(t *testing.T) map[string][2]float64 {
	t.Helper()
	list, err := testRig.Stack.Status(t.Context())
	require.NoError(t, err)
	used := map[string][2]float64{}
	for _, c := range list {
		if c.Name == component.Worker || c.Name == component.Bridge {
			used[c.Name] = [2]float64{float64(c.MemoryBytes) / (1 << 20), c.CPUTime.Seconds()}
		}
	}
	return used
}

// countRequests counts the requests of worker and bridge in the audit log since an offset, by verb and resource.
func countRequests(t *testing.T, offset int64) map[string]int {
	t.Helper()
	time.Sleep(2 * time.Second) // the API server writes the log in batches
	file, err := os.Open(testRig.Stack.AuditLogPath())
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	_, err = file.Seek(offset, io.SeekStart)
	require.NoError(t, err)
	counts, lines := map[string]int{}, bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return counts
		}
		var event struct {
			Stage, Verb, UserAgent string
			ObjectRef              struct{ Resource string }
		}
		require.NoError(t, json.Unmarshal(line, &event))
		if strings.HasPrefix(event.UserAgent, "millwright-") && event.Stage == "ResponseComplete" {
			counts[event.UserAgent+" "+event.Verb+" "+event.ObjectRef.Resource]++
		}
	}
}

// countTargetsByState counts the targets by the state that the worker reports.
func countTargetsByState(t *testing.T) map[cache.TargetState]int {
	t.Helper()
	states := map[cache.TargetState]int{}
	reports, err := testRig.Kube.CoreV1().
		ConfigMaps("default").
		Get(t.Context(), target.ReportsConfigMapName, metav1.GetOptions{})
	if err != nil {
		return states
	}
	for _, report := range target.ReadReports(reports, time.Now()) {
		states[report.State]++
	}
	return states
}

func TestThreeHundredTargetsAreServed(t *testing.T) {
	allowTargetReports(t)
	pool := createPool(t, "alone")
	writeKubeconfigSecret(t, "alone", kubeconfig(t))
	pool.AwaitRunningMachines(t, 2)
	pool.AwaitSyncedNodes(t)
	rollOnce := func(name, edition string) {
		begun := time.Now()
		pool.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"edition":"`+edition+`"}}}}}`)
		rig.Eventually(t, "the rollout has ended", func() (bool, any) {
			all := pool.Machines(t)
			old := slices.IndexFunc(all, func(m v1alpha1.Machine) bool { return m.Labels["edition"] != edition })
			return len(all) == 2 && old < 0, all
		})
		pool.AwaitRunningMachines(t, 2)
		t.Logf("a rollout of 2 machines %s: %s", name, time.Since(begun).Round(time.Millisecond))
	}
	rollOnce("alone", "2")
	time.Sleep(time.Minute)
	before := readProcessUsage(t)

	api, err := url.Parse(testRig.Stack.APIServerURL())
	require.NoError(t, err)
	dead := deadTargetChanges(t, api.Host)
	begun := time.Now()
	for n := range targetCount {
		namespace := fmt.Sprintf("target-%03d", n)
		change := func(c *clientcmdapi.Cluster) { c.Server = startForwarder(t, api.Host, 0).address }
		if n < 2*len(dead) {
			change = dead[n%len(dead)]
		}
		_, err := testRig.Kube.CoreV1().Namespaces().Create(
			t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{},
		)
		require.NoError(t, err)
		writeKubeconfigSecret(t, namespace, kubeconfig(t, change))
	}
	t.Logf("the Secrets were created in %s", time.Since(begun).Round(time.Second))
	begun = time.Now()
	rig.Eventually(t, "all good targets are Ready", func() (bool, any) {
		states := countTargetsByState(t)
		return states[cache.TargetReady] == targetCount-2*len(dead)+1, states
	})
	t.Logf("all good targets were Ready %s after the last Secret", time.Since(begun).Round(time.Second))
	time.Sleep(time.Minute)
	after := readProcessUsage(t)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		t.Logf("%s: %.0f MiB before, %.0f MiB with %d targets: %.2f MiB for a target", name,
			before[name][0], after[name][0], targetCount, (after[name][0]-before[name][0])/targetCount)
	}

	info, err := os.Stat(testRig.Stack.AuditLogPath())
	require.NoError(t, err)
	time.Sleep(idleTime)
	rested := readProcessUsage(t)
	counts := countRequests(t, info.Size())
	total := 0
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%s at rest: %d requests in %s", name, counts[name], idleTime)
		total += counts[name]
	}
	t.Logf("all requests at rest: %.1f a minute", float64(total)/idleTime.Minutes())
	for _, name := range slices.Sorted(maps.Keys(rested)) {
		t.Logf(
			"%s: %.2f s of processor time in %s, %.0f MiB",
			name,
			rested[name][1]-after[name][1],
			idleTime,
			rested[name][0],
		)
	}
	rollOnce("while ten targets are dead", "3")

	begun = time.Now()
	require.NoError(t, testRig.Stack.RestartComponent(t.Context(), component.Worker))
	rig.Eventually(t, "all good targets are Ready again", func() (bool, any) {
		ready := 0
		reports, err := testRig.Kube.CoreV1().
			ConfigMaps("default").
			Get(t.Context(), target.ReportsConfigMapName, metav1.GetOptions{})
		require.NoError(t, err)
		for _, report := range target.ReadReports(reports, time.Now()) {
			if report.State == cache.TargetReady && report.Since.After(begun) {
				ready++
			}
		}
		return ready == targetCount-2*len(dead)+1, ready
	})
	t.Logf("a new worker was connected to all good targets after %s", time.Since(begun).Round(100*time.Millisecond))
	begun = time.Now()
	require.NoError(t, testRig.Stack.RestartComponent(t.Context(), component.Bridge))
	pool.Scale(t, 3)
	pool.AwaitRunningMachines(t, 3)
	t.Logf("a new bridge had created a machine after %s", time.Since(begun).Round(100*time.Millisecond))
}
