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

// clockVariable is the environment variable that sets the clock error of a skewed binary. The error is a duration,
// which is negative if the clock is behind.
const clockVariable = "MILLWRIGHT_TEST_CLOCK"

// ClockEnvironment returns the environment of a skewed binary whose clock is ahead by d. If d is negative, the binary's
// clock is behind.
func ClockEnvironment(d time.Duration) []string { return []string{clockVariable + "=" + d.String()} }

const (
	// clockReadLine is the line of Go's time.Now that reads the clock. The file time.go must contain this line exactly
	// once.
	clockReadLine = "\tsec, nsec, mono := runtimeNow()\n"

	// clockSkewLine is inserted after clockReadLine. clockSkewLine does not change the monotonic clock, so timers and
	// sleeps stay right.
	clockSkewLine = "\tsec += testClock\n"

	// clockSkewSource is the source of a file that the overlay adds to package time.
	clockSkewSource = `package time

import "syscall"

// testClock is the error of the wall clock in seconds.
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

// BuildClockSkewedWorker builds a worker in an existing folder, and returns the worker's path. The environment of
// ClockEnvironment sets the worker's clock error. The first call compiles all packages, which takes minutes.
func BuildClockSkewedWorker(folder string) (string, error) {
	repo, err := build.FindRepo("")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(folder, "skewed-worker")
	return binary, buildClockSkewedProgram(repo, folder, "./"+build.WorkerFolder, binary)
}

// buildClockSkewedProgram builds a program that reads its clock error from clockVariable. The parameter from is the
// folder of the program's Go module.
func buildClockSkewedProgram(from, folder, what, binary string) error {
	overlay, err := writeBuildOverlay(folder)
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

// writeBuildOverlay writes the changed files of package time and the overlay file for the go command. writeBuildOverlay
// returns the path of the overlay file.
func writeBuildOverlay(folder string) (string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find the sources of Go: %w", err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	text, err := os.ReadFile(filepath.Join(source, "time.go"))
	if err != nil {
		return "", fmt.Errorf("find the sources of Go: %w", err)
	}
	changed, err := patchTimeNow(string(text))
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, content := range map[string]string{"time.go": changed, "testclock.go": clockSkewSource} {
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

// patchTimeNow returns the source of package time with clockSkewLine in time.Now.
func patchTimeNow(source string) (string, error) {
	if n := strings.Count(source, clockReadLine); n != 1 {
		return "", fmt.Errorf(
			"time.go of this version of Go has the line %q %d times, and not once: adapt clock.go",
			strings.TrimSpace(clockReadLine),
			n,
		)
	}
	return strings.Replace(source, clockReadLine, clockReadLine+clockSkewLine, 1), nil
}
