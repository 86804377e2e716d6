package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	enumspb "go.temporal.io/api/enums/v1"

	"millwright/starter/kubecli"
	"millwright/workflows/run"
)

// uiCommand is the command `millwright ui` with its flags.
type uiCommand struct {
	explainCommand

	showsOnlyBlocked bool
	printsColumns    bool
	tab              string // tab of the page; empty: the tab that explains
}

// UICommand returns the command ui.
func UICommand(e kubecli.Environment) *cobra.Command {
	x := &uiCommand{explainCommand: explainCommand{ObjectFlags: kubecli.ObjectFlags{Environment: e, Kind: "object"}}}
	c := &cobra.Command{
		Use:   "ui [[KIND/][NAMESPACE/]NAME]",
		Short: "Print the page of Temporal's UI about an object, or all work",
		Long: `ui prints the URL of a page of Temporal's UI. With a name, it is the page of the workflow that works on the object (its rollout or its
drain, if one is open); without a name, the list of all open workflows. Of a machine that is gone, it is the list of its workflows.

The page of an open workflow opens on the tab User Metadata, which has the sentence of explain, and the page of a closed workflow on its
timeline; --tab names another tab. If Temporal does not answer, the URL has no tab.

The column Stuck of the list is true for blocked objects. The browser stores which columns the list has. --columns prints a script that
sets them: open the list, open the browser's console (F12), paste the script once. As a bookmark, it needs "javascript:" in front.`,
		Example: `  millwright ui
  millwright ui --blocked
  xdg-open "$(millwright ui mcd/web -n shop)"
  millwright ui machine/web-7f9c4-x2b8q -n shop --tab timeline
  millwright ui --columns`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: x.CompleteKindAndName,
		RunE: func(c *cobra.Command, args []string) error {
			page, err := x.page(c.Context(), c.ErrOrStderr(), strings.Join(args, "/"))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), page)
			return err
		},
	}
	x.RegisterFlags(c)
	c.PersistentPreRunE = nil // the list of all workflows needs no cluster
	x.temporalFlags.RegisterFlags(c)
	x.temporalUI.RegisterFlag(c, kubecli.LocalTemporalUI)
	kubecli.RegisterClusterName(c.Flags(), &x.clusterName)
	c.Flags().BoolVar(&x.showsOnlyBlocked, "blocked", false, "only workflows of blocked objects")
	kubecli.AddFormerFlag(c.Flags(), &x.showsOnlyBlocked, "stuck", "blocked")
	c.Flags().BoolVar(&x.printsColumns, "columns", false, "print a script that sets the columns of the list in a browser")
	c.Flags().StringVar(&x.tab, "tab", "", "`tab` of the workflow's page: "+strings.Join(kubecli.UITabs(), ", "))
	return c
}

// page returns the address of the page, or the script of --columns. Hints go to the writer warnings.
func (x *uiCommand) page(ctx context.Context, warnings io.Writer, text string) (string, error) {
	pages, err := x.temporalUI.Pages(x.temporalFlags.Namespace) // a wrong address is an error before any request
	if err != nil {
		return "", err
	}
	switch {
	case x.printsColumns:
		return kubecli.ColumnScript(x.temporalFlags.Namespace), nil
	case x.tab != "" && !slices.Contains(kubecli.UITabs(), x.tab):
		return "", fmt.Errorf("--tab %q is none of %s", x.tab, strings.Join(kubecli.UITabs(), ", "))
	case x.tab != "" && text == "":
		return "", errors.New("--tab needs an object: only the page of a workflow has tabs")
	case text == "":
		query := `ExecutionStatus="Running"`
		if x.showsOnlyBlocked {
			query += ` AND Stuck=true`
		}
		return pages.List(query), nil
	default:
		return x.namedPage(ctx, warnings, pages, text)
	}
}

// namedPage returns the address of the page of the named object, or of the list of the workflows of a machine that is
// gone.
func (x *uiCommand) namedPage(
	ctx context.Context,
	warnings io.Writer,
	pages kubecli.UIPages,
	text string,
) (string, error) {
	if err := x.ResolveNamespace(); err != nil {
		return "", err
	}
	clients, err := x.NewClients(x.ClusterAccess)
	if err != nil {
		return "", err
	}
	s, err := x.findSubject(ctx, clients, text)
	if gone, is := errors.AsType[objectMissingError](err); is && gone.canBeMachine {
		return pages.List(kubecli.MachineRunsQuery(gone.key)), nil
	}
	if err != nil {
		return "", err
	}
	installation := x.findInstallation(ctx, clients, s)
	if installation == "" || s.workflowKind == "" {
		return "", fmt.Errorf("%s %s: the installation is not known: give --cluster-name", s.kind, s.object.GetName())
	}
	page, err := x.pageOfObject(ctx, s, installation, x.tab)
	if err != nil {
		_, _ = fmt.Fprintf(warnings, "no tab: Temporal at %s does not name the run: %s\n", x.temporalFlags.Address,
			kubecli.CollapseSpaces(err.Error()))
	}
	return page, nil
}

// pageOfObject returns the address of the page of the workflow that works on the object: of its open rollout or drain,
// else of its own workflow. An empty tab is the tab that explains. If Temporal does not name the run, pageOfObject
// returns an error and the address of the page without a tab.
func (x *explainCommand) pageOfObject(
	ctx context.Context,
	s *subject,
	installation run.Installation,
	tab string,
) (string, error) {
	id := s.workflowID(installation)
	if o := s.operation; o != nil && o.WorkflowID != "" {
		id = o.WorkflowID
	}
	newest, tab, unknown := x.newestRun(ctx, id, tab)
	pages, err := x.temporalUI.Pages(x.temporalFlags.Namespace)
	if err != nil {
		return "", err
	}
	return pages.Run(id, newest, tab), unknown
}

// newestRun returns the ID of the workflow's newest run, and the tab of its page to open.
func (x *explainCommand) newestRun(ctx context.Context, workflow, asked string) (newest, tab string, err error) {
	ctx, cancel := context.WithTimeout(ctx, temporalTimeout)
	defer cancel()
	temporal, err := x.DialTemporal(x.temporalFlags)
	if err != nil {
		return "", "", err
	}
	defer temporal.Close()
	answer, err := temporal.DescribeWorkflowExecution(ctx, workflow, "")
	if err != nil {
		return "", "", err
	}
	info := answer.GetWorkflowExecutionInfo()
	return info.GetExecution().GetRunId(), tabToOpen(asked, info.GetStatus()), nil
}

// tabToOpen returns the tab that the user asked for. Without such a tab, an open run opens on the tab that explains its
// wait, and a closed run on its timeline, which has the result.
func tabToOpen(asked string, status enumspb.WorkflowExecutionStatus) string {
	switch {
	case asked != "":
		return asked
	case status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
		return kubecli.TabUserMetadata
	default:
		return kubecli.TabTimeline
	}
}
