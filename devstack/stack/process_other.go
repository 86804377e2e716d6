//go:build !linux

package stack

import (
	"errors"
	"time"
)

// errUnsupported says why this system has no local stack. The other parts of Millwright are built and tested
// everywhere.
var errUnsupported = errors.New(
	"the local stack needs Linux (parent-death signals, /proc): use docker compose up instead",
)

func checkSystem() error { return errUnsupported }

func processOf(int) (Process, error) { return Process{}, errUnsupported }

func (p Process) alive() bool { return false }

func (p Process) paused() bool { return false }

func (p Process) usage() (time.Duration, int64) { return 0, 0 }
