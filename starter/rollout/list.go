package rollout

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	capideployment "millwright/observe/capi/deployment"
	"millwright/observe/deployment"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
)

func (f *rolloutCommand) listCommand() *cobra.Command {
	var all, withComplete bool
	var output printers.OutputFormat
	c := &cobra.Command{
		Use:   "list",
		Short: "List the deployments whose rollout is in motion or stands still",
		Long: `list shows one line for each deployment whose rollout is not complete, or whose machines are kept on a former revision; with --all it shows
all deployments. DONE is how many machines have the template (or the revision on which they are kept), STEP the active step of the
RolloutPolicy, and SINCE how long the rollout has been in its state.

STATE is Progressing, Blocked, or Late (the progress deadline has passed); WaitsForApproval or WaitsForTime at a step; WaitsForTurn; Paused or Held by a person; RolledBack by a policy or Pinned by a person; Undoing, Complete, Invalid or Deleting. list reads the API
server alone and decides as the workers do.`,
		Example: `  millwright rollout list -A
  millwright rollout list -n shop --all -o wide`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if all {
				f.Namespace = metav1.NamespaceAll
			}
			return f.listRollouts(c.Context(), c.OutOrStdout(), output, withComplete)
		},
	}
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "deployments of all namespaces")
	c.Flags().BoolVar(&withComplete, "all", false, "also deployments whose rollout is complete")
	output.RegisterFlag(c)
	return c
}

// listRow is one deployment of the list, as JSON and YAML show the deployment.
type listRow struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Revision  int64     `json:"revision,omitempty"`
	Done      int       `json:"done"` // machines that have the template, or the revision on which they are kept
	Desired   int       `json:"desired"`
	Step      int       `json:"step,omitempty"` // number of the active step, from 1; 0: no step is active
	StepCount int       `json:"steps,omitempty"`
	State     stateWord `json:"state"`
	Since     time.Time `json:"since,omitzero"`
	Strategy  string    `json:"strategy"`
	Sentence  string    `json:"sentence"`
	BlockedBy []string  `json:"blockedBy,omitempty"`
}

// row returns the line of the list about a rollout.
func (s snapshot) row() listRow {
	word, since := s.state()
	r := listRow{
		Kind: s.tree.kind, Namespace: s.tree.object.GetNamespace(), Name: s.tree.object.GetName(),
		Revision: s.decision.Revision, Done: s.countUpdatedMachines(), Desired: s.facts.Replicas,
		State: word, Since: since, Strategy: s.tree.strategy, Sentence: s.sentenceWithoutName(s.formatTimeWithDate),
	}
	if s.decision.Pin != nil {
		r.Done = s.countPinnedMachines()
	}
	if step := s.stepAnswer(); step != nil {
		r.Step, r.StepCount = step.Number, step.Of
	}
	if o := s.tree.operation; o != nil {
		r.BlockedBy = o.BlockedBy
	}
	return r
}

// isShown reports whether the list has the rollout without --all.
func (r listRow) isShown() bool { return r.State != stateComplete }

func (r listRow) stepCell() string {
	if r.Step == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", r.Step, r.StepCount)
}

// listRollouts writes the rollouts of the namespace of the flag.
func (f *rolloutCommand) listRollouts(
	ctx context.Context,
	out io.Writer,
	output printers.OutputFormat,
	withComplete bool,
) error {
	l, err := f.newListReader()
	if err != nil {
		return err
	}
	rows, err := l.readRows(ctx, f.Namespace, withComplete)
	if err != nil {
		return err
	}
	now := f.Now()
	shown := printers.Listing{
		Items:       rows,
		Table:       [][]any{{"NAMESPACE", "NAME", "REVISION", "DONE", "STEP", "STATE", "SINCE"}},
		WideColumns: [][]any{{"STRATEGY", "WHAT"}},
	}
	if len(rows) == 0 {
		none := "no rollout is in motion or stands still"
		if withComplete {
			none = "there is no deployment"
		}
		shown.EmptyText = f.EmptyListText(ctx, l.clients, none, func(ctx context.Context) (int, error) {
			elsewhere, err := l.readRows(ctx, metav1.NamespaceAll, withComplete)
			return len(elsewhere), err
		})
	}
	for _, r := range rows {
		shown.Names = append(shown.Names, r.Kind+"/"+r.Namespace+"/"+r.Name)
		shown.Table = append(shown.Table, []any{
			r.Namespace, r.Name, revisionCell(r.Revision), fmt.Sprintf("%d/%d", r.Done, r.Desired), r.stepCell(),
			printers.NewStateWord(string(r.State)),
			kubecli.AgeText(r.Since, now),
		})
		shown.WideColumns = append(shown.WideColumns, []any{r.Strategy, r.Sentence})
	}
	return output.Write(out, shown)
}

