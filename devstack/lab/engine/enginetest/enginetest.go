//go:build integration

// Package enginetest has helpers for tests that start container engines.
package enginetest

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millwright/devstack/lab/engine"
	"millwright/devstack/lab/isolated/isolatedtest"
)

// RequireSupport skips a test on a machine that cannot run an engine. In CI (CI=true) RequireSupport fails the test
// instead.
func RequireSupport(t testing.TB) {
	t.Helper()
	isolatedtest.RequireSupport(t, engine.CheckSupport())
}

// NewLeftoverFinder returns a function that lists the engine's leftovers on this machine: processes, mounts, cgroups,
// and Docker's network interfaces. The function may be called after the engine has ended.
func NewLeftoverFinder(t testing.TB, e *engine.Engine) func() []string {
	t.Helper()
	var processes []func() []string
	for _, kind := range []string{"pid", "net", "mnt"} {
		// Processes of containers have their own namespaces, but are in the engine's cgroups.
		processes = append(processes, isolatedtest.NewProcessFinder(t, e.PID, kind))
	}
	// strays lists cgroups and interfaces with Docker's names outside of the engine's namespaces. A cgroup or interface
	// that exists before the engine starts belongs to another engine of the machine.
	strays := func() []string {
		isDockers := func(group string) bool { return group == "docker" || group == "buildkit" }
		return append(
			isolatedtest.FindCgroups(t, isDockers, func(group string) bool { return group == e.CgroupName }),
			dockerInterfaces(t)...)
	}
	before := strays()
	return func() []string {
		found := isolatedtest.FindMounts(t, e.Dir)
		for _, list := range processes {
			found = append(found, list()...)
		}
		found = append(
			found,
			isolatedtest.FindCgroups(
				t,
				func(group string) bool { return group == e.CgroupName },
				func(string) bool { return false },
			)...)
		return append(found, slices.DeleteFunc(strays(), func(name string) bool { return slices.Contains(before, name) })...)
	}
}

// dockerInterfaces lists the interfaces of this network namespace that have Docker's name prefixes.
func dockerInterfaces(t testing.TB) []string {
	t.Helper()
	all, err := net.Interfaces()
	require.NoError(t, err)
	var found []string
	for _, i := range all {
		if strings.HasPrefix(i.Name, "docker") || strings.HasPrefix(i.Name, "br-") || strings.HasPrefix(i.Name, "veth") {
			found = append(found, "interface "+i.Name)
		}
	}
	return found
}
