//go:build integration

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"millwright/test/integration/rig"
)

// runner runs steps and collects the rows of the table.
type runner struct {
	repo          string
	chosenPattern *regexp.Regexp // matches the packages and commands to run
	ignoresCache  bool           // go test runs without its cache

	mu   sync.Mutex
	rows []tableRow
}

func (r *runner) addRows(rows ...tableRow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, rows...)
}

// runStep runs the chosen packages of a step, or the command of the step, and adds their rows.
func (r *runner) runStep(ctx context.Context, s step) {
	began := time.Now()
	fail := func(err error) { // fail adds a row for a failure that belongs to no package
		r.addRows(tableRow{Name: s.name, Seconds: time.Since(began).Seconds(), Result: resultFail})
		_, _ = fmt.Fprintf(os.Stderr, "%s: %v\n", s.name, err)
	}
	packages, err := r.chosenPackages(ctx, s)
	switch {
	case err != nil:
		fail(err)
	case len(s.packages) > 0 && len(packages) > 0:
		if err := r.runGoTest(ctx, s, packages); err != nil {
			fail(err)
		}
	case len(s.command) > 0 && r.chosenPattern.MatchString(s.name):
		if err := r.runCommand(ctx, s.module, os.Environ(), s.command...); err != nil {
			fail(err)
			return
		}
		r.addRows(tableRow{s.name, time.Since(began).Seconds(), resultPass})
	}
}

// chosenPackages returns the chosen packages of a step.
func (r *runner) chosenPackages(ctx context.Context, s step) ([]string, error) {
	if len(s.packages) == 0 {
		return nil, nil
	}
	command := exec.CommandContext(ctx, "go", append([]string{"list", "-tags=" + s.tags}, s.packages...)...)
	command.Dir, command.Stderr = filepath.Join(r.repo, s.module), os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(path string) bool {
		return !r.chosenPattern.MatchString(shortPackageName(path)) ||
			slices.Contains(s.excludedPackages, shortPackageName(path))
	}), nil
}

// shortPackageName returns the name of a package as the table shows it.
func shortPackageName(path string) string { return strings.TrimPrefix(path, "millwright/") }

// runGoTest runs go test, and adds a row for each package. runGoTest returns an error if a failure has no row.
func (r *runner) runGoTest(ctx context.Context, s step, packages []string) (err error) {
	environment := os.Environ()
	if s.usesSharedStack {
		stack, failure := rig.StartSharedStack(ctx)
		if failure != nil {
			return failure
		}
		// the deferred function changes the result err of runGoTest
		defer func() { err = errors.Join(err, stack.Stop(ctx)) }()
		environment = append(environment, stack.EnvironmentVariable())
	}
	// Store the whole output, so that people can find the cause of a failure.
	path := filepath.Join(r.repo, "bin", strings.NewReplacer(" ", "-", "/", "-").Replace(s.name)+".json")
	arguments := []string{
		"go",
		"tool",
		"-modfile=" + filepath.Join(r.repo, "tools.mod"),
		"gotestsum",
		"--format=pkgname-and-test-fails",
		"--format-icons=text",
		"--jsonfile=" + path,
		"--",
		"-tags=" + s.tags,
	}
	if r.ignoresCache {
		arguments = append(arguments, "-count=1")
	}
	failure := r.runCommand(ctx, s.module, environment, slices.Concat(arguments, s.flags, packages)...)
	events, err := os.Open(path)
	if err != nil {
		return errors.Join(failure, err)
	}
	defer func() { _ = events.Close() }()
	rows, err := packageResults(events)
	r.addRows(rows...)
	if err == nil && failure != nil && !slices.ContainsFunc(rows, tableRow.hasFailed) {
		err = failure // go test failed before the tests ran
	}
	return err
}

// runCommand runs a command in the folder of a module until the command ends or ctx ends. The output of the command
// goes to the output of this program.
func (r *runner) runCommand(ctx context.Context, module string, environment []string, arguments ...string) error {
	command := exec.CommandContext(ctx, arguments[0], arguments[1:]...)
	command.Dir, command.Env = filepath.Join(r.repo, module), environment
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
	command.WaitDelay = time.Minute // go test gets this time to stop its child processes
	return command.Run()
}

// packageResults returns a row for each package that the output of go test -json reports as ended. Packages without
// tests have no row.
func packageResults(events io.Reader) (rows []tableRow, err error) {
	for decoder := json.NewDecoder(events); ; {
		var event struct {
			Action, Package, Test string
			Elapsed               float64
			FailedBuild           string
		}
		if err := decoder.Decode(&event); errors.Is(err, io.EOF) {
			return rows, nil
		} else if err != nil {
			return rows, fmt.Errorf("read the results: %w", err)
		}
		if event.Test != "" || event.Package == "" {
			continue
		}
		switch event.Action {
		case "pass":
			rows = append(rows, tableRow{shortPackageName(event.Package), event.Elapsed, resultPass})
		case "fail":
			rows = append(rows, tableRow{shortPackageName(event.Package), event.Elapsed, resultFail})
		}
	}
}
