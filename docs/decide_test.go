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

// allowedDecideCalls lists, by top-level folder, the functions of decide that a folder may call although the folder
// does not decide. decide/phrase decides nothing, so all folders may call it.
func allowedDecideCalls() map[string][]string {
	return map[string][]string{
		"workflows": {
			// returns the workflow's current details, which Temporal does not record in the history
			"explain.NeedsPerson",
			"orphan.SightingsWithoutDeleted", // removes collected instances from a list
			"request.CheckOrder",             // validates updates; the history does not contain a refused update
		},
		"observe": { // observe may call only functions that return facts
			// returns the machine of a node, which the bridge, the activities and the command all need
			"ownership.OwnerOfNode",
			"ownership.ProviderIDKey", // returns the key of an index
		},
		"k8sbridge": {
			"attention.DecideClass", "attention.PlanMachine", "rollout.PlanDeployment", "scale.PlanSet",
			"drain.NextQueuedMachines", // returns the machines to wake when the drain queue has a free place
		},
	}
}

// A decision of a workflow outside of an activity is not recorded in the history. If observe or the bridge decides, the
// workflow decides the same a second time.
func TestOnlyAllowedPackagesCallDecide(t *testing.T) {
	files := readGoSources(t)
	functions := decideFunctions(t, files)
	require.NotEmpty(t, functions["millwright/decide/attention"])
	for room, allowed := range allowedDecideCalls() {
		called := map[string]bool{}
		for name, text := range files {
			if !isProductionFileInTopFolder(name, room) {
				continue
			}
			for call, at := range referencedDecideFunctions(t, name, text, functions) {
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

// Only one place decides which machine a node or an instance belongs to. A comparison with the empty ID only tests
// whether an ID exists. A provider may compare IDs that the provider itself assigned.
func TestOnlyOwnershipPackageComparesProviderIDs(t *testing.T) {
	isID := func(e ast.Expr) bool {
		s, is := e.(*ast.SelectorExpr)
		return is && s.Sel.Name == "ProviderID"
	}
	looked := 0
	for name, text := range readGoSources(t) {
		room, _, _ := strings.Cut(name, "/")
		if !isProductionFileInTopFolder(name, room) || strings.HasPrefix(name, "decide/ownership/") ||
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

// isProductionFileInTopFolder reports whether a file belongs to the top-level folder room and is neither a test nor a
// fixture of tests.
func isProductionFileInTopFolder(name, room string) bool {
	return strings.HasPrefix(name, room+"/") && !strings.HasSuffix(name, "_test.go") && !strings.Contains(name, "test/")
}

// decideFunctions returns the exported functions of each package of decide except phrase, by import path.
func decideFunctions(t *testing.T, files map[string]string) map[string]map[string]bool {
	functions := map[string]map[string]bool{}
	for name, text := range files {
		if !isProductionFileInTopFolder(name, "decide") || strings.HasPrefix(name, "decide/phrase/") {
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

// referencedDecideFunctions returns the functions of decide that a file names, called or not, as "package.Function",
// with one position of each function.
func referencedDecideFunctions(
	t *testing.T,
	name, text string,
	functions map[string]map[string]bool,
) map[string]token.Position {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, 0)
	require.NoError(t, err)
	imports := map[string]string{} // maps the name that the file uses to the import path
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
