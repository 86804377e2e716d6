package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
)

// demo is what the demo command was told.
type demo struct {
	kubeconfig string
	file       string
	sizes      []int
	patience   time.Duration
}

func demoCommand() *cobra.Command {
	var d demo
	c := &cobra.Command{
		Use:   "demo",
		Short: "Apply an example and watch its machines come and go",
		Long: `demo applies a file with a MachineDeployment, shows its machines in a live table until all of them run, then scales the
deployment through the given sizes. It leaves the last size running. Running it again is harmless: it starts over with
what is there.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), d.patience)
			defer cancel()
			return d.run(ctx, c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&d.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig of the cluster")
	c.Flags().StringVarP(&d.file, "file", "f", "examples/pool.yaml", "file to apply; it holds one MachineDeployment")
	c.Flags().IntSliceVar(&d.sizes, "scale", []int{5, 2}, "sizes to scale to, one after the other")
	c.Flags().DurationVar(&d.patience, "timeout", 5*time.Minute, "how long all of it may take")
	return c
}

// run applies the file and goes through the sizes.
func (d demo) run(ctx context.Context, out io.Writer) error {
	clients, err := connect(d.kubeconfig)
	if err != nil {
		return err
	}
	began := time.Now()
	deployment, err := clients.apply(ctx, d.file)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "applied %s: MachineDeployment %s/%s wants %d machines\n\n", d.file, deployment.Namespace, deployment.Name, deployment.Spec.Replicas)
	if err := clients.show(ctx, out, deployment, int(deployment.Spec.Replicas), began); err != nil {
		return err
	}
	for _, size := range d.sizes {
		began = time.Now()
		_, _ = fmt.Fprintf(out, "\nkubectl scale machinedeployment %s --replicas=%d\n\n", deployment.Name, size)
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, size)
		_, err := clients.machines.MachineV1alpha1().MachineDeployments(deployment.Namespace).Patch(ctx, deployment.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("scale %s to %d: %w", deployment.Name, size, err)
		}
		if err := clients.show(ctx, out, deployment, size, began); err != nil {
			return err
		}
	}
	return nil
}

// show draws the machines of a deployment until exactly size of them exist and run.
func (c clients) show(ctx context.Context, out io.Writer, deployment *v1alpha1.MachineDeployment, size int, began time.Time) error {
	table := newTable(out)
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return fmt.Errorf("read selector of %s: %w", deployment.Name, err)
	}
	var running int
	for {
		list, err := c.machines.MachineV1alpha1().Machines(deployment.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
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
