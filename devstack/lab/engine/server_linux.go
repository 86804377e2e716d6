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
	// answerWithin bounds the start of dockerd, which takes two seconds on an idle machine.
	answerWithin = time.Minute
	// endWithin is how long dockerd may take to end its containers after SIGTERM. The containers end with dockerd even
	// if that takes longer, and their data are not used again.
	endWithin = 2 * time.Second
	// cleanWithin bounds what the kernel does after the last process has ended: it removes namespaces in the
	// background.
	cleanWithin = 30 * time.Second

	groupPrefix = "millwright-engine-" // followed by the PID of the process that started the engine, and a number
)

// launch creates new namespaces, whose process 1 starts dockerd, and waits until dockerd answers.
func (e *Engine) launch(ctx context.Context, root string, shown []string) error {
	if err := sweepCgroups(); err != nil {
		return err
	}
	groups, err := cgroup.Make(e.Group)
	if err != nil {
		return err
	}
	e.process, err = isolated.Start(isolated.Options{
		Script: startScript, Dir: e.Dir, Groups: groups, Log: e.logPath(),
		Env: []string{
			"PATH=" + searchPath + ":/sbin:/bin",
			"ROOT=" + root,
			"DATA=" + e.Dir,
			"SHOWN=" + strings.Join(shown, "\n"),
			"GROUP=" + e.Group,
			"ADDRESS=" + HostAddress + "/24",
		},
	})
	if err != nil {
		return err
	}
	e.PID = e.process.PID
	err = e.process.Await(ctx, answerWithin, func(ctx context.Context) error {
		_, err := e.Docker(ctx, nil, "version")
		return err
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, e.Log())
	}
	return nil
}

// sweepCgroups removes the cgroups of other engines whose processes have ended. Such an engine was killed, and nothing
// has removed its cgroups.
func sweepCgroups() error {
	found, err := filepath.Glob(filepath.Join(cgroup.Root, "*", groupPrefix+"*")) // v1
	if err != nil {
		return fmt.Errorf("find cgroups: %w", err)
	}
	unified, err := filepath.Glob(filepath.Join(cgroup.Root, groupPrefix+"*")) // v2
	if err != nil {
		return fmt.Errorf("find cgroups: %w", err)
	}
	for _, folder := range append(found, unified...) {
		name := filepath.Base(folder)
		owner, _, _ := strings.Cut(strings.TrimPrefix(name, groupPrefix), "-")
		if _, err := os.Stat(filepath.Join("/proc", owner)); err == nil {
			continue
		}
		_ = cgroup.TryRemove(name) // the next start of an engine tries again
	}
	return nil
}

// Stop ends the engine and all its containers, and returns when nothing of it is left on this machine but the data in
// Dir: no process, mount, interface, firewall rule or cgroup. It may be called again.
func (e *Engine) Stop(ctx context.Context) error {
	if e.process != nil {
		e.process.End(endWithin)
	}
	ctx, cancel := context.WithTimeout(ctx, cleanWithin)
	defer cancel()
	return cgroup.Remove(ctx, e.Group)
}
