// Package kube holds what all activities on clusters share: the clients, the freshness of a decision's facts, writes
// with preconditions, errors and policies.
package kube

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/tools/record"

	machinev1alpha1 "millwright/api/generated/clientset/versioned/typed/api/v1alpha1"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/deletion"
	"millwright/decide/drain"
	"millwright/decide/ownership"
	"millwright/observe/cache"
)

// Ref identifies one object; see cache.Ref.
type Ref = cache.Ref

// MinVersions holds the versions that caches must have reached before a decision; see cache.MinVersions.
type MinVersions = cache.MinVersions

// Resource names a kind of object in a MinVersions; see cache.Resource.
type Resource = cache.Resource

// The resources of the versions that writes return.
const (
	MachinesResource    = cache.Machines
	SetsResource        = cache.Sets
	DeploymentsResource = cache.Deployments
	NodesResource       = cache.Nodes
)

// Kube holds the clients and settings of the activities on clusters, which run on the task queues machines, kubernetes
// and drains.
type Kube struct {
	Cluster     *cache.Cluster
	Recorder    record.EventRecorder
	TokenGroups string // auth-extra-groups of bootstrap tokens; empty means none
	Draining    drain.Settings
	Metrics     Metrics
	MaxDrains   int // how many nodes of a target cluster are drained at a time; zero: all
	// when this number of machines of a set call the cloud, further machines of the set yield to other sets; zero: none
	// yields
	FairCalls int

	// Pollers returns how many workers serve a provider; nil: never asked.
	Pollers func(ctx context.Context, provider string) (int, error)

	Evictions keyedMutex // by disruption budget

	ClassesWithoutToken ClassesWithoutToken // classes whose instances need no bootstrap token

	FreshTokens *FreshTokens // bootstrap tokens for the calls of the cloud of this process; nil: they are read
}

// ObjectIsGone is the decision about an object that does not exist any more.
var ObjectIsGone = attention.Decision{Why: "the object is gone"}

// Read says how fresh the facts of a decision must be.
type Read struct {
	Ref      Ref
	Versions MinVersions
	// read from the API server, not from caches: the first decision about a group in a run, and the one after a conflict
	Live bool

	// At is the workflow's time, which comes from the server of Temporal; see Time and Stamp.
	At time.Time

	// Done is the stage of a deletion that the run has finished although the status may not say so yet; empty when none.
	Done deletion.Stage
}

// Machines returns the client of the machines of a namespace.
func (a *Kube) Machines(namespace string) machinev1alpha1.MachineInterface {
	return a.Cluster.Client().MachineV1alpha1().Machines(namespace)
}

// Sets returns the client of the sets of a namespace.
func (a *Kube) Sets(namespace string) machinev1alpha1.MachineSetInterface {
	return a.Cluster.Client().MachineV1alpha1().MachineSets(namespace)
}

// Deployments returns the client of the deployments of a namespace.
func (a *Kube) Deployments(namespace string) machinev1alpha1.MachineDeploymentInterface {
	return a.Cluster.Client().MachineV1alpha1().MachineDeployments(namespace)
}

// Fresh reports whether the facts must be read live. A local activity that finds the caches behind fails with
// CacheBehind, so that the workflow runs it again as a regular activity, which waits longer and then reads live. It
// fails with Rewound if the caches are behind because an API server was restored to a former state.
func (a *Kube) Fresh(ctx context.Context, in Read) (live bool, err error) {
	if in.Live {
		a.Metrics.read("live")
		return true, nil
	}
	local, limit := activity.GetInfo(ctx).IsLocalActivity, cacheWaitRegular
	if local {
		limit = cacheWaitLocal
	}
	switch {
	case a.Cluster.Await(ctx, in.Versions, limit):
		a.Metrics.read("cached")
		return false, nil
	case local:
		a.Metrics.read("behind")
		return false, CacheBehind("the caches have not reached the required versions yet")
	}
	rewound, err := a.Cluster.Rewound(ctx, in.Versions)
	if err == nil && rewound {
		a.Metrics.read("rewound")
		return true, benign(
			TypeRewound,
			"the API server was restored to a state older than the versions that were seen",
			true,
		)
	}
	a.Metrics.read("late")
	return true, err
}

// Ours reports whether the namespace of an object is Millwright's. An object in another namespace counts as gone: its
// run ends, and nothing is written.
func (a *Kube) Ours(in Read) bool { return a.Cluster.Ours(in.Ref.Namespace) }

// object is an object of the API server; nil means that it is gone.
type object interface {
	comparable
	metav1.Object
}

// getter is the part of a client that reads objects of one kind.
type getter[O any] interface {
	Get(context.Context, string, metav1.GetOptions) (O, error)
}

