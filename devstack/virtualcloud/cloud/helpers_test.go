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

// open opens a cloud that the test closes. In a synctest bubble, close it explicitly before the bubble ends.
func open(t *testing.T, dir string, nodes Nodes) *Cloud {
	t.Helper()
	c, err := Open(Options{Dir: dir, Nodes: nodes})
	require.NoError(t, err)
	return c
}

// crash ends a cloud as kill -9 does: it writes nothing more, and its memory is lost.
func crash(t *testing.T, c *Cloud) {
	t.Helper()
	c.stop()
	c.work.Wait()
	if c.registry != nil {
		c.registry.awaitWorkers()
	}
	require.NoError(t, c.store.close())
}

func request(machine string) virtual.CreateRequest {
	return virtual.CreateRequest{
		Name: machine,
		Tags: virtual.Tags{Cluster: "c1", Class: "shop/pool", Machine: machine, MachineUID: "uid-" + machine},
		Spec: virtual.Spec{Region: "eu", Zone: "eu-1", InstanceType: "small"},
	}
}

func duration(d time.Duration) *virtual.Duration { return new(virtual.Duration(d)) }

func make1(t *testing.T, c *Cloud, r virtual.CreateRequest) virtual.Instance {
	t.Helper()
	instance, err := c.create(t.Context(), r)
	require.NoError(t, err)
	return instance
}

func behave(t *testing.T, c *Cloud, change func(*admin.Behaviour)) {
	t.Helper()
	b := c.Behaviour()
	change(&b)
	require.NoError(t, c.SetBehaviour(b))
}

// states returns the states in a list, by name.
func states(answer virtual.ReadAnswer) map[string]string {
	shown := map[string]string{}
	for _, item := range answer.Items {
		shown[item.Name] = item.State
	}
	return shown
}

// memoryNodes is a cluster in memory.
type memoryNodes struct {
	mu       sync.Mutex
	away     bool
	tries    int
	byName   map[string]string // name to provider ID
	silenced []string
}

var errAway = errors.New("the API server is away")

func (m *memoryNodes) try() error {
	m.tries++
	if m.away {
		return errAway
	}
	return nil
}

func (m *memoryNodes) Register(_ context.Context, instance virtual.Instance, _ virtual.Spec, bare bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.try(); err != nil {
		return err
	}
	if m.byName == nil {
		m.byName = map[string]string{}
	}
	if _, there := m.byName[instance.NodeName]; !there {
		m.byName[instance.NodeName] = instance.ProviderID
		if bare {
			m.byName[instance.NodeName] = ""
		}
	}
	return nil
}

func (m *memoryNodes) Initialize(_ context.Context, instance virtual.Instance) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.try(); err != nil {
		return err
	}
	m.byName[instance.NodeName] = instance.ProviderID
	return nil
}

func (m *memoryNodes) Remove(_ context.Context, instance virtual.Instance) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.try(); err != nil {
		return false, err
	}
	own := m.byName[instance.NodeName] == instance.ProviderID
	if own {
		delete(m.byName, instance.NodeName)
	}
	return own, nil
}

func (m *memoryNodes) Silence(_ context.Context, instance virtual.Instance) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.try(); err != nil {
		return err
	}
	m.silenced = append(m.silenced, instance.NodeName)
	return nil
}

func (m *memoryNodes) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := []string{}
	for name := range m.byName {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (m *memoryNodes) setAway(away bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = away
}
