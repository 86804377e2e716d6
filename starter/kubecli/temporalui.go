package kubecli

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/phrase"
	"millwright/workflows/run"
)

// TemporalUI is the address of Temporal's UI. An empty TemporalUI means that the address is not known.
type TemporalUI string

// LocalTemporalUI is the address of Temporal's UI in the local stack.
const LocalTemporalUI = "http://127.0.0.1:8233"

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

// UIPages has the addresses of the pages of Temporal's UI for the workflows of one Temporal namespace.
type UIPages struct{ workflows *url.URL }

// Pages returns the pages for a Temporal namespace. The error names the flag --ui-address.
func (u TemporalUI) Pages(namespace string) (UIPages, error) {
	page, err := url.Parse(string(u))
	if err != nil || page.Host == "" || page.Scheme != "http" && page.Scheme != "https" {
		return UIPages{}, fmt.Errorf("--ui-address %q is no URL", string(u))
	}
	return UIPages{page.JoinPath("namespaces", namespace, "workflows")}, nil
}

// List returns the address of the list of the workflows that a query finds; an empty query finds all workflows.
func (p UIPages) List(query string) string {
	page := *p.workflows
	if query != "" {
		page.RawQuery = url.Values{"query": {query}}.Encode()
	}
	return page.String()
}

// Run returns the address of a tab of a run's page. An empty run is the newest run; its page has no tab.
func (p UIPages) Run(workflow, run, tab string) string {
	page := p.workflows.JoinPath(url.PathEscape(workflow))
	if run != "" {
		page = page.JoinPath(url.PathEscape(run), tab)
	}
	return page.String()
}

// MachineRunsQuery returns the query for all workflows of a machine, also of a machine that is gone.
func MachineRunsQuery(machine types.NamespacedName) string {
	return fmt.Sprintf("MachineNamespace=%q AND Machine=%q", machine.Namespace, machine.Name)
}

// PageLine returns a last line for the output of a command: the address of the page of the newest run of an operation's
// workflow. PageLine returns "" if the address of the UI or the operation's workflow is not known. An empty namespace is
// the namespace of the variable TEMPORAL_NAMESPACE, or Millwright's default.
func (u TemporalUI) PageLine(namespace string, operation *v1alpha1.Operation) (string, error) {
	if u == "" || operation == nil || operation.WorkflowID == "" {
		return "", nil
	}
	pages, err := u.Pages(cmp.Or(namespace, os.Getenv("TEMPORAL_NAMESPACE"), run.TemporalNamespace))
	if err != nil {
		return "", err
	}
	return "\npage: " + pages.Run(operation.WorkflowID, "", "") + "\n", nil
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
