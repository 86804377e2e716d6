package commandline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes of all programs. A command may have further exit codes: see WithExitCode.
const (
	exitFailure    = 1
	exitWrongCall  = 2
	exitSignalBase = 128 // plus the number of the signal, as in a shell
)

// SignalError is the cause of the end of a context that a signal has cancelled.
type SignalError struct{ Signal syscall.Signal }

// Error names the signal.
func (e SignalError) Error() string { return "ended by the signal " + e.Signal.String() }

// ExitCode returns the exit code that a shell reports for a process that this signal has ended.
func (e SignalError) ExitCode() int { return exitSignalBase + int(e.Signal) }

// contextWithSignals returns a context that SIGINT or SIGTERM cancels with the cause SignalError. Until the caller
// calls stop, these signals do not end the process.
func contextWithSignals(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	received := make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		select {
		case s := <-received:
			number, _ := s.(syscall.Signal) // always a syscall.Signal: only these two are delivered
			cancel(SignalError{number})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(received)
		cancel(nil)
	}
}

// codedError is an error with an exit code.
type codedError struct {
	error

	code int
}

func (e codedError) Unwrap() error { return e.error }

// ExitCode returns the code.
func (e codedError) ExitCode() int { return e.code }

// WithExitCode returns an error with the text of err. If a command fails with this error, the process exits with the
// code. WithExitCode returns nil if err is nil.
func WithExitCode(err error, code int) error {
	if err == nil {
		return nil
	}
	return codedError{err, code}
}

// InterruptedError returns the error of a command that was to wait for an end, but whose context is done before:
// "the rollout is not known to be complete: ended by the signal interrupt". The error has the exit code of the signal,
// if a signal has cancelled the context.
func InterruptedError(ctx context.Context, unknown string) error {
	return fmt.Errorf("%s: %w", unknown, context.Cause(ctx))
}

// ExitCode returns the exit code of a failed command: 2 for a usage error, the code of WithExitCode, 128 plus the number
// of a signal that ended the command before its purpose was reached, or 1 for any other error.
func ExitCode(err error) int {
	if _, wrong := errors.AsType[usageError](err); wrong {
		return exitWrongCall
	}
	if coded, has := errors.AsType[interface {
		error
		ExitCode() int
	}](err); has {
		return coded.ExitCode()
	}
	return exitFailure
}
