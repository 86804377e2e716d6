//go:build integration

package rig

import (
	"os"
	"path/filepath"
	"testing"

	"millwright/devstack/component"

	"github.com/stretchr/testify/require"
)

// WipeTemporal gives Temporal an empty database and bootstraps it, as after the loss of a database without a backup.
// All other components keep running.
func (r *Rig) WipeTemporal(t *testing.T) {
	t.Helper()
	r.EmptyTemporal(t)
	require.NoError(t, r.Stack.Start(t.Context(), component.Bootstrap))
}

// EmptyTemporal kills Temporal, removes its database and starts it without the namespace. It first searches the
// histories for the canary, because they are lost afterwards.
func (r *Rig) EmptyTemporal(t *testing.T) {
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
}
