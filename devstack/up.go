package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"millwright/devstack/build"
	"millwright/devstack/component"
	"millwright/devstack/stack"
)

func upCommand(p *stackFlags) *cobra.Command {
	var o stack.Options
	command := &cobra.Command{
		Use:   "up",
		Short: "Start the stack and leave it running",
		Long: `up builds what is missing, starts every component, waits until all are ready and says where everything is. On a
running stack it starts what has died and says the same again. Ctrl-C stops what it has started.

Components: ` + strings.Join(component.Names(), ", ") + `
Only if --components names them: ` + component.ProviderWorker + `, ` + component.SecondBridge + `, ` + component.SecondWorker + `,
` + component.MCMManager + ` and ` + component.MCMMachineController + ` (machine-controller-manager)
Added by --cluster-api: ` + strings.Join(component.ClusterAPINames(), ", "),
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if o.Dir, err = p.stackFolder(); err != nil {
				return err
			}
			if o.SupervisorProgramPath, err = os.Executable(); err != nil {
				return fmt.Errorf("find myself: %w", err)
			}
			o.Repo, o.Output = p.repo, c.ErrOrStderr()
			s, err := stack.Up(c.Context(), o)
			if err != nil {
				return err
			}
			if err := printStackAddresses(c.OutOrStdout(), s); err != nil {
				return err
			}
			if o.EndsWithThisProcess {
				return stopOnInterrupt(c.Context(), c.ErrOrStderr(), s)
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.BoolVar(&o.UseFreePorts, "free-ports", false, "take free ports instead of the documented ones")
	flags.StringSliceVar(&o.Components, "components", nil, "start only these and what they need")
	flags.BoolVar(
		&o.WithClusterAPI,
		"cluster-api",
		false,
		"add Cluster API: core, kubeadm providers, and the development provider with clusters in memory",
	)
	flags.StringVar(
		&o.ClusterAPIRelease,
		"cluster-api-release",
		"",
		"minor version of Cluster API: "+strings.Join(build.ClusterAPIMinorVersions(), ", ")+" (default the newest)",
	)
	flags.BoolVar(
		&o.EndsWithThisProcess,
		"attached",
		false,
		"stay in the foreground; the stack ends with this process, however that ends",
	)
	flags.BoolVar(
		&o.UseLongLeases,
		"quiet",
		false,
		"nodes renew their leases six times less often: for benchmarks, not for tests of failures",
	)
	flags.DurationVar(&o.StartTimeout, "timeout", 0, "longest time of the start, without builds (default 2m)")
	return command
}

// stopOnInterrupt waits for Ctrl-C and stops the stack.
func stopOnInterrupt(ctx context.Context, progress io.Writer, s *stack.Stack) error {
	_, _ = fmt.Fprintln(progress, "Ctrl-C stops the stack")
	<-ctx.Done()
	return s.Down(context.WithoutCancel(ctx))
}

func printStackAddresses(out io.Writer, s *stack.Stack) error {
	state, err := s.State()
	if err != nil {
		return err
	}
	has := func(component string) bool { return slices.Contains(state.Plan.Components, component) }
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	row := func(what, where string) { _, _ = fmt.Fprintf(table, "%s\t%s\n", what, where) }
	if has(component.Temporal) {
		row("Temporal UI", s.TemporalUIURL()+"/namespaces/"+component.TemporalNamespace+"/workflows")
		row("Temporal", s.TemporalAddress()+", namespace "+component.TemporalNamespace)
	}
	if has(component.APIServer) {
		row("API server", s.APIServerURL())
		row("kubeconfig", s.KubeconfigPath(component.AdminIdentity))
		row("kubectl", s.KubectlPath())
		row("audit log", s.AuditLogPath())
	}
	if has(component.VirtualCloud) {
		row("virtualcloud", s.VirtualCloudURL())
	}
	for _, extra := range state.Plan.ExtraComponents {
		if has(extra.Name) {
			row(extra.Name, s.MetricsURL(extra.Name))
		}
	}
	if has(component.ClusterAPICore) {
		row(
			"Cluster API",
			"for objects with label "+component.WatchFilterLabel+"="+component.UpstreamFilterValue+"; workload clusters are at "+state.Plan.WorkloadClusterAddress(),
		)
	}
	row("logs", s.LogPath("*"))
	row("ready after", fmt.Sprintf("%.1f s", state.StartDuration.Seconds()))
	return table.Flush()
}

func downCommand(p *stackFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the stack; leaves no process",
		Long: `down stops every component in reverse order and returns when no process is left. It also clears up after a stack
that is half started or whose supervisor was killed. Data and logs stay: remove the stack's folder for a fresh start.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := p.stackFolder()
			if err != nil {
				return err
			}
			return stack.Down(c.Context(), dir)
		},
	}
}
