package conformance

import (
	"slices"
	"sync"

	"millwright/provider"
)

func (s *conformanceTest) TestCreateReturnsTheMachinesInstance() {
	m := s.newMachine()
	made := s.createInstance(s.Class, m)
	s.NotEmpty(made.ProviderID)
	s.Equal(m.Name, made.MachineName)
	s.Equal(s.expectedUID(m), made.MachineUID)
	s.NotEqual(provider.Uninitialized, made.State)
	s.NotEqual(provider.Terminating, made.State)
	s.Len(s.listInstances(), 1)
}

func (s *conformanceTest) TestCreateAgainReturnsTheSameInstance() {
	m := s.newMachine()
	first := s.createInstance(s.Class, m)
	for _, again := range []provider.Machine{m, withPossibleEarlierCreate(m), withRecordedInstance(m, first)} {
		s.Equal(first.ProviderID, s.createInstance(s.Class, again).ProviderID)
	}
	s.Len(s.listInstances(), 1)
}

func (s *conformanceTest) TestConcurrentCreatesMakeOneInstance() {
	const callers = 8
	m := withPossibleEarlierCreate(s.newMachine())
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
	s.Len(s.listInstances(), 1)
}

func (s *conformanceTest) TestCreateMakesOneInstanceForEachMachine() {
	a, b, c := s.newMachine(), s.newMachine(), s.newMachine()
	first := s.createInstance(s.Class, a).ProviderID
	s.NotEqual(first, s.createInstance(s.Class, b).ProviderID)
	c.Name = a.Name          // c is a new machine with the same name as machine a
	if s.hasNamedInstances { // the caller must detect that two Machines have the same provider ID
		same := s.createInstance(s.Class, c)
		s.Equal([]string{first, ""}, []string{same.ProviderID, same.MachineUID})
		s.Len(s.listInstances(), 2)
		return
	}
	if s.hasUniqueNames { // machine c can have no instance before the deletion of machine a's instance
		_, err := s.Provider.CreateInstance(s.T().Context(), s.Class, c)
		s.requireCode(err, provider.AlreadyExists)
		s.Len(s.listInstances(), 2)
		return
	}
	s.NotEqual(first, s.createInstance(s.Class, c).ProviderID)
	s.Len(s.listInstances(), 3)
}

func (s *conformanceTest) TestCreateAdoptsAnInstanceWithTheUID() {
	m := s.newMachine()
	s.createInstanceByHand(m)
	planted := s.listInstances()
	s.Require().Len(planted, 1)
	s.Equal(planted[0].ProviderID, s.createInstance(s.Class, withPossibleEarlierCreate(m)).ProviderID)
	s.Len(s.listInstances(), 1)
}

func (s *conformanceTest) TestCreateWithSeveralInstancesIsOutOfRange() {
	m := s.newMachine()
	s.createTwoInstancesByHand(m)
	_, err := s.Provider.CreateInstance(s.T().Context(), s.Class, withPossibleEarlierCreate(m))
	s.requireCode(err, provider.OutOfRange)
	s.Len(s.listInstances(), 2)
}

func (s *conformanceTest) TestCreateNeedsNameUIDAndCluster() {
	for _, strip := range []func(*provider.Machine){
		func(m *provider.Machine) { m.Name = "" },
		func(m *provider.Machine) { m.UID = "" },
		func(m *provider.Machine) { m.Cluster = "" },
	} {
		m := s.newMachine()
		strip(&m)
		_, err := s.Provider.CreateInstance(s.T().Context(), s.Class, m)
		s.requireCode(err, provider.InvalidArgument)
	}
	s.Empty(s.listInstances())
}

func (s *conformanceTest) TestCreateAfterAFailureMakesOneInstance() {
	s.skipUnlessSupported(s.FailNextCall != nil, "make calls fail")
	m := s.newMachine()
	s.FailNextCall(provider.MethodCreateInstance, provider.Errorf(provider.ResourceExhausted, "no capacity"))
	_, err := s.Provider.CreateInstance(s.T().Context(), s.Class, m)
	s.requireCode(err, provider.ResourceExhausted)
	s.Empty(s.listInstances())
	s.createInstance(s.Class, withPossibleEarlierCreate(m))
	s.Len(s.listInstances(), 1)
}

func (s *conformanceTest) TestLastKnownStateIsReturnedUnchanged() {
	m := s.newMachine()
	made := s.createInstance(s.Class, m)
	m = withRecordedInstance(m, made)
	seen, err := s.Provider.InstanceStatus(s.T().Context(), s.Class, m)
	s.Require().NoError(err)
	s.Equal(made.LastKnownState, seen.LastKnownState)
	s.Equal(made.ProviderID, s.createInstance(s.Class, m).ProviderID)
	for _, foreign := range []string{"", "not ours", `{"id":7}`} {
		m.LastKnownState = foreign
		seen, err := s.Provider.InstanceStatus(s.T().Context(), s.Class, m)
		s.Require().NoError(err, "with last known state %q", foreign)
		s.Equal(made.ProviderID, seen.ProviderID)
	}
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m))
}
