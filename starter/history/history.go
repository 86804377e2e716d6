// Package history has the command that lists the workflow runs of a machine, also of a machine that is gone.
package history

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"k8s.io/apimachinery/pkg/types"

	"millwright/decide/phrase"
	"millwright/decide/request"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
	"millwright/workflows/run"
)

// temporalTimeout is how long the command waits for Temporal.
const temporalTimeout = 10 * time.Second

// Limits of one answer of Temporal.
const (
	defaultLimit = 50
	maxLimit     = 1000 // Source: Temporal's frontend.visibilityMaxPageSize
)

// historyCommand is the command `millwright history` with its flags.
type historyCommand struct {
	kubecli.ObjectFlags
	temporalFlags kubecli.TemporalFlags
	ui            kubecli.TemporalUI
	clusterName   string
	limit         int
	token         string // where the list continues, as the command printed it; empty: the newest run
	output        printers.OutputFormat
}

// Command returns the command history.
func Command(e kubecli.Environment) *cobra.Command {
	x := &historyCommand{ObjectFlags: kubecli.ObjectFlags{Environment: e, Kind: request.KindMachine}}
	c := &cobra.Command{
		Use:   "history MACHINE",
		Short: "List the workflow runs of a machine, also of one that is gone",
		Long: `history lists the workflow runs of a machine and of its drains that Temporal still has, the newest first: the kind, the start, the duration, how
the run ended or what it does, and the page of Temporal's UI that shows it (the tab with the sentence). Temporal keeps closed runs for the
retention time of its namespace, 7 days by default.

The machine need not exist. At most --limit runs are listed; if there are older ones, the last line is the command that lists them. In JSON and
YAML, the field "continue" has the value for --continue.`,
		Example: `  millwright history shop/web-7f9c4-x2b8q
  millwright history mc web-7f9c4-x2b8q -n shop -o json`,
		Args:              kubecli.ObjectArgs,
		ValidArgsFunction: x.CompleteName,
		RunE:              func(c *cobra.Command, args []string) error { return x.run(c, args) },
	}
	x.RegisterFlags(c)
	c.PersistentPreRunE = nil // NAMESPACE/NAME needs no kubeconfig
	x.temporalFlags.RegisterFlags(c)
	x.ui.RegisterFlag(c, kubecli.LocalTemporalUI)
	kubecli.RegisterClusterName(c.Flags(), &x.clusterName)
	x.output.RegisterFlag(c)
	c.Flags().IntVar(&x.limit, "limit", defaultLimit, "maximum number of runs")
	c.Flags().
		StringVar(&x.token, "continue", "", "go on after the last run of an earlier list; the value is in its last line")
	return c
}

// Run is one workflow run, as JSON and YAML show it. Unknown and empty fields are omitted.
type Run struct {
	Kind       string    `json:"kind"` // kind of the workflow, such as Machine or Drain
	WorkflowID string    `json:"workflow"`
	RunID      string    `json:"run"`
	Start      time.Time `json:"start,omitzero"`
	End        time.Time `json:"end,omitzero"` // zero: the run is open
	Outcome    string    `json:"outcome"`      // status of the run in Temporal, such as Running, Completed or Failed
	Phase      string    `json:"phase,omitempty"`
	Step       string    `json:"step,omitempty"` // the last step
	BlockedBy  []string  `json:"blockedBy,omitempty"`
	Page       string    `json:"page"` // address of the page in Temporal's UI
}

