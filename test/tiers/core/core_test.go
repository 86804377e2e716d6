package core_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/test/tiers/core"
)

const integrationFolder = "../../integration"

// If a test of the list was renamed, the tier would silently run without the test.
func TestEveryListedNameIsATest(t *testing.T) {
	seen := map[string]string{} // one pattern selects the tests of all packages, so the names must be unique
	for pkg, names := range core.ListTestsByPackage() {
		text := readSources(t, filepath.Join(integrationFolder, pkg))
		require.NotEmpty(t, text, pkg)
		for _, name := range names {
			assert.Contains(t, text, "\nfunc "+name+"(", "package %s has no %s", pkg, name)
			assert.Empty(t, seen[name], "%s is in two packages", name)
			seen[name] = pkg
		}
	}
}

// The first line of each package names the tier of the package, and the reason.
func TestEachPackageSaysItsTier(t *testing.T) {
	folders, err := os.ReadDir(integrationFolder)
	require.NoError(t, err)
	says := regexp.MustCompile(`(?m)^// Tier: (test|test-all|none)( for [^.]+|\. [A-Z][^.]+)\.\n\n`)
	for _, folder := range folders {
		want := []string{"test-all", "none"}
		if _, listed := core.ListTestsByPackage()[folder.Name()]; listed {
			want = []string{"test"}
		}
		found := says.FindStringSubmatch(readSources(t, filepath.Join(integrationFolder, folder.Name())))
		if assert.NotNil(t, found, folder.Name()) {
			assert.Contains(t, want, found[1], folder.Name())
		}
	}
}

// readSources returns the texts of all Go files of a folder, joined.
func readSources(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}
