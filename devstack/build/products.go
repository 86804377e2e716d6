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

// Our own binaries, by the folder of their main package. Those of the clone's own module are named like the last part of the
// folder.
const (
	Worker       = "worker"
	Bridge       = "k8sbridge"
	Starter      = "starter"
	Devstack     = "devstack"
	VirtualCloud = "devstack/virtualcloud"
	IncusWorker  = "provider/incus/worker" // bin/worker-incus
)

// nested is a binary from a module of its own, which has dependencies that only its users need.
type nested struct{ module, binary string }

// nestedProducts returns the binaries from modules of their own, by the folder of their main package.
func nestedProducts() map[string]nested {
	return map[string]nested{IncusWorker: {module: "provider/incus", binary: "worker-incus"}}
}

// ProductNames returns the folders of all of our own binaries.
func ProductNames() []string {
	return []string{Worker, Bridge, Starter, Devstack, VirtualCloud, IncusWorker}
}

// Products builds our own binaries of these folders into <repo>/bin and returns their paths by folder. The go command's own cache
// makes a second call cheap, and a lock keeps two callers from writing the same file.
func Products(ctx context.Context, repo string, progress io.Writer, folders ...string) (map[string]string, error) {
	bin := filepath.Join(repo, "bin")
	paths := make(map[string]string, len(folders))
	var plain, apart []string
	for _, folder := range folders {
		if err := checkMain(repo, folder); err != nil {
			return nil, err
		}
		if n, isNested := nestedProducts()[folder]; isNested {
			apart, paths[folder] = append(apart, folder), filepath.Join(bin, n.binary)
			continue
		}
		plain, paths[folder] = append(plain, "./"+folder), filepath.Join(bin, filepath.Base(folder))
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return nil, fmt.Errorf("make %s: %w", bin, err)
	}
	unlock, err := lock(ctx, filepath.Join(bin, ".lock"), func() {})
	if err != nil {
		return nil, err
	}
	defer unlock()
	// The same flags as `make build`, so that neither rebuilds what the other has built.
	flags := []string{"build", "-v", "-trimpath", "-o"}
	if len(plain) > 0 {
		arguments := slices.Concat(flags, []string{bin + string(filepath.Separator)}, plain)
		if err := compile(ctx, repo, strings.Join(plain, ", "), nil, arguments, progress); err != nil {
			return nil, err
		}
	}
	for _, folder := range apart {
		module := nestedProducts()[folder].module
		arguments := append(slices.Clone(flags), paths[folder], "./"+strings.TrimPrefix(folder, module+"/"))
		if err := compile(ctx, filepath.Join(repo, module), folder, nil, arguments, progress); err != nil {
			return nil, err
		}
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
