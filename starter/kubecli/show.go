package kubecli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/starter/printers"
)

// ShowMachinesUntilRunning prints the machines of a deployment until the deployment has exactly size machines and all
// of them are Running.
func (c Clients) ShowMachinesUntilRunning(
	ctx context.Context,
	out io.Writer,
	deployment *v1alpha1.MachineDeployment,
	size int,
	began time.Time,
) error {
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return fmt.Errorf("read selector of %s: %w", deployment.Name, err)
	}
	table, machines, running := machineTable{
		out:            out,
		redrawsInPlace: printers.IsTerminal(out),
		printedLines:   map[string]string{},
	}, 0, 0
	err = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		list, err := c.MachineClient.MachineV1alpha1().
			Machines(deployment.Namespace).
			List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
		if err != nil {
			return false, fmt.Errorf("list machines of %s: %w", deployment.Name, err)
		}
		machines, running = len(list.Items), 0
		for _, m := range list.Items {
			if m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning {
				running++
			}
		}
		table.draw(list.Items)
		return running == size && machines == size, nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf(
			"wait for %d machines of %s: %d exist and %d run; `kubectl describe machines` says why",
			size,
			deployment.Name,
			machines,
			running,
		)
	}
	if err == nil {
		_, _ = fmt.Fprintf(out, "%d machines run, after %.1f s\n", size, time.Since(began).Seconds())
	}
	return err
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
	_ = printers.WriteTable(t.out, rows)
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
