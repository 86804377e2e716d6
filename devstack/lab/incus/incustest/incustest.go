//go:build integration

// Package incustest has helpers for tests that start servers of Incus.
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

// RequireSupport skips a test on a machine that cannot run a server. In CI (CI=true) RequireSupport fails the test
// instead.
func RequireSupport(t testing.TB) {
	t.Helper()
	isolatedtest.RequireSupport(t, incus.CheckSupport())
}

// NewLeftoverFinder returns a function that lists the server's leftovers on this machine: processes, mounts, loop
// devices, the network interface and cgroups. The function may be called after the server has ended.
func NewLeftoverFinder(t testing.TB, s *incus.Server) func() []string {
	t.Helper()
	// Processes of instances have their own namespaces, but are in the server's cgroups.
	processes := isolatedtest.NewProcessFinder(t, s.PID, "pid")
	isOurs := func(group string) bool {
		// liblxc creates the cgroup lxc.pivot here only if it has left the server's cgroups
		return group == s.Network.Name || group == "lxc.pivot"
	}
	return func() []string {
		found := append(processes(), isolatedtest.FindMounts(t, s.Dir, "/incus-root-")...)
		found = append(found, isolatedtest.FindCgroups(t, isOurs, isNetworkCgroup)...)
		if _, err := net.InterfaceByName(s.Network.Name); err == nil {
			found = append(found, "interface "+s.Network.Name)
		}
		// losetup compares device and inode, because the file has another path in the server's mount namespace.
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

// isNetworkCgroup reports whether a cgroup has a network's name. Only the cgroups of Incus servers have these names.
func isNetworkCgroup(name string) bool {
	_, err := incus.NetworkByName(name)
	return err == nil
}
