package containers

import (
	"fmt"
	"go/version"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDockerfiles checks the Dockerfiles without a container engine.
func TestDockerfiles(t *testing.T) {
	t.Run("its compiler is new enough", func(t *testing.T) {
		goMod, err := os.ReadFile(filepath.Join(repoRoot(t), "go.mod"))
		require.NoError(t, err)
		wanted := regexp.MustCompile(`(?m)^go (\S+)`).FindSubmatch(goMod)
		require.NotNil(t, wanted)
		for _, name := range []string{"Dockerfile", "Dockerfile.provider"} {
			_, found, isGo := strings.Cut(readDockerfile(t, name).stages[0].BaseName, "golang:")
			require.True(t, isGo, name)
			assert.GreaterOrEqual(t, version.Compare("go"+found, "go"+string(wanted[1])), 0, name)
		}
	})

	t.Run("its context holds all that is compiled", func(t *testing.T) {
		file, folder := readDockerfile(t, "Dockerfile"), copyBuildContext(t, "Dockerfile")
		assert.Empty(t, file.findFaults(folder))
		assert.ElementsMatch(t, []string{"/worker", "/k8sbridge", "/millwright", "/probe"}, programPaths(file))
		require.NoError(t, checkPackages(folder, file.compiledPackages()...))
	})

	t.Run("the context of a provider's image holds all that is compiled", func(t *testing.T) {
		file, folder := readDockerfile(t, "Dockerfile.provider"), copyBuildContext(t, "Dockerfile.provider")
		assert.Empty(t, file.findFaults(folder, "MODULE"))
		modules := regexp.MustCompile(`MODULE=([\w/-]+)`)
		named := map[string]bool{}
		for _, name := range []string{"docs/install.md", "deploy/image/Dockerfile.provider"} {
			text, err := os.ReadFile(filepath.Join(repoRoot(t), name))
			require.NoError(t, err)
			for _, module := range modules.FindAllStringSubmatch(string(text), -1) {
				named[module[1]] = true
			}
		}
		require.Contains(t, named, "provider/incus")
		require.Contains(t, named, "examples/provider-libvirt")
		for module := range named {
			assert.NoError(t, checkPackages(filepath.Join(folder, module), file.compiledPackages()...), module)
		}
	})
}

// programPaths returns the paths of the programs in an image.
func programPaths(file dockerfile) (paths []string) {
	for _, folder := range file.compiledPackages() {
		paths = append(paths, "/"+filepath.Base(folder))
	}
	return paths
}

// checkPackages returns an error if a package does not exist, or if the folder lacks a dependency of a package.
func checkPackages(folder string, packages ...string) error {
	list := exec.Command("go", append([]string{"list", "-deps"}, packages...)...)
	list.Dir = folder
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly")
	if out, err := list.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func TestCheckPackagesFindsMissingPackage(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "go.mod"), []byte("module example\n"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(folder, "worker"), 0o700))
	require.NoError(
		t,
		os.WriteFile(filepath.Join(folder, "worker", "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o600),
	)
	require.NoError(t, checkPackages(folder, "./worker"))
	require.Error(t, checkPackages(folder, "./wroker"))
}

// copyBuildContext copies the build context of a Dockerfile: all files that its ignore file does not exclude.
func copyBuildContext(t *testing.T, dockerfile string) string {
	t.Helper()
	text, err := os.Open(filepath.Join(repoRoot(t), "deploy/image", dockerfile+".dockerignore"))
	require.NoError(t, err)
	defer func() { _ = text.Close() }()
	patterns, err := ignorefile.ReadAll(text)
	require.NoError(t, err)
	ignored, err := patternmatcher.New(patterns)
	require.NoError(t, err)
	root, to := os.DirFS(repoRoot(t)), t.TempDir()
	err = fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir // .git and .devstack are large, and no pattern matches in them
		case !entry.Type().IsRegular():
			return nil
		}
		if unseen, err := ignored.MatchesOrParentMatches(path); err != nil || unseen {
			return err
		}
		content, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(to, filepath.Dir(path)), 0o755); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, path), content, 0o644)
	})
	require.NoError(t, err)
	return to
}
