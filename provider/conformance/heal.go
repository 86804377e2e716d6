package conformance

import (
	"millwright/provider"
)

// Whatever error a creation had, the next call creates the instance, and only one.
func (s *conformance) TestACreationHealsFromEveryCode() {
	s.need(s.Fail != nil, "make calls fail")
	count := 0
	for _, code := range s.Codes {
		if s.answers(provider.MethodCreateInstance, code) {
			continue
		}
		count++
		m := s.machine()
		s.Fail(provider.MethodCreateInstance, provider.Errorf(code, "the cloud says no"))
		_, err := s.Provider.CreateInstance(s.T().Context(), s.Class, m)
		s.fails(err, code)
		made := s.create(s.Class, tried(m))
		s.Equal([]string{m.Name, s.uid(m)}, []string{made.MachineName, made.MachineUID}, "after %s", code)
	}
	s.Len(s.list(), count)
}

// Whatever error a deletion had, the instance is still there and the next call deletes it.
func (s *conformance) TestADeletionHealsFromEveryCode() {
	s.need(s.Fail != nil, "make calls fail")
	for _, code := range s.Codes {
		if code == provider.NotFound || s.answers(provider.MethodDeleteInstance, code) {
			continue // the code means that the instance is gone
		}
		m := s.machine()
		m = recorded(m, s.create(s.Class, m))
		s.Fail(provider.MethodDeleteInstance, provider.Errorf(code, "the cloud says no"))
		s.fails(s.Provider.DeleteInstance(s.T().Context(), s.Class, m), code)
		s.Len(s.list(), 1, "after %s", code)
		s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m))
		s.gone(m)
	}
}
