package printers

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLinesAreBrokenAtTheWidthOfTheTerminal(t *testing.T) {
	for name, row := range map[string]struct {
		text  string
		width int
		want  string
	}{
		"a pipe":             {"one two three", 0, "one two three"},
		"a line that fits":   {"one two three\n", 13, "one two three\n"},
		"a line that is cut": {"one two three\nfour five six\n", 9, "one two\nthree\nfour five\nsix\n"},
		"an indent":          {"  one two three\n", 10, "  one two\n  three\n"},
		"a command in one piece": {
			"the pods go; `kubectl edit pdb -n shop web`; then wait\n", 30,
			"the pods go;\n`kubectl edit pdb -n shop web`;\nthen wait\n",
		},
		"an address longer than the line": {"see http://127.0.0.1:8233/namespaces/millwright\n", 20, "see\nhttp://127.0.0.1:8233/namespaces/millwright\n"},
		"one backquote":                   {"the key ` is not closed here\n", 16, "the key ` is not\nclosed here\n"},
		"the last column of a table": {
			"web   14m   one two three four five six seven\n", 40,
			"web   14m   one two three four five six\n            seven\n",
		},
		"no room for the last column": {
			"a-long-name-of-a-pool   14m   one two three\n", 36,
			"a-long-name-of-a-pool   14m   one\n  two three\n",
		},
		"colours take no room": {"\x1b[33mblocked\x1b[0m one two\n", 15, "\x1b[33mblocked\x1b[0m one two\n"},
		"letters of two bytes": {"äöü äöü äöü\n", 11, "äöü äöü äöü\n"},
	} {
		assert.Equal(t, row.want, wrapLines(row.text, row.width), name)
	}
}

// Breaking a line changes spaces only, and makes a line longer than the terminal only for one word.
func TestBrokenLinesKeepTheirWords(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		words := make([]string, 1+random.IntN(30))
		for i := range words {
			words[i] = strings.Repeat("ä", 1+random.IntN(12))
		}
		width := 1 + random.IntN(100)
		broken := wrapLines(strings.Join(words, " "), width)
		require.Equal(t, words, strings.Fields(broken))
		for line := range strings.SplitSeq(broken, "\n") {
			require.True(t, visibleLength(line) <= width || !strings.Contains(line, " "), "%q is longer than %d", line, width)
		}
	}
}
