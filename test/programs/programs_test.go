package programs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUnknownFlagsOfASubcommand(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	script := "#!/bin/sh\ncase \"$*\" in\n'--help') echo '  -v, --verbose   talk' ;;\n'run --help') printf '  -address string\\n\\twhere\\n' ;;\n*) echo no >&2; exit 1 ;;\nesac\n"
	require.NoError(t, os.WriteFile(program, []byte(script), 0o700))
	for _, c := range []struct{ arguments, unknown []string }{
		{[]string{"--verbose"}, nil},
		{[]string{"--verb"}, []string{"--verb"}}, // --verb is only a prefix of the flag --verbose
		{[]string{"run", "--address=a", "-address", "b"}, nil},
		{[]string{"run", "--adds=a", "--verbose"}, []string{"--adds=a", "--verbose"}},
		{[]string{"run"}, nil},
	} {
		unknown, err := UnknownFlags(t.Context(), program, c.arguments)
		require.NoError(t, err)
		assert.Equal(t, c.unknown, unknown, "%v", c.arguments)
	}
	_, err := UnknownFlags(t.Context(), program, []string{"walk", "--verbose"})
	assert.ErrorContains(t, err, "walk --help")
}
