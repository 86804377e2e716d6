//go:build integration

// Package incustest is for tests that start servers of Incus.
package incustest

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"millwright/devstack/component"
	"millwright/devstack/incus"

	"github.com/stretchr/testify/require"
)

// NeedSupport skips a test where no server can run, and says why. In CI (CI=true) it fails the test instead.
func NeedSupport(t testing.TB) {
	t.Helper()
	err := incus.Supported()
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("CI must run this test: %v", err)
	}
	if err != nil {
		t.Skipf("no real machines here: %v", err)
	}
}

// Traces returns a function that lists what exists of a server on this machine: its processes, mounts, loop devices, interface
// and cgroups. It may be called after the server has ended.
func Traces(t testing.TB, s *incus.Server) func() []string {
	t.Helper()
	namespace := filepath.Join("/proc", strconv.Itoa(s.PID), "ns", "pid")
	id, err := os.Readlink(namespace)
	require.NoError(t, err)
	held, err := os.Open(namespace) // so that no other namespace gets the same ID
	require.NoError(t, err)
	t.Cleanup(func() { _ = held.Close() })
	return func() []string {
		found := slices.Concat(processes(t, id), mounts(t, s), cgroups(t, s))
		if _, err := net.InterfaceByName(s.Network.Name); err == nil {
			found = append(found, "interface "+s.Network.Name)
		}
		// losetup compares devices and inodes: the server names the file by its path in its own mount namespace.
		for _, disk := range list(t, filepath.Join(s.Dir, "lib", "disks", "*")) {
			loops, err := exec.Command("losetup", "--associated", disk).Output()
			require.NoError(t, err)
			if len(loops) > 0 {
				found = append(found, "loop device "+string(loops))
			}
		}
		return found
	}
}

func list(t testing.TB, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	require.NoError(t, err)
	return found
}

// processes lists those in the server's PID namespace. Those of instances are in others, but in the server's cgroups.
func processes(t testing.TB, namespace string) []string {
	t.Helper()
	var found []string
	for _, link := range list(t, "/proc/[0-9]*/ns/pid") {
		if id, err := os.Readlink(link); err == nil && id == namespace { // it may have ended meanwhile
			found = append(found, "process "+link)
		}
	}
	return found
}

func mounts(t testing.TB, s *incus.Server) []string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	var found []string
	for line := range bytes.Lines(text) {
		if bytes.Contains(line, []byte(s.Dir)) || bytes.Contains(line, []byte("/incus-root-")) {
			found = append(found, "mount "+string(line))
		}
	}
	return found
}

func isNetwork(name string) bool {
	_, err := component.NetworkNamed(name)
	return err == nil
}

func cgroups(t testing.TB, s *incus.Server) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was removed meanwhile
			return nil
		case err != nil || !entry.IsDir():
			return err
		case entry.Name() == s.Network.Name || entry.Name() == "lxc.pivot": // liblxc's, if it did not stay in the server's folders
			found = append(found, "cgroup "+path)
			return fs.SkipDir
		case isNetwork(entry.Name()): // another server's
			return fs.SkipDir
		}
		return nil
	})
	require.NoError(t, err)
	return found
}
