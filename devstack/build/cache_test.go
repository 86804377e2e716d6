package build

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// createCacheEntry creates a cache entry; age is the time since its last use.
func createCacheEntry(t *testing.T, cache, name string, age time.Duration) string {
	t.Helper()
	dir := filepath.Join(cache, name)
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kubernetes"), []byte("binary"), 0o700))
	require.NoError(t, os.Chtimes(dir, time.Now().Add(-age), time.Now().Add(-age)))
	return dir
}

func TestPruneKeepsTheTwoNewestEntriesOfAName(t *testing.T) {
	cache := t.TempDir()
	oldest := createCacheEntry(t, cache, "kubernetes-1", 4*time.Hour)
	old := createCacheEntry(t, cache, "kubernetes-2", 3*time.Hour)
	recent := createCacheEntry(t, cache, "kubernetes-3", 2*time.Hour)
	fresh := createCacheEntry(t, cache, "kubernetes-4", time.Hour)
	other := createCacheEntry(t, cache, "temporal-1", 9*time.Hour)

	require.NoError(t, pruneEntries(cache, "kubernetes", fresh))
	for _, gone := range []string{oldest, old} {
		assert.NoDirExists(t, gone)
	}
	for _, stays := range []string{recent, fresh, other} {
		assert.DirExists(t, stays)
	}
	require.NoError(t, pruneEntries(cache, "kubernetes", fresh), "again")
	assert.DirExists(t, recent)
}

func TestPruneNeverRemovesTheEntryInUse(t *testing.T) {
	cache := t.TempDir()
	// the entry of an old branch that was checked out again
	inUse := createCacheEntry(t, cache, "kubernetes-1", 9*time.Hour)
	createCacheEntry(t, cache, "kubernetes-2", time.Hour)
	old := createCacheEntry(t, cache, "kubernetes-3", 2*time.Hour)
	require.NoError(t, pruneEntries(cache, "kubernetes", inUse))
	assert.DirExists(t, inUse)
	assert.NoDirExists(t, old)
}

func TestUsingAnEntryMakesItTheNewest(t *testing.T) {
	dir := createCacheEntry(t, t.TempDir(), "kubernetes-1", 9*time.Hour)
	assert.True(t, checkAndTouchEntry(filepath.Join(dir, "kubernetes")))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now(), info.ModTime(), time.Minute)
	assert.False(t, checkAndTouchEntry(filepath.Join(dir, "missing")))
}

func TestCachedBinaryIsNotBuiltAgain(t *testing.T) {
	repo, err := FindRepo("")
	require.NoError(t, err)
	t.Setenv("MILLWRIGHT_CACHE", t.TempDir())
	cache, err := CacheDir()
	require.NoError(t, err)
	module := filepath.Join(repo, "devstack", KubernetesBinary)
	flags, err := goBuildFlags(KubernetesBinary, module)
	require.NoError(t, err)
	key, err := cacheKey(t.Context(), module, flags, nil)
	require.NoError(t, err)
	dir := createCacheEntry(t, cache, KubernetesBinary+"-"+key, time.Hour)

	path, err := HeavyBinaryPath(t.Context(), repo, KubernetesBinary, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, KubernetesBinary), path)
}

func TestSecondBuilderWaitsForTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := acquireFileLock(t.Context(), path, func() { t.Error("nobody else holds it") })
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	_, err = acquireFileLock(ctx, path, cancel) // acquireFileLock calls cancel when it begins to wait
	require.ErrorIs(t, err, context.Canceled)

	unlock()
	unlock, err = acquireFileLock(t.Context(), path, func() {})
	require.NoError(t, err)
	unlock()
}
