//go:build integration

package record

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A history is added under a new name, with its digest. An existing history stays unchanged.
func TestHistoriesAreNeverOverwritten(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, addHistory(root, "v0.1", "rollout/paused", []byte("one")))
	require.NoError(t, addHistory(root, "v0.1", "drain/blocked", []byte("two")))
	file := filepath.Join(root, "v0.1", "rollout", "paused.json.gz")
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	listed, err := os.ReadFile(filepath.Join(root, "v0.1.sum"))
	require.NoError(t, err)

	require.ErrorContains(
		t,
		addHistory(root, "v0.1", "rollout/paused", []byte("three")),
		"v0.1/rollout/paused.json.gz is recorded already",
	)
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, before, after)
	still, err := os.ReadFile(filepath.Join(root, "v0.1.sum"))
	require.NoError(t, err)
	require.Equal(t, string(listed), string(still))

	require.NoError(t, addHistory(root, "2027-01-01", "rollout/paused", []byte("three")), "another folder")
	for _, list := range []string{"v0.1.sum", "2027-01-01.sum"} {
		check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", list)
		check.Dir = root
		out, err := check.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	require.Regexp(t, `(?s)drain/blocked\.json\.gz\n.*rollout/paused\.json\.gz\n$`, string(listed), "sorted by name")
}
