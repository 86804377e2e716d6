package build

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCacheKeyChangesWithSourcesAndToolchain(t *testing.T) {
	base := fstest.MapFS{
		"go.mod":           {Data: []byte("module x")},
		"go.sum":           {Data: []byte("sums")},
		"main.go":          {Data: []byte("package main")},
		"stages/node.yaml": {Data: []byte("kind: Stage")},
	}
	key := func(toolchain string, flags []string, edits fstest.MapFS) string {
		t.Helper()
		module := maps.Clone(base)
		maps.Copy(module, edits)
		key, err := hashModule(module, toolchain, flags)
		require.NoError(t, err)
		return key
	}
	same := key("go1", []string{"-s"}, nil)
	assert.Len(t, same, cacheKeyLength)

	for name, edits := range map[string]fstest.MapFS{
		"nothing":       nil,
		"a test":        {"main_test.go": {Data: []byte("package main")}},
		"a document":    {"README.md": {Data: []byte("words")}},
		"a hidden file": {".swp": {Data: []byte("x")}, ".git/config": {Data: []byte("x")}},
	} {
		assert.Equal(t, same, key("go1", []string{"-s"}, edits), name)
	}
	for name, edits := range map[string]fstest.MapFS{
		"go.mod":           {"go.mod": {Data: []byte("module y")}},
		"go.sum":           {"go.sum": {Data: []byte("other")}},
		"a source":         {"main.go": {Data: []byte("package main // changed")}},
		"a new source":     {"more.go": {Data: []byte("package main")}},
		"an embedded file": {"stages/node.yaml": {Data: []byte("kind: Other")}},
	} {
		assert.NotEqual(t, same, key("go1", []string{"-s"}, edits), name)
	}
	assert.NotEqual(t, same, key("go2", []string{"-s"}, nil), "the toolchain")
	assert.NotEqual(t, same, key("go1", []string{"-w"}, nil), "the flags")
}

func TestKubernetesVersionComesFromTheNestedModule(t *testing.T) {
	goMod := filepath.Join(t.TempDir(), "go.mod")
	require.NoError(
		t,
		os.WriteFile(
			goMod,
			[]byte("module x\n\nrequire (\n\tk8s.io/kubectl v0.0.0\n\tk8s.io/kubernetes v1.36.3\n)\n"),
			0o600,
		),
	)
	v, err := readKubernetesVersion(goMod)
	require.NoError(t, err)
	assert.Equal(t, "-X k8s.io/component-base/version.gitVersion=v1.36.3 -X k8s.io/component-base/version.gitMajor=1 "+
		"-X k8s.io/component-base/version.gitMinor=36", v.versionFlags())

	_, err = readKubernetesVersion(filepath.Join("..", "kubernetes", "go.mod"))
	require.NoError(t, err, "the real one")

	require.NoError(t, os.WriteFile(goMod, []byte("module x\n"), 0o600))
	_, err = readKubernetesVersion(goMod)
	assert.ErrorContains(t, err, "requires no k8s.io/kubernetes")
}

// The kubelet and the control plane are separate modules only because of the build cache. If both go.mod files require
// a module, they must require the same version.
func TestKubeletHasTheVersionsOfTheControlPlane(t *testing.T) {
	controlPlane, kubelet := readModuleVersions(t, KubernetesBinary), readModuleVersions(t, KubeletBinary)
	assert.Greater(t, len(kubelet), 100)
	for module, version := range kubelet {
		if want, both := controlPlane[module]; both {
			assert.Equal(t, want, version, module)
		}
	}
}

// readModuleVersions reads a go.mod and returns the version, or the replacement, of each module.
func readModuleVersions(t *testing.T, name string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", name, "go.mod"))
	require.NoError(t, err)
	versions := map[string]string{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(strings.TrimPrefix(line, "replace "))
		switch {
		case len(fields) >= 4 && fields[1] == "=>": // a go.mod lists replacements after requirements
			versions[fields[0]] = fields[2] + " " + fields[3]
		case len(fields) >= 2 && strings.HasPrefix(fields[1], "v") && strings.HasPrefix(line, "\t"):
			versions[fields[0]] = fields[1]
		}
	}
	return versions
}
