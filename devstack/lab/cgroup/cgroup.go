// Package cgroup finds, makes and removes folders in the cgroup hierarchies. When a server in its own namespaces ends,
// the kernel removes its processes, mounts and interfaces, but not its cgroups.
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

// Root is the folder where Linux mounts the cgroup hierarchies. With cgroup v2 it is the hierarchy itself, and with v1
// it has one subfolder per hierarchy.
const Root = "/sys/fs/cgroup"

const retryInterval = 50 * time.Millisecond

// Folders returns the paths of a cgroup: one path with cgroup v2, one path per hierarchy with v1.
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
			continue // cpu and cpuacct are often symbolic links to one hierarchy
		}
		folders = append(folders, filepath.Join(root, name))
	}
	return folders, nil
}

// Make makes a cgroup and returns the folders that a server's first process must enter. A v2 cgroup that contains
// processes cannot pass controllers to its children. The first process therefore enters the child init.scope, and the
// server makes its own cgroups beside init.scope. Make may be called again for the same name.
func Make(name string) ([]string, error) {
	folders, err := Folders(name)
	if err != nil {
		return nil, err
	}
	for i, folder := range folders {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, fmt.Errorf("make cgroup: %w", err)
		}
		// A new v1 cpuset has empty cpus and mems. No process can enter the cpuset before both are set.
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
		if filepath.Dir(folder) == Root { // cgroup v2; liblxc treats the name init.scope specially
			folders[i] = filepath.Join(folder, "init.scope")
			if err := os.MkdirAll(folders[i], 0o755); err != nil {
				return nil, fmt.Errorf("make cgroup: %w", err)
			}
		}
	}
	return folders, nil
}

// Remove removes a cgroup and all cgroups below it. The kernel returns an error while a process of the cgroup is still
// ending, so Remove retries until the context is done.
func Remove(ctx context.Context, name string) error {
	for {
		failed := TryRemove(name)
		if failed == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove cgroups: %w", errors.Join(ctx.Err(), failed))
		case <-time.After(retryInterval):
		}
	}
}

// TryRemove removes a cgroup and all cgroups below it, in one attempt.
func TryRemove(name string) error {
	folders, err := Folders(name)
	errs := []error{err}
	for _, folder := range folders {
		errs = append(errs, removeFolderTree(folder))
	}
	return errors.Join(errs...)
}

// removeFolderTree removes the folder of a cgroup and the folders of the cgroups below it. The kernel removes the files
// in the folders of a cgroup.
func removeFolderTree(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeFolderTree(filepath.Join(folder, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
