package provider

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Code is the reason why a call of a Provider failed. The codes have the same numbers and names as in
// machine-controller-manager (MCM). Codes are stored in Temporal histories and in the status of Machines. New codes may
// be added, but existing codes must not change.
type Code int

// The codes of MCM. An Error never has the code OK.
const (
	OK                 Code = 0
	Canceled           Code = 1
	Unknown            Code = 2
	InvalidArgument    Code = 3
	DeadlineExceeded   Code = 4
	NotFound           Code = 5
	AlreadyExists      Code = 6
	PermissionDenied   Code = 7
	ResourceExhausted  Code = 8
	FailedPrecondition Code = 9
	Aborted            Code = 10
	OutOfRange         Code = 11
	Unimplemented      Code = 12
	Internal           Code = 13
	Unavailable        Code = 14
	DataLoss           Code = 15
	Unauthenticated    Code = 16
	NotInitialized     Code = 17 // NotInitialized.String() returns "Uninitialized"
)

// Codes returns every code that an Error can carry, in ascending order: all codes except OK.
func Codes() []Code {
	codes := make([]Code, 0, int(NotInitialized))
	for c := Canceled; c <= NotInitialized; c++ {
		codes = append(codes, c)
	}
	return codes
}

// String returns the name of the code, which users see in lastOperation.errorCode, or "Unknown" if there is no such
// code.
func (c Code) String() string {
	names := [...]string{
		"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists", "PermissionDenied",
		"ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable",
		"DataLoss", "Unauthenticated", "Uninitialized",
	}
	if c < OK || int(c) >= len(names) {
		return names[Unknown]
	}
	return names[c]
}

// ParseCode returns the code with a name; it is the inverse of Code.String. ParseCode returns Unknown for any other
// text.
func ParseCode(name string) Code {
	for _, c := range Codes() {
		if c.String() == name {
			return c
		}
	}
	return Unknown
}

// Error is an error of a Provider. Message is one short sentence for people, without values of Secrets and without
// copies of requests. No decision depends on Message.
type Error struct {
	Code       Code
	Message    string
	RetryAfter time.Duration // how long the cloud asked to wait before the next call; zero if it did not ask
	Instance   *Instance     // set with code NotInitialized, and with AlreadyExists from ForeignInstanceError
	Cause      error         // used by errors.Is and errors.As; never printed
}

// Errorf returns an Error with a formatted message.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (e *Error) Error() string { return e.Message + " (" + e.Code.String() + ")" }

// Unwrap returns the Cause.
func (e *Error) Unwrap() error { return e.Cause }

// CodeOfError returns the code of err. If the chain of err contains an *Error, the code is the code of the first
// *Error. Otherwise, the code is OK for nil, DeadlineExceeded or Canceled for a context error, and Unknown for any
// other error.
func CodeOfError(err error) Code {
	var e *Error
	switch {
	case err == nil:
		return OK
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, context.DeadlineExceeded):
		return DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return Canceled
	default:
		return Unknown
	}
}
