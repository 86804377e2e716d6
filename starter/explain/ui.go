package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"millwright/starter/kubecli"
)

// uiCommand is the command `millwright ui` with its flags.
type uiCommand struct {
	explainCommand

	uiAddress        string // URL of Temporal's UI
	showsOnlyBlocked bool
}

// UICommand returns the command ui.
func UICommand(e kubecli.Environment) *cobra.Command {
	x := &uiCommand{explainCommand: explainCommand{ObjectFlags: kubecli.ObjectFlags{Environment: e, Kind: "object"}}}
	c := &cobra.Command{
		Use:   "ui [[KIND/][NAMESPACE/]NAME]",
		Short: "Print the page of Temporal's UI that shows an object, or all work in progress",
		Long: `ui prints the URL of a page of Temporal's UI. With a name, it is the page of the workflow that works on the object (its rollout or its
drain, if one is open); without a name, the list of all open workflows. Of a machine that is gone, it is the list of its workflows. The
sentence of explain is on the tab User Metadata. The column Stuck of the list is true for blocked objects. The browser stores which columns
the list has: choose MachineNamespace, Cluster, Machine, Step, Stuck, BlockedBy and Deadline once with the gear above the list.`,
		Example: `  millwright ui
  millwright ui --stuck
  xdg-open "$(millwright ui mcd/web -n shop)"`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: x.CompleteKindAndName,
		RunE: func(c *cobra.Command, args []string) error {
			return x.run(c.Context(), c.OutOrStdout(), strings.Join(args, ""))
		},
	}
	x.RegisterFlags(c)
	c.PersistentPreRunE = nil // the list of all workflows needs no cluster
	x.temporalFlags.RegisterFlags(c)
	RegisterUIAddressFlag(c.Flags(), &x.uiAddress)
	c.Flags().
		StringVar(&x.clusterName, "cluster-name", os.Getenv("CLUSTER_NAME"), "name of the installation: the value of --cluster-name of worker and bridge; default: the name in the object's status or in the Lease millwright-worker")
	c.Flags().BoolVar(&x.showsOnlyBlocked, "stuck", false, "only workflows of blocked objects")
	return c
}

func (x *uiCommand) run(ctx context.Context, out io.Writer, text string) error {
	pages, err := NewUIPages(x.uiAddress, x.temporalFlags.Namespace)
	if err != nil {
		return err
	}
	query := `ExecutionStatus="Running"`
	if x.showsOnlyBlocked {
		query += ` AND Stuck=true`
	}
	if text != "" {
		if err := x.ResolveNamespace(); err != nil {
			return err
		}
		clients, err := x.NewClients(x.ClusterAccess)
		if err != nil {
			return err
		}
		s, err := x.findSubject(ctx, clients, text)
		if gone, is := errors.AsType[objectMissingError](err); is && gone.canBeMachine {
			_, err = fmt.Fprintln(out, pages.List(MachineRunsQuery(gone.key)))
			return err
		}
		if err != nil {
			return err
		}
		installation := x.findInstallation(ctx, clients, s)
		if installation == "" || s.workflowKind == "" {
			return fmt.Errorf("%s %s: the installation is not known: give --cluster-name", s.kind, s.object.GetName())
		}
		id := s.workflowID(installation)
		if o := s.operation; o != nil && o.WorkflowID != "" { // the ID of the object's open rollout or drain
			id = o.WorkflowID
		}
		_, err = fmt.Fprintln(out, pages.Workflow(id))
		return err
	}
	_, err = fmt.Fprintln(out, pages.List(query))
	return err
}
