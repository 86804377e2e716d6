//go:build !linux

package attached

import (
	"errors"
	"os/exec"
)

// StartCommand returns an error, because only Linux has parent-death signals.
func StartCommand(*exec.Cmd) error {
	return errors.New("processes that end with their parent need Linux")
}
