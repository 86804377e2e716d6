package conformance

import (
	"slices"
	"sync"

	"millwright/provider"
)

func (s *conformance) TestCreateReturnsTheMachinesInstance() {
	m := s.machine()
	made := s.create(s.Class, m)
	s.NotEmpty(made.ProviderID)
	s.Equal(m.Name, made.MachineName)
	s.Equal(s.uid(m), made.MachineUID)
	s.NotEqual(provider.Uninitialized, made.State)
	s.NotEqual(provider.Terminating, made.State)
	s.Len(s.list(), 1)
}

func (s *conformance) TestCreateAgainReturnsTheSameInstance() {
	m := s.machine()
	first := s.create(s.Class, m)
	for _, again := range []provider.Machine{m, tried(m), recorded(m, first)} {
		s.Equal(first.ProviderID, s.create(s.Class, again).ProviderID)
	}
	s.Len(s.list(), 1)
}

func (s *conformance) TestCreateAtOnceMakesOneInstance() {
	const callers = 8
	m := tried(s.machine())
	ids := make([]string, callers)
	errs := make([]error, callers)
	var work sync.WaitGroup
	for i := range callers {
		work.Go(func() {
			instance, err := s.Provider.CreateInstance(s.T().Context(), s.Class, m)
			ids[i], errs[i] = instance.ProviderID, err
		})
	}
	work.Wait()
	for i := range callers {
		s.Require().NoError(errs[i])
	}
	s.Len(slices.Compact(slices.Sorted(slices.Values(ids))), 1)
	s.Len(s.list(), 1)
}

func (s *conformance) TestCreateMakesOneInstanceForEachMachine() {
	a, b, c := s.machine(), s.machine(), s.machine()
	first := s.create(s.Class, a).ProviderID
	s.NotEqual(first, s.create(s.Class, b).ProviderID)
	c.Name = a.Name // a machine that replaces one of the same name is another machine
	if s.named {    // the caller finds out: the instance has no UID, and another Machine has its provider ID
		same := s.create(s.Class, c)
		s.Equal([]string{first, ""}, []string{same.ProviderID, same.MachineUID})
		s.Len(s.list(), 2)
		return
	}
	if s.unique { // it can have no instance until the first one is gone
		_, err := s.Provider.CreateInstance(s.T().Context(), s.Class, c)
		s.fails(err, provider.AlreadyExists)
		s.Len(s.list(), 2)
		return
	}
	s.NotEqual(first, s.create(s.Class, c).ProviderID)
	s.Len(s.list(), 3)
}

func (s *conformance) TestCreateAdoptsWhatCarriesTheUID() {
	m := s.machine()
	s.plant(m)
	planted := s.list()
	s.Require().Len(planted, 1)
	s.Equal(planted[0].ProviderID, s.create(s.Class, tried(m)).ProviderID)
	s.Len(s.list(), 1)
}

func (s *conformance) TestCreateWithSeveralInstancesIsOutOfRange() {
	m := s.machine()
	s.crowded(m)
	_, err := s.Provider.CreateInstance(s.T().Context(), s.Class, tried(m))
	s.fails(err, provider.OutOfRange)
	s.Len(s.list(), 2)
}

func (s *conformance) TestCreateNeedsNameUIDAndCluster() {
	for _, strip := range []func(*provider.Machine){
		func(m *provider.Machine) { m.Name = "" },
		func(m *provider.Machine) { m.UID = "" },
		func(m *provider.Machine) { m.Cluster = "" },
	} {
		m := s.machine()
		strip(&m)
		_, err := s.Provider.CreateInstance(s.T().Context(), s.Class, m)
		s.fails(err, provider.InvalidArgument)
	}
	s.Empty(s.list())
}

func (s *conformance) TestCreateAfterAFailureMakesOneInstance() {
	s.need(s.Fail != nil, "make calls fail")
	m := s.machine()
	s.Fail(provider.MethodCreateInstance, provider.Errorf(provider.ResourceExhausted, "no capacity"))
	_, err := s.Provider.CreateInstance(s.T().Context(), s.Class, m)
	s.fails(err, provider.ResourceExhausted)
	s.Empty(s.list())
	s.create(s.Class, tried(m))
	s.Len(s.list(), 1)
}

func (s *conformance) TestLastKnownStateGoesRound() {
	m := s.machine()
	made := s.create(s.Class, m)
	m = recorded(m, made)
	seen, err := s.Provider.InstanceStatus(s.T().Context(), s.Class, m)
	s.Require().NoError(err)
	s.Equal(made.LastKnownState, seen.LastKnownState)
	s.Equal(made.ProviderID, s.create(s.Class, m).ProviderID)
	for _, foreign := range []string{"", "not ours", `{"id":7}`} {
		m.LastKnownState = foreign
		seen, err := s.Provider.InstanceStatus(s.T().Context(), s.Class, m)
		s.Require().NoError(err, "with last known state %q", foreign)
		s.Equal(made.ProviderID, seen.ProviderID)
	}
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m))
}
