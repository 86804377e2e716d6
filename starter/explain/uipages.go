package explain

import (
	"cmp"
	"fmt"
	"net/url"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
)

// RegisterUIAddressFlag adds the flag --ui-address, the URL of Temporal's UI, to a set of flags.
func RegisterUIAddressFlag(flags *pflag.FlagSet, address *string) {
	flags.StringVar(
		address,
		"ui-address",
		cmp.Or(os.Getenv("TEMPORAL_UI_ADDRESS"), "http://127.0.0.1:8233"),
		"URL of Temporal's UI",
	)
}

// UIPages has the addresses of the pages of Temporal's UI for the workflows of one Temporal namespace.
type UIPages struct{ workflows *url.URL }

// NewUIPages returns the pages of the UI at an address. The error names the flag --ui-address.
func NewUIPages(address, namespace string) (UIPages, error) {
	page, err := url.Parse(address)
	if err != nil || page.Host == "" || page.Scheme != "http" && page.Scheme != "https" {
		return UIPages{}, fmt.Errorf("--ui-address %q is no URL", address)
	}
	return UIPages{page.JoinPath("namespaces", namespace, "workflows")}, nil
}

// List returns the address of the list of the workflows that a query finds; an empty query finds all workflows.
func (u UIPages) List(query string) string {
	page := *u.workflows
	if query != "" {
		page.RawQuery = url.Values{"query": {query}}.Encode()
	}
	return page.String()
}

// Workflow returns the address of the newest run of a workflow.
func (u UIPages) Workflow(id string) string { return u.workflows.JoinPath(url.PathEscape(id)).String() }

// RunTimeline returns the address of the timeline of one run of a workflow.
func (u UIPages) RunTimeline(id, run string) string {
	return u.workflows.JoinPath(url.PathEscape(id), url.PathEscape(run), "timeline").String()
}

// RunDetails returns the address of the tab User Metadata of one run of a workflow, which has the sentence of explain.
func (u UIPages) RunDetails(id, run string) string {
	return u.workflows.JoinPath(url.PathEscape(id), url.PathEscape(run), "user-metadata").String()
}

// MachineRunsQuery returns the query for all workflows of a machine, also of a machine that is gone.
func MachineRunsQuery(machine types.NamespacedName) string {
	return fmt.Sprintf("MachineNamespace=%q AND Machine=%q", machine.Namespace, machine.Name)
}
