package build

import (
	"io"
	"os"
	"path"
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

// The nested module of each release lists each program as a tool, and requires each module that loopbackEdits names.
func TestNestedModulesHaveTheProgramsOfClusterAPI(t *testing.T) {
	for _, r := range clusterAPIReleases() {
		t.Run(r.minor, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", r.folder, "go.mod"))
			require.NoError(t, err)
			for _, p := range r.programs() {
				assert.Contains(t, string(text), "\t"+path.Join(p.module, p.mainFolder)+"\n")
			}
			versions := readModuleVersions(t, r.folder)
			for _, e := range r.loopbackEdits() {
				assert.NotEmpty(t, versions[e.module], e.module)
			}
			for _, module := range []string{clusterAPIModule, clusterAPITestModule} {
				assert.True(t, strings.HasPrefix(versions[module], "v"+r.minor+"."), "%s %s", module, versions[module])
			}
		})
	}
	newest := readModuleVersions(t, ClusterAPIFolder)
	_, api, _ := strings.Cut(newest[clusterAPIModule+"/api"], " ")
	assert.Equal(t, newest[clusterAPIModule], api, "the three modules are of one release")
	assert.Equal(t, newest[clusterAPIModule], newest[clusterAPITestModule])
}

func TestUnknownReleaseOfClusterAPI(t *testing.T) {
	_, err := ClusterAPIProgramsFolder(t.Context(), "..", "1.2", io.Discard)
	assert.EqualError(t, err, `no stack has Cluster API "1.2": the versions are 1.14, 1.13, 1.12`)
}
