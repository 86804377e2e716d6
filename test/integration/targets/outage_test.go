//go:build integration

package targets

import (
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/drain"
	"millwright/test/integration/rig"
)

// forwarder forwards the connections to its address to an API server, so that one API server acts as many clusters.
type forwarder struct {
	baseURL string // with https://

	mu          sync.Mutex
	interrupted bool
	refused     int // number of refused connections
	connections []net.Conn
}

// startForwarder starts a forwarder that forwards each connection after a delay.
func startForwarder(t *testing.T, server string, delay time.Duration) *forwarder {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	f := &forwarder{baseURL: "https://" + listener.Addr().String()}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go f.forward(client, server, delay)
		}
	}()
	return f
}

func (f *forwarder) forward(client net.Conn, server string, delay time.Duration) {
	defer func() { _ = client.Close() }()
	f.mu.Lock()
	if f.interrupted {
		f.refused++
		f.mu.Unlock()
		return
	}
	f.connections = append(f.connections, client)
	f.mu.Unlock()
	time.Sleep(delay)
	to, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	go func() { _, _ = io.Copy(to, client) }()
	_, _ = io.Copy(client, to)
}

// interrupt closes all connections, and refuses new ones until resume is called.
func (f *forwarder) interrupt() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.interrupted = true
	for _, c := range f.connections {
		_ = c.Close()
	}
	f.connections = nil
}

// refusedCount returns the number of connections that the forwarder has refused.
func (f *forwarder) refusedCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refused
}

func (f *forwarder) resume() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.interrupted = false
}

// machineDrainTimeout is the drainTimeout of the machines. It is shorter than the outage.
const machineDrainTimeout = 40 * time.Second

// startBlockedDrain deletes a machine whose pods nobody may evict, and waits until its drain is blocked.
func startBlockedDrain(t *testing.T, p *rig.Pool) (m v1alpha1.Machine) {
	t.Helper()
	m, _ = p.MachineWithPods(t, "web")
	p.DeleteMachine(t, m.Name)
	awaitBlocker(t, p, m, drain.BlockedByBudget)
	return m
}

func readMachineAgain(t *testing.T, p *rig.Pool, m v1alpha1.Machine) v1alpha1.Machine {
	t.Helper()
	all := p.Machines(t)
	i := slices.IndexFunc(all, func(other v1alpha1.Machine) bool { return other.UID == m.UID })
	require.GreaterOrEqual(t, i, 0, "machine %s is gone", m.Name)
	return all[i]
}

// awaitBlocker waits until the status of a machine names a blocker with this prefix.
func awaitBlocker(t *testing.T, p *rig.Pool, m v1alpha1.Machine, prefix string) {
	t.Helper()
	rig.Eventually(t, "machine "+m.Name+" is blocked by "+prefix, func() (bool, any) {
		o := readMachineAgain(t, p, m).Status.CurrentOperation
		return o != nil && len(o.BlockedBy) > 0 && strings.HasPrefix(o.BlockedBy[0], prefix), o
	})
}

// While a target is down, no timeout of a drain ends, and force ends the drain.
func TestADrainWaitsForItsTarget(t *testing.T) {
	server := ""
	workerKubeconfig(t, func(c *clientcmdapi.Cluster) { server = strings.TrimPrefix(c.Server, "https://") })
	target := startForwarder(t, server, 0)
	testRig.CreateNamespace(t, "outage", `{"region":"eu","zone":"eu-1","instanceType":"small","initialize":true}`)
	p := testRig.CreatePool(t, "outage", "outage", 2, rig.WithNodeLabel, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineDrainTimeout: &metav1.Duration{Duration: machineDrainTimeout},
		}
	})
	writeKubeconfigSecret(t, "outage", workerKubeconfig(t, func(c *clientcmdapi.Cluster) { c.Server = target.baseURL }))
	p.AwaitRunningMachines(t, 2)
	p.AwaitLabelledNodes(t, 2)
	p.DeployPods(t, "web", 2)
	p.CreateBudget(t, "web", 2)

	m := startBlockedDrain(t, p)
	target.interrupt()
	awaitBlocker(t, p, m, vocabulary.BlockedByUnavailableTarget)
	down := readMachineAgain(t, p, m)
	assert.Equal(t, v1alpha1.MachineStateFailed, down.Status.LastOperation.State)
	assert.Contains(t, down.Status.LastOperation.Description, "namespace outage is not connected: ")
	assert.Nil(t, down.Status.CurrentOperation.Deadline, "no timeout ends during the outage")
	deadline := down.Status.Deletion.Drain.StartedAt.Add(machineDrainTimeout)
	rig.Eventually(
		t,
		"the deadline passes",
		func() (bool, any) { return time.Now().After(deadline.Add(10 * time.Second)), deadline },
	)
	waiting := readMachineAgain(t, p, m)
	assert.Equal(t, string(drain.MeansEvict), waiting.Status.Deletion.Drain.Means)
	target.resume()
	awaitBlocker(t, p, m, drain.BlockedByBudget)
	blocked := readMachineAgain(t, p, m)
	assert.Equal(t, string(drain.MeansEvict), blocked.Status.Deletion.Drain.Means, "the outage extends the drain")
	assert.True(t, blocked.Status.CurrentOperation.Deadline.After(deadline), blocked.Status.CurrentOperation.Deadline)
	p.AwaitMachineGone(t, m)

	p.AwaitRunningMachines(t, 2)
	p.AwaitRunningPods(t, "web", 2)
	m = startBlockedDrain(t, p)
	target.interrupt()
	awaitBlocker(t, p, m, vocabulary.BlockedByUnavailableTarget)
	_, err := testRig.MachineClient.MachineV1alpha1().Machines(p.Namespace).Patch(
		t.Context(), m.Name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+v1alpha1.LabelForceDeletion+`":"true"}}}`), metav1.PatchOptions{},
	)
	require.NoError(t, err)
	rig.Eventually(t, "the instance of the forced machine is deleted", func() (bool, any) {
		return readMachineAgain(
				t,
				p,
				m,
			).Status.Deletion.Stage == v1alpha1.MachineDeletionNode, readMachineAgain(
				t,
				p,
				m,
			).Status.Deletion
	})
	assert.Equal(t, vocabulary.DrainResultForced, readMachineAgain(t, p, m).Status.Deletion.Drain.Result)
	target.resume()
	p.AwaitMachineGone(t, m)
	p.AwaitRunningMachines(t, 2)
}
