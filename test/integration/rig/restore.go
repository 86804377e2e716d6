//go:build integration

package rig

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"millwright/devstack/component"
)

// SaveEtcdData copies the data of etcd to a new directory. SaveEtcdData stops etcd during the copy, because a copy of
// files that etcd is writing may be unreadable.
func (r *Rig) SaveEtcdData(ctx context.Context, to string) error {
	if err := r.Stack.StopComponent(ctx, component.Etcd); err != nil {
		return fmt.Errorf("stop etcd: %w", err)
	}
	if err := os.CopyFS(to, os.DirFS(r.etcdFolder())); err != nil {
		return fmt.Errorf("copy the store: %w", err)
	}
	return r.Stack.StartComponent(ctx, component.Etcd)
}

// RestoreEtcdData restores the data of etcd from a copy, as an administrator would. RestoreEtcdData stops the API
// server first, and afterwards restarts Kubernetes' own clients with caches. Without a restart, the watches of
// Kubernetes' own clients would continue from a later resource version, and get no events until the API server reaches
// this version. The caller must restart the kubelets (see Rejoin of the cloud's client). The caller must also restart
// the workers and bridges, which exit when they detect the restore.
func (r *Rig) RestoreEtcdData(ctx context.Context, from string) error {
	for _, name := range []string{component.APIServer, component.Etcd} {
		if err := r.Stack.KillComponent(ctx, name); err != nil {
			return fmt.Errorf("kill %s: %w", name, err)
		}
	}
	files, err := filepath.Glob(filepath.Join(r.etcdFolder(), "*"))
	if err != nil {
		return fmt.Errorf("list the store: %w", err)
	}
	for _, file := range files {
		if err := os.RemoveAll(file); err != nil {
			return fmt.Errorf("empty the store: %w", err)
		}
	}
	if err := os.CopyFS(r.etcdFolder(), os.DirFS(from)); err != nil {
		return fmt.Errorf("copy the store back: %w", err)
	}
	for _, name := range []string{component.Etcd, component.APIServer} {
		if err := r.Stack.StartComponent(ctx, name); err != nil {
			return fmt.Errorf("start %s: %w", name, err)
		}
	}
	for _, name := range []string{component.ControllerManager, component.Scheduler, component.Kwok} {
		if err := r.Stack.RestartComponent(ctx, name); err != nil {
			return fmt.Errorf("restart %s: %w", name, err)
		}
	}
	return nil
}

// etcdFolder is the folder of etcd's data.
func (r *Rig) etcdFolder() string { return filepath.Join(r.Stack.Dir(), component.Etcd) }

// ResetTemporal gives Temporal an empty database and bootstraps Temporal, as after the loss of a database without a
// backup. All other components continue to run.
func (r *Rig) ResetTemporal(t *testing.T) {
	t.Helper()
	r.DeleteTemporalData(t)
	require.NoError(t, r.Stack.StartComponent(t.Context(), component.Bootstrap))
}

// DeleteTemporalData kills Temporal, deletes its database and starts Temporal without Millwright's namespace.
// DeleteTemporalData first searches the histories for the canary, because afterwards the histories are lost.
func (r *Rig) DeleteTemporalData(t *testing.T) {
	t.Helper()
	leaks, _, err := r.FindSecretLeaks(t.Context(), CanaryToken)
	require.NoError(t, err)
	require.Empty(t, leaks, "SECRET LEAKED")
	require.NoError(t, r.Stack.KillComponent(t.Context(), component.Temporal))
	files, err := filepath.Glob(filepath.Join(r.Stack.Dir(), component.Temporal, "*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		require.NoError(t, os.Remove(file))
	}
	require.NoError(t, r.Stack.StartComponent(t.Context(), component.Temporal))
}
