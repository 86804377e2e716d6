// Command lab starts a local stack with real machines (Incus), or with Prometheus and Alertmanager. Command devstack
// needs only a Go toolchain; lab also needs root, Debian packages, cgroups and namespaces. All commands of devstack
// work on a stack of lab. Package parts has the logic; this package has only texts, flags and exit codes.
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"millwright/devstack/component"
	"millwright/devstack/lab/parts"
	"millwright/devstack/stack"
	"millwright/process/commandline"
)

func main() { commandline.Main(rootCommand()) }

// stackFlags are the flags of all commands.
type stackFlags struct{ repo, dir string }

func (p stackFlags) stackFolder() (string, error) { return stack.Folder(p.repo, p.dir) }

func rootCommand() *cobra.Command {
	var p stackFlags
	command := &cobra.Command{
		Use:   "lab",
		Short: "Run Millwright's local stack with real machines, or with Prometheus",
		Long: `lab starts a local stack as devstack does, with components that need more than a Go toolchain: root, or Debian's
packages. All commands of devstack also work on this stack: status, logs, kubectl, kill and the others.`,
		Example: `  lab up --nodes=incus          # as root
  lab machine-class | devstack kubectl -- apply --server-side -f -
  lab up --observe
  lab down`,
	}
	command.PersistentFlags().StringVar(&p.dir, "dir", "", "folder of the stack (default <repo>/.devstack)")
	command.PersistentFlags().
		StringVar(&p.repo, "repo", "", "root of the clone (default: found from the working directory)")
	command.AddCommand(upCommand(&p), downCommand(&p), machineClassCommand(&p), incusdCommand(&p))
	return command
}

func upCommand(p *stackFlags) *cobra.Command {
	var o stack.Options
	var with parts.Selection
	var nodes string
	command := &cobra.Command{
		Use:   "up",
		Short: "Start the stack with further components and leave it running",
		Long: `up starts a local stack with the components that its flags name, and says where they are. Programs and images that are missing
are built first: some minutes, once. On a running stack it starts what has died.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if nodes != "" && nodes != "incus" {
				return fmt.Errorf("no nodes of kind %q: have \"incus\"", nodes)
			}
			if with.WithRealMachines = nodes != ""; !with.WithRealMachines && !with.WithObservers {
				return errors.New("say --nodes=incus or --observe; `devstack up` starts a stack without them")
			}
			var err error
			if o.Dir, err = p.stackFolder(); err != nil {
				return err
			}
			if with.LabProgramPath, err = os.Executable(); err != nil {
				return fmt.Errorf("find myself: %w", err)
			}
			o.Repo, o.Output = p.repo, c.ErrOrStderr()
			if o, err = with.AddToOptions(c.Context(), o); err != nil {
				return err
			}
			s, err := stack.Up(c.Context(), o)
			if err != nil {
				return err
			}
			return printAddresses(c, s)
		},
	}
	flags := command.Flags()
	flags.StringVar(
		&nodes,
		"nodes",
		"",
		"\"incus\" adds a server for machines with real kubelets; needs root and Debian's packages",
	)
	flags.BoolVar(
		&with.WithObservers,
		"observe",
		false,
		"add Prometheus, with the rules of deploy/alerts, and Alertmanager, from Debian's packages",
	)
	flags.BoolVar(&o.UseFreePorts, "free-ports", false, "take free ports instead of the documented ones")
	return command
}

// printAddresses prints the addresses and paths of the components that lab adds.
func printAddresses(c *cobra.Command, s *stack.Stack) error {
	state, err := s.State()
	if err != nil {
		return err
	}
	has := func(name string) bool { return slices.Contains(state.Plan.Components, name) }
	table := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 3, ' ', 0)
	row := func(what, where string) { _, _ = fmt.Fprintf(table, "%s\t%s\n", what, where) }
	if has(parts.Incusd) {
		server, err := parts.OpenIncus(s)
		if err != nil {
			return err
		}
		row("Incus", server.URL+", data in "+server.Dir)
	}
	if has(parts.Prometheus) {
		row("Prometheus", s.MetricsURL(parts.Prometheus))
		row("Alertmanager", s.MetricsURL(parts.Alertmanager))
	}
	row("kubeconfig", s.KubeconfigPath(component.AdminIdentity))
	row("all else", "devstack up says where it is")
	return table.Flush()
}

func downCommand(p *stackFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the stack; leaves no process, and no folder in the cgroup hierarchies",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := p.stackFolder()
			if err != nil {
				return err
			}
			return parts.StopStack(c.Context(), dir)
		},
	}
}
