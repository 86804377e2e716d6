package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const wordsPageIntro = `# Words of a status

Written by ` + "`make generate`" + ` from ` + "`api/vocabulary`" + `. These are all words that a status, a condition, an event or the step of a workflow can
hold. ` + "`kubectl explain`" + ` describes the fields that hold them.
`

// wordsPage returns the page about the vocabulary, with one section for each file and one table for each group of
// constants.
func wordsPage(repo string) (string, error) {
	folder := filepath.Join(repo, "api", "vocabulary")
	entries, err := os.ReadDir(folder)
	if err != nil {
		return "", fmt.Errorf("read the vocabulary: %w", err)
	}
	var page strings.Builder
	page.WriteString(wordsPageIntro)
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(folder, entry.Name()), nil, parser.ParseComments)
		if err != nil {
			return "", fmt.Errorf("parse the vocabulary: %w", err)
		}
		name := strings.TrimSuffix(entry.Name(), ".go")
		page.WriteString("\n## " + strings.ToUpper(name[:1]) + name[1:] + "\n")
		for _, declaration := range file.Decls {
			if group, is := declaration.(*ast.GenDecl); is && group.Tok == token.CONST {
				page.WriteString(wordsSection(group))
			}
		}
	}
	return page.String(), nil
}

// wordsSection returns the comment of a group of constants, and a table of their values. The comment of a constant
// describes its value.
func wordsSection(group *ast.GenDecl) string {
	comment := strings.Join(strings.Fields(group.Doc.Text()), " ")
	rows := []string{"| word | meaning |", "|---|---|"}
	for _, s := range group.Specs {
		spec := s.(*ast.ValueSpec)
		if len(spec.Values) != 1 {
			continue
		}
		literal, is := spec.Values[0].(*ast.BasicLit)
		if !is || literal.Kind != token.STRING {
			continue
		}
		word, err := strconv.Unquote(literal.Value)
		if err != nil {
			continue
		}
		meaning := strings.Join(strings.Fields(spec.Comment.Text()+" "+spec.Doc.Text()), " ")
		if !group.Lparen.IsValid() {
			meaning = strings.TrimPrefix(comment, spec.Names[0].Name+" is ")
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s |", word, strings.ReplaceAll(meaning, "|", `\|`)))
	}
	if len(rows) == 2 {
		return ""
	}
	intro := []string{""}
	if group.Lparen.IsValid() {
		intro = append(intro, comment, "")
	}
	return strings.Join(slices.Concat(intro, rows, []string{""}), "\n")
}
