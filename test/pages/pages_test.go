package pages

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pageText joins lines to a page. The lines contain ”' instead of ```, because a raw string of Go cannot contain
// backticks.
func pageText(lines ...string) string {
	return strings.ReplaceAll(strings.Join(lines, "\n"), "'''", "```")
}

func TestParsePageReturnsTheBlocks(t *testing.T) {
	blocks, err := parsePage(pageText(
		"# Title",
		"'''sh",
		"make up",
		"export A=1",
		"'''",
		"<!-- run first",
		"    kubectl create namespace shop",
		"-->",
		"<!-- not run: needs Docker -->",
		"'''console",
		"$ docker ps",
		"'''",
		"1. in a list",
		"   '''console",
		"   $ kubectl get mc \\",
		"   > -A   # repeat until you see this",
		"   NAME  AGE",
		"",
		"   pool-…",
		"   $ millwright top",
		"   '''",
		"'''yaml",
		"kind: Machine",
		"'''",
	))
	require.NoError(t, err)
	assert.Equal(t, []Block{
		{Line: 2, Commands: []Command{{Line: 3, Text: "make up\nexport A=1"}}},
		{Line: 6, Commands: []Command{{Line: 7, Text: "    kubectl create namespace shop"}}},
		{Line: 10, SkipReason: "needs Docker", Commands: []Command{{Line: 11, Text: "docker ps"}}},
		{Line: 14, Commands: []Command{
			{Line: 15, Text: "kubectl get mc \\\n-A", IsRepeated: true, ExpectedLines: []string{"NAME  AGE", "pool-…"}},
			{Line: 20, Text: "millwright top"},
		}},
	}, blocks)
}

func TestParsePageRefusesForbiddenText(t *testing.T) {
	for _, c := range []struct {
		says  string
		lines []string
	}{
		{`2: a command outside of a block of sh or console: "kubectl get mc"`, []string{"Text:", "    kubectl get mc"}},
		{`3: a command outside of a block of sh or console: "$ A=1 bin/millwright top"`, []string{"Text:", "'''text", "$ A=1 bin/millwright top", "'''"}},
		{`2: this comment has no end`, []string{"", "<!-- run first", "make up", "'''sh"}},
		{`2: a command outside of a block of sh or console: "helm upgrade x"`, []string{"1. In a list", "       helm upgrade x"}},
		{`1: this block has no end`, []string{"'''sh", "make up"}},
		{`2: the block does not begin with a command`, []string{"'''console", "NAME", "'''"}},
		{`2: the command is repeated until it prints something, and nothing is below it`, []string{"'''console", "$ millwright top # repeat until you see this", "'''"}},
		{`4: a command outside of a block of sh or console: "make demo    # three machines"`, []string{"", "", "", "    make demo    # three machines"}},
		{`1: a command outside of a block of sh or console: "temporal workflow show --help"`, []string{"    temporal workflow show --help"}},
		{`1: a command outside of a block of sh or console: ".devstack/kubectl get machines -w"`, []string{"    .devstack/kubectl get machines -w"}},
	} {
		_, err := parsePage(pageText(c.lines...))
		assert.EqualError(t, err, c.says)
	}
	_, err := parsePage(pageText("    pool-7dcbd-2mdck   Pending   1s", "    spec: {}"))
	assert.NoError(t, err, "what no person types may be indented")
}

func TestMissingLineOfTheOutput(t *testing.T) {
	const table = "NAME           STATUS    AGE\npool-a-1       Running   3s\npool-a-2       Failed    4s\n"
	for name, row := range map[string]struct {
		prints  []string
		missing string
	}{
		"nothing":               {nil, ""},
		"all":                   {[]string{"NAME   STATUS   AGE", "pool-…   Running   …", "pool-…   Failed   …"}, ""},
		"some":                  {[]string{"pool-…   Failed   …s"}, ""},
		"any lines":             {[]string{"…", "pool-a-1   …"}, ""},
		"another order":         {[]string{"pool-a-2   …", "pool-a-1   …"}, "pool-a-1   …"},
		"one line twice":        {[]string{"pool-a-1   …", "pool-a-1   …"}, "pool-a-1   …"},
		"a part of a line":      {[]string{"pool-a-1"}, "pool-a-1"},
		"no pattern":            {[]string{"pool-a-.   Running   3s"}, "pool-a-.   Running   3s"},
		"another state":         {[]string{"pool-…   Pending   …"}, "pool-…   Pending   …"},
		"a space is no column":  {[]string{"pool-a-1 Running   3s"}, "pool-a-1 Running   3s"},
		"columns of any width":  {[]string{"pool-a-1  Running  3s"}, ""},
		"text within the line":  {[]string{"…a-2   Fail…s"}, ""},
		"more than the command": {[]string{"NAME   STATUS   AGE", "x"}, "x"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, row.missing, Command{ExpectedLines: row.prints}.MissingLine(table))
		})
	}
}
