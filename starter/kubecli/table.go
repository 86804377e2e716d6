package kubecli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"millwright/api/v1alpha1"
	"millwright/decide/phrase"
)

// table shows machines. On a terminal it redraws itself in place; elsewhere it prints a line for each change.
type table struct {
	out   io.Writer
	live  bool
	lines int               // of the last drawing
	seen  map[string]string // by machine: what was printed
}

func newTable(out io.Writer) *table {
	return &table{out: out, live: IsTerminal(out), seen: map[string]string{}}
}

// IsTerminal reports whether the output goes to a terminal.
func IsTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// draw shows the machines as they are now.
func (t *table) draw(machines []v1alpha1.Machine) {
	if t.live {
		t.redraw(machines)
		return
	}
	there := map[string]bool{}
	for _, m := range machines {
		there[m.Name] = true
		if now := Status(m) + "  " + step(m); t.seen[m.Name] != now {
			t.seen[m.Name] = now
			_, _ = fmt.Fprintf(t.out, "%s  %s  %s\n", time.Now().Format(time.TimeOnly), m.Name, now)
		}
	}
	for name := range t.seen {
		if !there[name] {
			delete(t.seen, name)
			_, _ = fmt.Fprintf(t.out, "%s  %s  gone\n", time.Now().Format(time.TimeOnly), name)
		}
	}
}

// redraw moves up over the last drawing and writes a new one.
func (t *table) redraw(machines []v1alpha1.Machine) {
	var text bytes.Buffer
	columns := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(columns, "NAME\tSTATUS\tAGE\tNODE\tPROVIDER ID\tSTEP")
	for _, m := range machines {
		age := phrase.Span(time.Since(m.CreationTimestamp.Time))
		_, _ = fmt.Fprintf(columns, "%s\t%s\t%s\t%s\t%s\t%s\n", m.Name, Status(m), age, m.Labels[v1alpha1.LabelNode], m.Spec.ProviderID, step(m))
	}
	_ = columns.Flush() // a buffer never fails
	if t.lines > 0 {
		_, _ = fmt.Fprintf(t.out, "\x1b[%dA\x1b[J", t.lines)
	}
	t.lines = bytes.Count(text.Bytes(), []byte("\n"))
	_, _ = t.out.Write(text.Bytes())
}

// Status is the machine's phase; "new" if it has none yet.
func Status(m v1alpha1.Machine) string {
	if phase := m.Status.CurrentStatus.Phase; phase != "" {
		return string(phase)
	}
	return "new"
}

// step is the step of the machine's workflow.
func step(m v1alpha1.Machine) string {
	if o := m.Status.CurrentOperation; o != nil {
		return o.Step
	}
	return ""
}
