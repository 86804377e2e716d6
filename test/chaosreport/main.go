// Command chaosreport prints a Markdown table of the seeds in a folder CHAOS_LOGS. The table has a row for each fault
// and a column for each load. Each cell has the number of seeds and the number of seeds with violations.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"millwright/test/integration/seeds"
)

func main() {
	if err := printReportTable(os.Getenv("CHAOS_LOGS")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// printReportTable prints the table of a folder.
func printReportTable(folder string) error {
	file, err := os.Open(filepath.Join(folder, "report.jsonl"))
	if err != nil {
		return fmt.Errorf("open reports: %w", err)
	}
	defer func() { _ = file.Close() }()
	reports, err := seeds.ReadReports(file)
	if err != nil {
		return err
	}
	fmt.Print(seeds.FormatTable(reports))
	return nil
}
