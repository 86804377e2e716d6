package driver

import (
	"context"
	"errors"
	"fmt"

	"millwright/provider"
)

// errRequestExpired is the Cause of every error that ExpiredError returns.
var errRequestExpired = errors.New("the request came after its NotAfter")

// ExpiredError returns the error for a create request that the cloud refused because the request arrived after
// CreateRequest.NotAfter. The error means that the request has created no instance and will never create an instance.
func ExpiredError(message string) *provider.Error {
	return &provider.Error{Code: provider.Aborted, Message: message, Cause: errRequestExpired}
}

func isExpiredError(err error) bool { return errors.Is(err, errRequestExpired) }

// toProviderError converts a driver's error to a *provider.Error; nil stays nil. toProviderError adds the formatted
// text before the message, and removes the values of the class's Secret. If the context has ended, the code is Canceled
// or DeadlineExceeded for every driver error. The result does not wrap the driver's error, because a driver's error may
// quote a Secret.
func toProviderError(ctx context.Context, class provider.Class, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	said := provider.Error{Code: provider.CodeOfError(err), Message: err.Error()}
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
	case isExpiredError(err):
		said.Cause = errRequestExpired
	}
	said.Message = fmt.Sprintf(format, args...) + ": " + class.Secret.Redact(said.Message)
	return &said
}
