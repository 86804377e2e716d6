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

const integration = "../../integration"

// A test that was renamed would leave the tier unseen.
func TestEveryNameIsATest(t *testing.T) {
	seen := map[string]string{} // one pattern chooses the tests of all packages: a name must not stand for two
	for pkg, names := range core.Tests() {
		text := source(t, filepath.Join(integration, pkg))
		require.NotEmpty(t, text, pkg)
		for _, name := range names {
			assert.Contains(t, text, "\nfunc "+name+"(", "package %s has no %s", pkg, name)
			assert.Empty(t, seen[name], "%s is in two packages", name)
			seen[name] = pkg
		}
	}
}

// The first line of each package says in which tier it is, and why.
func TestEachPackageSaysItsTier(t *testing.T) {
	folders, err := os.ReadDir(integration)
	require.NoError(t, err)
	says := regexp.MustCompile(`(?m)^// Tier: (test|test-all|none)( for [^.]+|\. [A-Z][^.]+)\.\n\n`)
	for _, folder := range folders {
		want := []string{"test-all", "none"}
		if _, listed := core.Tests()[folder.Name()]; listed {
			want = []string{"test"}
		}
		found := says.FindStringSubmatch(source(t, filepath.Join(integration, folder.Name())))
		if assert.NotNil(t, found, folder.Name()) {
			assert.Contains(t, want, found[1], folder.Name())
		}
	}
}

// source returns the texts of all Go files of a folder.
func source(t *testing.T, folder string) string {
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
