package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const keysPageIntro = `# Labels, annotations, taints and finalizers

Written by ` + "`make generate`" + ` from ` + "`api/v1alpha1`" + `: the keys that Millwright reads or writes on objects, and their values. The keys that are not
Millwright's own are those of the project whose tools read and write them.
`

// keysPage returns the page about the keys in api/v1alpha1/vocabulary.go, with one table for each group of constants.
func keysPage(repo string) (string, error) {
	folder := filepath.Join(repo, "api")
	words, err := os.ReadDir(filepath.Join(folder, "vocabulary"))
	if err != nil {
		return "", fmt.Errorf("read the vocabulary: %w", err)
	}
	var all []*ast.File
	for _, entry := range words {
		file, err := parseConstants(filepath.Join(folder, "vocabulary", entry.Name()))
		if err != nil {
			return "", err
		}
		all = append(all, file)
	}
	keys, err := parseConstants(filepath.Join(folder, "v1alpha1", "vocabulary.go"))
	if err != nil {
		return "", err
	}
	values := map[string]string{}
	for _, file := range append(all, keys) {
		for _, group := range constantGroups(file) {
			for _, s := range group.Specs {
				spec := s.(*ast.ValueSpec)
				if value := constantText(spec, values); value != "" {
					values[spec.Names[0].Name] = value
				}
			}
		}
	}
	var page strings.Builder
	page.WriteString(keysPageIntro)
	for _, group := range constantGroups(keys) {
		page.WriteString(keysSection(group, values))
	}
	return page.String(), nil
}

func parseConstants(path string) (*ast.File, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("parse constants: %w", err)
	}
	return file, nil
}

func constantGroups(file *ast.File) (groups []*ast.GenDecl) {
	for _, declaration := range file.Decls {
		if group, is := declaration.(*ast.GenDecl); is && group.Tok == token.CONST {
			groups = append(groups, group)
		}
	}
	return groups
}

// constantText returns the string value of a constant, even if another constant defines the value. The result is empty
// if the constant is not a text.
func constantText(spec *ast.ValueSpec, values map[string]string) string {
	if len(spec.Values) != 1 {
		return ""
	}
	switch value := spec.Values[0].(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(value.Value)
		if err == nil && value.Kind == token.STRING {
			return text
		}
	case *ast.SelectorExpr:
		return values[value.Sel.Name]
	}
	return ""
}

// constantNamePattern matches the name of a constant in a comment.
var constantNamePattern = regexp.MustCompile(`\b(?:Annotation|Label|Taint|Finalizer|Value|Lease)[A-Z]\w+`)

// keysSection returns the comment of a group of constants, and a table of the constants whose values are texts. In
// comments, keysSection replaces the names of other constants by their values.
func keysSection(group *ast.GenDecl, values map[string]string) string {
	named := func(text string) string {
		return constantNamePattern.ReplaceAllStringFunc(strings.Join(strings.Fields(text), " "), func(name string) string {
			if value := values[name]; value != "" {
				return "`" + value + "`"
			}
			return name
		})
	}
	var rows []string
	for _, s := range group.Specs {
		spec := s.(*ast.ValueSpec)
		value := constantText(spec, values)
		if value == "" || spec.Doc == nil && group.Lparen.IsValid() {
			continue // the constant is an effect of a taint
		}
		meaning := spec.Doc.Text()
		if !group.Lparen.IsValid() {
			meaning = group.Doc.Text()
		}
		meaning = strings.TrimLeft(strings.TrimPrefix(meaning, spec.Names[0].Name), ": ")
		rows = append(rows, fmt.Sprintf("| `%s` | %s |", value, strings.ReplaceAll(named(meaning), "|", `\|`)))
	}
	if len(rows) == 0 {
		return ""
	}
	intro := "\n"
	if group.Lparen.IsValid() {
		intro = "\n" + named(group.Doc.Text()) + "\n\n"
	}
	return intro + "| key or value | meaning |\n|---|---|\n" + strings.Join(rows, "\n") + "\n"
}
