package docs_test

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The patterns find the rows of the table of rooms, and the names of rooms in a row. A row has the room, its question,
// and the rooms that the room imports.
var (
	topFolderRowPattern  = regexp.MustCompile("(?m)^\\| `([a-z0-9]+)/` \\| .* \\| (.*)\\|$")
	topFolderNamePattern = regexp.MustCompile("`([a-z0-9]+)`")
)

// The table of rooms lists exactly the rooms that each room imports. A room whose row says "all" may import all rooms.
func TestTableOfTopFoldersMatchesTheImports(t *testing.T) {
	page, err := os.ReadFile("architecture.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "| room |")
	require.True(t, found)
	imports := importsByTopFolder(t)
	told := map[string]bool{}
	for _, row := range topFolderRowPattern.FindAllStringSubmatch(table, -1) {
		room := row[1]
		told[room] = true
		if strings.TrimSpace(row[2]) == "all" {
			continue
		}
		var named []string
		for _, name := range topFolderNamePattern.FindAllStringSubmatch(row[2], -1) {
			named = append(named, name[1])
		}
		slices.Sort(named)
		assert.Equal(t, named, imports[room], "rooms that %s/ imports", room)
	}
	for room := range imports {
		assert.True(t, told[room], "room %s/ has no row", room)
	}
}

// importsByTopFolder returns the rooms that each room imports, sorted. Tests, and code that only tests use, are left
// out.
func importsByTopFolder(t *testing.T) map[string][]string {
	imports := map[string][]string{}
	for name, text := range readGoSources(t) {
		room, _, inRoom := strings.Cut(name, "/")
		if !inRoom || !isProductionFileInTopFolder(name, room) || strings.Contains(name, "/testdata/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		require.NoError(t, err)
		for _, i := range file.Imports {
			from, err := strconv.Unquote(i.Path.Value)
			require.NoError(t, err)
			inside, ours := strings.CutPrefix(from, "millwright/")
			other, _, _ := strings.Cut(inside, "/")
			if ours && other != room && !slices.Contains(imports[room], other) && !strings.Contains(from, "test/") &&
				!strings.HasSuffix(from, "test") {
				imports[room] = append(imports[room], other)
			}
		}
		if imports[room] == nil {
			imports[room] = []string(nil)
		}
		slices.Sort(imports[room])
	}
	return imports
}

// walkthroughStepPattern matches a file and a function in the diagram of a walkthrough.
var walkthroughStepPattern = regexp.MustCompile(`([a-z][A-Za-z0-9_/]*\.go) +([A-Za-z]+)\(\)`)

// maxWalkthroughLines is the maximum number of lines of a walkthrough page. Source: a walkthrough should fit on one and
// a half screens.
const maxWalkthroughLines = 60

// Each step of a walkthrough names a file and a function, and the file has this function.
func TestWalkthroughStepsNameExistingFunctions(t *testing.T) {
	pages, err := filepath.Glob("walks/*.md")
	require.NoError(t, err)
	require.Len(t, pages, 4)
	code := readGoSources(t)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		assert.LessOrEqual(t, strings.Count(string(text), "\n"), maxWalkthroughLines, page)
		steps := walkthroughStepPattern.FindAllStringSubmatch(string(text), -1)
		assert.Greater(t, len(steps), 10, page)
		for _, step := range steps {
			defines := regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + step[2] + `[\[(]`)
			assert.True(t, defines.MatchString(code[step[1]]), "%s: %s has no function %s", page, step[1], step[2])
		}
	}
}
