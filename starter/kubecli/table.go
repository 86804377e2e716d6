package kubecli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

// WriteTable writes rows in columns. An empty cell is written as a dash.
func WriteTable(out io.Writer, rows [][]any) error {
	columns := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = cmp.Or(fmt.Sprint(cell), "-")
		}
		_, _ = fmt.Fprintln(columns, strings.Join(cells, "\t"))
	}
	return columns.Flush()
}

// machineTable prints machines. On a terminal, machineTable redraws the table; otherwise, it prints a line for each
// change.
type machineTable struct {
	out            io.Writer
	redrawsInPlace bool
	drawnRowCount  int               // number of rows of the last table
	printedLines   map[string]string // the last printed line of each machine, by its name
}

// draw prints the current state of the machines.
func (t *machineTable) draw(machines []v1alpha1.Machine) {
	if t.redrawsInPlace {
		t.redraw(machines)
		return
	}
	there := map[string]bool{}
	for _, m := range machines {
		there[m.Name] = true
		if now := PhaseText(m) + "  " + currentStep(m); t.printedLines[m.Name] != now {
			t.printedLines[m.Name] = now
			_, _ = fmt.Fprintf(t.out, "%s  %s  %s\n", time.Now().Format(time.TimeOnly), m.Name, now)
		}
	}
	for name := range t.printedLines {
		if !there[name] {
			delete(t.printedLines, name)
			_, _ = fmt.Fprintf(t.out, "%s  %s  gone\n", time.Now().Format(time.TimeOnly), name)
		}
	}
}

// redraw moves the cursor to the start of the last table, and writes the new table.
func (t *machineTable) redraw(machines []v1alpha1.Machine) {
	rows := [][]any{{"NAME", "STATUS", "AGE", "NODE", "PROVIDER ID", "STEP"}}
	for _, m := range machines {
		age := AgeText(m.CreationTimestamp.Time, time.Now())
		rows = append(rows, []any{m.Name, PhaseText(m), age, cache.NodeNameOfMachine(&m), m.Spec.ProviderID, currentStep(m)})
	}
	if t.drawnRowCount > 0 {
		_, _ = fmt.Fprintf(t.out, "\x1b[%dA\x1b[J", t.drawnRowCount)
	}
	t.drawnRowCount = len(rows)
	_ = WriteTable(t.out, rows)
}

// PhaseText returns the machine's phase; "new" if the machine has no phase yet.
func PhaseText(m v1alpha1.Machine) string {
	return cmp.Or(string(m.Status.CurrentStatus.Phase), "new")
}

// currentStep returns the step of the machine's workflow.
func currentStep(m v1alpha1.Machine) string {
	if o := m.Status.CurrentOperation; o != nil {
		return o.Step
	}
	return ""
}
