package conformance

import (
	"millwright/provider"
)

// After a failed creation with any code, the next call creates exactly one instance.
func (s *conformanceTest) TestCreateSucceedsAfterEveryErrorCode() {
	s.skipUnlessSupported(s.FailNextCall != nil, "make calls fail")
	count := 0
	for _, code := range s.SupportedCodes {
		if s.isSuccessCode(provider.MethodCreateInstance, code) {
			continue
		}
		count++
		m := s.newMachine()
		s.FailNextCall(provider.MethodCreateInstance, provider.Errorf(code, "the cloud says no"))
		_, err := s.Provider.CreateInstance(s.T().Context(), s.Class, m)
		s.requireCode(err, code)
		made := s.createInstance(s.Class, withPossibleEarlierCreate(m))
		s.Equal([]string{m.Name, s.expectedUID(m)}, []string{made.MachineName, made.MachineUID}, "after %s", code)
	}
	s.Len(s.listInstances(), count)
}

// After a failed deletion with any code, the instance still exists, and the next call deletes the instance.
func (s *conformanceTest) TestDeleteSucceedsAfterEveryErrorCode() {
	s.skipUnlessSupported(s.FailNextCall != nil, "make calls fail")
	for _, code := range s.SupportedCodes {
		if code == provider.NotFound || s.isSuccessCode(provider.MethodDeleteInstance, code) {
			continue // this code means that the instance is gone
		}
		m := s.newMachine()
		m = withRecordedInstance(m, s.createInstance(s.Class, m))
		s.FailNextCall(provider.MethodDeleteInstance, provider.Errorf(code, "the cloud says no"))
		s.requireCode(s.Provider.DeleteInstance(s.T().Context(), s.Class, m), code)
		s.Len(s.listInstances(), 1, "after %s", code)
		s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m))
		s.waitUntilNotFound(m)
	}
}
