package drain

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	observe "millwright/observe/drain"
	"millwright/starter/kubecli"
)

func (f *drains) listCommand() *cobra.Command {
	var all, onlyStuck bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the machines that are being deleted, or whose nodes are drained",
		Long: `list shows every machine that is being deleted: its stage and since when, the means by which its pods are removed, the deadline
of that means, and what blocks it. It also shows a machine that stays while its node is drained, with the purpose of the drain.
It reads only Machines, and so does not need Temporal.

--stuck shows only machines that may need a person: a budget, a pod, a hook, a hold or the provider blocks them, or a deadline
has passed without effect.`,
		Example: `  starter drain list -n shop
  starter drain list -A --stuck`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if all {
				f.Namespace = metav1.NamespaceAll
			}
			return f.list(c.Context(), c.OutOrStdout(), onlyStuck)
		},
	}
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "machines of all namespaces")
	c.Flags().BoolVar(&onlyStuck, "stuck", false, "only machines that may need a person")
	return c
}

// list writes the table of machines that are being deleted or whose nodes are drained.
func (f *drains) list(ctx context.Context, out io.Writer, onlyStuck bool) error {
	clients, err := f.Clients(f.Kubeconfig)
	if err != nil {
		return err
	}
	found, err := clients.Machines.MachineV1alpha1().Machines(f.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	now := f.Now()
	going := slices.DeleteFunc(found.Items, func(m v1alpha1.Machine) bool {
		return m.DeletionTimestamp == nil && !staying(&m) || onlyStuck && !stuck(&m, now)
	})
	if len(going) == 0 {
		text := "no machine is being deleted or drained"
		if onlyStuck {
			text = "no machine that is being deleted or drained needs a person"
		}
		_, err := fmt.Fprintln(out, text)
		return err
	}
	slices.SortFunc(going, func(a, b v1alpha1.Machine) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	rows := [][]any{{"NAMESPACE", "NAME", "NODE", "STAGE", "SINCE", "MEANS", "DEADLINE", "BLOCKED BY"}}
	for i := range going {
		m := &going[i]
		rows = append(rows, []any{
			m.Namespace, m.Name, cache.NodeNameOf(m), stageWord(m), kubecli.Age(stageSince(m), now), observe.Means(m),
			kubecli.Clock(observe.Deadlines(m, now).Next(), now), strings.Join(blockers(m), ", "),
		})
	}
	return kubecli.WriteTable(out, rows)
}

// stageWord is the stage in the table. It distinguishes a drain that is queued, and that of a machine that stays, from others.
func stageWord(m *v1alpha1.Machine) string {
	switch {
	case queued(m):
		return string(stage(m)) + " (queued)"
	case staying(m):
		return fmt.Sprintf("%s (%s)", v1alpha1.MachineDeletionDrain, goal(m))
	default:
		return string(stage(m))
	}
}
