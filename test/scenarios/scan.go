package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// longestTitle bounds a subtest's name in the document, in characters.
const longestTitle = 120

// The levels of a test, by what it runs against.
const (
	levelStack     = "stack"             // the real stack: build tag integration
	levelFake      = "fake"              // code of any package but decide, against fakes or the SDK's test suite
	levelPure      = "pure"              // pure functions: packages below decide
	levelEndurance = "stack (endurance)" // the real stack, and only `make endurance` runs it
)

// levels begins with the strongest. A test that `make test` does not run comes last, whatever it runs against.
var levels = []string{levelStack, levelFake, levelPure, levelEndurance}

// proof is one test that names a scenario: file, a colon, function and subtests, without line numbers, so that the
// document changes only when a test is added, renamed or deleted.
type proof struct{ level, test string }

// scanTests returns, for each scenario, the tests below root that name it, best level first, then by name. Names of
// scenarios that do not exist come back as problems. Nested modules and files with build tags are scanned too.
func scanTests(root fs.FS, m *matcher) (shown map[string][]proof, problems []string, err error) {
	shown = map[string][]proof{}
	err = fs.WalkDir(root, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if skipped(file) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, "_test.go") {
			return nil
		}
		found, err := scanFile(root, file, m)
		if err != nil {
			return err
		}
		for _, f := range found {
			if !m.known[f.id] {
				problems = append(problems, fmt.Sprintf("%s names %s: there is no such scenario", f.test, f.id))
			} else {
				shown[f.id] = append(shown[f.id], f.proof)
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("scan tests: %w", err)
	}
	for id, proofs := range shown {
		shown[id] = arranged(proofs)
	}
	slices.Sort(problems)
	return shown, slices.Compact(problems), nil
}

// arranged sorts tests, best level first, then by name, and leaves out the subtests of a test that has the same ID
// itself.
func arranged(proofs []proof) []proof {
	slices.SortFunc(proofs, func(a, b proof) int {
		return cmp.Or(slices.Index(levels, a.level)-slices.Index(levels, b.level), strings.Compare(a.test, b.test))
	})
	var kept []proof
	for _, p := range proofs { // a test comes before its subtests, and in the same file, so on the same level
		if !slices.ContainsFunc(kept, func(k proof) bool { return p == k || strings.HasPrefix(p.test, k.test+"/") }) {
			kept = append(kept, p)
		}
	}
	return kept
}

// skipped tells which folders hold no tests of ours. The tests of this command are left out because their sample input is
// full of IDs that they do not show.
func skipped(dir string) bool {
	switch base := path.Base(dir); base {
	case ".":
		return false
	case "bin", "node_modules", "testdata", "vendor":
		return true
	default:
		return dir == "test/scenarios" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")
	}
}

// finding is one ID in the name of one test.
type finding struct {
	id string
	proof
}

func scanFile(root fs.FS, file string, m *matcher) ([]finding, error) {
	source, err := fs.ReadFile(root, file)
	if err != nil {
		return nil, fmt.Errorf("read test: %w", err)
	}
	tree, err := parser.ParseFile(token.NewFileSet(), file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse test: %w", err)
	}
	header := source[:tree.Package-1] // positions begin at 1
	v := visitor{matcher: m, file: file, level: levelOf(file, header), found: &[]finding{}}
	ast.Walk(v, tree)
	return *v.found, nil
}

var buildTags = regexp.MustCompile(`(?m)^//go:build .*$`)

// levelOf returns the level of a file's tests. Header is what stands before its package clause.
func levelOf(file string, header []byte) string {
	switch tags := string(buildTags.Find(header)); {
	case strings.Contains(tags, "endurance"):
		return levelEndurance
	case strings.Contains(tags, "integration"):
		return levelStack
	case strings.HasPrefix(file, "decide/"):
		return levelPure
	default:
		return levelFake
	}
}

// visitor walks one file. It is copied on the way down, so that names hold the function and the subtests around a node.
type visitor struct {
	matcher *matcher
	file    string
	level   string
	names   []string
	found   *[]finding
}

// Visit records the IDs of functions and of texts, and leaves out what is no name of a test.
func (v visitor) Visit(node ast.Node) ast.Visitor {
	switch n := node.(type) {
	case *ast.FuncDecl:
		if alwaysSkips(n) {
			return nil
		}
		v.names = []string{n.Name.Name}
		for _, id := range v.matcher.inName(n.Name.Name) {
			v.add(id)
		}
	case *ast.CallExpr:
		if isMessage(n) {
			return nil
		}
		if name, ok := subtest(n); ok {
			v.names = append(slices.Clone(v.names), title(name))
			v.addText(name, true)
			for _, arg := range n.Args[1:] {
				ast.Walk(v, arg)
			}
			return nil
		}
	case *ast.BasicLit:
		if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
			v.names = append(slices.Clone(v.names), title(text))
			v.addText(text, false)
		}
	}
	return v
}

func (v visitor) addText(text string, nameOnly bool) {
	for _, id := range v.matcher.inText(text, nameOnly) {
		v.add(id)
	}
}

func (v visitor) add(id string) {
	*v.found = append(*v.found, finding{id, proof{v.level, v.file + ":" + strings.Join(v.names, "/")}})
}

// title is a subtest's name as the document shows it: one line, and not too long a one.
func title(name string) string {
	name, _, _ = strings.Cut(name, "\n")
	if runes := []rune(name); len(runes) > longestTitle {
		return string(runes[:longestTitle]) + "…"
	}
	return name
}

// subtest returns the name in t.Run("name", …), where it is a literal; a name from a table is found in the table.
func subtest(call *ast.CallExpr) (string, bool) {
	fun, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || fun.Sel.Name != "Run" || len(call.Args) < 2 {
		return "", false
	}
	literal, ok := call.Args[0].(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	name, err := strconv.Unquote(literal.Value)
	return name, err == nil
}

// isMessage tells whether a call only compares or prints: a text in it is an expectation or a message, not a name.
func isMessage(call *ast.CallExpr) bool {
	fun, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	if of, ok := fun.X.(*ast.Ident); ok && (of.Name == "assert" || of.Name == "require") {
		return true
	}
	switch fun.Sel.Name {
	case "Error", "Errorf", "Fatal", "Fatalf", "Log", "Logf", "Skip", "Skipf":
		return true
	}
	return false
}

// alwaysSkips tells whether the first thing a function does is to skip its test, which then shows nothing.
func alwaysSkips(f *ast.FuncDecl) bool {
	if f.Body == nil || len(f.Body.List) == 0 {
		return false
	}
	first, ok := f.Body.List[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := first.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	fun, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, fun.Sel.Name)
}
