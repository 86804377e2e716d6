package target

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// unavailableAfter is how long requests must fail, without a success between them, until a target counts as
// unavailable. Source: longer than the momentary failures of an API server that restarts, ADR 0101.
const unavailableAfter = 3 * time.Second

// errUnavailable is the error of each request while a target is unavailable.
var errUnavailable = errors.New(
	"the API server of the target cluster does not answer; the next attempt to connect follows",
)

// circuitBreaker observes the requests of a target's clients. While the target is down, link refuses every request at
// once, except the requests of the probe. So a dead API server causes no new connections and no waiting requests. A
// link is safe for concurrent use.
type circuitBreaker struct {
	outageSignal chan struct{} // gets an element when the target goes down

	mu            sync.Mutex
	isUnavailable bool
	failingSince  time.Time // first failure since the last success; zero: the last request succeeded
	lastFailure   string
}

func newCircuitBreaker() *circuitBreaker {
	return &circuitBreaker{isUnavailable: true, outageSignal: make(chan struct{}, 1)}
}

// probeContextKey marks the context of the requests that a link does not refuse.
type probeContextKey struct{}

func isProbeContext(ctx context.Context) bool { return ctx.Value(probeContextKey{}) != nil }

// wrapTransport wraps the transport of a client.
func (l *circuitBreaker) wrapTransport(next http.RoundTripper) http.RoundTripper {
	return breakerTransport{next, l}
}

type breakerTransport struct {
	next    http.RoundTripper
	breaker *circuitBreaker
}

// RoundTrip implements http.RoundTripper.
func (t breakerTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if !isProbeContext(request.Context()) && t.breaker.refusesRequests() {
		closeRequestBody(request)
		return nil, errUnavailable
	}
	response, err := t.next.RoundTrip(request)
	switch {
	case err == nil && response.StatusCode == http.StatusTooManyRequests: // neither a success nor an outage
	case err == nil:
		t.breaker.recordResult(failureFromStatus(response.StatusCode))
	case request.Context().Err() != nil: // the caller canceled the request, so the failure proves nothing
	case !errors.Is(err, errTooManyRequests):
		t.breaker.recordResult(requestErrorText(err))
	}
	return response, err //nolint:wrapcheck // the error of the wrapped transport
}

// failureFromStatus returns why an answer shows that the target cannot be used; empty: the API server works.
// Credentials that the API server does not accept make every request fail.
func failureFromStatus(code int) string {
	switch code {
	case http.StatusUnauthorized, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return statusCodeText(code)
	default:
		return ""
	}
}

func (l *circuitBreaker) refusesRequests() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isUnavailable
}

// recordResult records the result of a request. An empty failure is a success.
func (l *circuitBreaker) recordResult(failure string) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case failure == "":
		l.failingSince = time.Time{}
		return
	case l.failingSince.IsZero():
		l.failingSince = now
	}
	l.lastFailure = failure
	if !l.isUnavailable && now.Sub(l.failingSince) >= unavailableAfter {
		l.isUnavailable = true
		select {
		case l.outageSignal <- struct{}{}:
		default:
		}
	}
}

// allowRequests lets all requests pass.
func (l *circuitBreaker) allowRequests() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isUnavailable, l.failingSince = false, time.Time{}
	select {
	case <-l.outageSignal:
	default:
	}
}

// currentOutage returns the start of the present outage, and the last failure.
func (l *circuitBreaker) currentOutage() (since time.Time, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failingSince, l.lastFailure
}
