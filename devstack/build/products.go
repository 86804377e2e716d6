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

// The folders of the main packages of Millwright's own binaries. A binary is named after the last part of its folder.
const (
	WorkerFolder       = "worker"
	BridgeFolder       = "k8sbridge"
	StarterFolder      = "starter/millwright"
	DevstackFolder     = "devstack"
	VirtualCloudFolder = "devstack/virtualcloud"
)

// ProductFolders returns the folders of all of Millwright's own binaries.
func ProductFolders() []string {
	return []string{WorkerFolder, BridgeFolder, StarterFolder, DevstackFolder, VirtualCloudFolder}
}

// Products builds Millwright's own binaries of these folders into <repo>/bin and returns their paths by folder. The Go
// build cache makes a second call cheap. A lock prevents two callers from writing the same file.
func Products(ctx context.Context, repo string, progress io.Writer, folders ...string) (map[string]string, error) {
	bin := filepath.Join(repo, "bin")
	paths := make(map[string]string, len(folders))
	var packages []string
	for _, folder := range folders {
		if err := checkProductFolder(repo, folder); err != nil {
			return nil, err
		}
		packages, paths[folder] = append(packages, "./"+folder), filepath.Join(bin, filepath.Base(folder))
	}
	if len(packages) == 0 {
		return paths, nil
	}
	return paths, compileProducts(ctx, repo, ".", bin+string(filepath.Separator), packages, progress)
}

// NestedBinary builds a main package of a nested module and returns the path of the binary, <repo>/bin/<name>. A nested
// module has dependencies that only few users need. Module is the folder of the module, relative to the root of the
// clone; folder is the folder of the package, relative to module.
func NestedBinary(ctx context.Context, repo, module, folder, name string, progress io.Writer) (string, error) {
	path := filepath.Join(repo, "bin", name)
	return path, compileProducts(ctx, repo, module, path, []string{"./" + folder}, progress)
}

// compileProducts compiles main packages of one module of the clone into <repo>/bin, for one caller at a time.
func compileProducts(ctx context.Context, repo, module, output string, packages []string, progress io.Writer) error {
	bin := filepath.Join(repo, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", bin, err)
	}
	unlock, err := acquireFileLock(ctx, filepath.Join(bin, ".lock"), func() {})
	if err != nil {
		return err
	}
	defer unlock()
	// `make build` uses the same flags, so that both share the Go build cache.
	arguments := append([]string{"build", "-v", "-trimpath", "-o", output}, packages...)
	return runGoCommand(ctx, filepath.Join(repo, module), strings.Join(packages, ", "), nil, arguments, progress)
}

// checkProductFolder returns an error if a folder is not in ProductFolders, does not exist, or has no Go files.
func checkProductFolder(repo, folder string) error {
	if !slices.Contains(ProductFolders(), folder) {
		return fmt.Errorf("build %s: not one of our binaries: have %v", folder, ProductFolders())
	}
	found, err := filepath.Glob(filepath.Join(repo, folder, "*.go"))
	if err != nil {
		return fmt.Errorf("build %s: %w", folder, err)
	}
	if len(found) == 0 {
		return fmt.Errorf(
			"build %s: %s holds no Go files: leave its component out (--components)",
			folder,
			filepath.Join(repo, folder),
		)
	}
	return nil
}

// FindRepo returns the root of the clone. FindRepo searches the folder `from` and then its parent folders for the
// go.mod of module millwright. If `from` is empty, the search starts in the working directory.
func FindRepo(from string) (string, error) {
	dir, err := filepath.Abs(from) // Abs returns the working directory for an empty from
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
			return "", fmt.Errorf(
				"find the repository: no go.mod of module millwright in %s or above: go there, or use --repo",
				start,
			)
		}
	}
}
