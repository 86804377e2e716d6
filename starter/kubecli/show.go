package kubecli

import (
	"context"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"millwright/api/v1alpha1"
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
		redrawsInPlace: IsTerminal(out),
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
