package build

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCachedFolderIsFilledOnceForEachKey(t *testing.T) {
	t.Setenv("MILLWRIGHT_CACHE", t.TempDir())
	filled := 0
	fill := func(dir string) error {
		filled++
		return os.WriteFile(filepath.Join(dir, "content"), nil, 0o600)
	}
	first, err := CachedFolder(t.Context(), "root", "one", io.Discard, fill)
	require.NoError(t, err)
	again, err := CachedFolder(t.Context(), "root", "one", io.Discard, fill)
	require.NoError(t, err)
	assert.Equal(t, first, again)
	assert.FileExists(t, filepath.Join(first, "content"))
	other, err := CachedFolder(t.Context(), "root", "two", io.Discard, fill)
	require.NoError(t, err)
	assert.NotEqual(t, first, other)
	assert.Equal(t, 2, filled)
}

func TestFolderIsRemovedIfItsFillFails(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("MILLWRIGHT_CACHE", cache)
	broken := errors.New("disk is full")
	_, err := CachedFolder(t.Context(), "root", "one", io.Discard, func(dir string) error {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "half"), nil, 0o600))
		return broken
	})
	require.ErrorIs(t, err, broken)
	left, err := filepath.Glob(filepath.Join(cache, "root-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}
