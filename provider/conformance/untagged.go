package conformance

import "millwright/provider"

// createUntaggedInstanceByHand creates an instance of Class with the machine's name and without a UID tag, like another
// controller.
func (s *conformanceTest) createUntaggedInstanceByHand(m provider.Machine) {
	m.UID = ""
	s.createInstanceByHand(m)
}

func (s *conformanceTest) TestCreateAdoptsAnInstanceWithTheNameAndWithoutUID() {
	m := s.newMachine()
	s.createUntaggedInstanceByHand(m)
	listed := s.listInstances()
	s.Require().Len(listed, 1, "an instance without a UID is listed")
	s.Equal([]string{m.Name, ""}, []string{listed[0].MachineName, listed[0].MachineUID})
	for _, caller := range []provider.Machine{m, withPossibleEarlierCreate(m)} {
		made := s.createInstance(s.Class, caller)
		s.Equal(listed[0].ProviderID, made.ProviderID)
		s.Empty(made.MachineUID, "the caller has to know that the name was its only tie")
	}
	s.Len(s.listInstances(), 1)
	seen, err := s.Provider.InstanceStatus(s.T().Context(), s.Class, m)
	s.Require().NoError(err)
	s.Equal(listed[0].ProviderID, seen.ProviderID)
}

func (s *conformanceTest) TestUIDHasPriorityOverName() {
	s.skipWithoutUIDTags("TestStatusOfSeveralIsOutOfRange")
	m := s.newMachine()
	made := s.createInstance(s.Class, m)
	s.createUntaggedInstanceByHand(m)
	s.Equal(made.ProviderID, s.createInstance(s.Class, withPossibleEarlierCreate(m)).ProviderID)
	m.ProviderID = made.ProviderID
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m))
	s.waitUntilNotFound(m)
	s.Len(s.listInstances(), 1, "a name alone deletes nothing")
}

func (s *conformanceTest) TestSeveralInstancesWithTheNameAreOutOfRange() {
	m := s.newMachine()
	untagged := m
	untagged.UID = ""
	s.createTwoInstancesByHand(untagged)
	_, err := s.Provider.CreateInstance(s.T().Context(), s.Class, withPossibleEarlierCreate(m))
	s.requireCode(err, provider.OutOfRange)
	s.Len(s.listInstances(), 2)
}

func (s *conformanceTest) TestNameMatchesOnlyInItsClassAndCluster() {
	m := s.newMachine()
	s.createUntaggedInstanceByHand(m)
	otherClass := s.Class
	otherClass.Name = "another"
	class, foreign := s.withOtherCluster(m)
	s.Equal(
		s.hasNamedInstances,
		s.listInstances()[0].ProviderID == s.createInstance(otherClass, m).ProviderID,
		"without a UID the name counts in all classes",
	)
	if s.hasUniqueNames { // the name is in use: another cluster cannot have an instance with the name
		_, err := s.Provider.CreateInstance(s.T().Context(), class, foreign)
		s.requireCode(err, provider.AlreadyExists)
	} else {
		s.NotEqual(s.listInstances()[0].ProviderID, s.createInstance(class, foreign).ProviderID)
	}
	s.Len(s.listInstances(), 1)
}
