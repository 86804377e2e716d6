//go:build integration

package life

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millwright/test/integration/rig"
)

// parseItems parses the list that a command prints with -o json.
func parseItems[T any](t *testing.T, text string) []T {
	t.Helper()
	var list struct{ Items []T }
	require.NoError(t, json.Unmarshal([]byte(text), &list), text)
	return list.Items
}

// runMillwright runs a command of millwright, requires its success, and returns its output.
func runMillwright(t *testing.T, arguments ...string) string {
	t.Helper()
	return strings.Join(testRig.RunMillwright(t, arguments...), "\n")
}

// A user replaces a machine, and reads what has happened to it after it is gone.
func TestAMachineIsReplacedFromTheCommandLine(t *testing.T) {
	t.Parallel()
	p := newPool(t, "exchanged", smallProviderSpec, 2, "")
	p.AwaitRunningMachines(t, 2)
	before := machineNames(p, t)
	old := before[0]

	said := runMillwright(t, "replace", "exchanged/"+old, "--dry-run")
	require.Contains(t, said, "makes a new one from its template.\nDry run:")
	require.Equal(t, before, machineNames(p, t), "a dry run deletes nothing")

	runMillwright(t, "preserve", "exchanged/"+old)
	rig.Eventually(t, "a preserved machine is not replaced", func() (bool, any) {
		_, err := testRig.TryRunMillwright(t, "replace", "exchanged/"+old)
		return err != nil && strings.Contains(err.Error(), "is preserved until"), err
	})
	runMillwright(t, "preserve", "exchanged/"+old, "--stop")
	rig.Eventually(t, "the machine is deleted", func() (bool, any) {
		_, err := testRig.TryRunMillwright(t, "replace", "mc", old, "-n", "exchanged", "--reason", "its disk is slow")
		return err == nil, err
	})
	require.Contains(t, awaitEvent(t, "exchanged", old, "RequestApplied").Message, "requested ")
	rig.Eventually(t, "another machine takes its place", func() (bool, any) {
		now := machineNames(p, t)
		return len(now) == 2 && !slices.Contains(now, old), now
	})
	p.AwaitRunningMachines(t, 2)

	type entry struct {
		Kind, Outcome, Page string
	}
	rig.Eventually(t, "the runs of the machine are listed, and all have ended", func() (bool, any) {
		runs := parseItems[entry](t, runMillwright(t, "history", "exchanged/"+old, "-o", "json"))
		open := slices.ContainsFunc(runs, func(r entry) bool { return r.Outcome == "Running" })
		return len(runs) > 0 && !open && strings.HasSuffix(runs[0].Page, "/user-metadata"), runs
	})
	first := runMillwright(t, "history", "exchanged/"+old, "--limit", "1")
	if _, token, more := strings.Cut(first, "--continue "); more {
		second := runMillwright(t, "history", "exchanged/"+old, "--limit", "1", "--continue", token)
		require.NotEqual(t, strings.Split(first, "\n")[1], strings.Split(second, "\n")[1])
	}
	p.Delete(t)
	p.AwaitPoolGone(t)
}

// All parts of an installation say their version.
func TestVersionsAreKnown(t *testing.T) {
	type part struct{ Name, Version, Unknown string }
	rig.Eventually(t, "each part has a version", func() (bool, any) {
		parts := parseItems[part](t, runMillwright(t, "version", "-o", "json"))
		unknown := slices.ContainsFunc(parts, func(p part) bool { return p.Version == "" })
		return len(parts) == 5 && !unknown, parts
	})
}
