package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/test/pages"
)

func TestRootCommandFindsSubcommands(t *testing.T) {
	for _, path := range [][]string{{"bootstrap"}, {"demo"}, {"drain", "extend"}, {"preserve"}, {"rollout", "undo"}, {"provider", "check"}, {"explain"}, {"top"}, {"ui"}, {"doctor"}} {
		c, rest, err := rootCommand().Find(path)
		require.NoError(t, err, path)
		require.Empty(t, rest, path)
		require.Equal(t, path[len(path)-1], c.Name())
	}
}

// Every command is in a group of the help, except those that cobra adds and the list of common flags.
func TestCommandsAreInGroups(t *testing.T) {
	for _, c := range rootCommand().Commands() {
		if c.Name() != "options" {
			assert.NotEmpty(t, c.GroupID, c.Name())
		}
	}
}

func TestOptionsDescribesTheConnection(t *testing.T) {
	var out bytes.Buffer
	c := rootCommand()
	c.SetArgs([]string{"options"})
	c.SetOut(&out)
	require.NoError(t, c.Execute())
	for _, flag := range []string{"kubeconfig", "context", "cluster-name", "temporal-address", "temporal-tls-ca-path", "payload-keys-path"} {
		assert.Contains(t, out.String(), "--"+flag+" ")
	}
	assert.NotContains(t, out.String(), "--output")
}

func TestVersionFlag(t *testing.T) {
	var out bytes.Buffer
	c := rootCommand()
	c.SetArgs([]string{"--version"})
	c.SetOut(&out)
	require.NoError(t, c.Execute())
	require.Regexp(t, `^millwright version \S+`, out.String())
}

// The program must accept each command in the documents and the help texts, with its flags and arguments. The test
// includes commands within sentences and tables.
func TestDocumentedCommandsHaveValidSyntax(t *testing.T) {
	calls, err := pages.CallsInDocuments("../..", "millwright", "kubectl millwright")
	require.NoError(t, err)
	require.Greater(t, len(calls), 100)
	examples := pages.CallsInExamples(rootCommand(), "millwright", "kubectl millwright")
	require.Greater(t, len(examples), 25)
	for _, call := range append(calls, examples...) {
		assert.NoError(t, call.CheckSyntax(rootCommand()))
	}
}

func TestFormerNameHint(t *testing.T) {
	assert.Contains(t, formerNameHint("/usr/local/bin/starter"), "call millwright")
	for _, name := range []string{"millwright", "/usr/local/bin/kubectl-millwright"} {
		assert.Empty(t, formerNameHint(name))
	}
}

// The list of commands fits on a terminal of 80 columns.
func TestCommandsHaveShortDescriptions(t *testing.T) {
	const indent = len("  codec-server   ")
	for _, c := range rootCommand().Commands() {
		assert.LessOrEqual(t, indent+len(c.Short), 80, c.Name())
	}
}
