package docs_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// moduleFolders returns the folders with a go.mod, as paths from the root. The path of the root is ".".
func moduleFolders(t *testing.T) (folders []string) {
	require.NoError(t, filepath.WalkDir(repoRoot, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != repoRoot && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin"):
			return fs.SkipDir
		case entry.IsDir() || entry.Name() != "go.mod":
			return nil
		}
		folder, err := filepath.Rel(repoRoot, filepath.Dir(path))
		folders = append(folders, filepath.ToSlash(folder))
		return err
	}))
	return folders
}

// versionInFile returns the version that a file of the repository sets for a module or "go" (in a go.mod), or for a
// constant (in a Go file).
func versionInFile(t *testing.T, file, what string) string {
	t.Helper()
	pattern := `(?m)^(?:require |\t)?` + regexp.QuoteMeta(what) + ` (\S+)`
	if filepath.Ext(file) == ".go" {
		pattern = `(?m)^const ` + regexp.QuoteMeta(what) + ` = "(.+)"$`
	}
	found := regexp.MustCompile(pattern).FindStringSubmatch(readFile(t, file))
	require.NotNil(t, found, "%s sets no version of %s", file, what)
	return found[1]
}

func TestSupportedVersionsAreTheTestedVersions(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| [^|]+ \\| (\\S+) \\| `(\\S+)` in `(\\S+)` \\| `make (?:test|test-all)`")
	said := map[string]string{}
	for _, found := range row.FindAllStringSubmatch(readFile(t, "SUPPORT.md"), -1) {
		version, what, file := found[1], found[2], found[3]
		assert.Equal(t, versionInFile(t, file, what), version, "SUPPORT.md says the version of %s in %s", what, file)
		said[what+" in "+file] = version
	}
	for _, needed := range []string{
		"go in devstack/temporal/go.mod",
		"k8s.io/kubernetes in devstack/kubernetes/go.mod",
		"k8s.io/kubernetes in devstack/kubelet/go.mod",
		"k8s.io/client-go in go.mod",
		"go.temporal.io/server in devstack/temporal/go.mod",
		"go.temporal.io/sdk in go.mod",
		"sigs.k8s.io/cluster-api in devstack/clusterapi/go.mod",
		"github.com/gardener/machine-controller-manager in devstack/mcm/go.mod",
		"github.com/gardener/machine-controller-manager in provider/mcmdriver/go.mod",
		"github.com/gardener/machine-controller-manager-provider-azure in provider/mcmdriver/azure/go.mod",
		"github.com/lxc/incus/v6 in provider/incus/go.mod",
		"helm.sh/helm/v3 in deploy/render/go.mod",
	} {
		assert.Contains(t, said, needed, "SUPPORT.md has no row of it")
	}
	oldest := regexp.MustCompile(`(?m)^kubeVersion: ">=(\d+\.\d+)\.`).
		FindStringSubmatch(readFile(t, "deploy/chart/Chart.yaml"))
	require.NotNil(t, oldest)
	assert.Contains(t, readFile(t, "SUPPORT.md"), "| Kubernetes "+oldest[1]+" and later |")
}

// All modules use one version of Go: the newest version that a module needs.
func TestAllModulesUseTheSameGoVersion(t *testing.T) {
	var needed []string
	for _, folder := range moduleFolders(t) {
		needed = append(needed, versionInFile(t, folder+"/go.mod", "go"))
	}
	newest := slices.MaxFunc(
		needed,
		func(a, b string) int { return slices.Compare(paddedVersionParts(a), paddedVersionParts(b)) },
	)
	image := regexp.MustCompile(`\bgolang:(\d+\.\d+\.\d+)`)
	for _, file := range []string{
		"deploy/image/Dockerfile", "deploy/image/Dockerfile.provider", ".devcontainer/devcontainer.json", ".github/workflows/nightly.yml",
	} {
		found := image.FindStringSubmatch(readFile(t, file))
		require.NotNil(t, found, "%s has no image of Go", file)
		assert.Equal(t, newest, found[1], file)
	}
	assert.Equal(
		t,
		newest,
		versionInFile(t, "devstack/temporal/go.mod", "go"),
		"SUPPORT.md and the workflows take it from there",
	)
	assert.Contains(t, readFile(t, "README.md"), "Go "+newest)
}

