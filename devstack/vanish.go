package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"millwright/devstack/virtualcloud/admin"
)

// vanishCommand makes the instance of a machine vanish, so that people can watch how Millwright replaces the machine.
func vanishCommand(p *stackFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "vanish <machine>",
		Short: "Let the instance of a machine of the virtual cloud vanish",
		Long: `vanish takes an instance away, as a power cut would: nobody has asked for its deletion. The virtual cloud deletes its Node ten
seconds later, as a cloud controller manager does. It fails if no machine of this name has an instance, or several have one.`,
		Example: `  devstack vanish pool-7dcbd-2mdck`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, arguments []string) error {
			cloud, err := p.connectToCloud()
			if err != nil {
				return err
			}
			machine := arguments[0]
			vanish := admin.VanishRequest{Machine: machine, DeleteNode: true}
			if err := cloud.MakeInstanceVanish(c.Context(), vanish); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "the instance of machine %s has vanished\n", machine)
			return err
		},
	}
}
