//go:build !linux

package incus

import (
	"context"
	"errors"
	"time"
)

const (
	searchPath    = ""
	retryInterval = time.Second
)

func (s *Server) launch(context.Context, string) error { return CheckSupport() }

// Done returns the channel of the server's process. No server can be started without Linux.
func (s *Server) Done() <-chan struct{} { return s.process.Done() }

// Stop does nothing, because servers need Linux.
func (s *Server) Stop(context.Context) error { return nil }

func (s *Server) removeLeftovers(context.Context) error {
	return errors.New("real machines need Linux")
}