// paddedVersionParts returns the parts of a version, each with three digits, for sorting.
func paddedVersionParts(version string) (parts []string) {
	for part := range strings.SplitSeq(version, ".") {
		parts = append(parts, strings.Repeat("0", max(0, 3-len(part)))+part)
	}
	return parts
}

func TestDependencyUpdatesCoverEachModule(t *testing.T) {
	var file struct {
		Updates []struct {
			Ecosystem   string `json:"package-ecosystem"`
			Directory   string
			Directories []string
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(readFile(t, ".github/dependabot.yml")), &file))
	covered := map[string][]string{}
	for _, update := range file.Updates {
		for _, folder := range append(update.Directories, update.Directory) {
			if folder != "" {
				covered[update.Ecosystem] = append(covered[update.Ecosystem], folder)
			}
		}
	}
	var wanted []string
	for _, folder := range moduleFolders(t) {
		wanted = append(wanted, "/"+strings.TrimPrefix(folder, "."))
	}
	assert.ElementsMatch(t, wanted, covered["gomod"])
	assert.Equal(t, []string{"/"}, covered["github-actions"])
}

// CODEOWNERS has a line for each top-level folder of the code, and the path of each line exists.
func TestEachTopFolderHasACodeOwner(t *testing.T) {
	owned := map[string]bool{}
	for line := range strings.Lines(readFile(t, ".github/CODEOWNERS")) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		require.Greater(t, len(fields), 1, "%s has no owner", fields[0])
		if fields[0] != "*" {
			assert.DirExists(t, filepath.Join(repoRoot, filepath.FromSlash(fields[0])))
		}
		owned[fields[0]] = true
	}
	rooms := map[string]bool{"*": true, "/docs/": true, "/.github/": true}
	for name := range readGoSources(t) {
		if room, _, inside := strings.Cut(name, "/"); inside {
			rooms["/"+room+"/"] = true
		}
	}
	for _, room := range slices.Sorted(maps.Keys(rooms)) {
		assert.True(t, owned[room], "CODEOWNERS has no line for %s", room)
	}
}

// The files and make targets that a CI workflow names exist in the repository.
func TestCIWorkflowsNameExistingFilesAndMakeTargets(t *testing.T) {
	makefile := readFile(t, "Makefile")
	files, err := filepath.Glob(filepath.Join(repoRoot, ".github", "workflows", "*.yml"))
	require.NoError(t, err)
	targets := map[string]bool{}
	for _, path := range files {
		name := filepath.Base(path)
		text := readFile(t, ".github/workflows/"+name)
		for _, found := range regexp.MustCompile(`\brun: make ([a-z-]+)`).FindAllStringSubmatch(text, -1) {
			assert.Contains(t, makefile, "\n"+found[1]+":", "%s runs make %s", name, found[1])
			targets[found[1]] = true
		}
		for _, list := range regexp.MustCompile(`hashFiles\(([^)]+)\)`).FindAllStringSubmatch(text, -1) {
			for _, pattern := range regexp.MustCompile(`'([^']+)'`).FindAllStringSubmatch(list[1], -1) {
				path := strings.NewReplacer("**/", "", "/**", "").Replace(pattern[1])
				_, err := os.Stat(filepath.Join(repoRoot, filepath.FromSlash(path)))
				assert.NoError(t, err, "%s reads %s", name, pattern[1])
			}
		}
		for _, found := range regexp.MustCompile(`go-version-file: (\S+)`).FindAllStringSubmatch(text, -1) {
			assert.Equal(t, "devstack/temporal/go.mod", found[1], name)
		}
		if strings.Contains(text, ".ci/run") {
			for _, found := range regexp.MustCompile(`(?m)^exec make (.+)$`).FindAllStringSubmatch(readFile(t, ".ci/run"), -1) {
				for target := range strings.FieldsSeq(found[1]) {
					targets[target] = true
				}
			}
		}
	}
	for _, target := range []string{"verify", "test", "test-all", "release"} {
		assert.True(t, targets[target], "no workflow runs make %s", target)
	}
}
