package build

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCompilerOutputIsSorted(t *testing.T) {
	var out compilerOutput
	out.read(strings.NewReader("go: downloading k8s.io/api v0.36.3\nk8s.io/api/core/v1\nmillwright/worker\n# millwright/worker\nmain.go:3:1: no\n"))
	assert.EqualValues(t, 1, out.downloads.Load())
	assert.EqualValues(t, 2, out.packages.Load())
	assert.Equal(t, []string{"# millwright/worker", "main.go:3:1: no"}, out.tail)
}

func TestFailedBuildSaysWhyAndLeavesNothing(t *testing.T) {
	module, cache := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(module, "go.mod"), []byte("module broken\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(module, "main.go"), []byte("package main\n\nfunc main() { undefinedThing() }\n"), 0o600))

	err := compileInto(t.Context(), filepath.Join(cache, "broken-1"), "broken", module, nil, io.Discard)
	require.ErrorContains(t, err, "build broken")
	require.ErrorContains(t, err, "undefined: undefinedThing")
	left, err := os.ReadDir(cache)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestRepoIsFoundFromBelow(t *testing.T) {
	root := t.TempDir()
	nested := filepath.Join(root, "devstack", "kubernetes", "stages")
	require.NoError(t, os.MkdirAll(nested, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "go.mod"), []byte("module millwright\n\ngo 1.26.0\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(root, "devstack", "kubernetes", "go.mod"), []byte("module millwright/devstack/kubernetes\n"), 0o600))

	found, err := FindRepo(nested)
	require.NoError(t, err)
	assert.Equal(t, root, found)

	_, err = FindRepo(filepath.Dir(root))
	assert.ErrorContains(t, err, "--repo")
}

func TestMissingProductIsNamed(t *testing.T) {
	_, err := Products(t.Context(), t.TempDir(), io.Discard, Worker)
	require.ErrorContains(t, err, "worker")
	require.ErrorContains(t, err, "holds no Go files")
	_, err = Products(t.Context(), t.TempDir(), io.Discard, "elsewhere")
	require.ErrorContains(t, err, "not one of our binaries")
}

func TestAProductOfAModuleOfItsOwnIsBuiltThere(t *testing.T) {
	repo := t.TempDir()
	for path, text := range map[string]string{
		"provider/incus/go.mod":         "module example\n\ngo 1.26\n",
		"provider/incus/worker/main.go": "package main\n\nfunc main() {}\n",
	} {
		path = filepath.Join(repo, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	paths, err := Products(t.Context(), repo, io.Discard, IncusWorker)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{IncusWorker: filepath.Join(repo, "bin", "worker-incus")}, paths)
	assert.FileExists(t, paths[IncusWorker])
}
