//go:build !linux

package isolated

import (
	"context"
	"errors"
	"net"
	"time"
)

var errUnsupported = errors.New("namespaces need Linux")

// Start fails: there are no namespaces.
func Start(Options) (*Process, error) { return nil, errUnsupported }

// End does nothing: no process was started.
func (p *Process) End(time.Duration) {}

// Await fails: no process was started.
func (p *Process) Await(context.Context, time.Duration, func(context.Context) error) error {
	return errUnsupported
}

// Listen fails: no process was started.
func (p *Process) Listen(string) (net.Listener, error) { return nil, errUnsupported }

// Dial fails: no process was started.
func (p *Process) Dial(context.Context, string) (net.Conn, error) { return nil, errUnsupported }
