package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/test/pages"
)

func TestCommandsOfTheStarter(t *testing.T) {
	for _, path := range [][]string{{"bootstrap"}, {"demo"}, {"drain", "extend"}, {"preserve"}, {"rollout", "undo"}, {"provider", "check"}, {"explain"}, {"top"}, {"ui"}, {"doctor"}} {
		c, rest, err := command().Find(path)
		require.NoError(t, err, path)
		require.Empty(t, rest, path)
		require.Equal(t, path[len(path)-1], c.Name())
	}
}

func TestVersionOfTheProgram(t *testing.T) {
	var out bytes.Buffer
	c := command()
	c.SetArgs([]string{"--version"})
	c.SetOut(&out)
	require.NoError(t, c.Execute())
	require.Regexp(t, `^millwright version \S+`, out.String())
}

// Each command of the documents and of the help texts is one that the program takes, with its flags and arguments, also
// where it stands in a sentence or a table.
func TestCommandsInTheDocuments(t *testing.T) {
	calls, err := pages.Calls("../..", "millwright", "kubectl millwright")
	require.NoError(t, err)
	require.Greater(t, len(calls), 100)
	examples := pages.Examples(command(), "millwright", "kubectl millwright")
	require.Greater(t, len(examples), 25)
	for _, call := range append(calls, examples...) {
		assert.NoError(t, call.Check(command()))
	}
}

func TestTheFormerNameSaysTheNewOne(t *testing.T) {
	assert.Contains(t, formerName("/usr/local/bin/starter"), "call millwright")
	for _, name := range []string{"millwright", "/usr/local/bin/kubectl-millwright"} {
		assert.Empty(t, formerName(name))
	}
}
