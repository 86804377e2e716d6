package seeds

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Report has the steps and the violations of one seed. A Report is one line of JSON in report.jsonl.
type Report struct {
	Seed                    uint64   `json:"seed"`
	Loads                   []string `json:"loads"`           // kinds of the loads of the seed
	Faults                  []string `json:"faults"`          // kinds of the faults of the seed
	IsNamespaceDeletedEarly bool     `json:"early,omitempty"` // the namespace was deleted before all work was complete
	DurationSeconds         int      `json:"seconds"`
	ClockSkew               string   `json:"clock,omitempty"` // error of the second worker's clock
	SnapshotCount           int      `json:"snapshots"`
	Violations              []string `json:"violations"`
}

// stepKinds returns the kinds of the steps without duplicates.
func stepKinds(steps []planStep) []string {
	found := map[string]bool{}
	for _, s := range steps {
		found[s.Kind] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// AppendToFile writes the report to the end of a file, and creates the file if it does not exist.
func (r Report) AppendToFile(path string) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("make folder of reports: %w", err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open reports: %w", err)
	}
	_, err = file.Write(append(line, '\n'))
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// ReadReports reads lines that AppendToFile has written.
func ReadReports(from io.Reader) (reports []Report, err error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r Report
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("read report %d: %w", len(reports)+1, err)
		}
		reports = append(reports, r)
	}
	return reports, lines.Err()
}

// FormatTable renders reports as Markdown: a row for each fault and a column for each load. A cell has the number of
// seeds with this fault and this load. If some of these seeds have violations, the cell also has a slash and the number
// of seeds with violations.
func FormatTable(reports []Report) string {
	const all = "all"
	loads, faults := map[string]bool{}, map[string]bool{}
	seeds, bad := map[[2]string]int{}, map[[2]string]int{}
	for _, r := range reports {
		if r.IsNamespaceDeletedEarly {
			r.Loads = append(slices.Clone(r.Loads), "delete-namespace")
		}
		if r.ClockSkew != "" {
			r.Faults = append(slices.Clone(r.Faults), "worker-clock")
		}
		for _, fault := range append([]string{all}, r.Faults...) {
			for _, load := range append([]string{all}, r.Loads...) {
				loads[load], faults[fault] = load != all, fault != all
				seeds[[2]string{fault, load}]++
				if len(r.Violations) > 0 {
					bad[[2]string{fault, load}]++
				}
			}
		}
	}
	columns, rows := sortedNames(loads), sortedNames(faults)
	var text strings.Builder
	fmt.Fprintf(&text, "| fault | %s |\n|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, fault := range rows {
		fmt.Fprintf(&text, "| %s |", fault)
		for _, load := range columns {
			cell := fmt.Sprint(seeds[[2]string{fault, load}])
			if n := bad[[2]string{fault, load}]; n > 0 {
				cell += fmt.Sprintf("/%d", n)
			}
			text.WriteString(" " + cell + " |")
		}
		text.WriteString("\n")
	}
	return text.String()
}

// sortedNames returns the names, sorted. Names that are false in marked come before names that are true.
func sortedNames(marked map[string]bool) []string {
	sorted := slices.Sorted(maps.Keys(marked))
	slices.SortStableFunc(sorted, func(a, b string) int {
		switch {
		case marked[a] == marked[b]:
			return 0
		case marked[b]:
			return -1
		default:
			return 1
		}
	})
	return sorted
}
