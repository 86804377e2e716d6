//go:build integration

package record

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// From v0.1 on, a history that exists is not recorded anew, and a new one is.
func TestHistoriesAreFrozenFromV01(t *testing.T) {
	repo := t.TempDir()
	git := func(arguments ...string) {
		t.Helper()
		all := append([]string{"-C", repo, "-c", "user.name=n", "-c", "user.email=e", "-c", "tag.gpgSign=false", "-c", "commit.gpgSign=false"}, arguments...)
		out, err := exec.Command("git", all...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "one")
	old := filepath.Join(repo, "old.json.gz")
	require.NoError(t, os.WriteFile(old, nil, 0o600))
	require.NoError(t, frozen(repo, old), "before v0.1")
	git("checkout", "-q", "-b", "elsewhere")
	git("commit", "-q", "--allow-empty", "-m", "two")
	git("tag", "v0.1.0")
	git("checkout", "-q", "-")
	require.NoError(t, frozen(repo, old), "v0.1 is of another branch")
	git("merge", "-q", "elsewhere")
	require.ErrorContains(t, frozen(repo, old), "old.json.gz is frozen since v0.1.0")
	require.NoError(t, frozen(repo, filepath.Join(repo, "new.json.gz")))
}
