package build

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKeyChangesWithWhatTheBinaryIsMadeOf(t *testing.T) {
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
		key, err := keyOf(module, toolchain, flags)
		require.NoError(t, err)
		return key
	}
	same := key("go1", []string{"-s"}, nil)
	assert.Len(t, same, keyLength)

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

func TestKubernetesVersionIsThatOfTheNestedModule(t *testing.T) {
	goMod := filepath.Join(t.TempDir(), "go.mod")
	require.NoError(t, os.WriteFile(goMod, []byte("module x\n\nrequire (\n\tk8s.io/kubectl v0.0.0\n\tk8s.io/kubernetes v1.36.3\n)\n"), 0o600))
	v, err := kubernetesVersion(goMod)
	require.NoError(t, err)
	assert.Equal(t, "-X k8s.io/component-base/version.gitVersion=v1.36.3 -X k8s.io/component-base/version.gitMajor=1 "+
		"-X k8s.io/component-base/version.gitMinor=36", v.stamp())

	_, err = kubernetesVersion(filepath.Join("..", "kubernetes", "go.mod"))
	require.NoError(t, err, "the real one")

	require.NoError(t, os.WriteFile(goMod, []byte("module x\n"), 0o600))
	_, err = kubernetesVersion(goMod)
	assert.ErrorContains(t, err, "requires no k8s.io/kubernetes")
}