func (x *historyCommand) run(c *cobra.Command, args []string) error {
	ctx, cancel := context.WithTimeout(c.Context(), temporalTimeout)
	defer cancel()
	token, err := x.decodeToken()
	if err != nil {
		return err
	}
	if err := x.ResolveNamespace(); err != nil && !strings.Contains(args[len(args)-1], "/") {
		return err
	}
	key, err := x.ParseKey(c, args)
	if err != nil {
		return err
	}
	pages, err := x.ui.Pages(x.temporalFlags.Namespace)
	if err != nil {
		return err
	}
	temporal, err := x.DialTemporal(x.temporalFlags)
	if err != nil {
		return err
	}
	defer temporal.Close()
	clients, clientsErr := x.NewClients(x.ClusterAccess)
	installation := run.Installation(x.clusterName)
	if installation == "" && clientsErr == nil {
		installation = clients.FindInstallation(ctx)
	}
	answer, err := listRuns(ctx, temporal, x.temporalFlags.Namespace, queryOfMachine(key, installation), x.limit, token)
	if err != nil {
		return fmt.Errorf("list the runs in Temporal at %s: %s", x.temporalFlags.Address, kubecli.CollapseSpaces(err.Error()))
	}
	if len(answer.GetExecutions()) == 0 && x.token == "" && clientsErr == nil {
		if err := explainAbsence(ctx, clients, temporal, x.temporalFlags.Namespace, key); err != nil {
			return err
		}
	}
	page := runList{Items: runsOfAnswer(answer, pages)}
	page.Continue = base64.RawURLEncoding.EncodeToString(answer.GetNextPageToken())
	return x.write(c.OutOrStdout(), key, page)
}

func listRuns(
	ctx context.Context,
	temporal client.Client,
	namespace, query string,
	limit int,
	token []byte,
) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	return temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: namespace, PageSize: int32(limit), NextPageToken: token, Query: query,
	})
}

// ReadRuns reads at most limit runs of a machine and of its drains from a Temporal namespace, the newest first. hasOlder
// reports whether Temporal has older runs. An empty installation means all installations in the namespace.
func ReadRuns(
	ctx context.Context,
	temporal client.Client,
	namespace string,
	machine types.NamespacedName,
	of run.Installation,
	limit int,
	pages kubecli.UIPages,
) (runs []Run, hasOlder bool, err error) {
	answer, err := listRuns(ctx, temporal, namespace, queryOfMachine(machine, of), limit, nil)
	return runsOfAnswer(answer, pages), len(answer.GetNextPageToken()) > 0, err
}

// decodeToken returns Temporal's token of the flag --continue, and checks the flag --limit.
func (x *historyCommand) decodeToken() ([]byte, error) {
	token, err := base64.RawURLEncoding.DecodeString(x.token)
	switch {
	case err != nil:
		return nil, fmt.Errorf("--continue: this is not the value of a last line: %w", err)
	case x.limit < 1 || x.limit > maxLimit:
		return nil, fmt.Errorf("--limit %d is not between 1 and %d", x.limit, maxLimit)
	default:
		return token, nil
	}
}

// queryOfMachine returns Temporal's query for the runs of a machine. If the installation is not known, the query finds
// the machines of this name of all installations that share the namespace of Temporal.
func queryOfMachine(key types.NamespacedName, of run.Installation) string {
	query := kubecli.MachineRunsQuery(key)
	if of != "" {
		query += fmt.Sprintf(" AND WorkflowId STARTS_WITH %q", string(of)+"/")
	}
	return query
}

// explainAbsence returns an error that says why Temporal has no run of a machine; nil if the machine exists or may
// exist, because a machine at rest has no open run.
func explainAbsence(
	ctx context.Context,
	clients kubecli.Clients,
	temporal client.Client,
	namespace string,
	key types.NamespacedName,
) error {
	exists, err := clients.MachineExists(ctx, key)
	if err != nil || exists { // without the right to read machines, nothing is known
		return nil //nolint:nilerr // the list itself has worked
	}
	text := fmt.Sprintf("there is no machine %s, and Temporal has no run of one", key)
	described, err := temporal.WorkflowService().
		DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	if kept := described.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration(); err == nil && kept > 0 {
		text += fmt.Sprintf("; it keeps closed runs for %s", phrase.DurationText(kept))
	}
	kinds := []request.Kind{request.KindMachine, kubecli.KindClusterAPIMachine}
	return fmt.Errorf("%s%s", text, clients.SimilarNameHint(ctx, kinds, key))
}

