package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mayDecide lists, for each room that does not decide, the functions of decide that it may call nevertheless.
// decide/phrase decides nothing: all rooms may call it.
func mayDecide() map[string][]string {
	return map[string][]string{
		"workflows": {
			"explain.NeedsPerson", // words of the page in Temporal, which is in no history
			"orphan.After",        // takes what was collected off a list
			"request.Check",       // validates updates: what it refuses is in no history
		},
		"observe": { // facts only
			"ownership.OfNode", // whose a node is: the bridge, the activities and the command need the same fact
			"ownership.Key",    // of an index
		},
		"k8sbridge": {
			"attention.DecideClass", "attention.PlanMachine", "rollout.Plan", "scale.Plan", // what work is pending
			"drain.NextTurns", // who is woken when a place in the queue of drains is free
		},
	}
}

// A decision outside of an activity leaves no record (workflows), or is made a second time (observe, the bridge).
func TestWhoMayDecide(t *testing.T) {
	files := sources(t)
	functions := decideFunctions(t, files)
	require.NotEmpty(t, functions["millwright/decide/attention"])
	for room, allowed := range mayDecide() {
		called := map[string]bool{}
		for name, text := range files {
			if !isProduction(name, room) {
				continue
			}
			for call, at := range decideCalls(t, name, text, functions) {
				called[call] = true
				assert.True(
					t,
					slices.Contains(allowed, call),
					"%s may not call %s: an activity decides, from what observe has read",
					at,
					call,
				)
			}
		}
		for _, call := range allowed {
			assert.True(t, called[call], "%s does not call %s any more: take it off the list", room, call)
		}
	}
}

// Whose a node or an instance is, is decided in one place. A comparison with the empty ID only asks whether there is one.
// A provider compares IDs that it gave itself.
func TestNobodyElseComparesProviderIDs(t *testing.T) {
	isID := func(e ast.Expr) bool {
		s, is := e.(*ast.SelectorExpr)
		return is && s.Sel.Name == "ProviderID"
	}
	looked := 0
	for name, text := range sources(t) {
		room, _, _ := strings.Cut(name, "/")
		if !isProduction(name, room) || strings.HasPrefix(name, "decide/ownership/") ||
			slices.Contains([]string{"provider", "devstack", "examples"}, room) {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, text, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			b, is := n.(*ast.BinaryExpr)
			if !is || b.Op != token.EQL && b.Op != token.NEQ || !isID(b.X) && !isID(b.Y) {
				return true
			}
			looked++
			literal, is := b.Y.(*ast.BasicLit)
			assert.True(t, is && literal.Value == `""`, "%s compares provider IDs: ask decide/ownership", set.Position(b.Pos()))
			return true
		})
	}
	assert.NotZero(t, looked)
}

// isProduction reports whether a file belongs to a room and is no test and no fixture of tests.
func isProduction(name, room string) bool {
	return strings.HasPrefix(name, room+"/") && !strings.HasSuffix(name, "_test.go") && !strings.Contains(name, "test/")
}

// decideFunctions returns the exported functions of each package of decide, phrase apart, by import path.
func decideFunctions(t *testing.T, files map[string]string) map[string]map[string]bool {
	functions := map[string]map[string]bool{}
	for name, text := range files {
		if !isProduction(name, "decide") || strings.HasPrefix(name, "decide/phrase/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
		require.NoError(t, err)
		from := "millwright/" + path.Dir(name)
		if functions[from] == nil {
			functions[from] = map[string]bool{}
		}
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Recv == nil && f.Name.IsExported() {
				functions[from][f.Name.Name] = true
			}
		}
	}
	return functions
}

// decideCalls returns which of the functions a file names, called or not, as "package.Function", with one place of
// each.
func decideCalls(t *testing.T, name, text string, functions map[string]map[string]bool) map[string]token.Position {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, 0)
	require.NoError(t, err)
	imports := map[string]string{} // path by the name that the file uses
	for _, i := range file.Imports {
		from, err := strconv.Unquote(i.Path.Value)
		require.NoError(t, err)
		local := path.Base(from)
		if i.Name != nil {
			local = i.Name.Name
		}
		assert.False(t, local == "." && functions[from] != nil, "%s: a dot import hides who is called", name)
		imports[local] = from
	}
	calls := map[string]token.Position{}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, is := n.(*ast.SelectorExpr); is {
			if x, is := s.X.(*ast.Ident); is && functions[imports[x.Name]][s.Sel.Name] {
				calls[path.Base(imports[x.Name])+"."+s.Sel.Name] = set.Position(s.Pos())
			}
		}
		return true
	})
	return calls
}
