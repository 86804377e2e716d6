// Package observerstest runs the tools of Prometheus and Alertmanager in tests.
package observerstest

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"millwright/devstack/lab/observers"
)

// RunTool runs a tool and requires that it succeeds. If the Debian packages are not available, RunTool skips the test,
// or fails it in CI (CI=true).
func RunTool(t *testing.T, tool string, arguments ...string) {
	t.Helper()
	program, err := observers.ProgramPath(t.Context(), tool, t.Output())
	if err != nil && os.Getenv("CI") != "true" {
		t.Skipf("needs %s: %s", tool, err)
	}
	require.NoError(t, err)
	output, err := exec.CommandContext(t.Context(), program, arguments...).CombinedOutput()
	require.NoError(t, err, "%s", output)
}
