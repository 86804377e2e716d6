// Package fleet has the commands about an installation for many clusters: the namespaces with their target clusters and
// shards.
package fleet

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/observe/shard"
	"millwright/observe/target"
	"millwright/process/claims"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
	"millwright/workflows/run"
)

// fleetCommand is the command `millwright fleet` with the flags of its subcommands.
type fleetCommand struct {
	kubecli.Environment
	access      kubecli.ClusterAccess
	clusterName string
}

// Command returns the command fleet.
func Command(e kubecli.Environment) *cobra.Command {
	f := &fleetCommand{Environment: e}
	c := &cobra.Command{
		Use:   "fleet",
		Short: "Show namespaces, target clusters and shards; move a namespace",
		Example: `  millwright fleet list
  millwright fleet move shop --shard 2`,
	}
	f.access.RegisterFlags(c)
	kubecli.RegisterClusterName(c.PersistentFlags(), &f.clusterName)
	c.AddCommand(f.listCommand(), f.moveCommand())
	return c
}

func (f *fleetCommand) listCommand() *cobra.Command {
	var output printers.OutputFormat
	c := &cobra.Command{
		Use:   "list",
		Short: "List the namespaces: state of the target cluster, machines, machines in motion and blocked, shard and worker",
		Long: `list shows each namespace with Machines, with a target cluster or with a shard. Namespaces whose target cluster is not connected, and
namespaces that nobody serves, come first; then those with blocked machines. STATE is Served or Unserved: an unserved namespace has no
shard, or its shard has no live worker or no live bridge, and -o wide shows which; STATE is empty if the installation has one shard or
you may not list Leases. TARGET is the state that the worker reports: Ready, Connecting, Missing (no usable kubeconfig), Held (the guard
of the autoscaler is scaled to 0) or Unavailable (the API server does not answer); "shared" means the target cluster of all
namespaces. BLOCKED is the number of machines that wait for something that only a person or a deadline ends. OLDEST is the time that the
oldest operation has taken.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.listNamespaces(c.Context(), c.OutOrStdout(), output)
		},
	}
	output.RegisterFlag(c)
	return c
}

// row is one namespace of the list, as JSON and YAML show the namespace.
type row struct {
	Namespace    string            `json:"namespace"`
	State        string            `json:"state,omitempty"`       // Served or Unserved; empty: not known, or one shard
	Target       cache.TargetState `json:"target,omitempty"`      // state of the target cluster; empty: the namespaces share a target
	Why          string            `json:"why,omitempty"`         // why the target is not Ready
	Since        *metav1.Time      `json:"since,omitempty"`       // start of the target's state
	MachineCount int               `json:"machines"`              // number of Machines
	ActiveCount  int               `json:"inMotion"`              // number of Machines with an operation
	BlockedCount int               `json:"blocked"`               // number of Machines whose operation is blocked
	OldestSince  *metav1.Time      `json:"oldestSince,omitempty"` // start of the oldest operation
	ShardNumber  *int              `json:"shard,omitempty"`       // number of the shard; absent: the namespace has no shard yet
	Worker       string            `json:"worker,omitempty"`      // worker that serves the namespace; empty: none, or not known

	UnservedReason claims.UnservedReason `json:"unserved,omitempty"` // why the namespace is unserved; empty: it is served, or not known
	hasObjects     bool                  // the namespace has Machines, MachineSets or MachineDeployments
}

// States of a namespace in an installation with several shards.
const (
	stateServed   = "Served"
	stateUnserved = "Unserved"
)

// isUnhealthy reports whether the target is not connected or nobody serves the namespace.
func (r row) isUnhealthy() bool {
	return r.Target != "" && r.Target != cache.TargetReady && r.Target != cache.TargetHeld || r.State == stateUnserved
}

// reasonText says why the namespace is unserved, and why its target is not Ready.
func (r row) reasonText() string {
	var reasons []string
	switch r.UnservedReason {
	case claims.ReasonNoShard:
		reasons = append(reasons, "the namespace has no shard")
	case claims.ReasonNoWorker:
		reasons = append(reasons, fmt.Sprintf("no live worker serves shard %d", *r.ShardNumber))
	case claims.ReasonNoBridge:
		reasons = append(reasons, fmt.Sprintf("no live bridge serves shard %d", *r.ShardNumber))
	case claims.ReasonNone:
	}
	if r.Why != "" {
		reasons = append(reasons, r.Why)
	}
	return strings.Join(reasons, "; ")
}

func (f *fleetCommand) listNamespaces(ctx context.Context, out io.Writer, output printers.OutputFormat) error {
	clients, err := f.NewClients(f.access)
	if err != nil {
		return err
	}
	rows, err := f.readRows(ctx, clients)
	if err != nil {
		return err
	}
	now := f.Now()
	l := printers.Listing{
		Items: rows,
		Table: [][]any{{
			"NAMESPACE", "STATE", "TARGET", "SINCE", "MACHINES", "IN MOTION", "BLOCKED", "OLDEST", "SHARD", "WORKER",
		}},
		WideColumns: [][]any{{"WHY"}},
		EmptyText:   "there is no namespace with Machines, MachineSets or MachineDeployments",
	}
	for _, r := range rows {
		number := ""
		if r.ShardNumber != nil {
			number = strconv.Itoa(*r.ShardNumber)
		}
		l.Names = append(l.Names, "namespace/"+r.Namespace)
		l.Table = append(l.Table, []any{
			r.Namespace,
			printers.NewStateWord(r.State),
			printers.NewStateWord(cmp.Or(string(r.Target), "shared")),
			ageText(r.Since, now),
			r.MachineCount,
			r.ActiveCount,
			r.BlockedCount,
			ageText(r.OldestSince, now),
			number,
			r.Worker,
		})
		l.WideColumns = append(l.WideColumns, []any{r.reasonText()})
	}
	return output.Write(out, l)
}

func ageText(since *metav1.Time, now time.Time) string {
	if since == nil {
		return ""
	}
	return kubecli.AgeText(since.Time, now)
}

// readRows returns the namespaces in the order of the list.
func (f *fleetCommand) readRows(ctx context.Context, clients kubecli.Clients) ([]row, error) {
	installation := cmp.Or(run.Installation(f.clusterName), clients.FindInstallation(ctx))
	shards, err := clients.ReadShards(ctx, installation)
	if err != nil {
		return nil, err //nolint:wrapcheck // the error names the record
	}
	machines, err := clients.MachineClient.MachineV1alpha1().Machines(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list Machines: %w", err)
	}
	t := table{}
	for number := range shards.Count {
		for _, namespace := range shards.Table.NamespacesOfShard(number) {
			t.getOrAddRow(namespace)
		}
	}
	for i := range machines.Items {
		t.addMachine(&machines.Items[i])
	}
	if err := t.addOwnerNamespaces(ctx, clients); err != nil {
		return nil, err
	}
	if err := t.addTargetStates(ctx, clients, f.Now()); err != nil {
		return nil, err
	}
	if err := t.addShards(ctx, clients, shards, f.Now()); err != nil {
		return nil, err
	}
	return t.sortedRows(), nil
}

// table contains a row for each namespace.
type table map[string]*row

func (t table) getOrAddRow(namespace string) *row {
	if t[namespace] == nil {
		t[namespace] = &row{Namespace: namespace}
	}
	return t[namespace]
}

func (t table) addMachine(m *v1alpha1.Machine) {
	r := t.getOrAddRow(m.Namespace)
	r.hasObjects = true
	r.MachineCount++
	operation := m.Status.CurrentOperation
	if operation == nil {
		return
	}
	r.ActiveCount++
	if len(operation.BlockedBy) > 0 {
		r.BlockedCount++
	}
	if since := operation.Since; r.OldestSince == nil || since.Before(r.OldestSince) {
		r.OldestSince = &since
	}
}

// addOwnerNamespaces adds the namespaces with MachineSets and MachineDeployments: a namespace that nobody serves may
// have no Machine.
func (t table) addOwnerNamespaces(ctx context.Context, clients kubecli.Clients) error {
	sets, err := clients.MachineClient.MachineV1alpha1().MachineSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list MachineSets: %w", err)
	}
	for i := range sets.Items {
		t.getOrAddRow(sets.Items[i].Namespace).hasObjects = true
	}
	deployments, err := clients.MachineClient.MachineV1alpha1().
		MachineDeployments(metav1.NamespaceAll).
		List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list MachineDeployments: %w", err)
	}
	for i := range deployments.Items {
		t.getOrAddRow(deployments.Items[i].Namespace).hasObjects = true
	}
	return nil
}

// addTargetStates adds the states of the target clusters from the reports of the workers.
func (t table) addTargetStates(ctx context.Context, clients kubecli.Clients, now time.Time) error {
	reports, err := ReadTargetReports(ctx, clients, now)
	if err != nil {
		return err
	}
	for _, report := range reports {
		r := t.getOrAddRow(report.Namespace)
		r.Target, r.Why, r.Worker = report.State, report.Why, report.Worker
		if !report.Since.IsZero() {
			r.Since = &metav1.Time{Time: report.Since}
		}
	}
	return nil
}

// ReadTargetReports reads the newest report about the target cluster of each namespace, by namespace. The map is empty if
// all namespaces have the same target cluster, or if no worker has run.
func ReadTargetReports(ctx context.Context, clients kubecli.Clients, now time.Time) (map[string]target.Report, error) {
	newest := map[string]target.Report{}
	namespace, found := clients.FindLeaseNamespace(ctx)
	if !found {
		return newest, nil
	}
	reports, err := clients.Core.ConfigMaps(namespace).Get(ctx, target.ReportsConfigMapName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return newest, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the states of the target clusters: %w", err)
	}
	for _, report := range target.ReadReports(reports, now) {
		if was, known := newest[report.Namespace]; !known || !report.WrittenAt.Before(was.WrittenAt) {
			newest[report.Namespace] = report
		}
	}
	return newest, nil
}

// addShards adds the shard of each namespace, the worker that serves the shard, and whether the namespace is served.
func (t table) addShards(ctx context.Context, clients kubecli.Clients, shards kubecli.Shards, now time.Time) error {
	if shards.Namespace == "" { // one shard
		for _, r := range t {
			r.ShardNumber = new(int)
		}
		return nil
	}
	workers, mayList, err := readHolders(ctx, clients, shards.Namespace, claims.RoleWorker, now)
	if err != nil {
		return err
	}
	bridges, _, err := readHolders(ctx, clients, shards.Namespace, claims.RoleBridge, now)
	if err != nil {
		return err
	}
	for namespace, r := range t {
		number, recorded := shards.Table.ShardOfNamespace(namespace)
		if recorded {
			r.ShardNumber = &number
		}
		switch {
		case !recorded && !r.hasObjects: // for example, the last object was deleted
			continue
		case recorded && !mayList: // the worker is the one that reported the target
			continue
		}
		if r.State = stateServed; recorded {
			r.Worker = workers[number]
		}
		if r.UnservedReason = claims.DecideUnservedReason(
			number,
			recorded,
			workers,
			bridges,
		); r.UnservedReason != claims.ReasonNone {
			r.State = stateUnserved
		}
	}
	return nil
}

// ReadUnservedReasons returns why nobody serves a namespace, for each of these namespaces that nobody serves. The map is
// empty if the installation has one shard, or if the user may not list Leases.
func ReadUnservedReasons(
	ctx context.Context,
	clients kubecli.Clients,
	namespaces []string,
	now time.Time,
) (map[string]string, error) {
	shards, err := clients.ReadShards(ctx, clients.FindInstallation(ctx))
	if err != nil || shards.Namespace == "" {
		return nil, err //nolint:wrapcheck // the error names the record
	}
	t := table{}
	for _, namespace := range namespaces {
		t.getOrAddRow(namespace).hasObjects = true
	}
	if err := t.addShards(ctx, clients, shards, now); err != nil {
		return nil, err
	}
	reasons := map[string]string{}
	for namespace, r := range t {
		if r.State == stateUnserved {
			reasons[namespace] = r.reasonText()
		}
	}
	return reasons, nil
}

// readHolders returns the live processes of a role that serve the shards. mayList is false if the user may not list
// Leases.
func readHolders(
	ctx context.Context,
	clients kubecli.Clients,
	namespace, role string,
	now time.Time,
) (holders map[int]string, mayList bool, err error) {
	holders, err = claims.ReadHolders(ctx, clients.Leases.Leases(namespace), role, now)
	if apierrors.IsForbidden(err) {
		return nil, false, nil
	}
	return holders, true, err
}

// sortedRows returns the rows: unwell namespaces first, then those with the most blocked machines, then by name.
func (t table) sortedRows() []row {
	rows := make([]row, 0, len(t))
	for _, r := range t {
		rows = append(rows, *r)
	}
	rank := func(r row) int {
		if r.isUnhealthy() {
			return 0
		}
		return 1
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(
			cmp.Compare(rank(a), rank(b)), cmp.Compare(b.BlockedCount, a.BlockedCount), cmp.Compare(a.Namespace, b.Namespace),
		)
	})
	return rows
}

func (f *fleetCommand) moveCommand() *cobra.Command {
	number := -1
	c := &cobra.Command{
		Use:   "move NAMESPACE --shard N",
		Short: "Move a namespace to another shard",
		Long: `move records another shard for a namespace. New runs of the namespace's objects use the task queues of the new shard. Open runs keep
their task queues until they end or continue as new.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return f.moveNamespace(c.Context(), c.OutOrStdout(), args[0], number)
		},
	}
	c.Flags().IntVar(&number, "shard", number, "number of the new shard")
	_ = c.MarkFlagRequired("shard") // an error is possible only for a flag that does not exist
	return c
}

