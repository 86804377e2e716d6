package conformance

import "millwright/provider"

// untagged makes an instance of Class that carries the machine's name and no UID, as another controller would make it.
func (s *conformance) untagged(m provider.Machine) {
	m.UID = ""
	s.plant(m)
}

func (s *conformance) TestCreateAdoptsWhatHasTheNameAndNoUID() {
	m := s.machine()
	s.untagged(m)
	listed := s.list()
	s.Require().Len(listed, 1, "an instance without a UID is listed")
	s.Equal([]string{m.Name, ""}, []string{listed[0].MachineName, listed[0].MachineUID})
	for _, caller := range []provider.Machine{m, tried(m)} {
		made := s.create(s.Class, caller)
		s.Equal(listed[0].ProviderID, made.ProviderID)
		s.Empty(made.MachineUID, "the caller has to know that the name was its only tie")
	}
	s.Len(s.list(), 1)
	seen, err := s.Provider.InstanceStatus(s.T().Context(), s.Class, m)
	s.Require().NoError(err)
	s.Equal(listed[0].ProviderID, seen.ProviderID)
}

func (s *conformance) TestTheUIDCountsBeforeTheName() {
	s.tagged("TestStatusOfSeveralIsOutOfRange")
	m := s.machine()
	made := s.create(s.Class, m)
	s.untagged(m)
	s.Equal(made.ProviderID, s.create(s.Class, tried(m)).ProviderID)
	m.ProviderID = made.ProviderID
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m))
	s.gone(m)
	s.Len(s.list(), 1, "a name alone deletes nothing")
}

func (s *conformance) TestSeveralOfTheNameAreOutOfRange() {
	m := s.machine()
	untagged := m
	untagged.UID = ""
	s.crowded(untagged)
	_, err := s.Provider.CreateInstance(s.T().Context(), s.Class, tried(m))
	s.fails(err, provider.OutOfRange)
	s.Len(s.list(), 2)
}

func (s *conformance) TestTheNameCountsInItsClassAndClusterOnly() {
	m := s.machine()
	s.untagged(m)
	otherClass := s.Class
	otherClass.Name = "another"
	class, foreign := s.elsewhere(m)
	s.Equal(
		s.named,
		s.list()[0].ProviderID == s.create(otherClass, m).ProviderID,
		"without a UID the name counts in all classes",
	)
	if s.unique { // the name is in use: another cluster cannot have an instance with it
		_, err := s.Provider.CreateInstance(s.T().Context(), class, foreign)
		s.fails(err, provider.AlreadyExists)
	} else {
		s.NotEqual(s.list()[0].ProviderID, s.create(class, foreign).ProviderID)
	}
	s.Len(s.list(), 1)
}
