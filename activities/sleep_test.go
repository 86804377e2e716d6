package activities_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An activity that sleeps occupies a slot that others need. To wait, use a timer, a retry's delay, or a watch.
func TestD28_NoWorkerSleeps(t *testing.T) {
	looked := 0
	for _, room := range []string{"activities", "workflows", "worker", "provider/virtual"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", filepath.FromSlash(room)), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			looked++
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(node ast.Node) bool {
				call, isCall := node.(*ast.CallExpr)
				if !isCall {
					return true
				}
				if function, isSelector := call.Fun.(*ast.SelectorExpr); isSelector {
					of, isName := function.X.(*ast.Ident)
					assert.False(t, isName && of.Name != "t" && function.Sel.Name == "Sleep", "%s calls %s.Sleep", path, of)
				}
				return true
			})
			return nil
		}))
	}
	require.Greater(t, looked, 20)
}
