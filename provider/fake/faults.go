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
	failuresBefore map[provider.Method][]*failure
	failuresAfter  map[provider.Method][]*failure
	delays         map[provider.Method]time.Duration
	hangs          map[provider.Method]chan struct{}
	callCounts     map[provider.Method]*atomic.Int64
}

// failure is an error that a limited number of calls returns.
type failure struct {
	err       *provider.Error
	remaining int // number of calls that will still fail; zero means no limit
}

func newFaults() faults {
	f := faults{
		failuresBefore: map[provider.Method][]*failure{}, failuresAfter: map[provider.Method][]*failure{},
		delays: map[provider.Method]time.Duration{}, hangs: map[provider.Method]chan struct{}{},
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
	p.failuresBefore[method] = append(p.failuresBefore[method], &failure{err: err, remaining: times})
}

// FailCallsAfterEffect makes the next calls of a method return err after their effect, as if the answer were lost.
// FailCallsAfterEffect is otherwise like FailCalls.
func (p *Provider) FailCallsAfterEffect(method provider.Method, times int, err *provider.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failuresAfter[method] = append(p.failuresAfter[method], &failure{err: err, remaining: times})
}

// EndFailures removes all failures of a method that FailCalls and FailCallsAfterEffect have added.
func (p *Provider) EndFailures(method provider.Method) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.failuresBefore, method)
	delete(p.failuresAfter, method)
}

// DelayCalls makes each call of a method wait before its effect. The wait ends early if the context of the call is
// done. Zero removes the delay.
func (p *Provider) DelayCalls(method provider.Method, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delays[method] = delay
}

// HangCalls makes each call of a method wait before its effect. The wait ends when release is called or the context of
// the call is done.
func (p *Provider) HangCalls(method provider.Method) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gate := make(chan struct{})
	p.hangs[method] = gate
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.hangs[method] == gate {
			delete(p.hangs, method)
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
	if err := p.waitDelayAndHang(ctx, method); err != nil {
		return none, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := takeNextFailure(p.failuresBefore, method, secret); err != nil {
		return none, err
	}
	result, err := effect()
	if err == nil {
		err = takeNextFailure(p.failuresAfter, method, secret)
	}
	if err != nil {
		return none, err
	}
	return result, nil
}

// waitDelayAndHang waits for the delay and the hang of a method.
func (p *Provider) waitDelayAndHang(ctx context.Context, method provider.Method) error {
	p.mu.Lock()
	delay, gate := p.delays[method], p.hangs[method]
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
	if first.remaining > 0 {
		if first.remaining--; first.remaining == 0 {
			failures[method] = queue[1:]
		}
	}
	told := *first.err
	told.Message = secret.Redact(told.Message)
	return &told
}
