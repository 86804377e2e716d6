package kubecli

import (
	"context"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
)

// Show prints the machines of a deployment until there are exactly size of them and all are Running.
func (c Clients) Show(ctx context.Context, out io.Writer, deployment *v1alpha1.MachineDeployment, size int, began time.Time) error {
	table := newTable(out)
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return fmt.Errorf("read selector of %s: %w", deployment.Name, err)
	}
	var running int
	for {
		list, err := c.Machines.MachineV1alpha1().Machines(deployment.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
		if err != nil {
			return fmt.Errorf("list machines of %s: %w", deployment.Name, err)
		}
		running = 0
		for _, m := range list.Items {
			if m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning {
				running++
			}
		}
		table.draw(list.Items)
		if running == size && len(list.Items) == size {
			_, _ = fmt.Fprintf(out, "%d machines run, after %.1f s\n", size, time.Since(began).Seconds())
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %d machines of %s: %d exist and %d run; `kubectl describe machines` says why", size, deployment.Name, len(list.Items), running)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
