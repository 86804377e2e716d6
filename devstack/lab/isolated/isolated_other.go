//go:build !linux

package isolated

import (
	"context"
	"errors"
	"net"
	"time"
)

var errUnsupported = errors.New("namespaces need Linux")

// Start fails, because namespaces need Linux.
func Start(Options) (*Process, error) { return nil, errUnsupported }

// Terminate does nothing, because Start never succeeds.
func (p *Process) Terminate(time.Duration) {}

// AwaitSuccess fails, because Start never succeeds.
func (p *Process) AwaitSuccess(context.Context, time.Duration, func(context.Context) error) error {
	return errUnsupported
}

// Listen fails, because Start never succeeds.
func (p *Process) Listen(string) (net.Listener, error) { return nil, errUnsupported }

// Dial fails, because Start never succeeds.
func (p *Process) Dial(context.Context, string) (net.Conn, error) { return nil, errUnsupported }
