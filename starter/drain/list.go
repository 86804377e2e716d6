package drain

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/phrase"
	"millwright/observe/drain"
	"millwright/starter/kubecli"
)

func (f *drains) listCommand() *cobra.Command {
	var all, onlyStuck bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the machines that are being deleted, or whose nodes are emptied",
		Long: `list shows every machine that is being deleted: its stage and since when, by which means its pods are made to go, when the
next, harder step comes, and what blocks it. A machine that stays is shown while its node is emptied, with what that is for in
the place of the stage. It reads Machines and nothing else, so it also works when Temporal does not.

--stuck shows those that somebody should look at: a budget, a pod, a hook, a hold or the provider keeps them, or a deadline
has passed and nothing followed.`,
		Example: `  starter drain list -n shop
  starter drain list -A --stuck`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			namespace := f.namespace
			if all {
				namespace = metav1.NamespaceAll
			}
			return f.list(c.Context(), c.OutOrStdout(), namespace, onlyStuck)
		},
	}
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "machines of all namespaces")
	c.Flags().BoolVar(&onlyStuck, "stuck", false, "only those that somebody should look at")
	return c
}

// list writes the table of machines that are being deleted or whose nodes are drained.
func (f *drains) list(ctx context.Context, out io.Writer, namespace string, onlyStuck bool) error {
	machines, err := f.Machines(f.kubeconfig)
	if err != nil {
		return err
	}
	found, err := machines.MachineV1alpha1().Machines(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	now := f.Now()
	going := slices.DeleteFunc(found.Items, func(m v1alpha1.Machine) bool {
		return m.DeletionTimestamp == nil && !staying(&m) || onlyStuck && !stuck(&m, now)
	})
	if len(going) == 0 {
		_, err := fmt.Fprintln(out, nobody(onlyStuck))
		return err
	}
	slices.SortFunc(going, func(a, b v1alpha1.Machine) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	columns := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(columns, "NAMESPACE\tNAME\tNODE\tSTAGE\tSINCE\tMEANS\tDEADLINE\tBLOCKED BY")
	for i := range going {
		m, until := &going[i], ""
		if at := drain.Deadlines(m, now).Next(); !at.IsZero() {
			until = phrase.Clock(at, now)
		}
		_, _ = fmt.Fprintf(columns, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Namespace, m.Name, kubecli.OrDash(m.Labels[v1alpha1.LabelNode]), kubecli.OrDash(stageWord(m)),
			kubecli.Age(stageSince(m), now), kubecli.OrDash(string(drain.Means(m))), kubecli.OrDash(until), kubecli.OrDash(strings.Join(blockers(m), ", ")))
	}
	return columns.Flush()
}

func nobody(onlyStuck bool) string {
	if onlyStuck {
		return "no machine that is being deleted or emptied needs a look"
	}
	return "no machine is being deleted, and none is being emptied"
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
