package conformance

import (
	"context"
	"strings"
	"time"

	"millwright/provider"
)

func (s *conformance) TestEveryCodeComesThrough() {
	s.need(s.Fail != nil, "make calls fail")
	m := s.machine()
	m = recorded(m, s.create(s.Class, m))
	fresh := s.machine()
	for _, method := range s.remoteMethods(m) {
		for _, code := range s.Codes {
			of := m
			if method == provider.MethodCreateInstance {
				of = fresh // it has no instance that would be adopted
			}
			s.Fail(method, provider.Errorf(code, "the cloud says no"))
			err := s.invoke(s.T().Context(), method, of)
			if s.answers(method, code) {
				continue // the provider's own tests check what it means
			}
			if method == provider.MethodDeleteInstance && code == provider.NotFound {
				s.NoError(err, "what is absent is deleted")
				continue
			}
			typed := s.failure(err, code)
			s.Contains(typed.Message, "the cloud says no", "%s with %s", method, code)
		}
	}
}

func (s *conformance) TestRetryAfterIsCarried() {
	s.need(s.Fail != nil, "make calls fail")
	s.need(!s.Timeless, "say when to try again")
	m := s.machine()
	m = recorded(m, s.create(s.Class, m))
	fresh := s.machine()
	for _, method := range s.remoteMethods(m) {
		of := m
		if method == provider.MethodCreateInstance {
			of = fresh
		}
		throttled := provider.Errorf(provider.Unavailable, "too many requests")
		throttled.RetryAfter = 1500 * time.Millisecond
		s.Fail(method, throttled)
		s.Equal(
			throttled.RetryAfter,
			s.failure(s.invoke(s.T().Context(), method, of), provider.Unavailable).RetryAfter,
			method,
		)

		s.Fail(method, provider.Errorf(provider.Unavailable, "later"))
		s.Zero(s.failure(s.invoke(s.T().Context(), method, of), provider.Unavailable).RetryAfter, method)
	}
}

// A cloud may quote a request, with its credentials, in an error.
func (s *conformance) TestSecretsStayInside() {
	s.need(s.Fail != nil, "make calls fail")
	m := s.machine()
	m = recorded(m, s.create(s.Class, m))
	fresh := s.machine()
	for _, method := range s.remoteMethods(m) {
		of := m
		if method == provider.MethodCreateInstance {
			of = fresh
		}
		for key, value := range s.Class.Secret {
			quoted := strings.TrimSpace(string(value))
			if strings.Contains(quoted, "\n") {
				continue // a message has one line
			}
			s.Fail(method, provider.Errorf(provider.Unauthenticated, "token %q is not valid", quoted))
			typed := s.failure(s.invoke(s.T().Context(), method, of), provider.Unauthenticated)
			s.Contains(typed.Message, "is not valid", "key %s", key)
		}
	}
}

// Each call uses the credentials of its class, and keeps none for the next call: neither refused nor accepted ones.
func (s *conformance) TestRefusedCredentials() {
	s.need(s.Denied != nil, "refuse credentials")
	m := s.machine()
	m = recorded(m, s.create(s.Class, m))
	for range 2 {
		for _, method := range s.remoteMethods(m) {
			of := m
			if method == provider.MethodCreateInstance {
				of = s.machine()
			}
			err := s.invokeFor(s.T().Context(), *s.Denied, method, of)
			s.Contains(
				[]provider.Code{provider.Unauthenticated, provider.PermissionDenied},
				provider.CodeOf(err),
				"%s: %v",
				method,
				err,
			)
			s.keepsSecrets(err, nil)
		}
		seen, err := s.Provider.InstanceStatus(s.T().Context(), s.Class, m)
		s.Require().NoError(err)
		s.Equal(m.ProviderID, seen.ProviderID)
	}
	s.Len(s.list(), 1)
}

func (s *conformance) TestDeadlineIsRespected() {
	s.need(s.Hang != nil, "make calls hang")
	m := s.machine()
	m = recorded(m, s.create(s.Class, m))
	fresh := s.machine()
	for _, method := range s.remoteMethods(m) {
		of := m
		if method == provider.MethodCreateInstance {
			of = fresh
		}
		s.Hang(method)
		const within = 20 * time.Millisecond
		ctx, cancel := context.WithTimeout(s.T().Context(), within)
		begun := time.Now()
		s.fails(s.invoke(ctx, method, of), provider.DeadlineExceeded)
		s.Less(time.Since(begun), within+prompt, method)
		cancel()
	}
}

func (s *conformance) TestCancellationIsRespected() {
	s.need(s.Hang != nil, "make calls hang")
	m := s.machine()
	m = recorded(m, s.create(s.Class, m))
	fresh := s.machine()
	for _, method := range s.remoteMethods(m) {
		of := m
		if method == provider.MethodCreateInstance {
			of = fresh
		}
		s.Hang(method)
		ctx, cancel := context.WithCancel(s.T().Context())
		want := provider.Canceled
		if method == provider.MethodCreateInstance && s.CreatesOn {
			cancel()
			ctx, cancel = context.WithTimeout(s.T().Context(), 10*time.Millisecond)
			want = provider.DeadlineExceeded
			defer cancel()
		} else {
			time.AfterFunc(10*time.Millisecond, cancel)
		}
		begun := time.Now()
		s.fails(s.invoke(ctx, method, of), want)
		s.Less(time.Since(begun), prompt, method)
	}
}

func (s *conformance) TestAnEndedContextEndsEveryCall() {
	canceled, cancel := context.WithCancel(s.T().Context())
	cancel()
	expired, stop := context.WithDeadline(s.T().Context(), time.Now().Add(-time.Second))
	defer stop()
	m := s.machine()
	m.ProviderID = s.create(s.Class, m).ProviderID
	for _, method := range provider.Methods() {
		s.fails(s.invoke(canceled, method, m), provider.Canceled)
		s.fails(s.invoke(expired, method, m), provider.DeadlineExceeded)
	}
	s.Len(s.list(), 1)
}
