package printers

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestColoursAppearOnlyOnTerminals(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	terminal, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // a character device, like a terminal
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, terminal.Close()) })
	assert.Equal(t, "\x1b[31mFAILED\x1b[0m", Paint(terminal, ToneBad, "FAILED"))
	assert.Equal(t, "FAILED", Paint(&bytes.Buffer{}, ToneBad, "FAILED"))
	t.Setenv("TERM", "dumb")
	assert.Equal(t, "FAILED", Paint(terminal, ToneBad, "FAILED"))
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	assert.Equal(t, "FAILED", Paint(terminal, ToneBad, "FAILED"))
}
