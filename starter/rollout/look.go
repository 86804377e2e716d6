package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/decide/rollout"
	"millwright/observe/cache"
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
	key     types.NamespacedName
	group   string // API group that the user named; empty: none
	clients kubecli.Clients
	nodes   typedcorev1.NodesGetter // nil: nodes are not read
	asMCM   bool
	now     func() time.Time
}

// open makes a reader of the named deployment. Its clients connect on their first use.
func (f *rollouts) open(c *cobra.Command, name string) (l reader, err error) {
	l.now, l.asMCM = f.Now, f.asMCM
	if l.key, err = f.Key(c, name); err != nil {
		return l, err
	}
	l.group = f.Group
	if l.clients, err = f.Clients(f.Access); err != nil || f.target == "" {
		return l, err
	}
	target, err := f.Clients(kubecli.Access{Kubeconfig: f.target})
	l.nodes = target.Core
	return l, err
}

// source is a deployment of one of the API groups as it was read, with its sets, machines and policy. The methods that
// change something return a changed copy.
type source interface {
	shown(now time.Time) tree
	observed(now time.Time) rollout.Observed // its sets and those of shown have the same order
	request(o rollout.Observed, next rollout.Decision) request.DeploymentFacts
	template(set int) any // template of the set at this index, in the form of the deployment's spec.template

	under(policy *v1alpha1.RolloutPolicy) source
	sized(replicas int32) source
	applied(file string) (source, error) // with the spec in a file; errNotInFile if the file lacks the deployment
	running() source                     // without pause and hold
	// with the template of the set at this index, and without the request for it; negative: the template stays
	returned(set int, now time.Time) source

	patch(ctx context.Context, data []byte) error
	change() func(request.Command, request.Decision) map[string]any // as in kubecli.Subject
}

// tree is a source as the commands show it, in words that are the same for both API groups.
type tree struct {
	object    metav1.Object
	kind      string // kind in the sentence of explain
	arg       string // name as an argument of millwright
	resource  string // resource of the deployment, for kubectl
	machines  string // resource of its machines, for kubectl
	from      string // word for what its machines are made from: class or template
	leaving   string // command that shows its machines that are being deleted
	strategy  string // word of the spec for the strategy
	operation *v1alpha1.Operation
	policy    *v1alpha1.RolloutPolicy // nil: none applies
	noNodes   bool                    // nodes were not read
	Sets      []set                   // from the oldest to the newest
	Members   []member
}

// set is a set of a tree.
type set struct {
	name, from string // from is the name of the class or of the infrastructure template of its machines
	created    time.Time
	replicas   int32
	cause      string // annotation kubernetes.io/change-cause
}

// member is a machine of a tree.
type member struct {
	name, uid, node string
	phase           string
	since           time.Time // since when it has been in its phase
	operation       string
	deleting        bool
	look            string // command that says why it is still there
}

// snapshot is a rollout at one moment: the objects in the API server, and the decision of decide/rollout about them.
type snapshot struct {
	source   source
	tree     tree
	policies []*v1alpha1.RolloutPolicy // all policies of the namespace
	facts    rollout.Observed          // its sets have the order of tree.Sets
	next     rollout.Decision
	status   rollout.Status
	now      time.Time
	idle     time.Time // since when its next step has been overdue; zero: not known
}

// look reads a deployment with its sets, machines and nodes, and decides.
func (l reader) look(ctx context.Context) (snapshot, error) {
	from, policies, err := l.read(ctx)
	if err != nil {
		return snapshot{}, err
	}
	s := judge(from, l.now())
	s.policies = policies
	return s, nil
}

// read reads a deployment with its sets and machines from the API server, and the policies of its namespace. Objects
// that are created between two requests may be missing; the next look has them.
func (l reader) read(ctx context.Context) (source, []*v1alpha1.RolloutPolicy, error) {
	from, err := l.find(ctx)
	if err != nil {
		return nil, nil, err
	}
	policies, err := l.policies(ctx)
	if err != nil {
		return nil, nil, err
	}
	return from.under(cache.FirstPolicy(policies, from.shown(time.Time{}).object)), policies, nil
}

// find reads the deployment of the API group that the user named. If the user named none, it is the only deployment
// with the name; two deployments that Millwright reconciles are an error. If the objects of Cluster API cannot be read,
// it is the deployment of machine.sapcloud.io.
func (l reader) find(ctx context.Context) (source, error) {
	switch l.group {
	case v1alpha1.GroupName:
		return l.readNative(ctx)
	case clusterv1.GroupVersion.Group:
		return l.readClusterAPI(ctx, true)
	}
	ours, err := l.readNative(ctx)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	theirs, upstreamErr := l.readClusterAPI(ctx, false)
	switch {
	case theirs == nil && err == nil:
		return ours, nil
	case theirs == nil:
		return nil, cmp.Or(upstreamErr, err)
	case err == nil:
		const kind = "machinedeployment"
		return nil, fmt.Errorf(
			"both API groups have a %s %s: give %[1]s.%[3]s/%[2]s or %[1]s.%[4]s/%[2]s",
			kind,
			l.key,
			v1alpha1.GroupName,
			clusterv1.GroupVersion.Group,
		)
	}
	return theirs, nil
}

// judge makes a snapshot with the decision of decide/rollout.
func judge(from source, now time.Time) snapshot {
	facts := from.observed(now)
	plan := rollout.Plan(facts)
	return snapshot{
		source: from,
		tree:   from.shown(now),
		facts:  facts,
		next:   plan.Decision,
		status: plan.Status,
		now:    now,
	}
}

// policies reads the RolloutPolicies of the deployment's namespace.
func (l reader) policies(ctx context.Context) ([]*v1alpha1.RolloutPolicy, error) {
	list, err := l.clients.Machines.MachineV1alpha1().RolloutPolicies(l.key.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list rollout policies of namespace %s: %w", l.key.Namespace, err)
	}
	return cache.Pointers(list.Items), nil
}

// current is the index of the set with the deployment's template; -1 if there is none. If several sets have the
// template, it is the oldest, as in decide/rollout.
func (s snapshot) current() int {
	return slices.IndexFunc(s.facts.Sets, func(set rollout.Set) bool { return set.Current && !set.Deleting })
}

// key is namespace/name of the deployment.
func (s snapshot) key() string { return kubecli.KeyOf(s.tree.object) }

// inPlace reports whether the strategy updates machines in place.
func (s snapshot) inPlace() bool {
	return s.facts.Strategy == rollout.InPlaceAuto || s.facts.Strategy == rollout.InPlaceManual
}

// blind reports whether the decision needs the nodes and they were not read.
func (s snapshot) blind() bool { return s.inPlace() && s.tree.noNodes }
