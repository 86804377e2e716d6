//go:build !linux

package attached

import (
	"errors"
	"os/exec"
)

// Start returns an error: only Linux has parent-death signals.
func Start(*exec.Cmd) error { return errors.New("processes that end with their parent need Linux") }
