package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/test/pages"
)

// Each lab command in the documentation and in the help texts parses without an error.
func TestDocumentedCommandsHaveValidSyntax(t *testing.T) {
	calls, err := pages.CallsInDocuments("../..", "lab")
	require.NoError(t, err)
	require.Greater(t, len(calls), 3)
	examples := pages.CallsInExamples(rootCommand(), "lab")
	require.Greater(t, len(examples), 2)
	for _, call := range append(calls, examples...) {
		assert.NoError(t, call.CheckSyntax(rootCommand()))
	}
}
