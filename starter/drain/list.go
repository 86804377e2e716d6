package drain

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/observe/cache"
	observe "millwright/observe/drain"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
)

func (f *drainCommand) listCommand() *cobra.Command {
	var all, onlyBlocked bool
	var output printers.OutputFormat
	c := &cobra.Command{
		Use:   "list",
		Short: "List the machines that are being deleted, or whose nodes are drained",
		Long: `list shows every machine that is being deleted: its stage, how long it has been in that stage, how its pods are removed (MEANS),
when that ends, and what blocks it. It also shows a machine that stays while its node is drained, with the purpose of the drain.
It reads only Machines, and so does not need Temporal.

--blocked shows only machines that may need a person: a budget, a pod, a hook, a hold or the provider blocks them, or a deadline
has passed without effect.`,
		Example: `  millwright drain list -n shop
  millwright drain list -A --blocked`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if all {
				f.Namespace = metav1.NamespaceAll
			}
			return f.listDrains(c.Context(), c.OutOrStdout(), output, onlyBlocked)
		},
	}
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "machines of all namespaces")
	c.Flags().BoolVar(&onlyBlocked, "blocked", false, "only machines that may need a person")
	kubecli.AddFormerFlag(c.Flags(), &onlyBlocked, "stuck", "blocked")
	output.RegisterFlag(c)
	return c
}

// listRow is one machine of the list, as JSON and YAML show the machine.
type listRow struct {
	Namespace    string    `json:"namespace"`
	Name         string    `json:"name"`
	Node         string    `json:"node,omitempty"`
	Stage        string    `json:"stage"`
	Since        time.Time `json:"since,omitzero"`    // start of the stage
	RemovalMeans string    `json:"means,omitempty"`   // how the drain removes pods
	Deadline     time.Time `json:"deadline,omitzero"` // when Means ends
	BlockedBy    []string  `json:"blockedBy,omitempty"`
}

// listDrains writes the machines that are being deleted or whose nodes are drained.
func (f *drainCommand) listDrains(
	ctx context.Context,
	out io.Writer,
	output printers.OutputFormat,
	onlyBlocked bool,
) error {
	clients, err := f.NewClients(f.ClusterAccess)
	if err != nil {
		return err
	}
	found, err := listMachines(ctx, clients, f.Namespace)
	if err != nil {
		return err
	}
	now := f.Now()
	going := machinesInList(found, onlyBlocked, now)
	slices.SortFunc(going, func(a, b v1alpha1.Machine) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	items := []listRow{}
	l := printers.Listing{
		Table:       [][]any{{"NAMESPACE", "NAME", "NODE", "STAGE", "SINCE", "MEANS", "DEADLINE", "BLOCKED BY"}},
		WideColumns: [][]any{{"WAITS FOR"}},
	}
	if len(going) == 0 {
		none := "no machine is being deleted or drained"
		if onlyBlocked {
			none = "no machine that is being deleted or drained needs a person"
		}
		l.EmptyText = f.EmptyListText(ctx, clients, none, func(ctx context.Context) (int, error) {
			all, err := listMachines(ctx, clients, metav1.NamespaceAll)
			return len(machinesInList(all, onlyBlocked, now)), err
		})
	}
	for i := range going {
		m := &going[i]
		row := listRow{
			m.Namespace,
			m.Name,
			cache.NodeNameOfMachine(m),
			stageText(m),
			deletionStageStart(m),
			string(observe.CurrentRemovalMeans(m)),
			observe.DeadlineFacts(m, now).NextDeadline(),
			blockers(m),
		}
		items, l.Names = append(items, row), append(l.Names, kubectlResource(m)+"/"+kubecli.KeyOfObject(m))
		l.Table = append(l.Table, []any{
			row.Namespace, row.Name, row.Node, row.Stage, kubecli.AgeText(row.Since, now), row.RemovalMeans,
			kubecli.ClockText(row.Deadline, now), strings.Join(row.BlockedBy, ", "),
		})
		waits := ""
		if o := m.Status.CurrentOperation; o != nil {
			waits = o.WaitsFor
		}
		l.WideColumns = append(l.WideColumns, []any{waits})
	}
	l.Items = items
	return output.Write(out, l)
}

// machinesInList returns the machines that are being deleted or whose nodes are drained, and that may need a person if
// onlyBlocked is true.
func machinesInList(found []v1alpha1.Machine, onlyBlocked bool, now time.Time) []v1alpha1.Machine {
	return list.Filter(found, func(m v1alpha1.Machine) bool {
		return (m.DeletionTimestamp != nil || isDrainedWithoutDeletion(&m)) && (!onlyBlocked || needsManualAction(&m, now))
	})
}

// stageText returns the stage for the table. A mark shows that the drain is queued, or that the machine is not being
// deleted.
func stageText(m *v1alpha1.Machine) string {
	switch {
	case isQueued(m):
		return string(deletionStage(m)) + " (queued)"
	case isDrainedWithoutDeletion(m):
		return fmt.Sprintf("%s (%s)", v1alpha1.MachineDeletionDrain, drainPurpose(m))
	default:
		return string(deletionStage(m))
	}
}
