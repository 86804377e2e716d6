//go:build integration

// Package isolatedtest has helpers for tests that start servers in their own namespaces. The helpers find the
// processes, mounts and cgroups of a server on this machine.
package isolatedtest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"millwright/devstack/lab/cgroup"
)

// RequireSupport skips a test if unsupported is not nil, with this error as the reason. In CI (CI=true) RequireSupport
// fails the test instead.
func RequireSupport(t testing.TB, unsupported error) {
	t.Helper()
	if unsupported != nil && os.Getenv("CI") == "true" {
		t.Fatalf("CI must run this test: %v", unsupported)
	}
	if unsupported != nil {
		t.Skipf("not here: %v", unsupported)
	}
}

// NewProcessFinder returns a function that lists the processes in a namespace of process pid. kind is "pid", "net" or
// "mnt". The function may be called after process pid has ended.
func NewProcessFinder(t testing.TB, pid int, kind string) func() []string {
	t.Helper()
	namespace := filepath.Join("/proc", strconv.Itoa(pid), "ns", kind)
	id, err := os.Readlink(namespace)
	require.NoError(t, err)
	held, err := os.Open(namespace) // an open file keeps the namespace ID from being reused
	require.NoError(t, err)
	t.Cleanup(func() { _ = held.Close() })
	return func() []string {
		links, err := filepath.Glob("/proc/[0-9]*/ns/" + kind)
		require.NoError(t, err)
		var found []string
		for _, link := range links {
			if other, err := os.Readlink(link); err == nil && other == id { // an error means that the process has ended
				found = append(found, "process "+link)
			}
		}
		return found
	}
}

// FindMounts lists the mounts of this mount namespace whose line in /proc/self/mounts contains one of the texts.
func FindMounts(t testing.TB, texts ...string) []string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	var found []string
	for line := range bytes.Lines(mounts) {
		for _, text := range texts {
			if bytes.Contains(line, []byte(text)) {
				found = append(found, "mount "+string(line))
				break
			}
		}
	}
	return found
}

// FindCgroups lists the cgroups for which isOurs, called with the cgroup's name, returns true. FindCgroups does not
// search below these cgroups, nor below cgroups for which isOthers returns true.
func FindCgroups(t testing.TB, isOurs, isOthers func(name string) bool) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(cgroup.Root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // the folder was removed during the walk
			return nil
		case err != nil || !entry.IsDir():
			return err
		case isOurs(entry.Name()):
			found = append(found, "cgroup "+path)
			return fs.SkipDir
		case isOthers(entry.Name()):
			return fs.SkipDir
		}
		return nil
	})
	require.NoError(t, err)
	return found
}
