package v1alpha1

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// source is what a package declares, as its comments and constants say.
type source struct {
	fields    map[string]string   // comments, by type and field: MachineStatus.Conditions
	typed     map[string][]string // names of the fields of a type: MachinePhase
	constants map[string]string   // values, by name
	types     map[string][]string // values of the constants of a type
	groups    map[string][]string // values of a group of constants, by the first words of its comment
}

// parse reads a folder. Known are constants of another package, by name.
func parse(t *testing.T, folder string, known map[string]string) source {
	t.Helper()
	s := source{
		map[string]string{},
		map[string][]string{},
		map[string]string{},
		map[string][]string{},
		map[string][]string{},
	}
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, declaration := range file.Decls {
			group, is := declaration.(*ast.GenDecl)
			if !is {
				continue
			}
			for _, spec := range group.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					s.constant(spec, known, strings.Join(strings.Fields(group.Doc.Text()), " "))
				case *ast.TypeSpec:
					s.fieldsOf(spec)
				}
			}
		}
	}
	return s
}

func (s source) constant(spec *ast.ValueSpec, known map[string]string, group string) {
	if len(spec.Values) != 1 {
		return
	}
	value := ""
	switch v := spec.Values[0].(type) {
	case *ast.BasicLit:
		value, _ = strconv.Unquote(v.Value)
	case *ast.SelectorExpr:
		value = known[v.Sel.Name]
	}
	if value == "" {
		return
	}
	name := spec.Names[0].Name
	s.constants[name] = value
	s.groups[group] = append(s.groups[group], value)
	if typ := typeName(spec.Type); typ != "" {
		s.types[typ] = append(s.types[typ], value)
	}
}

func (s source) fieldsOf(spec *ast.TypeSpec) {
	fields, is := spec.Type.(*ast.StructType)
	if !is {
		return
	}
	for _, field := range fields.Fields.List {
		for _, name := range field.Names {
			key := spec.Name.Name + "." + name.Name
			s.fields[key] = field.Doc.Text()
			if typ := typeName(field.Type); typ != "" {
				s.typed[typ] = append(s.typed[typ], key)
			}
		}
	}
}

// typeName returns the name of a type, without its package.
func typeName(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.StarExpr:
		return typeName(e.X)
	default:
		return ""
	}
}

// kubectl explain shows the comments of fields: each names every word that its field can hold.
func TestCommentsNameWhatAFieldCanHold(t *testing.T) {
	words := parse(t, "../vocabulary", nil)
	api := parse(t, ".", words.constants)
	names := func(field string, values []string) {
		t.Helper()
		comment, found := api.fields[field]
		require.True(t, found, "there is no field %s", field)
		require.NotEmpty(t, values, "there are no words for %s", field)
		for _, value := range values {
			assert.Regexp(t, `(^|[^\w-])`+regexp.QuoteMeta(value)+`($|[^\w-])`, comment, "%s does not name %s", field, value)
		}
	}
	checked := 0
	for typ, values := range api.types {
		for _, field := range api.typed[typ] {
			names(field, values)
			checked++
		}
	}
	assert.GreaterOrEqual(t, checked, 10, "fields with a type of words of their own")

	prefixed := func(constants map[string]string, prefix string) (values []string) {
		for name, value := range constants {
			if strings.HasPrefix(name, prefix) {
				values = append(values, value)
			}
		}
		return values
	}
	steps := prefixed(words.constants, "Step")
	sweeps := words.groups["Steps of the workflow that collects orphans."] // no object has them
	require.NotEmpty(t, sweeps)
	names("Operation.Step", slices.DeleteFunc(steps, func(step string) bool { return slices.Contains(sweeps, step) }))
	others := words.groups["What a Machine of Cluster API waits for, in the condition Blocked of its set. A hook has the key of its annotation."]
	require.NotEmpty(t, others)
	names(
		"Operation.BlockedBy",
		slices.DeleteFunc(
			prefixed(words.constants, "Blocked"),
			func(word string) bool { return slices.Contains(others, word) },
		),
	)
	names(
		"MachineDrain.Result",
		words.groups["Results of a drain, in status.deletion.drain.result and status.drain.result, and reasons of the condition Drained."],
	)
	// the last three are of Nodes
	names("MachineStatus.Conditions", api.types["NodeConditionType"][:len(api.types["NodeConditionType"])-3])
	for field, groups := range map[string][]string{
		"MachineStatus.Conditions": {"Reasons of Drained.", "Reasons of ReplacementDue.", "Reasons of ClassReady.", "Reasons of InstanceReady. The names of the provider's codes are reasons of InstanceReady, too."},
		"MachineDeploymentCondition.Reason": {
			"Reasons of Available.", "Reasons of ReplicaFailure.",
			"Reasons of Progressing. NewMachineSetCreated and FoundNewMachineSet remain until the rollout makes its first progress, is paused, or waits at a pause point.",
		},
	} {
		for _, group := range groups {
			names(field, api.groups[group])
		}
	}
	names(
		"MachineSetCondition.Reason",
		words.groups["Reasons of conditions of a MachineSet. For other conditions that are True, the reason is the type of the condition."],
	)
	names(
		"MachineClassStatus.Conditions",
		[]string{ClassServed, words.constants["ReasonWorkerPolls"], words.constants["BlockedNoWorker"]},
	)
}
