package target

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// downTime is how long requests must fail, without a success between them, until a target counts as unavailable.
// Source: longer than the momentary failures of an API server that restarts, ADR 0101.
const downTime = 3 * time.Second

// errDown is the error of each request while a target is unavailable.
var errDown = errors.New("the API server of the target cluster does not answer; the next attempt to connect follows")

// link observes the requests of a target's clients. While the target is down, link refuses every request at once,
// except the requests of the probe. So a dead API server causes no new connections and no waiting requests. A link is
// safe for concurrent use.
type link struct {
	down chan struct{} // gets an element when the target goes down

	mu           sync.Mutex
	isDown       bool
	failingSince time.Time // first failure since the last success; zero: the last request succeeded
	lastFailure  string
}

func newLink() *link { return &link{isDown: true, down: make(chan struct{}, 1)} }

// probeKey marks the context of the requests that a link does not refuse.
type probeKey struct{}

func isProbe(ctx context.Context) bool { return ctx.Value(probeKey{}) != nil }

// transport wraps the transport of a client.
func (l *link) transport(next http.RoundTripper) http.RoundTripper {
	return linkTransport{next, l}
}

type linkTransport struct {
	next http.RoundTripper
	link *link
}

// RoundTrip implements http.RoundTripper.
func (t linkTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if !isProbe(request.Context()) && t.link.refuses() {
		closeBody(request)
		return nil, errDown
	}
	response, err := t.next.RoundTrip(request)
	switch {
	case err == nil && response.StatusCode == http.StatusTooManyRequests: // neither a success nor an outage
	case err == nil:
		t.link.record(failureOf(response.StatusCode))
	case request.Context().Err() != nil: // the caller canceled the request, so the failure proves nothing
	case !errors.Is(err, errBusy):
		t.link.record(reasonOf(err))
	}
	return response, err //nolint:wrapcheck // the error of the wrapped transport
}

// failureOf returns why an answer shows that the target cannot be used; empty: the API server works. Credentials that
// the API server does not accept make every request fail.
func failureOf(code int) string {
	switch code {
	case http.StatusUnauthorized, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return answerText(code)
	default:
		return ""
	}
}

func (l *link) refuses() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isDown
}

// record records the result of a request. An empty failure is a success.
func (l *link) record(failure string) {
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
	if !l.isDown && now.Sub(l.failingSince) >= downTime {
		l.isDown = true
		select {
		case l.down <- struct{}{}:
		default:
		}
	}
}

// open lets all requests pass.
func (l *link) open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isDown, l.failingSince = false, time.Time{}
	select {
	case <-l.down:
	default:
	}
}

// outage returns the start of the present outage, and the last failure.
func (l *link) outage() (since time.Time, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failingSince, l.lastFailure
}
