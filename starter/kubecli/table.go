package kubecli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/observe/cache"
)

// StateWord is a cell of a table with the word for a state. On a terminal, the word has the colour of its tone.
type StateWord struct {
	Tone Tone
	Word string
}

// columnGap is the number of spaces between two columns.
const columnGap = 3

// WriteTable writes rows in columns. An empty cell is written as a dash. Package tabwriter would count the characters of
// a colour as part of the column.
func WriteTable(out io.Writer, rows [][]any) error {
	texts := list.Map(rows, func(row []any) []string {
		return list.Map(row, func(cell any) string { return cellText(out, cell) })
	})
	var widths []int
	for _, row := range texts {
		for i, text := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], visibleLength(text))
		}
	}
	for _, row := range texts {
		var line strings.Builder
		for i, text := range row {
			line.WriteString(text)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]+columnGap-visibleLength(text)))
			}
		}
		if _, err := fmt.Fprintln(out, line.String()); err != nil {
			return err
		}
	}
	return nil
}

// cellText returns the text of a cell; a dash for an empty cell.
func cellText(out io.Writer, cell any) string {
	if state, is := cell.(StateWord); is && state.Word != "" {
		return Paint(out, state.Tone, state.Word)
	} else if is {
		return "-"
	}
	return cmp.Or(fmt.Sprint(cell), "-")
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
