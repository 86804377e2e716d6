package rollout

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"

	"millwright/decide/rollout/simulate"
)

// stepTable numbers the steps, with the size of every set after each.
func (s snapshot) stepTable(out io.Writer, steps []simulate.Foreseen) {
	rows := [][]simulate.Size{nil}
	for _, set := range s.facts.Sets {
		rows[0] = append(rows[0], simulate.Size{Set: set.Name, Replicas: set.Replicas})
	}
	for _, step := range steps {
		rows = append(rows, step.Sizes)
	}
	names := s.columns(rows)
	columns := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprint(columns, "#")
	for _, name := range names {
		_, _ = fmt.Fprintf(columns, "\t%s", name)
	}
	_, _ = fmt.Fprintln(columns, "\tSTEP")
	for i, row := range rows {
		number, what := "-", "as it is now"
		if i > 0 {
			number, what = strconv.Itoa(i), steps[i-1].Step
		}
		_, _ = fmt.Fprint(columns, number)
		for _, name := range names {
			_, _ = fmt.Fprintf(columns, "\t%d", sizeIn(row, name))
		}
		_, _ = fmt.Fprintf(columns, "\t%s\n", what)
	}
	_ = columns.Flush() // a buffer never fails
}

// columns are the sets that have machines after any step, from the oldest to the newest.
func (s snapshot) columns(rows [][]simulate.Size) []string {
	var names []string
	for _, row := range rows {
		for _, size := range row {
			if !slices.Contains(names, size.Set) {
				names = append(names, size.Set)
			}
		}
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return !slices.ContainsFunc(rows, func(row []simulate.Size) bool { return sizeIn(row, name) > 0 })
	})
}

// sizeIn is the size of a set in a list that leaves out sets without machines.
func sizeIn(row []simulate.Size, set string) int {
	for _, size := range row {
		if size.Set == set {
			return size.Replicas
		}
	}
	return 0
}
