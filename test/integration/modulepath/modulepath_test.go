// Tier: test-all. The package compiles all code again under another module path.

//go:build integration

// Package modulepath shows that one command changes the path of all Go modules.
package modulepath

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/devstack/build"
)

// changedModulePath is the module path after the change.
const changedModulePath = "example.com/org/machines"

func runCommand(t *testing.T, folder string, arguments ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), arguments[0], arguments[1:]...)
	c.Dir, c.Env = folder, append(os.Environ(), "GOFLAGS=-trimpath", "GOWORK=off")
	out, err := c.CombinedOutput()
	return string(out), err
}

func mustRunCommand(t *testing.T, folder string, arguments ...string) string {
	t.Helper()
	out, err := runCommand(t, folder, arguments...)
	require.NoError(t, err, "%v: %s", arguments, out)
	return out
}

// TestProjectBuildsWithAnotherModulePath changes the module path in a clone of the last commit. A remaining old path
// would not compile, or the tests in the clone would find it.
func TestProjectBuildsWithAnotherModulePath(t *testing.T) {
	origin, err := build.FindRepo("")
	require.NoError(t, err)
	repo := filepath.Join(t.TempDir(), "clone")
	mustRunCommand(t, origin, "git", "clone", "--quiet", ".", repo)
	old := strings.TrimSpace(mustRunCommand(t, repo, "go", "list", "-m"))

	for given, says := range map[string]string{
		"NEW=":                          "which path?",
		"NEW=machines":                  `"machines" is no path of a module`,
		"NEW=example.com/org/machines/": `"example.com/org/machines/" is no path of a module`,
		"NEW=https://example.com/org/m": `"https://example.com/org/m" is no path of a module`,
	} {
		out, err := runCommand(t, repo, "make", "module-path", given)
		require.Error(t, err, given)
		assert.Contains(t, out, says)
	}
	require.NoError(t, os.WriteFile(filepath.Join(repo, "new.go"), []byte("package main\n"), 0o600))
	out, err := runCommand(t, repo, "make", "module-path", "NEW="+changedModulePath)
	require.Error(t, err)
	require.Contains(t, out, "the tree has changes: commit them first")
	require.NoError(t, os.Remove(filepath.Join(repo, "new.go")))

	mustRunCommand(t, repo, "make", "module-path", "NEW="+changedModulePath)
	for _, module := range []string{
		".", "deploy/render", "deploy/release", "devstack/kubernetes", "devstack/lab", "provider/incus", "provider/mcmdriver/azure",
	} {
		name := strings.TrimSuffix(changedModulePath+"/"+module, "/.")
		assert.Equal(t, name, strings.TrimSpace(mustRunCommand(t, filepath.Join(repo, module), "go", "list", "-m")))
		packages := mustRunCommand(
			t,
			filepath.Join(repo, module),
			"go",
			"list",
			"-deps",
			"-test",
			"-tags=integration",
			"./...",
		)
		assert.NotRegexp(t, `(?m)^`+old+`(/|$)`, packages, module)
	}
	changed := mustRunCommand(t, repo, "git", "diff", "--name-only")
	for _, name := range []string{"tools.mod", ".golangci.yml", "api/generate.sh", ".devcontainer/devcontainer.json", "docs/tutorials/provider.md"} {
		assert.Contains(t, changed, name+"\n")
	}
	assert.NotContains(t, changed, "workflows/testdata/replay")
	left, _ := runCommand(
		t,
		repo,
		"git",
		"grep",
		"-nE",
		`[ "\[]`+old+`/(decide|provider|workflows|deploy/render)\b`,
		"--",
		".",
		":!workflows/testdata/replay",
	)
	assert.Empty(t, left)

	mustRunCommand(t, repo, "go", "build", "./...")
	mustRunCommand(t, repo, "go", "vet", "./decide/...", "./api/...", "./workflows/run")
	mustRunCommand(t, repo, "go", "vet", "-tags=integration", "./test/tiers")
	mustRunCommand(
		t,
		repo,
		"go",
		"test",
		"-run=TestOnlyAllowedPackagesCallDecide|TestArchitectureMapShowsEveryTopFolder",
		"./docs",
	)
	mustRunCommand(t, repo, "go", "test", "./devstack/build", "./test/mutate")
	mustRunCommand(t, filepath.Join(repo, "deploy", "release"), "go", "vet", "./...")
	out, err = runCommand(t, repo, "make", "module-path", "NEW="+changedModulePath)
	require.Error(t, err)
	require.Contains(t, out, "the path is "+changedModulePath+" already")
}
