// Package cgroup finds, makes and removes folders in the cgroup hierarchies. When a server that ran in namespaces of
// its own has ended, the kernel removes everything of the server except these folders.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Root is the folder in which Linux mounts its cgroup hierarchies, or the mount point of the only one.
const Root = "/sys/fs/cgroup"

const retryEvery = 50 * time.Millisecond

// Folders returns the paths of a group. With cgroup v2 there is one, with v1 one for each controller.
func Folders(name string) ([]string, error) {
	roots := []string{Root}
	if _, err := os.Stat(filepath.Join(Root, "cgroup.controllers")); err != nil { // v1
		if roots, err = filepath.Glob(filepath.Join(Root, "*", "cgroup.procs")); err != nil {
			return nil, fmt.Errorf("find the cgroup hierarchies: %w", err)
		}
		for i := range roots {
			roots[i] = filepath.Dir(roots[i])
		}
	}
	var folders []string
	for _, root := range roots {
		if actual, err := filepath.EvalSymlinks(root); err != nil || actual != root {
			continue // cpu and cpuacct are often two names of one hierarchy
		}
		folders = append(folders, filepath.Join(root, name))
	}
	return folders, nil
}

// Make makes a group, and returns the folders that the first process of a server enters. A v2 group with processes
// gives no controllers to its children: the first process therefore enters the child init.scope, and the server makes
// its own groups beside that. Make may be called again.
func Make(name string) ([]string, error) {
	folders, err := Folders(name)
	if err != nil {
		return nil, err
	}
	for i, folder := range folders {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, fmt.Errorf("make cgroup: %w", err)
		}
		// In a new group of v1 these files are empty, and no process may enter before they are set.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if filepath.Base(filepath.Dir(folder)) != "cpuset" {
				break
			}
			text, err := os.ReadFile(filepath.Join(filepath.Dir(folder), file))
			if err == nil {
				err = os.WriteFile(filepath.Join(folder, file), []byte(strings.TrimSpace(string(text))), 0o644)
			}
			if err != nil {
				return nil, fmt.Errorf("set up cgroup: %w", err)
			}
		}
		if filepath.Dir(folder) == Root { // cgroup v2; liblxc knows the name init.scope
			folders[i] = filepath.Join(folder, "init.scope")
			if err := os.MkdirAll(folders[i], 0o755); err != nil {
				return nil, fmt.Errorf("make cgroup: %w", err)
			}
		}
	}
	return folders, nil
}

// Remove removes a group and all below it. The kernel refuses to remove a group while a process in it is still ending:
// Remove tries until the context ends.
func Remove(ctx context.Context, name string) error {
	for {
		failed := TryRemove(name)
		if failed == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove cgroups: %w", errors.Join(ctx.Err(), failed))
		case <-time.After(retryEvery):
		}
	}
}

// TryRemove removes a group and all below it, as Remove does, but tries only once.
func TryRemove(name string) error {
	folders, err := Folders(name)
	errs := []error{err}
	for _, folder := range folders {
		errs = append(errs, removeGroup(folder))
	}
	return errors.Join(errs...)
}

// removeGroup removes the folder of a cgroup, and the folders of the cgroups below it. The kernel removes their files.
func removeGroup(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeGroup(filepath.Join(folder, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
