package driver

import (
	"context"
	"errors"
	"fmt"

	"millwright/provider"
)

// errExpired is the cause of an error of Expired.
var errExpired = errors.New("the request came after its NotAfter")

// Expired is the error of a create request that the cloud refused because it came after Request.NotAfter. It says that
// the request created nothing and never will.
func Expired(message string) *provider.Error {
	return &provider.Error{Code: provider.Aborted, Message: message, Cause: errExpired}
}

func isExpired(err error) bool { return errors.Is(err, errExpired) }

// describe turns an error of a driver into an error of a provider: it adds to the message what was tried, and removes
// the values of the class's Secret. If the context has ended, the result is Canceled or DeadlineExceeded, whatever the
// driver returned. The result does not wrap the driver's error, because that may quote a Secret. It returns nil for
// nil.
func describe(ctx context.Context, class provider.Class, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	said := provider.Error{Code: provider.CodeOf(err), Message: err.Error()}
	if typed, ok := errors.AsType[*provider.Error](err); ok {
		said = *typed
	}
	said.Cause = nil
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		said = provider.Error{Code: provider.Canceled, Message: "the call was canceled", Cause: context.Canceled}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		said = provider.Error{
			Code:    provider.DeadlineExceeded,
			Message: "the cloud did not answer before the deadline",
			Cause:   context.DeadlineExceeded,
		}
	case isExpired(err):
		said.Cause = errExpired
	}
	said.Message = fmt.Sprintf(format, args...) + ": " + class.Secret.Redact(said.Message)
	return &said
}
