package fake

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"millwright/provider"
)

// faults are the requested failures, by method.
type faults struct {
	before map[provider.Method][]*failure
	after  map[provider.Method][]*failure
	delays map[provider.Method]time.Duration
	hangs  map[provider.Method]chan struct{}
	calls  map[provider.Method]*atomic.Int64
}

// failure is one error for a number of calls.
type failure struct {
	err  *provider.Error
	left int // number of calls that still fail; zero means no limit
}

func newFaults() faults {
	f := faults{
		before: map[provider.Method][]*failure{}, after: map[provider.Method][]*failure{},
		delays: map[provider.Method]time.Duration{}, hangs: map[provider.Method]chan struct{}{},
		calls: map[provider.Method]*atomic.Int64{},
	}
	for _, method := range provider.Methods() {
		f.calls[method] = new(atomic.Int64)
	}
	return f
}

// Fail makes the next calls of a method return err without effect. Times is their number; zero means all calls until
// Heal. If Fail is called several times for a method, the errors are used in this order.
func (p *Provider) Fail(method provider.Method, times int, err *provider.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before[method] = append(p.before[method], &failure{err: err, left: times})
}

// FailAfter is Fail for calls that return err after their effect, as if the answer were lost.
func (p *Provider) FailAfter(method provider.Method, times int, err *provider.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after[method] = append(p.after[method], &failure{err: err, left: times})
}

// Heal removes the failures of Fail and FailAfter.
func (p *Provider) Heal(method provider.Method) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.before, method)
	delete(p.after, method)
}

// Delay makes each call of a method wait before its effect, or until its context ends; zero removes the delay.
func (p *Provider) Delay(method provider.Method, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delays[method] = delay
}

// Hang makes each call of a method wait before its effect until release is called or its context ends.
func (p *Provider) Hang(method provider.Method) (release func()) {
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

// Calls returns how many times a method was called, including hanging and failed calls.
func (p *Provider) Calls(method provider.Method) int { return int(p.calls[method].Load()) }

// call runs one call in this order: count, delay, hang, failure, effect, failure after the effect. It holds the lock
// while effect runs.
func call[T any](
	ctx context.Context,
	p *Provider,
	method provider.Method,
	secret provider.Secret,
	effect func() (T, error),
) (T, error) {
	var none T
	p.calls[method].Add(1)
	if err := p.wait(ctx, method); err != nil {
		return none, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := take(p.before, method, secret); err != nil {
		return none, err
	}
	result, err := effect()
	if err == nil {
		err = take(p.after, method, secret)
	}
	if err != nil {
		return none, err
	}
	return result, nil
}

// wait waits for the delay and the hang of a method.
func (p *Provider) wait(ctx context.Context, method provider.Method) error {
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

// take uses up one failure of a method; nil if there is none. It returns a copy of the error, so that callers do not
// share it.
func take(failures map[provider.Method][]*failure, method provider.Method, secret provider.Secret) error {
	queue := failures[method]
	if len(queue) == 0 {
		return nil
	}
	first := queue[0]
	if first.left > 0 {
		if first.left--; first.left == 0 {
			failures[method] = queue[1:]
		}
	}
	told := *first.err
	told.Message = secret.Redact(told.Message)
	return &told
}
