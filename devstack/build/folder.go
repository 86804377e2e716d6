package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// completionMarker is a file in every complete folder that CachedFolder returns. The folder's modification time is the
// time of its last use.
const completionMarker = ".complete"

// CachedFolder returns the path of a folder in the cache. The recipe contains everything on which the folder's content
// depends. If the cache has no folder for the recipe, CachedFolder calls fill with an empty folder, and moves the
// folder into the cache when fill returns without an error. Several processes may call CachedFolder at once: one
// process fills the folder, and the other processes wait. A second call takes milliseconds. The cache keeps the folders
// of the last two recipes of each name.
func CachedFolder(
	ctx context.Context,
	name, recipe string,
	progress io.Writer,
	fill func(dir string) error,
) (string, error) {
	sum := sha256.Sum256([]byte(recipe))
	return findOrBuildEntry(
		ctx,
		name,
		hex.EncodeToString(sum[:])[:cacheKeyLength],
		completionMarker,
		progress,
		func(entry string) error {
			return fillEntry(entry, name, func(dir string) error {
				if err := fill(dir); err != nil {
					return err
				}
				return os.WriteFile(filepath.Join(dir, completionMarker), nil, 0o644)
			})
		},
	)
}

// findOrBuildEntry returns the cache entry of a name and a key. If the entry lacks the file, findOrBuildEntry calls
// build, but only for one caller at a time.
func findOrBuildEntry(
	ctx context.Context,
	name, key, file string,
	progress io.Writer,
	build func(entry string) error,
) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	entry := filepath.Join(cache, name+"-"+key)
	if checkAndTouchEntry(filepath.Join(entry, file)) {
		return entry, nil
	}
	unlock, err := acquireFileLock(ctx, filepath.Join(cache, name+".lock"), func() {
		_, _ = fmt.Fprintf(progress, "another process builds %s: waiting for it\n", name)
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if checkAndTouchEntry(
		filepath.Join(entry, file),
	) { // another process built the entry while this process waited for the lock
		return entry, nil
	}
	if err := build(entry); err != nil {
		return "", err
	}
	return entry, pruneEntries(cache, name, entry)
}

// fillEntry makes the folder entry. The folder either does not exist or is complete. The caller must have locked the
// name, so an existing temporary folder is from a killed build.
func fillEntry(entry, name string, fill func(dir string) error) error {
	temporary := filepath.Join(filepath.Dir(entry), "."+name+".building")
	if err := os.RemoveAll(temporary); err != nil {
		return fmt.Errorf("remove an unfinished build of %s: %w", name, err)
	}
	if err := os.MkdirAll(temporary, 0o755); err != nil {
		return fmt.Errorf("make room for %s: %w", name, err)
	}
	if err := fill(temporary); err != nil {
		return errors.Join(err, os.RemoveAll(temporary))
	}
	if err := os.Rename(temporary, entry); err != nil {
		return fmt.Errorf("put %s into the cache: %w", name, err)
	}
	return nil
}

// checkAndTouchEntry reports whether a cache entry has the file. checkAndTouchEntry sets the entry's modification time
// to now, so that pruneEntries removes other entries first.
func checkAndTouchEntry(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	now := time.Now()
	_ = os.Chtimes(filepath.Dir(path), now, now) // an error is harmless, for example if the cache is read-only
	return true
}
