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

// parsedPackage has the comments and constants of a package.
type parsedPackage struct {
	fields         map[string]string   // comments of fields, by TYPE.FIELD such as MachineStatus.Conditions
	fieldsOfType   map[string][]string // TYPE.FIELD of the fields of a type, by name of the type such as MachinePhase
	constants      map[string]string   // values of constants, by name
	types          map[string][]string // values of the constants, by name of their type
	constantGroups map[string][]string // values of the constants of a group, by the comment of the group
}

// parsePackage parses the package in a folder. The argument known has the constants of another package, by name.
func parsePackage(t *testing.T, folder string, known map[string]string) parsedPackage {
	t.Helper()
	s := parsedPackage{
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
					s.addConstant(spec, known, strings.Join(strings.Fields(group.Doc.Text()), " "))
				case *ast.TypeSpec:
					s.addFields(spec)
				}
			}
		}
	}
	return s
}

func (s parsedPackage) addConstant(spec *ast.ValueSpec, known map[string]string, group string) {
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
	s.constantGroups[group] = append(s.constantGroups[group], value)
	if typ := typeName(spec.Type); typ != "" {
		s.types[typ] = append(s.types[typ], value)
	}
}

func (s parsedPackage) addFields(spec *ast.TypeSpec) {
	fields, is := spec.Type.(*ast.StructType)
	if !is {
		return
	}
	for _, field := range fields.Fields.List {
		for _, name := range field.Names {
			key := spec.Name.Name + "." + name.Name
			s.fields[key] = field.Doc.Text()
			if typ := typeName(field.Type); typ != "" {
				s.fieldsOfType[typ] = append(s.fieldsOfType[typ], key)
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

// kubectl explain shows the comment of a field, so the comment must name every value of the field.
func TestCommentsNameWhatAFieldCanHold(t *testing.T) {
	words := parsePackage(t, "../vocabulary", nil)
	api := parsePackage(t, ".", words.constants)
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
		for _, field := range api.fieldsOfType[typ] {
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
	// no object's status contains the steps of sweeps
	sweeps := words.constantGroups["Steps of the workflow that collects orphans."]
	require.NotEmpty(t, sweeps)
	names("Operation.Step", slices.DeleteFunc(steps, func(step string) bool { return slices.Contains(sweeps, step) }))
	others := words.constantGroups["Reasons why a Cluster API Machine waits, in the condition Blocked of its set. If a hook blocks the Machine, the reason is the annotation key of the hook."]
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
		words.constantGroups["Results of a drain, in status.deletion.drain.result and status.drain.result, and reasons of the condition Drained."],
	)
	// the last three types are conditions of Nodes
	names("MachineStatus.Conditions", api.types["NodeConditionType"][:len(api.types["NodeConditionType"])-3])
	for field, groups := range map[string][]string{
		"MachineStatus.Conditions": {"Reasons of Drained.", "Reasons of ReplacementDue.", "Reasons of ClassReady.", "Reasons of InstanceReady. The names of the provider's codes are reasons of InstanceReady, too."},
		"MachineDeploymentCondition.Reason": {
			"Reasons of Available.", "Reasons of ReplicaFailure.",
			"Reasons of Progressing. NewMachineSetCreated and FoundNewMachineSet remain until the rollout makes its first progress, is paused, or waits at a pause point.",
		},
	} {
		for _, group := range groups {
			names(field, api.constantGroups[group])
		}
	}
	names(
		"MachineSetCondition.Reason",
		words.constantGroups["Reasons of conditions of a MachineSet. For other conditions that are True, the reason is the type of the condition."],
	)
	names(
		"MachineClassStatus.Conditions",
		[]string{ClassServed, words.constants["ReasonWorkerPolls"], words.constants["BlockedNoWorker"]},
	)
}
