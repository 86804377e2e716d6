//go:build !linux

package incus

import (
	"context"
	"errors"
	"time"
)

const (
	path       = ""
	retryEvery = time.Second
)

func (s *Server) launch(context.Context, string) error { return Supported() }

// Done is closed when the server has ended: here, none was started.
func (s *Server) Done() <-chan struct{} { return s.process.Done() }

// Stop does nothing: no server was started.
func (s *Server) Stop(context.Context) error { return nil }

func (s *Server) clean(context.Context) error { return errors.New("real machines need Linux") }
