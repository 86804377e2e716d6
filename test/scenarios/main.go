// Command scenarios answers two questions: which test shows which scenario, and against what does that test run: pure
// functions, fakes or the real stack? `make generate` calls it; it writes docs/scenarios.md from the registry in
// data/ and from the names of the repository's tests. It runs no test and does not judge whether a test shows what
// its name promises.
//
// It fails when a part of the work is resolved and one of its scenarios has neither a test nor a reason why
// Millwright does something else, and when a test names a scenario that does not exist. Running it twice changes
// nothing.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"millwright/process/commandline"
)

// document is what the command writes, below the root of the module.
const document = "docs/scenarios.md"

func main() {
	c := &cobra.Command{Use: "scenarios", Short: "Write " + document + ": which test shows which scenario", Args: cobra.NoArgs}
	check := c.Flags().Bool("check", false, "write nothing; fail when "+document+" is out of date")
	resolved := c.Flags().String("resolved", "", "parts to take for resolved instead of those of the registry, as in 1,2")
	c.RunE = func(*cobra.Command, []string) error { return command(*check, *resolved) }
	commandline.Main(c)
}

func command(check bool, resolved string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	reg, err := loadRegistry(dataFiles)
	if err != nil {
		return err
	}
	if resolved != "" {
		if reg.Resolved, err = partNumbers(resolved); err != nil {
			return fmt.Errorf("read --resolved: %w", err)
		}
	}
	return run(root, reg, check)
}

// run compares the registry with the tests below root and writes or checks the document. The document is written even when
// a problem is returned, so that it shows what is missing.
func run(root string, reg *registry, check bool) error {
	shown, problems, err := scanTests(os.DirFS(root), newMatcher(reg))
	if err != nil {
		return err
	}
	problems = append(problems, reg.missing(shown)...)

	path := filepath.Join(root, document)
	page := render(reg, shown)
	if check {
		old, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read document: %w", err)
		}
		if !bytes.Equal(old, page) {
			problems = append(problems, document+" is out of date: run make generate")
		}
	} else if err := os.WriteFile(path, page, 0o644); err != nil {
		return fmt.Errorf("write document: %w", err)
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "\n"))
	}
	return nil
}

func partNumbers(list string) ([]int, error) {
	var parts []int
	for text := range strings.SplitSeq(list, ",") {
		part, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("parse part %q: %w", text, err)
		}
		parts = append(parts, part)
	}
	return parts, nil
}

var ourModule = regexp.MustCompile(`(?m)^module millwright$`)

// moduleRoot climbs from the working folder, so that the command works from any folder of the repository and from its tests.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find working folder: %w", err)
	}
	for {
		if mod, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && ourModule.Match(mod) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("find root of module millwright: no go.mod of it above the working folder")
		}
		dir = filepath.Dir(dir)
	}
}
