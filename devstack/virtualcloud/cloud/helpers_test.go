package cloud

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider/virtual"
)

// openCloud opens a cloud. The test closes the cloud; a test in a synctest bubble closes it before the bubble ends.
func openCloud(t *testing.T, dir string, nodes NodeClient) *Cloud {
	t.Helper()
	c, err := Open(Options{Dir: dir, NodeClient: nodes})
	require.NoError(t, err)
	return c
}

// crashCloud ends a cloud as kill -9 does: the cloud writes nothing more, and its memory is lost.
func crashCloud(t *testing.T, c *Cloud) {
	t.Helper()
	c.cancelWaits()
	c.pendingCreates.Wait()
	if c.registry != nil {
		c.registry.awaitWorkers()
	}
	require.NoError(t, c.store.close())
}

func newCreateRequest(machine string) virtual.CreateRequest {
	return virtual.CreateRequest{
		Name: machine,
		Tags: virtual.Tags{Cluster: "c1", Class: "shop/pool", MachineName: machine, MachineUID: "uid-" + machine},
		Spec: virtual.Spec{Region: "eu", Zone: "eu-1", InstanceType: "small"},
	}
}

func durationPointer(d time.Duration) *virtual.Duration { return new(virtual.Duration(d)) }

func mustCreateInstance(t *testing.T, c *Cloud, r virtual.CreateRequest) virtual.Instance {
	t.Helper()
	instance, err := c.createInstance(t.Context(), r)
	require.NoError(t, err)
	return instance
}

func editBehaviour(t *testing.T, c *Cloud, change func(*admin.Behaviour)) {
	t.Helper()
	b := c.Behaviour()
	change(&b)
	require.NoError(t, c.SetBehaviour(b))
}

// statesByName returns the states of the instances in an answer, by instance name.
func statesByName(answer virtual.ReadAnswer) map[string]string {
	shown := map[string]string{}
	for _, item := range answer.Items {
		shown[item.Name] = item.State
	}
	return shown
}

// memoryNodeClient implements Nodes in memory.
type memoryNodeClient struct {
	mu                     sync.Mutex
	isAPIServerUnavailable bool
	attemptCount           int
	providerIDs            map[string]string // provider ID, by Node name
	stoppedKubelets        []string
}

var errAPIServerUnavailable = errors.New("the API server is away")

func (m *memoryNodeClient) countAttempt() error {
	m.attemptCount++
	if m.isAPIServerUnavailable {
		return errAPIServerUnavailable
	}
	return nil
}

func (m *memoryNodeClient) Register(_ context.Context, instance virtual.Instance, _ virtual.Spec, bare bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.countAttempt(); err != nil {
		return err
	}
	if m.providerIDs == nil {
		m.providerIDs = map[string]string{}
	}
	if _, there := m.providerIDs[instance.NodeName]; !there {
		m.providerIDs[instance.NodeName] = instance.ProviderID
		if bare {
			m.providerIDs[instance.NodeName] = ""
		}
	}
	return nil
}

func (m *memoryNodeClient) Initialize(_ context.Context, instance virtual.Instance) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.countAttempt(); err != nil {
		return err
	}
	m.providerIDs[instance.NodeName] = instance.ProviderID
	return nil
}

func (m *memoryNodeClient) Remove(_ context.Context, instance virtual.Instance) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.countAttempt(); err != nil {
		return false, err
	}
	own := m.providerIDs[instance.NodeName] == instance.ProviderID
	if own {
		delete(m.providerIDs, instance.NodeName)
	}
	return own, nil
}

func (m *memoryNodeClient) StopKubelet(_ context.Context, instance virtual.Instance) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.countAttempt(); err != nil {
		return err
	}
	m.stoppedKubelets = append(m.stoppedKubelets, instance.NodeName)
	return nil
}

func (m *memoryNodeClient) nodeNames() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := []string{}
	for name := range m.providerIDs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (m *memoryNodeClient) setAPIServerUnavailable(away bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.isAPIServerUnavailable = away
}
