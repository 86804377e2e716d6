//go:build !linux

package stack

import (
	"errors"
	"time"
)

// errUnsupported is the error on systems other than Linux, which have no local stack. All other parts of Millwright are
// built and tested on every system.
var errUnsupported = errors.New(
	"the local stack needs Linux (parent-death signals, /proc): use docker compose up instead",
)

func checkPlatform() error { return errUnsupported }

func ProcessWithPID(int) (Process, error) { return Process{}, errUnsupported }

func (p Process) isAlive() bool { return false }

func (p Process) isPaused() bool { return false }

func (p Process) ResourceUsage() (time.Duration, int64) { return 0, 0 }
