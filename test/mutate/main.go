// Mutate breaks the product on purpose, in one known way at a time, and runs the tests that must fail. If no test
// fails, the tests do not cover the broken code.
//
//	go run ./test/mutate               all mutations
//	go run ./test/mutate --run '^A|D8' mutations whose ID matches
//
// Mutate does not change files of the repository. The flag -overlay makes the go command read the broken file.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millwright/process/commandline"
)

// mutation is one way to break the product.
type mutation struct {
	id      string
	file    string // path of the file, relative to the root of the repository
	oldText string // text that the mutation replaces; the file contains the text exactly once
	newText string
	// flags of go test, and packages, separated by spaces; tests of at least one package must fail
	testArguments   string
	brokenBehaviour string // description of the broken behaviour
}

// verdict is the result of one mutation.
type verdict string

// The verdict killed is the only good verdict, because it means that a test has failed.
const (
	verdictKilled       verdict = "killed"
	verdictSurvived     verdict = "SURVIVED"
	verdictDoesNotApply verdict = "does not apply"
	verdictDoesNotBuild verdict = "does not build"
)

func main() {
	c := &cobra.Command{
		Use:   "mutate",
		Short: "Break the product in known ways, and run the tests that must notice",
		Args:  cobra.NoArgs,
	}
	which := c.Flags().String("run", "", "regular expression of the IDs to run; empty: all")
	limit := c.Flags().
		Duration("timeout", 5*time.Minute, "time for the tests of one mutation; one that makes them hang is killed")
	c.RunE = func(*cobra.Command, []string) error {
		bad, err := runMutations(*which, *limit)
		if err == nil && bad > 0 {
			err = fmt.Errorf("%d mutations were not killed", bad)
		}
		return err
	}
	commandline.Main(c)
}

// runMutations runs the mutations whose ID matches, one after the other, and returns how many were not killed.
func runMutations(which string, limit time.Duration) (bad int, err error) {
	matches, err := regexp.Compile(which)
	if err != nil {
		return 0, err
	}
	root, err := moduleRoot()
	if err != nil {
		return 0, err
	}
	var chosen []mutation
	for _, m := range mutations() {
		if matches.MatchString(m.id) {
			chosen = append(chosen, m)
		}
	}
	for i, m := range chosen {
		begin := time.Now()
		result, detail, err := tryMutation(root, m, limit)
		if err != nil {
			return bad, fmt.Errorf("mutation %s: %w", m.id, err)
		}
		if result != verdictKilled {
			bad++
		}
		fmt.Printf(
			"%2d/%d %-4s %-14s %3.0f s  %s: %s%s\n",
			i+1,
			len(chosen),
			m.id,
			result,
			time.Since(begin).Seconds(),
			m.file,
			m.brokenBehaviour,
			detail,
		)
	}
	fmt.Printf("%d of %d killed\n", len(chosen)-bad, len(chosen))
	return bad, nil
}

// moduleRoot returns the folder of go.mod.
func moduleRoot() (string, error) {
	path, err := exec.Command("go", "env", "GOMOD").Output()
	return filepath.Dir(strings.TrimSpace(string(path))), err
}

// tryMutation applies one mutation and runs its tests. The result detail names the test that killed the mutation.
func tryMutation(root string, m mutation, limit time.Duration) (result verdict, detail string, err error) {
	source := filepath.Join(root, m.file)
	text, err := os.ReadFile(source)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return verdictDoesNotApply, " (the file does not exist)", nil
	case err != nil:
		return "", "", err
	}
	broken, ok := applyMutation(string(text), m)
	if !ok {
		return verdictDoesNotApply, fmt.Sprintf(
			" (the old text occurs %d times)",
			strings.Count(string(text), m.oldText),
		), nil
	}
	overlay, remove, err := writeOverlay(source, broken)
	if err != nil {
		return "", "", err
	}
	defer remove()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	args := append(
		[]string{"test", "-overlay", overlay, "-vet=off", "-failfast", "-timeout", limit.String()},
		strings.Fields(m.testArguments)...)
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir, command.WaitDelay = root, time.Second
	output, err := command.CombinedOutput()
	_, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return verdictSurvived, "", nil
	case !exited && ctx.Err() == nil:
		return "", "", err
	}
	result, detail = parseTestOutput(string(output))
	return result, detail, nil
}

// applyMutation returns the text with the mutation. The second result is false if the old text does not occur exactly
// once, or if the mutation changes nothing.
func applyMutation(text string, m mutation) (string, bool) {
	return strings.Replace(
			text,
			m.oldText,
			m.newText,
			1,
		), m.oldText != m.newText && m.oldText != "" &&
			strings.Count(text, m.oldText) == 1
}

// writeOverlay writes the broken file, and the overlay that replaces the source by the broken file.
func writeOverlay(source, broken string) (overlay string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) } // the folder is in the system's temporary folder
	file := filepath.Join(dir, filepath.Base(source))
	overlay = filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{source: file}})
	err = cmp.Or(err, os.WriteFile(file, []byte(broken), 0o600), os.WriteFile(overlay, text, 0o600))
	if err != nil {
		remove()
		return "", nil, err
	}
	return overlay, remove, nil
}

// parseTestOutput reads the output of failed tests. parseTestOutput returns which test failed, or that the mutation
// cannot be compiled.
func parseTestOutput(output string) (result verdict, detail string) {
	if strings.Contains(output, "[build failed]") || strings.Contains(output, "[setup failed]") {
		return verdictDoesNotBuild, "\n" + output
	}
	for line := range strings.Lines(output) {
		if rest, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			name, _, _ := strings.Cut(rest, " ")
			return verdictKilled, " (" + name + ")"
		}
	}
	return verdictKilled, ""
}
