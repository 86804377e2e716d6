package engine

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"millwright/devstack/lab/cgroup"
	"millwright/devstack/lab/isolated"
)

//go:embed start.sh
var startScript string

const (
	// startTimeout is the timeout for the first answer of dockerd. An idle machine needs two seconds.
	startTimeout = time.Minute
	// stopTimeout is the time that dockerd has after SIGTERM to stop its containers. After stopTimeout, dockerd and the
	// containers are killed, and their data are not used again.
	stopTimeout = 2 * time.Second
	// cleanupTimeout is the timeout for removing the cgroups after the last process has ended. The kernel removes
	// namespaces in the background.
	cleanupTimeout = 30 * time.Second

	// prefix of a cgroup's name, before the PID of the starting process and a number
	cgroupPrefix = "millwright-engine-"
)

// launch starts process 1 in new namespaces; process 1 starts dockerd. launch returns when dockerd answers.
func (e *Engine) launch(ctx context.Context, root string, shown []string) error {
	if err := removeLeftoverCgroups(); err != nil {
		return err
	}
	groups, err := cgroup.Make(e.CgroupName)
	if err != nil {
		return err
	}
	e.process, err = isolated.Start(isolated.Options{
		Script: startScript, Dir: e.Dir, CgroupFolders: groups, LogPath: e.logPath(),
		Env: []string{
			"PATH=" + searchPath + ":/sbin:/bin",
			"ROOT=" + root,
			"DATA=" + e.Dir,
			"SHOWN=" + strings.Join(shown, "\n"),
			"GROUP=" + e.CgroupName,
			"ADDRESS=" + BridgeAddress + "/24",
		},
	})
	if err != nil {
		return err
	}
	e.PID = e.process.PID
	err = e.process.AwaitSuccess(ctx, startTimeout, func(ctx context.Context) error {
		_, err := e.RunDocker(ctx, nil, "version")
		return err
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, e.LogTail())
	}
	return nil
}

// removeLeftoverCgroups removes the cgroups of killed engines. The name of each cgroup contains the PID of the process
// that started the engine, and this process no longer runs.
func removeLeftoverCgroups() error {
	found, err := filepath.Glob(filepath.Join(cgroup.Root, "*", cgroupPrefix+"*")) // v1
	if err != nil {
		return fmt.Errorf("find cgroups: %w", err)
	}
	unified, err := filepath.Glob(filepath.Join(cgroup.Root, cgroupPrefix+"*")) // v2
	if err != nil {
		return fmt.Errorf("find cgroups: %w", err)
	}
	for _, folder := range append(found, unified...) {
		name := filepath.Base(folder)
		owner, _, _ := strings.Cut(strings.TrimPrefix(name, cgroupPrefix), "-")
		if _, err := os.Stat(filepath.Join("/proc", owner)); err == nil {
			continue
		}
		_ = cgroup.TryRemove(name) // an error is ignored, because the next start of an engine retries the removal
	}
	return nil
}

// Stop ends the engine and all its containers. Stop returns when no process, mount, interface, firewall rule or cgroup
// of the engine is left on this machine; only the data in Dir stay. Stop may be called again.
func (e *Engine) Stop(ctx context.Context) error {
	if e.process != nil {
		e.process.Terminate(stopTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	return cgroup.Remove(ctx, e.CgroupName)
}