// Live reads an object from the API server; nil when it is gone, or another object has its name.
func Live[O object](ctx context.Context, client getter[O], kind string, ref Ref) (O, error) {
	var none O
	switch o, err := client.Get(ctx, ref.Name, metav1.GetOptions{}); {
	case apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err): // else the resource itself is missing
		return none, nil
	case err != nil:
		return none, fmt.Errorf("get %s %s: %w", kind, ref.Key(), err)
	case string(o.GetUID()) != ref.UID:
		return none, nil
	default:
		return o, nil
	}
}

// LiveAt is Live for an object that must exist in the version that a decision saw, or in any version if that is empty.
// Otherwise it returns ObjectGone or a Conflict.
func LiveAt[O object](ctx context.Context, client getter[O], kind string, ref Ref, version string) (O, error) {
	var none O
	switch o, err := Live(ctx, client, kind, ref); {
	case err != nil:
		return none, err
	case o == none:
		return none, ObjectGone(ref)
	case version != "" && o.GetResourceVersion() != version:
		return none, Conflict(ref)
	default:
		return o, nil
	}
}

// Machine returns the machine as fresh as asked for, and whether it was read live; nil when it is gone.
func (a *Kube) Machine(ctx context.Context, in Read) (m *v1alpha1.Machine, live bool, err error) {
	if !a.Ours(in) {
		return nil, false, nil
	}
	live, err = a.Fresh(ctx, in)
	switch {
	case err != nil:
		return nil, false, err
	case live:
		m, err = Live(ctx, a.Machines(in.Ref.Namespace), "machine", in.Ref)
		return m, true, err
	}
	m, found := a.Cluster.Machine(in.Ref.Key())
	if !found || string(m.UID) != in.Ref.UID {
		return nil, false, nil
	}
	return m, false, nil
}

// Node returns the node of a machine as fresh as asked for; nil when there is none. For a machine that is being
// deleted, a target cluster that does not answer within TargetReadTimeout is replaced by the cache.
func (a *Kube) Node(ctx context.Context, m *v1alpha1.Machine, live bool) (*corev1.Node, error) {
	if !live {
		return a.Cluster.NodeOf(m), nil
	}
	node, err := a.ExistingNode(ctx, m, live)
	if Unanswered(err) && m.DeletionTimestamp != nil && ctx.Err() == nil {
		return nil, nil
	}
	return node, err
}

// ExistingNode is Node for a decision that depends on whether the node exists. A cache may lack a node that joined a
// moment ago, so the API server of the target is asked about a node that the cache lacks. If it does not answer, that
// is an error.
func (a *Kube) ExistingNode(ctx context.Context, m *v1alpha1.Machine, live bool) (*corev1.Node, error) {
	name, target, cached := cache.NodeNameOf(m), a.Cluster.Target(m.Namespace), a.Cluster.NodeOf(m)
	if name == "" || target == nil || cached != nil && !live {
		return cached, nil
	}
	bounded := ctx
	if m.DeletionTimestamp != nil || !live {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, TargetReadTimeout)
		defer cancel()
	}
	node, err := target.CoreV1().Nodes().Get(bounded, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case Unanswered(err) && m.DeletionTimestamp != nil && cached != nil && ctx.Err() == nil:
		return cached, nil
	case err != nil:
		return nil, fmt.Errorf("get node %s of machine %s: %w", name, m.Name, err)
	}
	return node, nil
}

// NodeOfInstance reads the nodes of a machine's target from its API server, in pages of 500, and returns the first with
// the machine's provider ID; nil when there is none. It costs one request for each 500 nodes, so use it only for a
// machine that nothing else ties to a node.
func (a *Kube) NodeOfInstance(ctx context.Context, m *v1alpha1.Machine) (node *corev1.Node, err error) {
	nodes := a.Cluster.Target(m.Namespace).CoreV1().Nodes()
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return nodes.List(ctx, options)
	})
	err = list.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		if n := o.(*corev1.Node); node == nil && ownership.SameInstance(n.Spec.ProviderID, m.Spec.ProviderID) {
			node = n
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for the node of instance %s: %w", m.Spec.ProviderID, err)
	}
	return node, nil
}

// NoNode returns nil if a machine has no node, as the API server of the target says: none exists, or it is proven to be
// another's or nobody's. If there is one, or it is in doubt whose it is, that is a Conflict: the next decision says so.
func (a *Kube) NoNode(ctx context.Context, m *v1alpha1.Machine) error {
	node, err := a.ExistingNode(ctx, m, true)
	if err != nil || node == nil {
		return err
	}
	if owner := a.Cluster.WhoseNode(m, node); owner.Is(ownership.Ours) || owner.Is(ownership.InDoubt) {
		return Conflict(Ref{Namespace: m.Namespace, Name: m.Name, UID: string(m.UID)})
	}
	return nil
}
