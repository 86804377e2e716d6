package driver_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"millwright/provider"
	"millwright/provider/driver"
)

// sim is a cloud in memory with given traits.
type sim struct {
	mu        sync.Mutex // a request that is under way arrives on a goroutine of its own
	traits    provider.Traits
	instances []simInstance
	tokens    map[string]int // index of the instance
	calls     map[string]int

	underWay time.Duration // how long create requests take to arrive
	fail     error         // of each call
}

type simInstance struct {
	provider.Instance
	cluster, class string
	visible        time.Time // to reads
	gone           bool
}

func newSim(traits provider.Traits) *sim {
	return &sim{traits: traits, tokens: map[string]int{}, calls: map[string]int{}}
}

func (s *sim) called(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[name]++
	return s.fail
}

func (s *sim) Traits(context.Context, provider.Class) (provider.Traits, error) {
	return s.traits, s.called("Traits")
}

// Find returns all visible instances of the cluster.
func (s *sim) Find(_ context.Context, _ provider.Class, m provider.Machine) (driver.Found, error) {
	found := driver.Found{}
	if s.traits.Expires {
		found.Now = time.Now()
	}
	for _, i := range s.all() {
		if i.cluster == m.Cluster && !i.visible.After(time.Now()) && !i.gone {
			found.Instances = append(found.Instances, i.Instance)
		}
	}
	return found, s.called("Find")
}

// Create sends a request, which takes effect although its sender has gone away.
func (s *sim) Create(
	ctx context.Context,
	class provider.Class,
	m provider.Machine,
	request driver.Request,
) (provider.Instance, error) {
	if err := s.called("Create"); err != nil {
		return provider.Instance{}, err
	}
	type answer struct {
		provider.Instance
		err error
	}
	arrived := make(chan answer, 1)
	delay := s.underWay
	go func() {
		time.Sleep(delay)
		made, err := s.arrive(class, m, request)
		arrived <- answer{made, err}
	}()
	select {
	case a := <-arrived:
		return a.Instance, a.err
	case <-ctx.Done():
		return provider.Instance{}, ctx.Err()
	}
}

func (s *sim) arrive(class provider.Class, m provider.Machine, request driver.Request) (provider.Instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !request.NotAfter.IsZero() && time.Now().After(request.NotAfter) {
		return provider.Instance{}, driver.Expired("too late")
	}
	if i, known := s.tokens[request.Token]; known && s.traits.Idempotency == provider.ByToken && !s.instances[i].gone {
		return s.instances[i].Instance, nil
	}
	taken := func(i simInstance) bool { return i.cluster == m.Cluster && i.MachineName == m.Name && !i.gone }
	if s.traits.Idempotency == provider.ByName && slices.ContainsFunc(s.instances, taken) {
		return provider.Instance{}, provider.Errorf(provider.AlreadyExists, "the name %s is taken", m.Name)
	}
	s.tokens[request.Token] = len(s.instances)
	return s.addLocked(class, m), nil
}

func (s *sim) add(class provider.Class, m provider.Machine) provider.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addLocked(class, m)
}

func (s *sim) addLocked(class provider.Class, m provider.Machine) provider.Instance {
	made := provider.Instance{
		ProviderID: fmt.Sprintf(
			"sim:///%d",
			len(s.instances),
		),
		NodeName:    m.Name,
		MachineName: m.Name,
		MachineUID:  m.UID,
		State:       provider.Running,
	}
	if s.traits.Named {
		made.MachineUID = ""
	}
	s.instances = append(
		s.instances,
		simInstance{Instance: made, cluster: m.Cluster, class: class.Name, visible: time.Now().Add(s.traits.Window)},
	)
	return made
}

func (s *sim) Delete(_ context.Context, _ provider.Class, m provider.Machine, instance provider.Instance) error {
	err := s.called("Delete")
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.instances {
		if s.instances[i].ProviderID == instance.ProviderID && s.instances[i].cluster == m.Cluster {
			s.instances[i].gone = true
		}
	}
	return err
}

func (s *sim) List(_ context.Context, class provider.Class, cluster string) ([]provider.Instance, error) {
	var listed []provider.Instance
	for _, i := range slices.Backward(s.all()) {
		if i.cluster == cluster && i.class == class.Name && !i.gone {
			listed = append(listed, i.Instance)
		}
	}
	return listed, s.called("List")
}

// all returns all instances, also those that are gone.
func (s *sim) all() []simInstance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.instances)
}

func (s *sim) live() (live int) {
	for _, i := range s.all() {
		if !i.gone {
			live++
		}
	}
	return live
}
