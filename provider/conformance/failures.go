package conformance

import (
	"context"
	"strings"
	"time"

	"millwright/provider"
)

func (s *conformanceTest) TestEveryCodeOfTheCloudIsReturned() {
	s.skipUnlessSupported(s.FailNextCall != nil, "make calls fail")
	m := s.newMachine()
	m = withRecordedInstance(m, s.createInstance(s.Class, m))
	fresh := s.newMachine()
	for _, method := range s.remoteMethods(m) {
		for _, code := range s.SupportedCodes {
			of := m
			if method == provider.MethodCreateInstance {
				of = fresh // machine fresh has no instance to adopt
			}
			s.FailNextCall(method, provider.Errorf(code, "the cloud says no"))
			err := s.callMethod(s.T().Context(), method, of)
			if s.isSuccessCode(method, code) {
				continue // the provider's own tests cover this code
			}
			if method == provider.MethodDeleteInstance && code == provider.NotFound {
				s.NoError(err, "what is absent is deleted")
				continue
			}
			typed := s.requireErrorWithCode(err, code)
			s.Contains(typed.Message, "the cloud says no", "%s with %s", method, code)
		}
	}
}

func (s *conformanceTest) TestRetryAfterIsReturned() {
	s.skipUnlessSupported(s.FailNextCall != nil, "make calls fail")
	s.skipUnlessSupported(!s.LacksRetryDelays, "say when to try again")
	m := s.newMachine()
	m = withRecordedInstance(m, s.createInstance(s.Class, m))
	fresh := s.newMachine()
	for _, method := range s.remoteMethods(m) {
		of := m
		if method == provider.MethodCreateInstance {
			of = fresh
		}
		throttled := provider.Errorf(provider.Unavailable, "too many requests")
		throttled.RetryAfter = 1500 * time.Millisecond
		s.FailNextCall(method, throttled)
		s.Equal(
			throttled.RetryAfter,
			s.requireErrorWithCode(s.callMethod(s.T().Context(), method, of), provider.Unavailable).RetryAfter,
			method,
		)

		s.FailNextCall(method, provider.Errorf(provider.Unavailable, "later"))
		s.Zero(s.requireErrorWithCode(s.callMethod(s.T().Context(), method, of), provider.Unavailable).RetryAfter, method)
	}
}

// An error of the cloud may quote a request that contains credentials. The Provider's error must not contain the
// credentials.
func (s *conformanceTest) TestErrorsContainNoSecrets() {
	s.skipUnlessSupported(s.FailNextCall != nil, "make calls fail")
	m := s.newMachine()
	m = withRecordedInstance(m, s.createInstance(s.Class, m))
	fresh := s.newMachine()
	for _, method := range s.remoteMethods(m) {
		of := m
		if method == provider.MethodCreateInstance {
			of = fresh
		}
		for key, value := range s.Class.Secret {
			quoted := strings.TrimSpace(string(value))
			if strings.Contains(quoted, "\n") {
				continue // an error message has only one line, so it cannot quote this value
			}
			s.FailNextCall(method, provider.Errorf(provider.Unauthenticated, "token %q is not valid", quoted))
			typed := s.requireErrorWithCode(s.callMethod(s.T().Context(), method, of), provider.Unauthenticated)
			s.Contains(typed.Message, "is not valid", "key %s", key)
		}
	}
}

// Each call uses only the credentials of its own class: a Provider must not reuse the credentials of an earlier call.
func (s *conformanceTest) TestEachCallUsesTheCredentialsOfItsClass() {
	s.skipUnlessSupported(s.DeniedClass != nil, "refuse credentials")
	m := s.newMachine()
	m = withRecordedInstance(m, s.createInstance(s.Class, m))
	for range 2 {
		for _, method := range s.remoteMethods(m) {
			of := m
			if method == provider.MethodCreateInstance {
				of = s.newMachine()
			}
			err := s.callMethodWithClass(s.T().Context(), *s.DeniedClass, method, of)
			s.Contains(
				[]provider.Code{provider.Unauthenticated, provider.PermissionDenied},
				provider.CodeOfError(err),
				"%s: %v",
				method,
				err,
			)
			s.requireNoSecrets(err, nil)
		}
		seen, err := s.Provider.InstanceStatus(s.T().Context(), s.Class, m)
		s.Require().NoError(err)
		s.Equal(m.ProviderID, seen.ProviderID)
	}
	s.Len(s.listInstances(), 1)
}

func (s *conformanceTest) TestDeadlineIsRespected() {
	s.skipUnlessSupported(s.BlockCalls != nil, "make calls hang")
	m := s.newMachine()
	m = withRecordedInstance(m, s.createInstance(s.Class, m))
	fresh := s.newMachine()
	for _, method := range s.remoteMethods(m) {
		of := m
		if method == provider.MethodCreateInstance {
			of = fresh
		}
		s.BlockCalls(method)
		const within = 20 * time.Millisecond
		ctx, cancel := context.WithTimeout(s.T().Context(), within)
		begun := time.Now()
		s.requireCode(s.callMethod(ctx, method, of), provider.DeadlineExceeded)
		s.Less(time.Since(begun), within+maxReturnDelay, method)
		cancel()
	}
}

func (s *conformanceTest) TestCancellationIsRespected() {
	s.skipUnlessSupported(s.BlockCalls != nil, "make calls hang")
	m := s.newMachine()
	m = withRecordedInstance(m, s.createInstance(s.Class, m))
	fresh := s.newMachine()
	for _, method := range s.remoteMethods(m) {
		of := m
		if method == provider.MethodCreateInstance {
			of = fresh
		}
		s.BlockCalls(method)
		ctx, cancel := context.WithCancel(s.T().Context())
		want := provider.Canceled
		if method == provider.MethodCreateInstance && s.CannotCancelCreate {
			cancel()
			ctx, cancel = context.WithTimeout(s.T().Context(), 10*time.Millisecond)
			want = provider.DeadlineExceeded
			defer cancel()
		} else {
			time.AfterFunc(10*time.Millisecond, cancel)
		}
		begun := time.Now()
		s.requireCode(s.callMethod(ctx, method, of), want)
		s.Less(time.Since(begun), maxReturnDelay, method)
	}
}

func (s *conformanceTest) TestAnEndedContextEndsEveryCall() {
	canceled, cancel := context.WithCancel(s.T().Context())
	cancel()
	expired, stop := context.WithDeadline(s.T().Context(), time.Now().Add(-time.Second))
	defer stop()
	m := s.newMachine()
	m.ProviderID = s.createInstance(s.Class, m).ProviderID
	for _, method := range provider.Methods() {
		s.requireCode(s.callMethod(canceled, method, m), provider.Canceled)
		s.requireCode(s.callMethod(expired, method, m), provider.DeadlineExceeded)
	}
	s.Len(s.listInstances(), 1)
}
