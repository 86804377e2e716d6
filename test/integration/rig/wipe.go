//go:build integration

package rig

import (
	"os"
	"path/filepath"
	"testing"

	"millwright/devstack/component"

	"github.com/stretchr/testify/require"
)

// WipeTemporal kills Temporal, takes its whole database away and gives it an empty one, as after a disaster without a
// backup. All else goes on meanwhile. What the histories held is searched for the canary before, since nobody can do it later.
func (r *Rig) WipeTemporal(t *testing.T) {
	t.Helper()
	leaks, _, err := r.Leaks(t.Context(), Canary)
	require.NoError(t, err)
	require.Empty(t, leaks, "SECRET LEAKED")
	require.NoError(t, r.Stack.Kill(t.Context(), component.Temporal))
	files, err := filepath.Glob(filepath.Join(r.Stack.Dir(), component.Temporal, "*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		require.NoError(t, os.Remove(file))
	}
	require.NoError(t, r.Stack.Start(t.Context(), component.Temporal))
	require.NoError(t, r.Stack.Start(t.Context(), component.Bootstrap))
}
