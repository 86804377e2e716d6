// Command reference answers which words a status can hold, which flags our programs have, and which metrics our processes have. `make
// generate` calls it. It writes docs/reference/words.md from the source of api/vocabulary, keys.md from that of api/v1alpha1, flags.md from
// what the programs print with --help, temporal.md from the search attributes and messages of the workflows, and metrics.md from what the
// processes register. metrics.md lacks the metrics of the Temporal SDK, which are registered when they are first counted.
//
// With -promise VERSION it writes down which of these names, and which fields of the API, a version promises: see promises.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	version := flag.String("promise", "", "version whose names are written to test/reference/testdata; empty: write the pages")
	flag.Parse()
	act := func() error { return write(context.Background(), ".") }
	if *version != "" {
		act = func() error { return writePromises(context.Background(), ".", *version) }
	}
	if err := act(); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

// write writes the pages of a clone.
func write(ctx context.Context, repo string) error {
	words, wordsErr := wordsPage(repo)
	keys, keysErr := keysPage(repo)
	flags, flagsErr := flagsPage(ctx, repo)
	metrics, metricsErr := metricsPage()
	temporal, temporalErr := temporalPage(repo)
	if err := errors.Join(wordsErr, keysErr, flagsErr, metricsErr, temporalErr); err != nil {
		return err
	}
	for name, page := range map[string]string{"words.md": words, "keys.md": keys, "flags.md": flags, "metrics.md": metrics, "temporal.md": temporal} {
		if err := writePage(filepath.Join(repo, "docs", "reference", name), page); err != nil {
			return err
		}
	}
	return nil
}

func writePage(path, page string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the folder of the page: %w", err)
	}
	if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}
