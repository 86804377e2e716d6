//go:build integration

// Command tiers runs one tier of the tests: all of its steps, also after one has failed, and prints a table of packages with their seconds and
// results. make test and make test-all call it. steps.go has what belongs to which tier.
//
//	go run -tags integration ./test/tiers -out bin/test.json test
//	go run -tags integration ./test/tiers -only 'integration/drain|vulncheck' all
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"millwright/devstack/attached"
	"millwright/devstack/build"
)

func main() {
	only := flag.String("only", "", "regular expression of the packages and commands to run; empty: all of the tier")
	out := flag.String("out", "", "file for the table as JSON; empty: none")
	stress := flag.Int("stress", 0, "busy loops that run beside the tests")
	flag.Usage = func() {
		_, _ = fmt.Fprintln(flag.CommandLine.Output(), "usage: tiers [-only REGEXP] [-stress N] [-out FILE] test|all")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	end, err := disturb(*stress)
	bad := err != nil
	if !bad {
		bad, err = run(ctx, flag.Arg(0), *only, *out)
	}
	end()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "tiers:", err)
	}
	if bad || err != nil {
		os.Exit(1)
	}
}

// disturb starts busy loops, each in a process that ends with this one, and returns what ends them.
func disturb(loops int) (end func(), err error) {
	var running []*exec.Cmd
	end = func() {
		for _, loop := range running {
			_ = loop.Process.Kill()
			_ = loop.Wait() // it was killed
		}
	}
	for range loops {
		loop := exec.Command("sh", "-c", "while :; do :; done")
		if err := attached.Start(loop); err != nil {
			return end, fmt.Errorf("start a busy loop: %w", err)
		}
		running = append(running, loop)
	}
	return end, nil
}

// run runs a tier and reports whether anything in it failed.
func run(ctx context.Context, name, only, out string) (bad bool, err error) {
	phases, err := tier(name)
	if err != nil {
		return true, err
	}
	chosen, err := regexp.Compile(only)
	if err != nil {
		return true, fmt.Errorf("-only: %w", err)
	}
	repo, err := build.FindRepo("")
	if err != nil {
		return true, err
	}
	began := time.Now()
	r := &runner{repo: repo, chosen: chosen}
	for _, lanes := range phases {
		var group errgroup.Group
		for _, steps := range lanes {
			group.Go(func() error {
				for _, s := range steps {
					if ctx.Err() == nil {
						r.do(ctx, s)
					}
				}
				return nil
			})
		}
		_ = group.Wait() // failures are rows
	}
	if len(r.rows) == 0 && ctx.Err() == nil {
		return true, fmt.Errorf("nothing in tier %s matches %q", name, only)
	}
	slices.SortStableFunc(r.rows, func(a, b row) int { return cmp.Compare(a.Result, b.Result) * -1 })
	err = errors.Join(ctx.Err(), show(os.Stdout, r.rows, time.Since(began)), save(out, r.rows))
	return slices.ContainsFunc(r.rows, row.bad), err
}

// row is one line of the table.
type row struct {
	Name    string  `json:"name"` // a package, seen from the root, or a command
	Seconds float64 `json:"seconds"`
	Result  string  `json:"result"`
}

// The results of a row.
const (
	passed = "pass"
	failed = "FAIL"
)

func (r row) bad() bool { return r.Result == failed }

// show prints the table: what failed is at its end, where people look first.
func show(to io.Writer, rows []row, took time.Duration) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "\nPACKAGE\tSECONDS\tRESULT")
	count := 0
	for _, r := range rows {
		_, _ = fmt.Fprintf(table, "%s\t%.1f\t%s\n", r.Name, r.Seconds, r.Result)
		if r.bad() {
			count++
		}
	}
	_, _ = fmt.Fprintf(table, "%d of %d failed\t%.1f\t\n", count, len(rows), took.Seconds())
	return table.Flush()
}

// save writes the table as JSON, unless path is empty.
func save(path string, rows []row) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the table: %w", err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
