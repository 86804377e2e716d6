package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"millwright/api/generated/clientset/versioned"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe"
)

// rollouts is what every rollout command was told.
type rollouts struct {
	door
	kubeconfig string
	target     string // kubeconfig of the cluster of the nodes; empty: nodes are not read
	namespace  string
}

// register adds the flags to a command and to those below it.
func (f *rollouts) register(c *cobra.Command) {
	flags := c.PersistentFlags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig of the cluster that holds the machines")
	flags.StringVar(&f.target, "target-kubeconfig", "", "kubeconfig of the cluster whose nodes the machines are; empty means that nodes are not read, which only in-place updates need")
	flags.StringVarP(&f.namespace, "namespace", "n", metav1.NamespaceDefault, "namespace of the deployment")
}

// key reads the name of a deployment as people give it.
func (f *rollouts) key(c *cobra.Command, text string) (types.NamespacedName, error) {
	return readKey(c, "deployment", text, f.namespace)
}

// lookout is what a rollout is looked at with.
type lookout struct {
	machines versioned.Interface
	nodes    typedcorev1.NodesGetter // nil: nodes are not read
	now      func() time.Time
}

// open makes clients. They connect when they are first used.
func (f *rollouts) open() (lookout, error) {
	machines, err := f.machines(f.kubeconfig)
	if err != nil {
		return lookout{}, err
	}
	l := lookout{machines: machines, now: f.now}
	if f.target != "" {
		if l.nodes, err = f.nodes(f.target); err != nil {
			return lookout{}, err
		}
	}
	return l, nil
}

// stand is how a rollout stands at one moment: what was read, and what decide/rollout makes of it. Temporal is not asked.
type stand struct {
	family observe.Family   // sets from the oldest to the newest
	facts  rollout.Observed // its sets in the same order
	next   rollout.Decision
	status rollout.Status
	now    time.Time
	idle   time.Time // since when its next step has been due and nobody took it; zero: that is not known
}

// look reads a deployment and all below it, nodes too, and judges.
func (l lookout) look(ctx context.Context, key types.NamespacedName) (stand, error) {
	family, err := l.family(ctx, key)
	if err != nil {
		return stand{}, err
	}
	if family.Node, err = l.nodesOf(ctx); err != nil {
		return stand{}, err
	}
	return judge(family, l.now()), nil
}

// family reads a deployment and all below it from the API server, without nodes. Objects that come or go between two reads may be
// missing; the next look has them.
func (l lookout) family(ctx context.Context, key types.NamespacedName) (observe.Family, error) {
	d, err := findDeployment(ctx, l.machines, key)
	if err != nil {
		return observe.Family{}, err
	}
	family := observe.Family{Deployment: d}
	if family.Sets, err = l.setsOf(ctx, d); err != nil {
		return observe.Family{}, err
	}
	family.Members, family.Read, err = l.membersOf(ctx, d.Namespace, family.Sets)
	return family, err
}

// judge asks decide/rollout.
func judge(family observe.Family, now time.Time) stand {
	facts := observe.RolloutObserved(family, now)
	return stand{family: family, facts: facts, next: rollout.Decide(facts), status: rollout.Report(facts), now: now}
}

func findDeployment(ctx context.Context, machines versioned.Interface, key types.NamespacedName) (*v1alpha1.MachineDeployment, error) {
	d, err := machines.MachineV1alpha1().MachineDeployments(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no deployment %s: %w", key, err)
	case err != nil:
		return nil, fmt.Errorf("get deployment %s: %w", key, err)
	}
	return d, nil
}

func (l lookout) setsOf(ctx context.Context, d *v1alpha1.MachineDeployment) ([]*v1alpha1.MachineSet, error) {
	list, err := l.machines.MachineV1alpha1().MachineSets(d.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list sets of deployment %s: %w", keyOf(d), err)
	}
	var owned []*v1alpha1.MachineSet
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], d) {
			owned = append(owned, &list.Items[i])
		}
	}
	slices.SortFunc(owned, func(a, b *v1alpha1.MachineSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return owned, nil
}

func (l lookout) membersOf(ctx context.Context, namespace string, sets []*v1alpha1.MachineSet) (members []*v1alpha1.Machine, read string, err error) {
	list, err := l.machines.MachineV1alpha1().Machines(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", fmt.Errorf("list machines: %w", err)
	}
	for i := range list.Items {
		m := &list.Items[i]
		if slices.ContainsFunc(sets, func(s *v1alpha1.MachineSet) bool { return metav1.IsControlledBy(m, s) }) {
			members = append(members, m)
		}
	}
	slices.SortFunc(members, func(a, b *v1alpha1.Machine) int { return cmp.Compare(a.Name, b.Name) })
	return members, list.ResourceVersion, nil
}

// nodesOf reads all nodes at once, and returns how the one of a machine is found; nil where nodes are not read.
func (l lookout) nodesOf(ctx context.Context) (func(*v1alpha1.Machine) *corev1.Node, error) {
	if l.nodes == nil {
		return nil, nil
	}
	list, err := l.nodes.Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	byName := map[string]*corev1.Node{}
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	return func(m *v1alpha1.Machine) *corev1.Node { return byName[m.Labels[v1alpha1.LabelNode]] }, nil
}

// current is the place of the set of the template as it is; -1 while there is none. As decide/rollout, it takes the oldest of
// several.
func (s stand) current() int {
	return slices.IndexFunc(s.facts.Sets, func(set rollout.Set) bool { return set.Current && !set.Deleting })
}

// key is namespace/name of the deployment.
func (s stand) key() string { return keyOf(s.family.Deployment) }

// inPlace reports whether machines keep their instances.
func (s stand) inPlace() bool {
	return s.facts.Strategy == rollout.InPlaceAuto || s.facts.Strategy == rollout.InPlaceManual
}

// blind reports whether nodes would say more, and were not read.
func (s stand) blind() bool { return s.inPlace() && s.family.Node == nil }
