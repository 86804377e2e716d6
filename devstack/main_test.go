package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/test/pages"
)

// Each command of the documents and of the help texts is one that the program takes, with its flags and arguments, also
// where it stands in a sentence or a table.
func TestCommandsInTheDocuments(t *testing.T) {
	calls, err := pages.Calls("..", "devstack")
	require.NoError(t, err)
	require.Greater(t, len(calls), 20)
	examples := pages.Examples(rootCommand(), "devstack")
	require.Greater(t, len(examples), 2)
	for _, call := range append(calls, examples...) {
		assert.NoError(t, call.Check(rootCommand()))
	}
}
