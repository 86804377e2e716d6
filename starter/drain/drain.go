// Package drain has the commands that show and change drains, and preserve machines.
package drain

import (
	"github.com/spf13/cobra"

	"millwright/decide/request"
	"millwright/starter/kubecli"
)

// drainCommand is the command `millwright drain` with the flags of its subcommands.
type drainCommand struct {
	kubecli.ObjectFlags
	temporalFlags kubecli.TemporalFlags
}

// Command returns the command drain.
func Command(d kubecli.Environment) *cobra.Command {
	f := &drainCommand{ObjectFlags: kubecli.ObjectFlags{Environment: d, Kind: request.KindMachine}}
	c := &cobra.Command{
		Use:   "drain",
		Short: "Show why deleted machines are still there; change drains",
		Long: `drain shows how far the deletion of machines has come: the stage, what blocks it, and what happens next. It also shows nodes
that are drained although their machines stay, for an in-place update or a preservation. Requests (extend, hold and so on)
are annotations on a Machine, with actor and reason; kubectl annotate does the same.

For the Machines of Cluster API whose nodes Millwright drains, drain shows the drain alone. If a namespace has a Machine of Millwright and
a Machine of Cluster API with the same name, the commands use Millwright's.

A machine is given as NAMESPACE/NAME, or as NAME with --namespace. All clock times are UTC.`,
		Example: `  millwright drain list --all-namespaces --blocked
  millwright drain explain shop/m-1
  millwright drain extend shop/m-1 --for 1h --reason "the backup needs longer"`,
	}
	f.RegisterFlags(c)
	f.temporalFlags.RegisterFlags(c)
	c.AddCommand(f.listCommand(), f.explainCommand(), f.watchCommand())
	for _, h := range requestCommandsHelp() {
		c.AddCommand(f.RequestCommand(h, readSubject))
	}
	return c
}
