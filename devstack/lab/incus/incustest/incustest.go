//go:build integration

// Package incustest is for tests that start servers of Incus.
package incustest

import (
	"net"
	"os/exec"
	"path/filepath"
	"testing"

	"millwright/devstack/lab/incus"
	"millwright/devstack/lab/isolated/isolatedtest"

	"github.com/stretchr/testify/require"
)

// NeedSupport skips a test where no server can run, and says why. In CI (CI=true) it fails the test instead.
func NeedSupport(t testing.TB) {
	t.Helper()
	isolatedtest.NeedSupport(t, incus.Supported())
}

// Traces returns a function that lists what exists of a server on this machine: its processes, mounts, loop devices,
// interface and cgroups. It may be called after the server has ended.
func Traces(t testing.TB, s *incus.Server) func() []string {
	t.Helper()
	// processes of instances are in other namespaces, but in the server's cgroups
	processes := isolatedtest.Processes(t, s.PID, "pid")
	isOurs := func(group string) bool {
		// lxc.pivot is a cgroup of liblxc, if liblxc did not stay in the server's folders.
		return group == s.Network.Name || group == "lxc.pivot"
	}
	return func() []string {
		found := append(processes(), isolatedtest.Mounts(t, s.Dir, "/incus-root-")...)
		found = append(found, isolatedtest.Cgroups(t, isOurs, isNetwork)...)
		if _, err := net.InterfaceByName(s.Network.Name); err == nil {
			found = append(found, "interface "+s.Network.Name)
		}
		// losetup compares devices and inodes: the server names the file by its path in its own mount namespace.
		disks, err := filepath.Glob(filepath.Join(s.Dir, "lib", "disks", "*"))
		require.NoError(t, err)
		for _, disk := range disks {
			loops, err := exec.Command("losetup", "--associated", disk).Output()
			require.NoError(t, err)
			if len(loops) > 0 {
				found = append(found, "loop device "+string(loops))
			}
		}
		return found
	}
}

// isNetwork reports whether a cgroup has the name of a network, and so belongs to a server of Incus.
func isNetwork(name string) bool {
	_, err := incus.NetworkNamed(name)
	return err == nil
}
