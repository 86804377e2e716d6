package mcmdriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"

	"millwright/provider"
)

// How long MCM's controller waits before it calls the driver again after a code that it considers permanent.
const (
	mediumRetry = 3 * time.Minute  // for creations. Source: MediumRetry of MCM
	longRetry   = 10 * time.Minute // for deletions. Source: LongRetry of MCM
)

// ask makes one call of the driver. It returns when the call or the context has ended. If the driver ignores the end of
// the context, the call continues and its answer is lost. A panic of the driver is an error with code Internal.
func ask[Q, A any](
	ctx context.Context,
	class provider.Class,
	method func(context.Context, Q) (*A, error),
	request Q,
) (*A, *refused) {
	return askUntil(ctx, ctx, class, method, request)
}

// askUntil is ask with two contexts: the driver gets ctx, and askUntil returns when until has ended.
func askUntil[Q, A any](
	ctx, until context.Context,
	class provider.Class,
	method func(context.Context, Q) (*A, error),
	request Q,
) (*A, *refused) {
	type outcome struct {
		answer *A
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if cause := recover(); cause != nil {
				o.err = provider.Errorf(provider.Internal, "the driver panicked: %v", cause)
			}
			done <- o
		}()
		o.answer, o.err = method(ctx, request)
	}()
	select {
	case o := <-done:
		return o.answer, refusalOf(class, o.err)
	case <-until.Done():
		return nil, refusalOf(class, until.Err())
	}
}

// deadlineOf returns a context that ends at the deadline of ctx, but not when ctx is cancelled. The caller must call
// release.
func deadlineOf(ctx context.Context) (until context.Context, release context.CancelFunc) {
	deadline, has := ctx.Deadline()
	if until = context.WithoutCancel(ctx); !has {
		return until, func() {}
	}
	return context.WithDeadline(until, deadline)
}

// refused is an error of a driver.
type refused provider.Error

func codeOf(r *refused) provider.Code {
	if r == nil {
		return provider.OK
	}
	return r.Code
}

// quotaExceeded matches the message of OpenStack's Nova for a quota that is used up: "Quota exceeded for cores:
// Requested 4, but already used 10 of 10 cores". Nova answers 403, which its driver reports as PermissionDenied, as if
// the credentials were wrong. A driver passes on the code and the message alone, so the message must distinguish the
// two.
var quotaExceeded = regexp.MustCompile(`\bQuota exceeded\b`)

// refusalOf returns code and message of a driver's error; nil for nil. As in MCM, the code may also be in the text of
// the error. An error without a code is Unknown.
func refusalOf(class provider.Class, err error) *refused {
	if err == nil {
		return nil
	}
	if ours, is := errors.AsType[*provider.Error](err); is {
		return (*refused)(ours)
	}
	r := &refused{Code: provider.CodeOf(err), Message: err.Error()}
	coded, is := errors.AsType[*status.Status](err)
	if !is {
		coded, is = status.FromError(err)
	}
	if is {
		r.Code, r.Message = provider.Code(coded.Code()), coded.Message()
	}
	if r.Code <= provider.OK || r.Code > provider.NotInitialized {
		r.Code = provider.Unknown
	}
	if r.Code == provider.PermissionDenied && quotaExceeded.MatchString(r.Message) {
		r.Code = provider.ResourceExhausted
	}
	r.Message = strings.Join(
		strings.FieldsFunc(class.Secret.Redact(r.Message), func(c rune) bool { return c == '\n' || c == '\r' || c == '\t' }),
		" ",
	)
	r.Message = cmp.Or(r.Message, "the driver gave no reason")
	return r
}

// after returns the error for package driver. Drivers use some codes also for failures that pass, although Millwright
// would wait for a person after these codes. So the error then says to call again after the time wait, as MCM does.
func (r *refused) after(wait time.Duration) error {
	err := provider.Error(*r)
	switch err.Code {
	case provider.InvalidArgument,
		provider.FailedPrecondition,
		provider.OutOfRange,
		provider.Unimplemented,
		provider.AlreadyExists,
		provider.PermissionDenied,
		provider.Unauthenticated:
		err.RetryAfter = wait
	default: // Millwright retries these codes with its own back-off
	}
	return &err
}

// creations are the create calls of the driver that run in this process. A call whose caller has given up may still
// make an instance, so no search is conclusive before the call has ended. The zero value is valid.
type creations struct {
	mu      sync.Mutex
	running map[string]int // number of calls, by the key of the machine
}

func key(machine provider.Machine) string {
	return fmt.Sprintf("%s/%s", machine.Namespace, machine.Name)
}

// begin records a call until end is called.
func (c *creations) begin(machine provider.Machine) (end func()) {
	c.add(machine, 1)
	return func() { c.add(machine, -1) }
}

func (c *creations) add(machine provider.Machine, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.running = map[string]int{}
	}
	if c.running[key(machine)] += n; c.running[key(machine)] == 0 {
		delete(c.running, key(machine))
	}
}

// run reports whether a call for the machine runs.
func (c *creations) run(machine provider.Machine) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[key(machine)] > 0
}
