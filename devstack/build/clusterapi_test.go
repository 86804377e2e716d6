package build

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEditFailsIfTheModuleHasAnotherText(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "server.go")
	require.NoError(t, os.WriteFile(path, []byte("listen(all); listen(all)"), 0o600))
	e := sourceEdit{
		module:          "m",
		file:            "server.go",
		oldText:         "listen(all)",
		newText:         "listen(loopback)",
		occurrenceCount: 2,
	}
	require.NoError(t, e.applyTo(folder))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "listen(loopback); listen(loopback)", string(text))
	assert.ErrorContains(t, e.applyTo(folder), `has 0 times "listen(all)", not 2 times`)
}

func TestCopyConfigFillsOneFolder(t *testing.T) {
	config, to := t.TempDir(), filepath.Join(t.TempDir(), "capi-core")
	for _, file := range []string{"crd/bases/machines.yaml", "crd/kustomization.yaml", "crd/patches/machines.yaml", "webhook/manifests.yaml", "rbac/role.yaml"} {
		path := filepath.Join(config, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	}
	require.NoError(t, copyConfig(config, to))
	entries, err := os.ReadDir(to)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	assert.Equal(t, []string{"kustomization.yaml", "machines.yaml", "webhooks.yaml"}, names)
}

// The nested module lists each program as a tool, and requires each module that loopbackEdits names.
func TestNestedModuleHasTheProgramsOfClusterAPI(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", ClusterAPIFolder, "go.mod"))
	require.NoError(t, err)
	for _, p := range clusterAPIPrograms() {
		assert.Contains(t, string(text), "\t"+p.module+"/"+p.mainFolder+"\n")
	}
	assert.Contains(t, string(text), "\t"+clusterAPIModule+"/cmd/clusterctl\n")
	versions := readModuleVersions(t, ClusterAPIFolder)
	for _, e := range loopbackEdits() {
		assert.NotEmpty(t, versions[e.module], e.module)
	}
	_, api, _ := strings.Cut(versions[clusterAPIModule+"/api"], " ")
	assert.Equal(t, versions[clusterAPIModule], api, "the three modules are of one release")
	assert.Equal(t, versions[clusterAPIModule], versions[clusterAPITestModule])
}
