package build

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCompilerOutputIsClassified(t *testing.T) {
	var out compilerOutputParser
	out.parseLines(
		strings.NewReader(
			"go: downloading k8s.io/api v0.36.3\nk8s.io/api/core/v1\nmillwright/worker\n# millwright/worker\nmain.go:3:1: no\n",
		),
	)
	assert.EqualValues(t, 1, out.downloadedModuleCount.Load())
	assert.EqualValues(t, 2, out.compiledPackageCount.Load())
	assert.Equal(t, []string{"# millwright/worker", "main.go:3:1: no"}, out.lastMessages)
}

// The progress line gives the time of a whole build only if the Go build cache is cold, because a build with a warm
// cache takes seconds.
func TestOnlyAColdBuildReportsAnEstimate(t *testing.T) {
	var warm, cold compilerOutputParser
	warm.compiledPackageCount.Add(minColdBuildPackages - 1)
	assert.Equal(
		t,
		"  kubernetes: 15s, 19 packages compiled, 0 modules downloaded",
		warm.progressLine(KubernetesBinary, 15*time.Second),
	)
	cold.compiledPackageCount.Add(800)
	cold.downloadedModuleCount.Add(3)
	assert.Equal(
		t,
		"  kubernetes: 30s, 800 packages compiled, 3 modules downloaded; all takes five minutes or so on two cores, once",
		cold.progressLine(KubernetesBinary, 30*time.Second),
	)
	assert.NotContains(t, cold.progressLine("worker", time.Minute), "minutes", "ours take seconds")

	module, cache := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(module, "go.mod"), []byte("module small\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(module, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o600))
	var progress bytes.Buffer
	require.NoError(
		t,
		compileIntoCache(t.Context(), filepath.Join(cache, "kubernetes-1"), KubernetesBinary, module, nil, &progress),
	)
	assert.Contains(t, progress.String(), "building kubernetes (etcd, ")
	assert.NotContains(t, progress.String(), "minutes")
}

func TestFailedBuildReportsErrorAndLeavesNoFiles(t *testing.T) {
	module, cache := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(module, "go.mod"), []byte("module broken\n"), 0o600))
	require.NoError(
		t,
		os.WriteFile(filepath.Join(module, "main.go"), []byte("package main\n\nfunc main() { undefinedThing() }\n"), 0o600),
	)

	err := compileIntoCache(t.Context(), filepath.Join(cache, "broken-1"), "broken", module, nil, io.Discard)
	require.ErrorContains(t, err, "build broken")
	require.ErrorContains(t, err, "undefined: undefinedThing")
	left, err := os.ReadDir(cache)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestFindRepoFromSubfolder(t *testing.T) {
	root := t.TempDir()
	nested := filepath.Join(root, "devstack", "kubernetes", "stages")
	require.NoError(t, os.MkdirAll(nested, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "go.mod"), []byte("module millwright\n\ngo 1.26.0\n"), 0o600))
	require.NoError(
		t,
		os.WriteFile(
			filepath.Join(root, "devstack", "kubernetes", "go.mod"),
			[]byte("module millwright/devstack/kubernetes\n"),
			0o600,
		),
	)

	found, err := FindRepo(nested)
	require.NoError(t, err)
	assert.Equal(t, root, found)

	_, err = FindRepo(filepath.Dir(root))
	assert.ErrorContains(t, err, "--repo")
}

func TestProductsErrorNamesMissingProgram(t *testing.T) {
	_, err := Products(t.Context(), t.TempDir(), io.Discard, WorkerFolder)
	require.ErrorContains(t, err, "worker")
	require.ErrorContains(t, err, "holds no Go files")
	_, err = Products(t.Context(), t.TempDir(), io.Discard, "elsewhere")
	require.ErrorContains(t, err, "not one of our binaries")
}

func TestNestedBinaryIsBuiltInItsModule(t *testing.T) {
	repo := t.TempDir()
	for path, text := range map[string]string{
		"provider/incus/go.mod":         "module example\n\ngo 1.26\n",
		"provider/incus/worker/main.go": "package main\n\nfunc main() {}\n",
	} {
		path = filepath.Join(repo, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	path, err := NestedBinary(t.Context(), repo, "provider/incus", "worker", "worker-incus", io.Discard)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(repo, "bin", "worker-incus"), path)
	assert.FileExists(t, path)
}
