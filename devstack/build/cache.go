package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// keptEntriesPerName is the number of cache entries that pruneEntries keeps of each name: the current entry and the
// previous entry. After a switch between two branches, no binary is built again. An entry has about 150 MB.
const keptEntriesPerName = 2

// CacheDir returns the folder of the heavy binaries, and creates the folder if it does not exist. The folder is
// $MILLWRIGHT_CACHE or, by default, "millwright" in the user's cache folder. The folder is outside of every clone.
func CacheDir() (string, error) {
	dir := os.Getenv("MILLWRIGHT_CACHE")
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find the cache folder (set MILLWRIGHT_CACHE): %w", err)
		}
		dir = filepath.Join(base, "millwright")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder: %w", err)
	}
	return dir, nil
}

// pruneEntries removes old entries of a name. pruneEntries keeps the entry keep and the most recently used other
// entries, keptEntriesPerName in total. The caller must have locked the name. A stack that runs a removed binary
// continues, because its processes keep the file open.
func pruneEntries(cache, name, keep string) error {
	found, err := os.ReadDir(cache)
	if err != nil {
		return fmt.Errorf("read the cache: %w", err)
	}
	type used struct {
		path string
		at   time.Time
	}
	var entries []used
	for _, f := range found {
		path := filepath.Join(cache, f.Name())
		if !f.IsDir() || !strings.HasPrefix(f.Name(), name+"-") || path == keep {
			continue
		}
		info, err := f.Info()
		if err != nil {
			return fmt.Errorf("read the cache: %w", err)
		}
		entries = append(entries, used{path, info.ModTime()})
	}
	slices.SortFunc(entries, func(a, b used) int { return b.at.Compare(a.at) })
	var errs []error
	for _, old := range entries[min(keptEntriesPerName-1, len(entries)):] {
		errs = append(errs, os.RemoveAll(old.path))
	}
	return errors.Join(errs...)
}

// acquireFileLock takes an exclusive lock on a file and returns a function that releases the lock. acquireFileLock
// creates the file if absent. The kernel also releases the lock when the process ends. If another process holds the
// lock, acquireFileLock calls waiting once.
func acquireFileLock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	for told := false; ; told = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(&fs.PathError{Op: "lock", Path: path, Err: err}, file.Close())
		}
		if !told {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for lock %s: %w", path, ctx.Err()), file.Close())
		case <-time.After(200 * time.Millisecond):
		}
	}
}