func (f *fleetCommand) moveNamespace(ctx context.Context, out io.Writer, namespace string, number int) error {
	clients, err := f.NewClients(f.access)
	if err != nil {
		return err
	}
	installation := cmp.Or(run.Installation(f.clusterName), clients.FindInstallation(ctx))
	shards, err := clients.ReadShards(ctx, installation)
	if err != nil {
		return err //nolint:wrapcheck // the error names the record
	}
	before, recorded := shards.Table.ShardOfNamespace(namespace)
	switch {
	case shards.Namespace == "":
		return fmt.Errorf("installation %s has one shard: there is no other shard", installation)
	case number < 0 || number >= shards.Count:
		return fmt.Errorf("--shard=%d: installation %s has the shards 0 to %d", number, installation, shards.Count-1)
	case !recorded:
		return fmt.Errorf("namespace %s has no shard: it has no object of Millwright", namespace)
	case before == number:
		_, err := fmt.Fprintf(out, "namespace %s belongs to shard %d already\n", namespace, number)
		return err
	}
	_, err = clients.Core.ConfigMaps(shards.Namespace).Patch(
		ctx, shard.RecordName, types.JSONPatchType, shard.MovePatch(namespace, before, number),
		metav1.PatchOptions{FieldManager: "millwright"},
	)
	if err != nil {
		return fmt.Errorf("move namespace %s: %w", namespace, err)
	}
	_, err = fmt.Fprintf(
		out, "namespace %s moved from shard %d to shard %d; open runs keep their task queues\n", namespace, before, number,
	)
	return err
}
