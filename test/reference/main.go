// Command reference writes the pages of docs/reference. `make generate` calls this command. The command writes words.md
// from the source of api/vocabulary, and keys.md from the source of api/v1alpha1. It writes temporal.md from the search
// attributes and messages of the workflows. It writes metrics.md from the metrics that the processes register.
// metrics.md lacks the metrics of the Temporal SDK, because the SDK registers a metric only when it first records a
// value.
//
// With --promise VERSION, the command writes a file with the names that this version promises (see promises.go).
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"millwright/process/commandline"
)

func main() {
	c := &cobra.Command{
		Use:   "reference",
		Short: "Write the pages of docs/reference, or the names that a version promises",
		Args:  cobra.NoArgs,
	}
	version := c.Flags().
		String("promise", "", "version whose names are written to test/reference/testdata; empty: write the pages")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *version != "" {
			return writePromisedNames(c.Context(), ".", *version)
		}
		return writePages(".")
	}
	commandline.Main(c)
}

// writePages writes the pages of a clone.
func writePages(repo string) error {
	words, wordsErr := wordsPage(repo)
	keys, keysErr := keysPage(repo)
	metrics, metricsErr := metricsPage()
	temporal, temporalErr := temporalPage(repo)
	if err := errors.Join(wordsErr, keysErr, metricsErr, temporalErr); err != nil {
		return err
	}
	for name, page := range map[string]string{"words.md": words, "keys.md": keys, "metrics.md": metrics, "temporal.md": temporal} {
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
