//go:build integration

// Command tiers runs one tier of the tests, and prints a table with the duration and the result of each package. The
// command runs all steps, even after a step has failed. make test and make test-all call the command. steps.go defines
// the steps of a tier.
//
//	go run -tags integration ./test/tiers --out bin/test.json test
//	go run -tags integration ./test/tiers --only 'integration/drain|vulncheck' all
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"millwright/devstack/attached"
	"millwright/devstack/build"
	"millwright/process/commandline"
)

// options are the values of the flags.
type options struct {
	chosenPattern, tablePath string
	nestedModules            []string
	busyLoopCount            int
}

func main() {
	var o options
	command := &cobra.Command{
		Use:       "tiers test|all",
		Short:     "Run the tests of a tier, all of them even if some fail, and print a table of the results",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"test", "all"},
		RunE: func(c *cobra.Command, args []string) error {
			end, err := startBusyLoops(o.busyLoopCount)
			defer end()
			if err != nil {
				return err
			}
			return runTier(c.Context(), args[0], o)
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.chosenPattern, "only", "", "regular expression of packages and commands (default all of the tier)")
	flags.StringVar(&o.tablePath, "out", "", "file for the table as JSON (default none)")
	flags.StringSliceVar(&o.nestedModules, "nested", nil, "folders of the nested modules of tier all")
	flags.IntVar(
		&o.busyLoopCount,
		"stress",
		0,
		"number of busy loops that run beside the tests; with busy loops, no result is taken from the cache",
	)
	commandline.Main(command)
}

// startBusyLoops starts busy loops in separate processes. The returned function stops the busy loops. The busy loops
// also stop when this process ends.
func startBusyLoops(loops int) (end func(), err error) {
	var running []*exec.Cmd
	end = func() {
		for _, loop := range running {
			_ = loop.Process.Kill()
			_ = loop.Wait() // the error only says that the process was killed
		}
	}
	for range loops {
		loop := exec.Command("sh", "-c", "while :; do :; done")
		if err := attached.StartCommand(loop); err != nil {
			return end, fmt.Errorf("start a busy loop: %w", err)
		}
		running = append(running, loop)
	}
	return end, nil
}

// runTier runs a tier, and returns an error if any step failed.
func runTier(ctx context.Context, name string, o options) error {
	phases, err := phasesOfTier(name, o.nestedModules)
	if err != nil {
		return err
	}
	chosen, err := regexp.Compile(o.chosenPattern)
	if err != nil {
		return fmt.Errorf("--only: %w", err)
	}
	repo, err := build.FindRepo("")
	if err != nil {
		return err
	}
	began := time.Now()
	r := &runner{repo: repo, chosenPattern: chosen, ignoresCache: o.busyLoopCount > 0}
	for _, lanes := range phases {
		var group errgroup.Group
		for _, steps := range lanes {
			group.Go(func() error {
				for _, s := range steps {
					if ctx.Err() == nil {
						r.runStep(ctx, s)
					}
				}
				return nil
			})
		}
		_ = group.Wait() // a failure is a row of the table, not an error
	}
	if len(r.rows) == 0 && ctx.Err() == nil {
		return fmt.Errorf("nothing in tier %s matches %q", name, o.chosenPattern)
	}
	slices.SortStableFunc(r.rows, func(a, b tableRow) int { return cmp.Compare(a.Result, b.Result) * -1 })
	if slices.ContainsFunc(r.rows, tableRow.hasFailed) {
		err = errors.New("some tests failed")
	}
	return errors.Join(err, ctx.Err(), printTable(os.Stdout, r.rows, time.Since(began)), saveTable(o.tablePath, r.rows))
}

// tableRow is one row of the table.
type tableRow struct {
	Name    string  `json:"name"` // a package as path from the root, or a command
	Seconds float64 `json:"seconds"`
	Result  string  `json:"result"`
}

// A row has one of these results.
const (
	resultPass = "pass"
	resultFail = "FAIL"
)

func (r tableRow) hasFailed() bool { return r.Result == resultFail }

// printTable prints the table. Failed rows come last, because people look there first.
func printTable(to io.Writer, rows []tableRow, took time.Duration) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "\nPACKAGE\tSECONDS\tRESULT")
	count := 0
	for _, r := range rows {
		_, _ = fmt.Fprintf(table, "%s\t%.1f\t%s\n", r.Name, r.Seconds, r.Result)
		if r.hasFailed() {
			count++
		}
	}
	_, _ = fmt.Fprintf(table, "%d of %d failed\t%.1f\t\n", count, len(rows), took.Seconds())
	return table.Flush()
}

// saveTable writes the table as JSON to path. If path is empty, saveTable does nothing.
func saveTable(path string, rows []tableRow) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the table: %w", err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
