//go:build !linux

package engine

import "context"

const groupPrefix = ""

func (e *Engine) launch(context.Context, string, []string) error { return Supported() }

// Stop does nothing: no engine was started.
func (e *Engine) Stop(context.Context) error { return nil }
