// Package forward forwards TCP connections from one network namespace to another.
package forward

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
)

// Dialer connects to the target. Serve calls the Dialer once for each accepted connection.
type Dialer func(ctx context.Context) (net.Conn, error)

// NewAddressDialer returns a Dialer that connects to an address in this process's network namespace.
func NewAddressDialer(address string) Dialer {
	return func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "tcp", address) }
}

// Serve accepts connections and forwards each one to the target until ctx ends. When ctx has ended, Serve closes the
// listener and returns nil. Serve logs a failed connection and continues to forward the other connections.
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
			if err := copyBothDirections(ctx, from, dial); err != nil {
				slog.Warn("pass a connection on", "at", listener.Addr().String(), "from", from.RemoteAddr().String(), "error", err)
			}
		}()
	}
}

// copyBothDirections connects to the target and copies data in both directions until both directions have ended. When
// one side closes its half of the connection, copyBothDirections closes the same half on the other side.
func copyBothDirections(ctx context.Context, from net.Conn, dial Dialer) error {
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
			_ = half.CloseWrite() // the error is ignored, because the whole connection may already be closed
		}
		ended <- err
	}
	go half(to, from)
	go half(from, to)
	_, _ = <-ended, <-ended // errors are expected, because a deleted machine resets its connections
	return nil
}
