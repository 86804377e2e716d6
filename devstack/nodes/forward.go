package nodes

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
)

// forward accepts connections until ctx ends, and passes each one on to the target. It is how machines reach the API server,
// which listens on loopback as everything else does.
func forward(ctx context.Context, listener net.Listener, target string) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		from, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept connections of machines: %w", err)
		}
		go func() {
			if err := pass(ctx, from, target); err != nil {
				slog.Warn("a machine's connection", "from", from.RemoteAddr().String(), "error", err)
			}
		}()
	}
}

// pass copies both directions until both have ended, and tells each side when the other has ended its half.
func pass(ctx context.Context, from net.Conn, target string) error {
	defer func() { _ = from.Close() }()
	to, err := (&net.Dialer{}).DialContext(ctx, "tcp", target)
	if err != nil {
		return err // the API server may be down
	}
	defer func() { _ = to.Close() }()
	stop := context.AfterFunc(ctx, func() { _, _ = from.Close(), to.Close() })
	defer stop()
	ended := make(chan error, 2)
	half := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		if half, ok := to.(*net.TCPConn); ok {
			_ = half.CloseWrite() // fails if the whole connection is closed
		}
		ended <- err
	}
	go half(to, from)
	go half(from, to)
	_, _ = <-ended, <-ended // a machine that was deleted resets its connections
	return nil
}
