//go:build integration

package rig

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const clockProgram = `package main

import (
	"fmt"
	"time"
)

func main() {
	begun := time.Now()
	time.Sleep(10 * time.Millisecond)
	if d := time.Since(begun); d < 10*time.Millisecond {
		panic(d)
	}
	fmt.Print(time.Now().Format(time.RFC3339))
}
`

func TestProgramBuiltWithASkewedClock(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "main.go"), []byte(clockProgram), 0o600))
	require.NoError(t, buildClockSkewedProgram(folder, folder, "main.go", filepath.Join(folder, "main")))
	for _, by := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		command := exec.Command(filepath.Join(folder, "main"))
		command.Env = ClockEnvironment(by)
		began := time.Now().Truncate(time.Second) // the binary prints whole seconds
		text, err := command.Output()
		require.NoError(t, err)
		told, err := time.Parse(time.RFC3339, string(text))
		require.NoError(t, err)
		require.False(t, told.Add(-by).Before(began), "%s", told)
		require.False(t, told.Add(-by).After(time.Now()), "%s", told)
	}
}

func TestUnknownSourceOfTimeNowIsAnError(t *testing.T) {
	_, err := patchTimeNow("package time")
	require.ErrorContains(t, err, "adapt clock.go")
}
