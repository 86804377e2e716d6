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

// readyFile is in every complete folder of Folder. Its time of modification is the time of the last use of the folder.
const readyFile = ".complete"

// Folder returns the path of a folder in the cache. Recipe has everything on which the folder's content depends. If the
// cache has no folder for the recipe, fill gets the path of an empty folder to fill, which is in the cache after fill
// has returned without an error. Several processes may call Folder at once: one of them fills the folder, and the
// others wait. A second call takes milliseconds. The cache keeps the folders of the last two recipes of each name.
func Folder(ctx context.Context, name, recipe string, progress io.Writer, fill func(dir string) error) (string, error) {
	sum := sha256.Sum256([]byte(recipe))
	return cachedEntry(ctx, name, hex.EncodeToString(sum[:])[:keyLength], readyFile, progress, func(entry string) error {
		return fillEntry(entry, name, func(dir string) error {
			if err := fill(dir); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, readyFile), nil, 0o644)
		})
	})
}

// cachedEntry returns the cache entry of a name and a key. If the entry does not have the file, build makes the entry,
// for one caller at a time.
func cachedEntry(
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
	if markUsed(filepath.Join(entry, file)) {
		return entry, nil
	}
	unlock, err := lockFile(ctx, filepath.Join(cache, name+".lock"), func() {
		_, _ = fmt.Fprintf(progress, "another process builds %s: waiting for it\n", name)
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if markUsed(filepath.Join(entry, file)) { // another process built the entry while this process waited for the lock
		return entry, nil
	}
	if err := build(entry); err != nil {
		return "", err
	}
	return entry, pruneEntries(cache, name, entry)
}

// fillEntry makes the folder entry, which either does not exist or is complete. The caller holds the lock of the name,
// so only a build that was killed can have left a temporary folder.
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

// markUsed reports whether a cache entry has the file. It marks the entry as used now, so that prune removes other
// entries first.
func markUsed(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	now := time.Now()
	_ = os.Chtimes(filepath.Dir(path), now, now) // in a read-only cache this fails without harm
	return true
}
