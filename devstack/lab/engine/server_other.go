//go:build !linux

package engine

import "context"

const cgroupPrefix = ""

func (e *Engine) launch(context.Context, string, []string) error { return CheckSupport() }

// Stop does nothing, because engines need Linux.
func (e *Engine) Stop(context.Context) error { return nil }
