//go:build integration && bench

package targets

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/observe/cache"
	"millwright/observe/target"
	"millwright/test/integration/rig"
)

// targetCount is the number of targets, and idleMeasurementTime is how long the test counts the requests at rest.
const (
	targetCount         = 300
	idleMeasurementTime = 5 * time.Minute
)

// A Lease of a Node lasts an hour, because shorter Leases would load the API server more than Millwright does.
func init() { stackOptions.NodeLeaseDuration = time.Hour }

// unusableTargetChanges change a kubeconfig so that its cluster cannot be used, in five ways.
func unusableTargetChanges(t *testing.T, server string) []func(*clientcmdapi.Cluster) {
	t.Helper()
	tarpit := "https://" + startSilentServer(t)
	slow := startForwarder(t, server, 15*time.Second).baseURL
	return []func(*clientcmdapi.Cluster){
		func(c *clientcmdapi.Cluster) { c.Server = "https://127.0.0.1:1" },
		func(c *clientcmdapi.Cluster) { c.Server = tarpit },
		func(c *clientcmdapi.Cluster) {
			c.Server = startForwarder(t, server, 0).baseURL
			c.CertificateAuthorityData = nil
		},
		func(c *clientcmdapi.Cluster) { c.Server = slow },
		func(c *clientcmdapi.Cluster) { c.Server = "https://no-such-host.invalid" },
	}
}

// readMemoryAndCPUTime is the resident memory in MiB and the processor time in seconds of worker and bridge.
func readMemoryAndCPUTime(t *testing.T) map[string][2]float64 {
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

// countRequests counts the requests of worker and bridge since a time, by process, verb and resource.
func countRequests(t *testing.T, since time.Time) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, a := range testRig.AuditedRequests(t, func(a rig.AuditedRequest) bool {
		return strings.HasPrefix(a.UserAgent, "millwright-") && a.Stage == "ResponseComplete" &&
			a.RequestReceivedTimestamp.After(since)
	}) {
		counts[a.UserAgent+" "+a.Verb+" "+a.ObjectRef.Resource]++
	}
	return counts
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
	pool := createPool(t, "alone")
	writeKubeconfigSecret(t, "alone", workerKubeconfig(t))
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
	before := readMemoryAndCPUTime(t)

	api, err := url.Parse(testRig.Stack.APIServerURL())
	require.NoError(t, err)
	dead := unusableTargetChanges(t, api.Host)
	begun := time.Now()
	for n := range targetCount {
		namespace := fmt.Sprintf("target-%03d", n)
		change := func(c *clientcmdapi.Cluster) { c.Server = startForwarder(t, api.Host, 0).baseURL }
		if n < 2*len(dead) {
			change = dead[n%len(dead)]
		}
		testRig.CreateNamespace(t, namespace, "")
		writeKubeconfigSecret(t, namespace, workerKubeconfig(t, change))
	}
	t.Logf("the Secrets were created in %s", time.Since(begun).Round(time.Second))
	begun = time.Now()
	rig.Eventually(t, "all good targets are Ready", func() (bool, any) {
		states := countTargetsByState(t)
		return states[cache.TargetReady] == targetCount-2*len(dead)+1, states
	})
	t.Logf("all good targets were Ready %s after the last Secret", time.Since(begun).Round(time.Second))
	time.Sleep(time.Minute)
	after := readMemoryAndCPUTime(t)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		t.Logf("%s: %.0f MiB before, %.0f MiB with %d targets: %.2f MiB for a target", name,
			before[name][0], after[name][0], targetCount, (after[name][0]-before[name][0])/targetCount)
	}

	idleSince := time.Now()
	time.Sleep(idleMeasurementTime)
	rested := readMemoryAndCPUTime(t)
	counts := countRequests(t, idleSince)
	total := 0
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%s at rest: %d requests in %s", name, counts[name], idleMeasurementTime)
		total += counts[name]
	}
	t.Logf("all requests at rest: %.1f a minute", float64(total)/idleMeasurementTime.Minutes())
	for _, name := range slices.Sorted(maps.Keys(rested)) {
		t.Logf(
			"%s: %.2f s of processor time in %s, %.0f MiB",
			name,
			rested[name][1]-after[name][1],
			idleMeasurementTime,
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

// scaledPoolCount is the number of pools that are scaled at once. The API server of the stack sends each node of all
// pools to the watches of all targets, so more pools would measure this API server.
const scaledPoolCount = 60

// TestPoolsOfManyTargetsAreScaledAtOnce scales one pool for each target from 0 to 5 machines. Each target shows only
// the nodes of its own pool.
func TestPoolsOfManyTargetsAreScaledAtOnce(t *testing.T) {
	const replicas = 5
	pools := make([]*rig.Pool, scaledPoolCount)
	for n := range pools {
		name := fmt.Sprintf("pool-%03d", n)
		testRig.CreateNamespace(t, name, "")
		address := startNodeFilter(t, name+"-")
		writeKubeconfigSecret(t, name, workerKubeconfig(t, func(c *clientcmdapi.Cluster) {
			c.Server, c.CertificateAuthorityData = address, nil
		}))
		pools[n] = testRig.CreatePool(t, name, name, 0)
	}
	rig.Eventually(t, "all targets are Ready", func() (bool, any) {
		states := countTargetsByState(t)
		return states[cache.TargetReady] == scaledPoolCount, states
	})
	time.Sleep(time.Minute)
	before, begun := readMemoryAndCPUTime(t), time.Now()
	var group sync.WaitGroup
	for part := range slices.Chunk(pools, scaledPoolCount/10) {
		group.Go(func() {
			for _, p := range part {
				p.Scale(t, replicas)
			}
		})
	}
	group.Wait()
	t.Logf("the sizes of %d deployments were changed in %s", scaledPoolCount, time.Since(begun).Round(time.Millisecond))
	joined := make([]time.Duration, scaledPoolCount)
	rig.Eventually(t, "all machines run", func() (bool, any) {
		list, err := testRig.MachineClient.MachineV1alpha1().Machines("").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		running := map[string]int{}
		for _, m := range list.Items {
			if m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning {
				running[m.Namespace]++
			}
		}
		full := 0
		for n, p := range pools {
			if running[p.Namespace] == replicas {
				if full++; joined[n] == 0 {
					joined[n] = time.Since(begun)
				}
			}
		}
		return full == scaledPoolCount, full
	})
	slices.Sort(joined)
	t.Logf(
		"%d pools were scaled 0 to %d: the first ran after %s, half of them after %s, the last after %s",
		scaledPoolCount,
		replicas,
		joined[0].Round(time.Millisecond),
		joined[scaledPoolCount/2].Round(time.Millisecond),
		joined[scaledPoolCount-1].Round(time.Millisecond),
	)
	after := readMemoryAndCPUTime(t)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		t.Logf("%s: %.0f MiB before, %.0f MiB after, %.1f s of processor time", name,
			before[name][0], after[name][0], after[name][1]-before[name][1])
	}
	total := 0
	for _, count := range countRequests(t, begun) {
		total += count
	}
	t.Logf("%.1f requests a machine", float64(total)/(replicas*scaledPoolCount))
}

// startNodeFilter starts a proxy of the stack's API server that shows only the nodes whose names have a prefix. So one
// API server acts as many clusters with their own nodes.
func startNodeFilter(t *testing.T, prefix string) (address string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", testRig.Stack.KubeconfigPath(component.WorkerIdentity))
	require.NoError(t, err)
	transport, err := rest.TransportFor(config)
	require.NoError(t, err)
	api, err := url.Parse(config.Host)
	require.NoError(t, err)
	isNodeList := func(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.Path == "/api/v1/nodes" }
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(api)
			if isNodeList(r.In) {
				r.Out.Header.Set("Accept", "application/json")
				r.Out.Header.Del("Accept-Encoding")
			}
		},
		ModifyResponse: func(r *http.Response) error {
			if r.StatusCode == http.StatusOK && isNodeList(r.Request) {
				r.Body = filterNodes(r.Body, prefix, r.Request.URL.Query().Get("watch") != "")
				r.Header.Del("Content-Length")
				r.ContentLength = -1
			}
			return nil
		},
	}
	return startHTTPServer(t, proxy.ServeHTTP)
}

