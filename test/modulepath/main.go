// Command modulepath changes the path of Millwright's Go modules everywhere in a clone: in go.mod files, imports,
// linter rules, scripts and documents. `make module-path` calls this command. The command does not change recorded
// histories.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"millwright/process/commandline"
)

func main() {
	c := &cobra.Command{
		Use:   "modulepath PATH",
		Short: "Change the path of Millwright's Go modules in a clone",
		Args:  cobra.ExactArgs(1),
	}
	repo := c.Flags().String("repo", ".", "root of the clone")
	c.RunE = func(c *cobra.Command, args []string) error {
		changed, err := changeModulePath(c.Context(), *repo, args[0])
		if err == nil {
			fmt.Printf("%d files name %s now; next: make fmt generate, then make verify test\n", changed, args[0])
		}
		return err
	}
	commandline.Main(c)
}

// validPathPattern matches a path that other modules can require: its first part is the name of a host.
var validPathPattern = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9._-]+)+$`)

// changeModulePath changes the module path, and returns how many files it has changed.
func changeModulePath(ctx context.Context, repo, to string) (changed int, err error) {
	if !validPathPattern.MatchString(to) {
		return 0, fmt.Errorf("%q is no path of a module: it begins with a host, such as example.com/org/millwright", to)
	}
	text, err := os.ReadFile(filepath.Join(repo, "go.mod"))
	if err != nil {
		return 0, fmt.Errorf("read the present path: %w", err)
	}
	found := regexp.MustCompile(`(?m)^module (\S+)$`).FindSubmatch(text)
	if found == nil {
		return 0, errors.New("read the present path: go.mod names no module")
	}
	from := string(found[1])
	if from == to {
		return 0, fmt.Errorf("the path is %s already", to)
	}
	changes, err := runGit(ctx, repo, "status", "--porcelain")
	if err != nil {
		return 0, err
	}
	if changes != "" {
		return 0, fmt.Errorf("the tree has changes: commit them first, so that this change can be read alone\n%s", changes)
	}
	list, err := runGit(ctx, repo, "ls-files", "-z")
	if err != nil {
		return 0, err
	}
	names := strings.FieldsFunc(list, func(r rune) bool { return r == 0 })
	rules := newPathRules(from, names)
	for _, name := range names {
		did, err := rewritePathInFile(filepath.Join(repo, filepath.FromSlash(name)), name, to, rules)
		if err != nil {
			return changed, err
		}
		if did {
			changed++
		}
	}
	return changed, nil
}

func runGit(ctx context.Context, repo string, arguments ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", repo}, arguments...)...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(arguments, " "), err)
	}
	return string(out), nil
}

// pathRule finds the module path in the files whose names match. In the text of a file, the path is between the two
// groups of the rule's regular expression.
type pathRule struct {
	filePattern *regexp.Regexp
	pathPattern *regexp.Regexp
}

// newPathRules returns the rules that find the module path. The path of a package is the module path, a slash, and a
// top-level folder with Go code. Without such a suffix, the module path is changed only in the listed places.
// Elsewhere, the same word is a namespace, a label or an image.
func newPathRules(from string, names []string) []pathRule {
	rooms := map[string]bool{"tools": true} // packages of the module of tools.mod
	for _, name := range names {
		if room, _, inside := strings.Cut(name, "/"); inside && strings.HasSuffix(name, ".go") {
			rooms[regexp.QuoteMeta(room)] = true
		}
	}
	var all []string
	for room := range rooms {
		all = append(all, room)
	}
	slices.Sort(all)
	module := regexp.QuoteMeta(from)
	rules := []pathRule{
		{
			regexp.MustCompile(`.`),
			regexp.MustCompile(`(?m)(^|\\n|[^\w./-])` + module + `(/(?:` + strings.Join(all, "|") + `)\b)`),
		},
	}
	for _, place := range [][2]string{
		{`\.mod$`, `(?m)^(module |replace |require |\t)` + module + `( |$)`},
		{`\.go$`, `(\bmodule )` + module + `([\s"\\])`},
		{`\.go$`, `(")` + module + `(/")`},
		{`^\.golangci\.yml$`, `(pkg: |module-path: |local-prefixes: \[)` + module + `([,}\]])`},
		{`\.sh$`, `(--input-base )` + module + `( )`},
		{`devcontainer\.json$`, `("formatting\.local": ")` + module + `(")`},
	} {
		rules = append(rules, pathRule{regexp.MustCompile(place[0]), regexp.MustCompile(place[1])})
	}
	return rules
}

// rewritePathInFile changes the path in one file, and reports whether the file had the path.
func rewritePathInFile(path, name, to string, rules []pathRule) (bool, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	if !info.Mode().IsRegular() || strings.HasPrefix(name, "workflows/testdata/replay/") {
		return false, nil // skip links and recorded histories, which must not change
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	after := text
	for _, r := range rules {
		if r.filePattern.MatchString(name) {
			after = r.pathPattern.ReplaceAll(after, []byte("${1}"+to+"${2}"))
		}
	}
	if bytes.Equal(text, after) {
		return false, nil
	}
	return true, os.WriteFile(path, after, info.Mode().Perm())
}
