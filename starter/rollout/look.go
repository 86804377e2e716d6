package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"millwright/api/generated/clientset/versioned"
	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	"millwright/observe/deployment"
	"millwright/starter/kubecli"
)

// rollouts has the flags of all rollout commands.
type rollouts struct {
	kubecli.Objects
	target string // kubeconfig of the target cluster; empty: nodes are not read
	asMCM  bool   // worker and bridge run with --as-mcm
}

// reader reads one deployment for the rollout commands.
type reader struct {
	key      types.NamespacedName
	machines versioned.Interface
	nodes    typedcorev1.NodesGetter // nil: nodes are not read
	asMCM    bool
	now      func() time.Time
}

// open makes a reader of the named deployment. Its clients connect on their first use.
func (f *rollouts) open(c *cobra.Command, name string) (l reader, err error) {
	l.now, l.asMCM = f.Now, f.asMCM
	if l.key, err = f.Key(c, name); err != nil {
		return l, err
	}
	clients, err := f.Clients(f.Access)
	l.machines = clients.Machines
	if err != nil || f.target == "" {
		return l, err
	}
	target, err := f.Clients(kubecli.Access{Kubeconfig: f.target})
	l.nodes = target.Core
	return l, err
}

// snapshot is a rollout at one moment: what was read, and the decision of decide/rollout about it. Temporal is not asked.
type snapshot struct {
	family   deployment.Family         // sets from the oldest to the newest
	policies []*v1alpha1.RolloutPolicy // of the namespace
	facts    rollout.Observed          // its sets in the same order
	next     rollout.Decision
	status   rollout.Status
	now      time.Time
	idle     time.Time // since when its next step has been overdue; zero: not known
}

// look reads a deployment with its sets, machines and nodes, and decides.
func (l reader) look(ctx context.Context) (snapshot, error) {
	family, policies, err := l.family(ctx)
	if err != nil {
		return snapshot{}, err
	}
	if family.Node, err = l.nodesOf(ctx); err != nil {
		return snapshot{}, err
	}
	s := judge(family, l.now())
	s.policies = policies
	return s, nil
}

// family reads a deployment with its sets and machines from the API server, without nodes, and the policies of its namespace.
// Objects that are created or deleted between two requests may be missing; the next look has them.
func (l reader) family(ctx context.Context) (family deployment.Family, policies []*v1alpha1.RolloutPolicy, err error) {
	deployments := l.machines.MachineV1alpha1().MachineDeployments(l.key.Namespace)
	d, err := kubecli.Find(ctx, request.MachineDeployment, l.key, deployments.Get)
	if err != nil {
		return family, nil, err
	}
	if policies, err = l.policies(ctx); err != nil {
		return family, nil, err
	}
	family = deployment.Family{Deployment: d, AsMCM: l.asMCM, Policy: cache.FirstPolicy(policies, d)}
	if family.Sets, err = l.setsOf(ctx, d); err != nil {
		return family, nil, err
	}
	family.Members, family.Read, err = l.membersOf(ctx, d.Namespace, family.Sets)
	return family, policies, err
}

// judge makes a snapshot with the decision of decide/rollout.
func judge(family deployment.Family, now time.Time) snapshot {
	facts := deployment.Observed(family, now)
	plan := rollout.Look(facts)
	return snapshot{family: family, facts: facts, next: plan.Decision, status: plan.Status, now: now}
}

// policies reads the RolloutPolicies of the deployment's namespace.
func (l reader) policies(ctx context.Context) ([]*v1alpha1.RolloutPolicy, error) {
	list, err := l.machines.MachineV1alpha1().RolloutPolicies(l.key.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list rollout policies of namespace %s: %w", l.key.Namespace, err)
	}
	return cache.Pointers(list.Items), nil
}

func (l reader) setsOf(ctx context.Context, d *v1alpha1.MachineDeployment) ([]*v1alpha1.MachineSet, error) {
	list, err := l.machines.MachineV1alpha1().MachineSets(d.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list sets of deployment %s: %w", kubecli.KeyOf(d), err)
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

func (l reader) membersOf(ctx context.Context, namespace string, sets []*v1alpha1.MachineSet) (members []*v1alpha1.Machine, read string, err error) {
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

// nodesOf reads all nodes in one request, and returns a function that finds the node of a machine; nil if nodes are not read.
func (l reader) nodesOf(ctx context.Context) (func(*v1alpha1.Machine) *corev1.Node, error) {
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
	return func(m *v1alpha1.Machine) *corev1.Node { return byName[cache.NodeNameOf(m)] }, nil
}

// current is the index of the set with the deployment's template; -1 if there is none. Of several it is the oldest, as in
// decide/rollout.
func (s snapshot) current() int {
	return slices.IndexFunc(s.facts.Sets, func(set rollout.Set) bool { return set.Current && !set.Deleting })
}

// key is namespace/name of the deployment.
func (s snapshot) key() string { return kubecli.KeyOf(s.family.Deployment) }

// inPlace reports whether machines keep their instances.
func (s snapshot) inPlace() bool {
	return s.facts.Strategy == rollout.InPlaceAuto || s.facts.Strategy == rollout.InPlaceManual
}

// blind reports whether nodes matter and were not read.
func (s snapshot) blind() bool { return s.inPlace() && s.family.Node == nil }