// filterNodes removes the nodes without a prefix from a list of nodes, or from the events of a watch.
func filterNodes(body io.ReadCloser, prefix string, isWatch bool) io.ReadCloser {
	type node struct {
		Metadata struct{ Name string }
	}
	from, to := io.Pipe()
	go func() {
		defer func() { _ = body.Close() }()
		decoder := json.NewDecoder(body)
		for {
			var document map[string]json.RawMessage
			if err := decoder.Decode(&document); err != nil {
				_ = to.CloseWithError(err)
				return
			}
			if isWatch {
				var event struct {
					Type   string
					Object node
				}
				text, _ := json.Marshal(document)
				if json.Unmarshal(text, &event) == nil && event.Type != "BOOKMARK" && event.Type != "ERROR" &&
					!strings.HasPrefix(event.Object.Metadata.Name, prefix) {
					continue
				}
			} else {
				var items []json.RawMessage
				_ = json.Unmarshal(document["items"], &items)
				document["items"], _ = json.Marshal(slices.DeleteFunc(items, func(item json.RawMessage) bool {
					var n node
					return json.Unmarshal(item, &n) != nil || !strings.HasPrefix(n.Metadata.Name, prefix)
				}))
			}
			if err := json.NewEncoder(to).Encode(document); err != nil {
				return
			}
		}
	}()
	return &nodeFilterBody{PipeReader: from, closed: body.Close}
}

// nodeFilterBody closes the answer of the API server with the filtered answer.
type nodeFilterBody struct {
	*io.PipeReader
	closed func() error
}

func (b *nodeFilterBody) Close() error {
	_ = b.PipeReader.Close()
	return b.closed()
}
