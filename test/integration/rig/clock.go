//go:build integration

package rig

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"millwright/devstack/build"
)

// clockVariable is the environment variable with the error of a skewed binary's clock: a duration, negative if the
// clock is behind.
const clockVariable = "MILLWRIGHT_TEST_CLOCK"

// Clock returns the environment of a skewed binary whose clock is ahead by d, or behind if d is negative.
func Clock(d time.Duration) []string { return []string{clockVariable + "=" + d.String()} }

const (
	// readsClock is the line of Go's time.Now that reads the clock. It must be in time.go exactly once.
	readsClock = "\tsec, nsec, mono := runtimeNow()\n"

	// skewsClock is added after that line. The monotonic clock stays right, and with it timers and sleeps.
	skewsClock = "\tsec += testClock\n"

	// skew is a further file of package time.
	skew = `package time

import "syscall"

// testClock is by how many seconds the wall clock is wrong.
var testClock = readTestClock()

func readTestClock() int64 {
	text, set := syscall.Getenv("` + clockVariable + `")
	if !set {
		return 0
	}
	d, err := ParseDuration(text)
	if err != nil {
		panic("` + clockVariable + `: " + err.Error())
	}
	return int64(d / Second)
}
`
)

// SkewedWorker builds a worker whose clock Clock sets, in an existing folder, and returns the worker's path. The first
// call compiles all packages, which takes minutes.
func SkewedWorker(folder string) (string, error) {
	repo, err := build.FindRepo("")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(folder, "skewed-worker")
	return binary, buildSkewed(repo, folder, "./"+build.Worker, binary)
}

// buildSkewed builds a program whose clock Clock sets. From is the folder of its module.
func buildSkewed(from, folder, what, binary string) error {
	overlay, err := writeOverlay(folder)
	if err != nil {
		return err
	}
	command := exec.Command("go", "build", "-trimpath", "-overlay", overlay, "-o", binary, what)
	command.Dir = from
	if text, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s with another clock: %w: %s", what, err, text)
	}
	return nil
}

// writeOverlay writes the changed files of package time, and the overlay file for the go command, whose path it
// returns.
func writeOverlay(folder string) (string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find the sources of Go: %w", err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	text, err := os.ReadFile(filepath.Join(source, "time.go"))
	if err != nil {
		return "", fmt.Errorf("find the sources of Go: %w", err)
	}
	changed, err := patchNow(string(text))
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, content := range map[string]string{"time.go": changed, "testclock.go": skew} {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return "", fmt.Errorf("write a changed file of package time: %w", err)
		}
		replace[filepath.Join(source, name)] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	file := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	return file, nil
}

// patchNow returns the source of package time with a wrong wall clock in time.Now.
func patchNow(source string) (string, error) {
	if n := strings.Count(source, readsClock); n != 1 {
		return "", fmt.Errorf(
			"time.go of this version of Go has the line %q %d times, and not once: adapt clock.go",
			strings.TrimSpace(readsClock),
			n,
		)
	}
	return strings.Replace(source, readsClock, readsClock+skewsClock, 1), nil
}
