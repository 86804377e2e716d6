package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/test/pages"
)

// The program accepts each devstack command in the documents and in the help texts, with its flags and arguments. The
// test also reads commands within sentences and tables.
func TestDocumentedCommandsHaveValidSyntax(t *testing.T) {
	calls, err := pages.CallsInDocuments("..", "devstack")
	require.NoError(t, err)
	require.Greater(t, len(calls), 20)
	examples := pages.CallsInExamples(rootCommand(), "devstack")
	require.Greater(t, len(examples), 2)
	for _, call := range append(calls, examples...) {
		assert.NoError(t, call.CheckSyntax(rootCommand()))
	}
}