// newListReader returns a reader without a deployment.
func (f *rolloutCommand) newListReader() (l deploymentReader, err error) {
	l.now, l.actsAsMCM = f.Now, f.actsAsMCM
	if l.clients, err = f.NewClients(f.ClusterAccess); err != nil || f.targetKubeconfig == "" {
		return l, err
	}
	target, err := f.NewClients(kubecli.ClusterAccess{Kubeconfig: f.targetKubeconfig})
	l.nodes = target.Core
	return l, err
}

// readRows returns the lines of the list about a namespace, or about all namespaces, sorted by name.
func (l deploymentReader) readRows(ctx context.Context, namespace string, withComplete bool) ([]listRow, error) {
	policies, err := l.policiesByNamespace(ctx, namespace)
	if err != nil {
		return nil, err
	}
	found, err := l.readMillwrightSnapshots(ctx, namespace, policies)
	if err != nil {
		return nil, err
	}
	upstream, err := l.readClusterAPISnapshots(ctx, namespace, policies, withComplete)
	if err != nil {
		return nil, err
	}
	rows := []listRow{}
	for _, s := range sortedByKey(append(found, upstream...)) {
		if r := s.row(); withComplete || r.isShown() {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// policiesByNamespace reads the RolloutPolicies of a namespace, or of all namespaces.
func (l deploymentReader) policiesByNamespace(
	ctx context.Context,
	namespace string,
) (map[string][]*v1alpha1.RolloutPolicy, error) {
	found, err := l.clients.MachineClient.MachineV1alpha1().RolloutPolicies(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list rollout policies: %w", err)
	}
	return groupBy(cache.PointersToItems(found.Items), (*v1alpha1.RolloutPolicy).GetNamespace), nil
}

// groupBy returns the objects by a key.
func groupBy[K comparable, T any](objects []T, key func(T) K) map[K][]T {
	groups := map[K][]T{}
	for _, o := range objects {
		groups[key(o)] = append(groups[key(o)], o)
	}
	return groups
}

// controllerUID returns the UID of an object's controller; empty if the object has none.
func controllerUID[T metav1.Object](o T) types.UID {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return owner.UID
	}
	return ""
}

// readMillwrightSnapshots reads the deployments of machine.sapcloud.io in a namespace, or in all namespaces, with one
// request for each kind of object.
func (l deploymentReader) readMillwrightSnapshots(
	ctx context.Context,
	namespace string,
	policies map[string][]*v1alpha1.RolloutPolicy,
) (all []snapshot, err error) {
	api := l.clients.MachineClient.MachineV1alpha1()
	deployments, err := api.MachineDeployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list deployments: %w", err)
	}
	sets, err := api.MachineSets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list sets: %w", err)
	}
	machines, err := api.Machines(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	classes, err := api.MachineClasses(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list machine classes: %w", err)
	}
	nodeOfMachine, err := l.readNodesOfMachines(ctx)
	if err != nil {
		return nil, err
	}
	classByKey := map[string]*v1alpha1.MachineClass{}
	for _, class := range cache.PointersToItems(classes.Items) {
		classByKey[kubecli.KeyOfObject(class)] = class
	}
	setsOf := groupBy(cache.PointersToItems(sets.Items), controllerUID)
	machinesOf := groupBy(cache.PointersToItems(machines.Items), controllerUID)
	siblings := groupBy(cache.PointersToItems(deployments.Items), (*v1alpha1.MachineDeployment).GetNamespace)
	for _, d := range cache.PointersToItems(deployments.Items) {
		f := deployment.ObjectTree{
			Deployment:      d,
			BehavesAsMCM:    l.actsAsMCM,
			MachinesVersion: machines.ResourceVersion,
			NodeOfMachine:   nodeOfMachine,
			Sets:            sortedByAge(setsOf[d.UID]),
			Policy:          cache.FirstMatchingPolicy(policies[d.Namespace], d),
			ClassOfMachine:  func(m *v1alpha1.Machine) *v1alpha1.MachineClass { return classByKey[m.Namespace+"/"+m.Spec.Class.Name] },
		}
		for _, set := range f.Sets {
			f.Members = append(f.Members, machinesOf[set.UID]...)
		}
		f.Members = list.SortedCopy(f.Members, func(a, b *v1alpha1.Machine) int { return cmp.Compare(a.Name, b.Name) })
		if f.Policy.PolicySpec().Turns != nil {
			f = f.WithSiblings(
				policies[d.Namespace],
				siblings[d.Namespace],
				func(d *v1alpha1.MachineDeployment) []*v1alpha1.MachineSet { return setsOf[d.UID] },
			)
		}
		all = append(all, newSnapshot(millwrightDeployment{f, l.clients.MachineClient}, l.now()))
	}
	return all, nil
}

// sortedByAge returns sets from the oldest to the newest.
func sortedByAge(sets []*v1alpha1.MachineSet) []*v1alpha1.MachineSet {
	return list.SortedCopy(sets, func(a, b *v1alpha1.MachineSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// readClusterAPISnapshots reads the deployments of Cluster API that Millwright reconciles. A deployment needs several
// requests, so readClusterAPISnapshots omits the deployments that are at rest according to their own status, unless
// withComplete is true. It returns nil if the user may not list them.
func (l deploymentReader) readClusterAPISnapshots(
	ctx context.Context,
	namespace string,
	policies map[string][]*v1alpha1.RolloutPolicy,
	withComplete bool,
) (all []snapshot, err error) {
	deployments, err := l.clients.ClusterAPI.ListDeployments(ctx, namespace)
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for i := range deployments {
		d := &deployments[i]
		if !withComplete && isAtRest(d) {
			continue
		}
		one := l
		one.key, one.apiGroup = types.NamespacedName{Namespace: d.Namespace, Name: d.Name}, clusterv1.GroupVersion.Group
		from, err := one.readClusterAPIDeployment(ctx, true)
		switch {
		case apierrors.IsNotFound(err): // it was deleted meanwhile
			continue
		case err != nil:
			return nil, err
		}
		policy := cache.FirstMatchingPolicy(policies[d.Namespace], d)
		if from = from.withPolicy(policy); policy.PolicySpec().Turns != nil {
			if from, err = from.withSiblings(ctx, policies[d.Namespace]); err != nil {
				return nil, err
			}
		}
		all = append(all, newSnapshot(from, l.now()))
	}
	return all, nil
}

// isAtRest reports whether the status of a deployment of Cluster API shows neither work, nor a request of a person, nor
// a pin.
func isAtRest(d *clusterv1.MachineDeployment) bool {
	requests := slices.ContainsFunc([]string{
		v1alpha1.AnnotationRolloutHold, v1alpha1.AnnotationRolloutPin, v1alpha1.AnnotationRollbackTo,
	}, func(key string) bool { _, has := d.Annotations[key]; return has })
	return d.DeletionTimestamp == nil && d.Status.ObservedGeneration == d.Generation &&
		capideployment.OperationWithBlockers(d) == nil && !requests && (d.Spec.Paused == nil || !*d.Spec.Paused) &&
		!strings.Contains(d.Annotations[v1alpha1.AnnotationRolloutProgress], `"pin`)
}

// countPinnedMachines returns the number of machines that already have the revision on which they are kept.
func (s snapshot) countPinnedMachines() (here int) {
	for _, set := range s.facts.Sets {
		if set.Name == s.decision.Pin.Set {
			here = list.CountWhere(set.Machines, func(m rollout.Member) bool { return !m.Deleting })
		}
	}
	return here
}
