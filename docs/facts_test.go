package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// kindFamilyFileRules lists the files that may use the facts of only one family of kinds. The field MCM has the facts
// of MCM's kinds, and the field ClusterAPI has the facts of Cluster API's kinds. A planner serves both families, so a
// planner reads the facts of one family through a method in a file of that family. The adapter of a family sets only
// the field of its own family.
var kindFamilyFileRules = []struct {
	folder string // a slash at the end includes the folders below this folder
	part   string
	files  string // name prefix of the files that may use the field named by part; empty: no file may use the field
}{
	{"decide/scale", "MCM", "mcm"},
	{"decide/scale", "ClusterAPI", "clusterapi"},
	{"decide/rollout", "MCM", "mcm"},
	{"decide/rollout", "ClusterAPI", "clusterapi"},
	{"observe/set/", "ClusterAPI", ""},
	{"observe/deployment/", "ClusterAPI", ""},
	{"observe/capi/", "MCM", ""},
	{"activities/set/", "ClusterAPI", ""},
	{"activities/deployment/", "ClusterAPI", ""},
	{"activities/capi/", "MCM", ""},
}

func TestOnlyTheFilesOfAKindFamilyUseItsFacts(t *testing.T) {
	looked := map[string]bool{}
	for name, text := range readGoSources(t) {
		for _, rule := range kindFamilyFileRules {
			folder, below := strings.CutSuffix(rule.folder, "/")
			within := path.Dir(name) == folder || below && strings.HasPrefix(name, rule.folder)
			room, _, _ := strings.Cut(name, "/")
			if !within || !isProductionFileInTopFolder(name, room) {
				continue
			}
			looked[rule.folder+rule.part] = true
			if rule.files != "" && strings.HasPrefix(path.Base(name), rule.files) {
				continue
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, text, 0)
			require.NoError(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				var named *ast.Ident
				switch n := n.(type) {
				case *ast.SelectorExpr:
					named = n.Sel
				case *ast.KeyValueExpr:
					named, _ = n.Key.(*ast.Ident)
				}
				if named != nil {
					assert.NotEqual(t, rule.part, named.Name, "%s", set.Position(named.Pos()))
				}
				return true
			})
		}
	}
	assert.Len(t, looked, len(kindFamilyFileRules), "a folder of the rules does not exist")
}

// maxStructFields is the maximum number of fields of a struct in decide, observe, activities and workflows. An embedded
// struct counts as one field.
const maxStructFields = 20

func TestStructsHaveAtMostTwentyFields(t *testing.T) {
	looked := 0
	for name, text := range readGoSources(t) {
		room, _, _ := strings.Cut(name, "/")
		if !slices.Contains([]string{"decide", "observe", "activities", "workflows"}, room) ||
			!isProductionFileInTopFolder(name, room) {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, text, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			s, is := n.(*ast.StructType)
			if !is {
				return true
			}
			fields := 0
			for _, f := range s.Fields.List {
				fields += max(len(f.Names), 1)
			}
			looked++
			assert.LessOrEqual(t, fields, maxStructFields, "%s", set.Position(s.Pos()))
			return true
		})
	}
	assert.NotZero(t, looked)
}