// runList is the list in JSON and YAML.
type runList struct {
	Items    []Run  `json:"items"`
	Continue string `json:"continue,omitempty"` // value of --continue for older runs; empty: there are none
}

// runsOfAnswer returns the runs in an answer of Temporal, the newest first.
func runsOfAnswer(answer *workflowservice.ListWorkflowExecutionsResponse, pages kubecli.UIPages) []Run {
	runs := []Run{}
	for _, info := range answer.GetExecutions() {
		runs = append(runs, newRun(info, pages))
	}
	// Temporal sorts open runs before closed ones, and those by their end
	slices.SortStableFunc(runs, func(a, b Run) int { return b.Start.Compare(a.Start) })
	return runs
}

func newRun(info *workflowpb.WorkflowExecutionInfo, pages kubecli.UIPages) Run {
	id, runID := info.GetExecution().GetWorkflowId(), info.GetExecution().GetRunId()
	r := Run{
		Kind:       info.GetType().GetName(),
		WorkflowID: id,
		RunID:      runID,
		Outcome:    info.GetStatus().String(),
		Page:       pages.Run(id, runID, kubecli.TabUserMetadata),
	}
	if at := info.GetStartTime(); at != nil {
		r.Start = at.AsTime()
	}
	if at := info.GetCloseTime(); at != nil {
		r.End = at.AsTime()
	}
	a := attributes(info.GetSearchAttributes().GetIndexedFields())
	r.Phase, r.Step = a.keyword("Phase"), a.keyword("Step")
	r.BlockedBy = a.keywords("BlockedBy")
	if outcome := a.keyword("Outcome"); outcome != "" { // of a rollout
		r.Outcome = outcome
	}
	return r
}

// Text returns the outcome of the run in a few words.
func (r Run) Text() string {
	var parts []string
	if r.Phase != "" {
		parts = append(parts, "phase "+r.Phase)
	}
	if r.Step != "" && r.End.IsZero() {
		parts = append(parts, "step "+r.Step)
	}
	if len(r.BlockedBy) > 0 && r.End.IsZero() {
		parts = append(parts, "blocked by "+strings.Join(r.BlockedBy, ", "))
	}
	if len(parts) == 0 {
		return r.Outcome
	}
	return r.Outcome + ": " + strings.Join(parts, ", ")
}

// write writes the list in the format of the flag.
func (x *historyCommand) write(out io.Writer, key types.NamespacedName, page runList) error {
	if x.output == printers.OutputJSON || x.output == printers.OutputYAML {
		return x.output.Encode(out, page)
	}
	now := x.Now()
	l := printers.Listing{
		Items:       page.Items,
		Table:       [][]any{{"KIND", "STARTED", "DURATION", "OUTCOME", "PAGE"}},
		WideColumns: [][]any{{"WORKFLOW", "RUN"}},
		EmptyText: fmt.Sprintf(
			"Temporal has no run of machine %s: it is at rest, and its closed runs are not kept any more",
			key,
		),
	}
	if x.token != "" {
		l.EmptyText = "there are no older runs"
	}
	for _, r := range page.Items {
		end := r.End
		if end.IsZero() {
			end = now
		}
		l.Names = append(l.Names, r.WorkflowID)
		l.Table = append(l.Table, []any{
			r.Kind, kubecli.ClockText(r.Start, now), kubecli.AgeText(r.Start, end), r.Text(), r.Page,
		})
		l.WideColumns = append(l.WideColumns, []any{r.WorkflowID, r.RunID})
	}
	if err := x.output.Write(out, l); err != nil || page.Continue == "" || x.output == printers.OutputName {
		return err
	}
	_, err := fmt.Fprintf(out, "Older runs: millwright history %s --limit %d --continue %s\n", key, x.limit, page.Continue)
	return err
}
