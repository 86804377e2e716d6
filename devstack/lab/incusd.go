package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"millwright/devstack/lab/incus"
	"millwright/devstack/lab/nodes"
	"millwright/devstack/lab/parts"
	"millwright/devstack/stack"
)

// incusdCommand returns the hidden command that runs the component incusd. Only the supervisor calls this command.
func incusdCommand(p *stackFlags) *cobra.Command {
	var o nodes.Options
	var network string
	command := &cobra.Command{
		Use:    "incusd",
		Short:  "Be the component incusd of a stack",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := p.stackFolder()
			if err != nil {
				return err
			}
			if o.Network, err = incus.NetworkByName(network); err != nil {
				return err
			}
			o.Repo, o.Dir = p.repo, filepath.Join(dir, parts.Incusd)
			return nodes.Run(c.Context(), o)
		},
	}
	flags := command.Flags()
	flags.StringVar(&network, "network", "", "name of the machines' network, which the supervisor has locked")
	flags.StringVar(&o.APIServerAddress, "api-server", "", "address of the API server on loopback")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig of the admin, for the approver of certificates")
	flags.StringVar(&o.HealthAddress, "health-address", "", "where to answer health checks")
	return command
}

// machineClassCommand returns the command that prints a MachineClass of real machines and its Secret.
func machineClassCommand(p *stackFlags) *cobra.Command {
	var namespace, name string
	command := &cobra.Command{
		Use:   "machine-class",
		Short: "Print a MachineClass of real machines, with its Secret",
		Long: `machine-class prints a MachineClass of provider incus and its Secret, for a stack of lab up --nodes=incus: machines of this class are
containers with real kubelets, which join this stack.`,
		Example: "  lab machine-class | .devstack/kubectl apply --server-side -f -",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := p.stackFolder()
			if err != nil {
				return err
			}
			s, err := stack.Open(dir)
			if err != nil {
				return err
			}
			text, err := parts.MachineClassManifest(s, namespace, name)
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(text)
			return err
		},
	}
	command.Flags().StringVar(&namespace, "namespace", "default", "namespace of both objects")
	command.Flags().StringVar(&name, "name", "incus", "name of both objects")
	return command
}
