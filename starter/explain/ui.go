package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"millwright/starter/kubecli"
)

// uiCommand is the command `millwright ui` with its flags.
type uiCommand struct {
	explainCommand

	ui               kubecli.TemporalUI
	showsOnlyBlocked bool
}

// UICommand returns the command ui.
func UICommand(e kubecli.Environment) *cobra.Command {
	x := &uiCommand{explainCommand: explainCommand{ObjectFlags: kubecli.ObjectFlags{Environment: e, Kind: "object"}}}
	c := &cobra.Command{
		Use:   "ui [[KIND/][NAMESPACE/]NAME]",
		Short: "Print the page of Temporal's UI about an object, or all work",
		Long: `ui prints the URL of a page of Temporal's UI. With a name, it is the page of the workflow that works on the object (its rollout or its
drain, if one is open); without a name, the list of all open workflows. Of a machine that is gone, it is the list of its workflows. The
sentence of explain is on the tab User Metadata. The column Stuck of the list is true for blocked objects. The browser stores which columns
the list has: choose MachineNamespace, Cluster, Machine, Step, Stuck, BlockedBy and Deadline once with the gear above the list.`,
		Example: `  millwright ui
  millwright ui --blocked
  xdg-open "$(millwright ui mcd/web -n shop)"`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: x.CompleteKindAndName,
		RunE: func(c *cobra.Command, args []string) error {
			return x.run(c.Context(), c.OutOrStdout(), strings.Join(args, "/"))
		},
	}
	x.RegisterFlags(c)
	c.PersistentPreRunE = nil // the list of all workflows needs no cluster
	x.temporalFlags.RegisterFlags(c)
	x.ui.RegisterFlag(c)
	kubecli.RegisterClusterName(c.Flags(), &x.clusterName)
	c.Flags().BoolVar(&x.showsOnlyBlocked, "blocked", false, "only workflows of blocked objects")
	kubecli.AddFormerFlag(c.Flags(), &x.showsOnlyBlocked, "stuck", "blocked")
	return c
}

func (x *uiCommand) run(ctx context.Context, out io.Writer, text string) error {
	page, err := x.ui.WorkflowsPage(x.temporalFlags.Namespace)
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
			page.RawQuery = url.Values{
				"query": {fmt.Sprintf("MachineNamespace=%q AND Machine=%q", gone.key.Namespace, gone.key.Name)},
			}.Encode()
			_, err = fmt.Fprintln(out, page)
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
		page, query = page.JoinPath(url.PathEscape(id)), ""
	}
	if query != "" {
		page.RawQuery = url.Values{"query": {query}}.Encode()
	}
	_, err = fmt.Fprintln(out, page)
	return err
}
