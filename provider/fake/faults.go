package fake

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"millwright/provider"
)

// faults are the requested failures, delays and hangs, by method, and the number of calls of each method.
type faults struct {
	failuresBeforeEffect map[provider.Method][]*failure
	failuresAfterEffect  map[provider.Method][]*failure
	delays               map[provider.Method]time.Duration
	blockReleases        map[provider.Method]chan struct{}
	callCounts           map[provider.Method]*atomic.Int64
}

// failure is an error that a limited number of calls returns.
type failure struct {
	err            *provider.Error
	remainingCalls int // number of calls that will still fail; zero means no limit
}

func newFaults() faults {
	f := faults{
		failuresBeforeEffect: map[provider.Method][]*failure{}, failuresAfterEffect: map[provider.Method][]*failure{},
		delays: map[provider.Method]time.Duration{}, blockReleases: map[provider.Method]chan struct{}{},
		callCounts: map[provider.Method]*atomic.Int64{},
	}
	for _, method := range provider.Methods() {
		f.callCounts[method] = new(atomic.Int64)
	}
	return f
}

// FailCalls makes the next calls of a method return err without effect. Parameter times is the number of failing calls;
// zero means all calls until EndFailures. If FailCalls is called several times for a method, calls return the errors in
// this order.
func (p *Provider) FailCalls(method provider.Method, times int, err *provider.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failuresBeforeEffect[method] = append(p.failuresBeforeEffect[method], &failure{err: err, remainingCalls: times})
}

// FailCallsAfterEffect makes the next calls of a method return err after their effect, as if the answer were lost.
// FailCallsAfterEffect is otherwise like FailCalls.
func (p *Provider) FailCallsAfterEffect(method provider.Method, times int, err *provider.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failuresAfterEffect[method] = append(p.failuresAfterEffect[method], &failure{err: err, remainingCalls: times})
}

// EndFailures removes all failures of a method that FailCalls and FailCallsAfterEffect have added.
func (p *Provider) EndFailures(method provider.Method) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.failuresBeforeEffect, method)
	delete(p.failuresAfterEffect, method)
}

// DelayCalls makes each call of a method wait before its effect. The wait ends early if the context of the call is
// done. Zero removes the delay.
func (p *Provider) DelayCalls(method provider.Method, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delays[method] = delay
}

// BlockCalls makes each call of a method wait before its effect. The wait ends when release is called or the context of
// the call is done.
func (p *Provider) BlockCalls(method provider.Method) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gate := make(chan struct{})
	p.blockReleases[method] = gate
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.blockReleases[method] == gate {
			delete(p.blockReleases, method)
			close(gate)
		}
	}
}

// CallCount returns the number of calls of a method, including hanging and failed calls.
func (p *Provider) CallCount(method provider.Method) int { return int(p.callCounts[method].Load()) }

// runCall runs one call of a method in this order: count, delay, hang, failure, effect, failure after the effect.
// runCall holds the lock while effect runs.
func runCall[T any](
	ctx context.Context,
	p *Provider,
	method provider.Method,
	secret provider.Secret,
	effect func() (T, error),
) (T, error) {
	var none T
	p.callCounts[method].Add(1)
	if err := p.waitUntilReleased(ctx, method); err != nil {
		return none, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := takeNextFailure(p.failuresBeforeEffect, method, secret); err != nil {
		return none, err
	}
	result, err := effect()
	if err == nil {
		err = takeNextFailure(p.failuresAfterEffect, method, secret)
	}
	if err != nil {
		return none, err
	}
	return result, nil
}

// waitUntilReleased waits for the delay and the hang of a method.
func (p *Provider) waitUntilReleased(ctx context.Context, method provider.Method) error {
	p.mu.Lock()
	delay, gate := p.delays[method], p.blockReleases[method]
	p.mu.Unlock()
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
		}
	}
	switch err := ctx.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return &provider.Error{Code: provider.DeadlineExceeded, Message: "the deadline passed", Cause: err}
	default:
		return &provider.Error{Code: provider.Canceled, Message: "the call was canceled", Cause: err}
	}
}

// takeNextFailure consumes the next failure of a method and returns a copy of its error, or nil if no failure is left.
// Each caller gets its own copy of the error.
func takeNextFailure(failures map[provider.Method][]*failure, method provider.Method, secret provider.Secret) error {
	queue := failures[method]
	if len(queue) == 0 {
		return nil
	}
	first := queue[0]
	if first.remainingCalls > 0 {
		if first.remainingCalls--; first.remainingCalls == 0 {
			failures[method] = queue[1:]
		}
	}
	told := *first.err
	told.Message = secret.Redact(told.Message)
	return &told
}
