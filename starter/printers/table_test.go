package printers

import (
	"bytes"
	"testing"

	"github.com/fatih/color"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A cell with a colour takes the room of its word, and an output that is no terminal has no colour.
func TestTablesAlignStates(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, WriteTable(&out, [][]any{
		{"NAME", "STATE", "SINCE"},
		{"web", NewStateWord("Blocked"), "1m"},
		{"database", NewStateWord(""), ""},
		{"ä", NewStateWord("Pending"), "2m"},
	}))
	assert.Equal(t, "NAME       STATE     SINCE\n"+
		"web        Blocked   1m\n"+
		"database   -         -\n"+
		"ä          Pending   2m\n", out.String())
	painted := color.New(color.FgRed)
	painted.EnableColor()
	assert.Equal(t, 6, visibleLength(painted.Sprint("Failed")))
}
