package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/starter/kubecli"
)

// demoOptions is the command `millwright demo` with its flags.
type demoOptions struct {
	access  kubecli.ClusterAccess
	file    string
	sizes   []int
	timeout time.Duration
}

func demoCommand() *cobra.Command {
	var d demoOptions
	c := &cobra.Command{
		Use:   "demo",
		Short: "Apply an example and watch its machines come and go",
		Long: `demo applies a file with a MachineDeployment, shows its machines in a live table until all of them run, then scales the
deployment through the given sizes. The machines of the last size keep running. It is harmless to run demo again: it starts over with
the machines that exist.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), d.timeout)
			defer cancel()
			return d.run(ctx, c.OutOrStdout())
		},
	}
	d.access.RegisterFlags(c)
	c.Flags().StringVarP(&d.file, "file", "f", "examples/pool.yaml", "file to apply; it holds one MachineDeployment")
	c.Flags().IntSliceVar(&d.sizes, "scale", []int{5, 2}, "sizes to scale to, one after the other")
	c.Flags().DurationVar(&d.timeout, "timeout", 5*time.Minute, "maximum time of the whole demo")
	return c
}

// run applies the file, and scales the deployment through the sizes.
func (d demoOptions) run(ctx context.Context, out io.Writer) error {
	clients, err := kubecli.NewClients(d.access)
	if err != nil {
		return err
	}
	began := time.Now()
	deployment, err := clients.Apply(ctx, d.file)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(
		out,
		"applied %s: MachineDeployment %s/%s wants %d machines\n\n",
		d.file,
		deployment.Namespace,
		deployment.Name,
		deployment.Spec.Replicas,
	)
	if err := clients.ShowMachinesUntilRunning(ctx, out, deployment, int(deployment.Spec.Replicas), began); err != nil {
		return err
	}
	for _, size := range d.sizes {
		began = time.Now()
		_, _ = fmt.Fprintf(out, "\nkubectl scale machinedeployment %s --replicas=%d\n\n", deployment.Name, size)
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, size)
		_, err := clients.MachineClient.MachineV1alpha1().
			MachineDeployments(deployment.Namespace).
			Patch(ctx, deployment.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("scale %s to %d: %w", deployment.Name, size, err)
		}
		if err := clients.ShowMachinesUntilRunning(ctx, out, deployment, size, began); err != nil {
			return err
		}
	}
	return nil
}
