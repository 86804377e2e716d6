package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReferencePagesMatchTheCode(t *testing.T) {
	const repo = "../.."
	words, err := wordsPage(repo)
	require.NoError(t, err)
	keys, err := keysPage(repo)
	require.NoError(t, err)
	temporal, err := temporalPage(repo)
	require.NoError(t, err)
	for name, page := range map[string]string{"words.md": words, "keys.md": keys, "temporal.md": temporal} {
		written, err := os.ReadFile(filepath.Join(repo, "docs", "reference", name))
		require.NoError(t, err)
		assert.Equal(t, page, string(written), "run make generate")
	}
	assert.Contains(t, words, "| `ReplacementHeld` | failed machines are not replaced now |")
	assert.Contains(t, keys, "| `drain.machine.sapcloud.io/hold` | the deletion stays in its present stage.")
	assert.Contains(
		t,
		keys,
		"The annotation has the effect of `force-deletion`, and also names a reason.",
		"no names of constants",
	)
	assert.NotRegexp(t, constantNamePattern, keys)
	assert.NotContains(t, words, "|  |", "each word has a meaning")
	assert.Contains(t, temporal, "| `Stuck` | Bool | ")
	assert.Contains(t, temporal, "| `hold` | required | `inAdvance` | ")
	assert.Contains(t, temporal, "| `actor` | who requests the command; ")
	assert.NotContains(t, temporal, "|  |", "everything has a meaning")
}
