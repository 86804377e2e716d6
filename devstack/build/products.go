package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Our own binaries, by the folder of their main package. A binary is named like the last part of its folder.
const (
	Worker       = "worker"
	Bridge       = "k8sbridge"
	Starter      = "starter"
	Devstack     = "devstack"
	VirtualCloud = "devstack/virtualcloud"
)

// ProductNames returns the folders of all of our own binaries.
func ProductNames() []string { return []string{Worker, Bridge, Starter, Devstack, VirtualCloud} }

// Products builds our own binaries, all of them if no folder is given, into <repo>/bin and returns their paths by folder. The
// go command's own cache makes a second call cheap, and a lock keeps two callers from writing the same file.
func Products(ctx context.Context, repo string, progress io.Writer, folders ...string) (map[string]string, error) {
	if len(folders) == 0 {
		folders = ProductNames()
	}
	bin := filepath.Join(repo, "bin")
	// The same flags as `make build`, so that neither rebuilds what the other has built.
	arguments := []string{"build", "-v", "-trimpath", "-o", bin + string(filepath.Separator)}
	paths := make(map[string]string, len(folders))
	for _, folder := range folders {
		if err := checkMain(repo, folder); err != nil {
			return nil, err
		}
		arguments = append(arguments, "./"+folder)
		paths[folder] = filepath.Join(bin, filepath.Base(folder))
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return nil, fmt.Errorf("make %s: %w", bin, err)
	}
	unlock, err := lock(ctx, filepath.Join(bin, ".lock"), func() {})
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := compile(ctx, repo, strings.Join(folders, ", "), arguments, progress); err != nil {
		return nil, err
	}
	return paths, nil
}

// checkMain returns an error if a folder does not exist or has no main package of ours.
func checkMain(repo, folder string) error {
	if !slices.Contains(ProductNames(), folder) {
		return fmt.Errorf("build %s: not one of our binaries: have %v", folder, ProductNames())
	}
	found, err := filepath.Glob(filepath.Join(repo, folder, "*.go"))
	if err != nil {
		return fmt.Errorf("build %s: %w", folder, err)
	}
	if len(found) == 0 {
		return fmt.Errorf("build %s: %s holds no Go files: leave its component out (--components)", folder, filepath.Join(repo, folder))
	}
	return nil
}

// FindRepo returns the root of the clone: the nearest folder at or above from whose go.mod is that of module millwright.
// The empty string means the working directory.
func FindRepo(from string) (string, error) {
	dir, err := filepath.Abs(from) // of the empty string: the working directory
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for start := dir; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("find the repository: %w", err)
		}
		if slices.Contains(strings.Split(string(text), "\n"), "module millwright") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the repository: no go.mod of module millwright in %s or above: go there, or use --repo", start)
		}
	}
}
