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

// simulatedCloud is a simulated cloud in memory with configurable Traits.
type simulatedCloud struct {
	mu           sync.Mutex // each create request runs in its own goroutine
	traits       provider.Traits
	instances    []simulatedInstance
	indexByToken map[string]int // index in instances, by client token
	callCounts   map[string]int // number of calls, by name of the Driver's method

	createDelay time.Duration // time until a create request arrives
	callError   error         // error of each call; nil means success
}

type simulatedInstance struct {
	provider.Instance
	cluster, class string
	visibleFrom    time.Time // time after which reads show the instance
	isDeleted      bool
}

func newSimulatedCloud(traits provider.Traits) *simulatedCloud {
	return &simulatedCloud{traits: traits, indexByToken: map[string]int{}, callCounts: map[string]int{}}
}

func (s *simulatedCloud) recordCall(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.callCounts[name]++
	return s.callError
}

func (s *simulatedCloud) Traits(context.Context, provider.Class) (provider.Traits, error) {
	return s.traits, s.recordCall("Traits")
}

// Find implements driver.Driver. Find returns all instances of the cluster that reads show.
func (s *simulatedCloud) Find(_ context.Context, _ provider.Class, m provider.Machine) (driver.SearchResult, error) {
	found := driver.SearchResult{}
	if s.traits.Expires {
		found.Now = time.Now()
	}
	for _, i := range s.allInstances() {
		if i.cluster == m.Cluster && !i.visibleFrom.After(time.Now()) && !i.isDeleted {
			found.Instances = append(found.Instances, i.Instance)
		}
	}
	return found, s.recordCall("Find")
}

// Create sends a create request, which takes effect even if the caller's context is done first.
func (s *simulatedCloud) Create(
	ctx context.Context,
	class provider.Class,
	m provider.Machine,
	request driver.CreateRequest,
) (provider.Instance, error) {
	if err := s.recordCall("Create"); err != nil {
		return provider.Instance{}, err
	}
	type answer struct {
		provider.Instance
		err error
	}
	arrived := make(chan answer, 1)
	delay := s.createDelay
	go func() {
		time.Sleep(delay)
		made, err := s.executeCreate(class, m, request)
		arrived <- answer{made, err}
	}()
	select {
	case a := <-arrived:
		return a.Instance, a.err
	case <-ctx.Done():
		return provider.Instance{}, ctx.Err()
	}
}

func (s *simulatedCloud) executeCreate(
	class provider.Class,
	m provider.Machine,
	request driver.CreateRequest,
) (provider.Instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !request.NotAfter.IsZero() && time.Now().After(request.NotAfter) {
		return provider.Instance{}, driver.ExpiredError("too late")
	}
	if i, known := s.indexByToken[request.Token]; known && s.traits.Idempotency == provider.ByToken &&
		!s.instances[i].isDeleted {
		return s.instances[i].Instance, nil
	}
	taken := func(i simulatedInstance) bool {
		return i.cluster == m.Cluster && i.MachineName == m.Name && !i.isDeleted
	}
	if s.traits.Idempotency == provider.ByName && slices.ContainsFunc(s.instances, taken) {
		return provider.Instance{}, provider.Errorf(provider.AlreadyExists, "the name %s is taken", m.Name)
	}
	s.indexByToken[request.Token] = len(s.instances)
	return s.addInstanceLocked(class, m), nil
}

func (s *simulatedCloud) addInstance(class provider.Class, m provider.Machine) provider.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addInstanceLocked(class, m)
}

func (s *simulatedCloud) addInstanceLocked(class provider.Class, m provider.Machine) provider.Instance {
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
		simulatedInstance{
			Instance:    made,
			cluster:     m.Cluster,
			class:       class.Name,
			visibleFrom: time.Now().Add(s.traits.Window),
		},
	)
	return made
}

func (s *simulatedCloud) Delete(
	_ context.Context,
	_ provider.Class,
	m provider.Machine,
	instance provider.Instance,
) error {
	err := s.recordCall("Delete")
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.instances {
		if s.instances[i].ProviderID == instance.ProviderID && s.instances[i].cluster == m.Cluster {
			s.instances[i].isDeleted = true
		}
	}
	return err
}

func (s *simulatedCloud) List(_ context.Context, class provider.Class, cluster string) ([]provider.Instance, error) {
	var listed []provider.Instance
	for _, i := range slices.Backward(s.allInstances()) {
		if i.cluster == cluster && i.class == class.Name && !i.isDeleted {
			listed = append(listed, i.Instance)
		}
	}
	return listed, s.recordCall("List")
}

// allInstances returns all instances, including deleted instances.
func (s *simulatedCloud) allInstances() []simulatedInstance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.instances)
}

func (s *simulatedCloud) countLiveInstances() (live int) {
	for _, i := range s.allInstances() {
		if !i.isDeleted {
			live++
		}
	}
	return live
}
