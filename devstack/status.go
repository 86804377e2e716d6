package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"millwright/devstack/component"
	"millwright/devstack/stack"
)

func statusCommand(p *stackFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what runs; exit code 1 when something is dead or nothing runs",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := p.openStack()
			if err != nil {
				return err
			}
			components, err := s.Status(c.Context())
			if err != nil {
				return err
			}
			state, err := s.State()
			if err != nil {
				return err
			}
			table := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			_, _ = fmt.Fprintln(table, "COMPONENT\tSTATE\tPID\tPORT\tSINCE\tCPU\tMEMORY\tVERSION\tNOTE")
			dead := false
			for _, component := range components {
				dead = dead || !component.State.IsReadyOrDone()
				_, _ = fmt.Fprintln(table, statusRow(component, state.Versions[component.Name]))
			}
			if err := table.Flush(); err != nil || !dead {
				return err
			}
			return silentExitCode(1)
		},
	}
}

// statusRow returns one row of the component table. A dash stands for a missing value.
func statusRow(c stack.ComponentStatus, version string) string {
	known := func(known bool, text string) string {
		if !known || text == "" {
			return "-"
		}
		return text
	}
	runs := c.Process.PID != 0
	return strings.Join([]string{
		c.Name, string(c.State),
		known(runs, fmt.Sprint(c.Process.PID)),
		known(c.Port != 0, fmt.Sprint(c.Port)),
		known(!c.StateChangedAt.IsZero(), time.Since(c.StateChangedAt).Round(time.Second).String()),
		known(runs, c.CPUTime.Round(100*time.Millisecond).String()),
		known(runs, fmt.Sprintf("%d MiB", c.MemoryBytes>>20)),
		known(true, version),
		c.Error,
	}, "\t")
}

func kubeconfigCommand(p *stackFlags) *cobra.Command {
	identity := component.AdminIdentity
	command := &cobra.Command{
		Use:     "kubeconfig",
		Short:   "Print the path of a kubeconfig",
		Example: `  export KUBECONFIG=$(devstack kubeconfig)`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := p.openStack()
			if err != nil {
				return err
			}
			path, err := s.CheckedKubeconfigPath(identity)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), path)
			return err
		},
	}
	command.Flags().StringVar(&identity, "identity", identity, "one of "+strings.Join(component.IdentityNames(), ", "))
	return command
}

// componentCommand returns a command that calls do for the component in its argument, for example the command kill.
func componentCommand(
	use, short, long string,
	p *stackFlags,
	do func(c *cobra.Command, s *stack.Stack, name string) error,
) *cobra.Command {
	return &cobra.Command{
		Use:   use + " <component>",
		Short: short,
		Long:  long + "\n\nComponents: " + strings.Join(component.Names(), ", "),
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) != 1 {
				return errors.New("name one component: " + strings.Join(component.Names(), ", "))
			}
			return nil
		},
		RunE: func(c *cobra.Command, arguments []string) error {
			s, err := p.openStack()
			if err != nil {
				return err
			}
			return do(c, s, arguments[0])
		},
	}
}

func killCommand(p *stackFlags) *cobra.Command {
	return componentCommand("kill", "Kill a component (SIGKILL) and leave it dead",
		"kill ends a component as a crash would, and returns when it is gone. `devstack start` brings it back.", p,
		func(c *cobra.Command, s *stack.Stack, name string) error { return s.KillComponent(c.Context(), name) })
}

func startCommand(p *stackFlags) *cobra.Command {
	return componentCommand("start", "Start a dead component and wait until it is ready",
		"start brings a dead component back, on its old port and data. A running one stays as it is.", p,
		func(c *cobra.Command, s *stack.Stack, name string) error { return s.StartComponent(c.Context(), name) })
}

func restartCommand(p *stackFlags) *cobra.Command {
	return componentCommand("restart", "Stop a component in order and start it again",
		"restart ends a component (SIGTERM, SIGKILL after 3 s), starts it and waits until it is ready.\n"+
			"After `make build`, this is how the new worker or bridge gets to run.", p,
		func(c *cobra.Command, s *stack.Stack, name string) error {
			return s.RestartComponent(c.Context(), name)
		})
}
