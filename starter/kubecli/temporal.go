package kubecli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"millwright/api/v1alpha1"
	"millwright/decide/phrase"
	"millwright/observe/taskqueue"
	"millwright/process/commandline"
	"millwright/process/connection"
	"millwright/workflows/run"
)

// TemporalFlags has the flags for the connection to Temporal.
type TemporalFlags struct{ connection.Flags }

// RegisterFlags adds the flags to a command and its subcommands.
func (f *TemporalFlags) RegisterFlags(c *cobra.Command) {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.Register(own)
	commandline.MarkConnectionFlags(own)
	c.PersistentFlags().AddFlagSet(own)
}

// DialTemporal returns a client that connects with its first request. The client logs nothing, because the commands
// return all errors.
func DialTemporal(f TemporalFlags) (client.Client, error) {
	options, err := f.ClientOptions()
	if err != nil {
		return nil, err
	}
	options.Logger = log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	c, err := client.NewLazyClient(options)
	if err != nil {
		return nil, fmt.Errorf("connect to Temporal at %s: %w", f.Address, err)
	}
	return c, nil
}

// CountPollers returns how many workers poll a queue for tasks of a type.
func CountPollers(
	ctx context.Context,
	temporal client.Client,
	namespace, queue string,
	kind enumspb.TaskQueueType,
) (int, error) {
	return taskqueue.CountPollers(ctx, temporal.WorkflowService(), namespace, queue, kind)
}

// TemporalUI is the address of Temporal's UI. An empty TemporalUI means that the address is not known.
type TemporalUI string

// RegisterFlag adds the flag --ui-address. Without the flag, the environment variable TEMPORAL_UI_ADDRESS has the
// address, and without the variable the address is defaultAddress.
func (u *TemporalUI) RegisterFlag(c *cobra.Command, defaultAddress string) {
	c.Flags().StringVar((*string)(u), "ui-address", cmp.Or(os.Getenv("TEMPORAL_UI_ADDRESS"), defaultAddress),
		"URL of Temporal's UI")
}

// The tabs of a run's page in Temporal's UI that the commands link to.
const (
	// TabUserMetadata shows what the run waits for and why. It needs a worker that serves the run's task queue.
	TabUserMetadata = "user-metadata"
	TabTimeline     = "timeline" // shows result and history
)

// UITabs returns the names of the tabs of a run's page in Temporal's UI, as they are in addresses. Source: the routes
// of the UI v2.54.1.
func UITabs() []string {
	return []string{
		TabUserMetadata, TabTimeline, "history", "pending-activities", "relationships", "workers", "call-stack",
		"search-attributes", "memo", "metadata",
	}
}

// RunPage returns the address of a tab of a run's page. An empty run is the newest run; its page has no tab.
func (u TemporalUI) RunPage(namespace, workflow, runID, tab string) (string, error) {
	page, err := u.workflows(namespace)
	if err != nil {
		return "", err
	}
	page = page.JoinPath(url.PathEscape(workflow))
	if runID != "" {
		page = page.JoinPath(runID, tab)
	}
	return page.String(), nil
}

// PageLine returns a last line for the output of a command: the address of the page of the newest run of an operation's
// workflow. PageLine returns "" if the address of the UI or the operation's workflow is not known. An empty namespace is
// the namespace of the variable TEMPORAL_NAMESPACE, or Millwright's default.
func (u TemporalUI) PageLine(namespace string, operation *v1alpha1.Operation) (string, error) {
	if u == "" || operation == nil || operation.WorkflowID == "" {
		return "", nil
	}
	namespace = cmp.Or(namespace, os.Getenv("TEMPORAL_NAMESPACE"), run.TemporalNamespace)
	page, err := u.RunPage(namespace, operation.WorkflowID, "", "")
	return "\npage: " + page + "\n", err
}

// ListPage returns the address of the list of the workflows that match a query.
func (u TemporalUI) ListPage(namespace, query string) (string, error) {
	page, err := u.workflows(namespace)
	if err != nil {
		return "", err
	}
	page.RawQuery = url.Values{"query": {query}}.Encode()
	return page.String(), nil
}

func (u TemporalUI) workflows(namespace string) (*url.URL, error) {
	page, err := url.Parse(string(u))
	if err != nil || page.Host == "" {
		return nil, fmt.Errorf("--ui-address %q is no URL", string(u))
	}
	return page.JoinPath("namespaces", namespace, "workflows"), nil
}

// ColumnScript returns JavaScript that gives the list of workflows in Temporal's UI columns for Millwright. A person runs
// the script once in each browser, on a page of the UI: the UI keeps columns in the storage of the browser, and no
// address contains them.
func ColumnScript(namespace string) string {
	var columns strings.Builder
	for i, label := range []string{
		"Status", "MachineNamespace", "Cluster", "Machine", "Step", "Stuck", "BlockedBy", "Deadline", "Outcome", "Start",
		"Workflow ID",
	} {
		fmt.Fprintf(&columns, "%s{label:%q}", phrase.TextIf(i > 0, ","), label)
	}
	return fmt.Sprintf(
		`(k=>{localStorage.setItem(k,JSON.stringify({...JSON.parse(localStorage.getItem(k)||"{}"),%q:[%s]}));`+
			`location.reload()})("namespace-workflow-table-columns")`,
		namespace, columns.String(),
	)
}
