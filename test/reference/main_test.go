package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestThePagesAreThoseOfTheCode(t *testing.T) {
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
	assert.Contains(t, keys, "It has the effect of `force-deletion`, and a reason.", "no names of constants")
	assert.NotRegexp(t, constantName, keys)
	assert.NotContains(t, words, "|  |", "each word has a meaning")
	assert.Contains(t, temporal, "| `Stuck` | Bool | ")
	assert.Contains(t, temporal, "| `hold` | required | `inAdvance` | ")
	assert.Contains(t, temporal, "| `actor` | who requests it; ")
	assert.NotContains(t, temporal, "|  |", "everything has a meaning")
}
