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

// Back-off of MCM's controller before the next driver call, after a code that MCM considers permanent.
const (
	creationRetryDelay = 3 * time.Minute  // back-off after a creation; MCM's MediumRetry
	deletionRetryDelay = 10 * time.Minute // back-off after a deletion; MCM's LongRetry
)

// callDriver makes one call of the driver. callDriver returns when the driver's call returns or the context is done,
// whichever is first. If the driver ignores the end of the context, the call continues and its answer is lost. A panic
// of the driver becomes an error with code Internal.
func callDriver[Q, A any](
	ctx context.Context,
	class provider.Class,
	method func(context.Context, Q) (*A, error),
	request Q,
) (*A, *driverError) {
	return callDriverWithWaitContext(ctx, ctx, class, method, request)
}

// callDriverWithWaitContext is like callDriver, but with two contexts: it passes ctx to the driver, and waits for the
// driver until the context in the parameter until is done.
func callDriverWithWaitContext[Q, A any](
	ctx, until context.Context,
	class provider.Class,
	method func(context.Context, Q) (*A, error),
	request Q,
) (*A, *driverError) {
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
		return o.answer, toDriverError(class, o.err)
	case <-until.Done():
		return nil, toDriverError(class, until.Err())
	}
}

// contextUntilDeadline returns a context that ends at the deadline of ctx, and ignores a cancellation of ctx. The
// caller must call release.
func contextUntilDeadline(ctx context.Context) (until context.Context, release context.CancelFunc) {
	deadline, has := ctx.Deadline()
	if until = context.WithoutCancel(ctx); !has {
		return until, func() {}
	}
	return context.WithDeadline(until, deadline)
}

// driverError is an error of a driver, with code and message.
type driverError provider.Error

func codeOfDriverError(r *driverError) provider.Code {
	if r == nil {
		return provider.OK
	}
	return r.Code
}

// quotaExceededPattern matches the message of OpenStack's Nova for an exhausted quota: "Quota exceeded for cores:
// Requested 4, but already used 10 of 10 cores". Nova answers with HTTP status 403, and the driver for OpenStack
// reports PermissionDenied, as for wrong credentials. A driver returns only a code and a message, so only the message
// distinguishes an exceeded quota from wrong credentials.
var quotaExceededPattern = regexp.MustCompile(`\bQuota exceeded\b`)

// toDriverError converts a driver's error to code and message; nil stays nil. As in MCM, the text of the error may
// contain the code. The code of an error without a code is Unknown.
func toDriverError(class provider.Class, err error) *driverError {
	if err == nil {
		return nil
	}
	if ours, is := errors.AsType[*provider.Error](err); is {
		return (*driverError)(ours)
	}
	r := &driverError{Code: provider.CodeOfError(err), Message: err.Error()}
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
	if r.Code == provider.PermissionDenied && quotaExceededPattern.MatchString(r.Message) {
		r.Code = provider.ResourceExhausted
	}
	r.Message = strings.Join(
		strings.FieldsFunc(class.Secret.Redact(r.Message), func(c rune) bool { return c == '\n' || c == '\r' || c == '\t' }),
		" ",
	)
	r.Message = cmp.Or(r.Message, "the driver gave no reason")
	return r
}

// toErrorWithRetryAfter converts r to an error for package driver. Drivers return some permanent codes also for
// temporary failures, but Millwright does not retry after a permanent code until a person changes something. If the
// code is permanent, toErrorWithRetryAfter sets RetryAfter to wait, so that Millwright retries like MCM.
func (r *driverError) toErrorWithRetryAfter(wait time.Duration) error {
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

// runningCreations counts the running create calls of the driver in this process. A create call may create its instance
// after its caller has timed out, so a search is not conclusive until the call ends. The zero value is valid.
type runningCreations struct {
	mu         sync.Mutex
	callCounts map[string]int // number of running calls, by namespace/name of the machine
}

func machineKey(machine provider.Machine) string {
	return fmt.Sprintf("%s/%s", machine.Namespace, machine.Name)
}

// beginCall records a running create call. The returned function end removes the record.
func (c *runningCreations) beginCall(machine provider.Machine) (end func()) {
	c.addCalls(machine, 1)
	return func() { c.addCalls(machine, -1) }
}

func (c *runningCreations) addCalls(machine provider.Machine, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.callCounts == nil {
		c.callCounts = map[string]int{}
	}
	if c.callCounts[machineKey(machine)] += n; c.callCounts[machineKey(machine)] == 0 {
		delete(c.callCounts, machineKey(machine))
	}
}

// isRunning reports whether a create call for the machine is running.
func (c *runningCreations) isRunning(machine provider.Machine) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.callCounts[machineKey(machine)] > 0
}
