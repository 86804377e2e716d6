// Package forward passes TCP connections on from one network namespace to another.
package forward

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
)

// Dialer connects to the target of one accepted connection.
type Dialer func(ctx context.Context) (net.Conn, error)

// To returns a Dialer for an address in the network namespace of this process.
func To(address string) Dialer {
	return func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "tcp", address) }
}

// Serve accepts connections until ctx ends, and passes each one on to the target. It closes the listener, and returns
// nil when ctx has ended. A connection that fails is logged, and ends no other.
func Serve(ctx context.Context, listener net.Listener, dial Dialer) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		from, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept connections at %s: %w", listener.Addr(), err)
		}
		go func() {
			if err := copyBoth(ctx, from, dial); err != nil {
				slog.Warn("pass a connection on", "at", listener.Addr().String(), "from", from.RemoteAddr().String(), "error", err)
			}
		}()
	}
}

// copyBoth connects to the target, and copies data in both directions until both have ended. When one side has ended
// its half of a connection, copyBoth ends that half at the other side, too.
func copyBoth(ctx context.Context, from net.Conn, dial Dialer) error {
	defer func() { _ = from.Close() }()
	to, err := dial(ctx)
	if err != nil {
		return err // the target may be down
	}
	defer func() { _ = to.Close() }()
	stop := context.AfterFunc(ctx, func() { _, _ = from.Close(), to.Close() })
	defer stop()
	ended := make(chan error, 2)
	half := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		if half, ok := to.(*net.TCPConn); ok {
			_ = half.CloseWrite() // this fails if the whole connection is closed already
		}
		ended <- err
	}
	go half(to, from)
	go half(from, to)
	_, _ = <-ended, <-ended // errors are normal: a machine that was deleted resets its connections
	return nil
}
