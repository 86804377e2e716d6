// Package kube has the shared parts of all activities on clusters: the clients, the freshness of a decision's facts,
// writes with preconditions, errors and policies.
package kube

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	corev1 "k8s.io/api/core/v1"
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

// Ref identifies one object; see cache.ObjectRef.
type Ref = cache.ObjectRef

// MinVersions holds the versions that caches must have reached before a decision; see cache.MinVersions.
type MinVersions = cache.MinVersions

// Resource names a kind of object in a MinVersions; see cache.Resource.
type Resource = cache.Resource

// Resources in the MinVersions that writes return.
const (
	MachinesResource    = cache.MachinesResource
	SetsResource        = cache.SetsResource
	DeploymentsResource = cache.DeploymentsResource
	NodesResource       = cache.NodesResource
)

// Kube holds the clients and settings of the activities on clusters. These activities run on the task queues machines,
// kubernetes and drains.
type Kube struct {
	Cluster     *cache.Cluster
	Recorder    record.EventRecorder
	TokenGroups string // auth-extra-groups of bootstrap tokens; empty: no groups
	Draining    drain.Settings
	Metrics     Metrics
	MaxDrains   int // how many nodes of a target cluster are drained at a time; zero: no limit
	// FairCalls is the fair share of a set, as a number of concurrent cloud calls. If a set has FairCalls concurrent
	// calls, its other machines yield to the machines of other sets. If FairCalls is zero, no machine yields.
	FairCalls int

	// Pollers returns how many workers serve a provider for the machines of a namespace. A nil Pollers is never called.
	Pollers func(ctx context.Context, namespace, provider string) (int, error)

	Evictions keyedMutex // one lock per PodDisruptionBudget

	ClassesWithoutToken ClassesWithoutToken // classes whose instances need no bootstrap token

	FreshTokens *FreshTokens // new bootstrap tokens of this process; nil: create calls read each token
}

// ObjectGoneDecision is the decision about an object that is gone.
var ObjectGoneDecision = attention.Decision{Why: "the object is gone"}

// ReadInput specifies how fresh the facts of a decision must be.
type ReadInput struct {
	Ref      Ref
	Versions MinVersions
	// Live requires reads from the API server instead of caches. Live is set for the first decision about a group in a
	// run, and for the decision after a conflict.
	Live bool

	// At is the workflow's time, which comes from the Temporal server. See Time and TimeToRecord.
	At time.Time

	// Done is the stage of a deletion that the run has finished, even if the status does not record it yet. Done is
	// empty if the run has finished no stage.
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

// NeedsLiveRead reports whether the facts must be read live. In a local activity, NeedsLiveRead returns
// CacheBehindError if the caches are behind. The workflow then runs a regular activity, which waits longer and then
// reads live. NeedsLiveRead returns a failure of type FailureTypeRewound if an API server was restored to an earlier
// state.
func (a *Kube) NeedsLiveRead(ctx context.Context, in ReadInput) (live bool, err error) {
	a.Cluster.KeepTargetConnected(in.Ref.Namespace)
	if in.Live {
		a.Metrics.countFactRead("live")
		return true, nil
	}
	local, limit := activity.GetInfo(ctx).IsLocalActivity, maxCacheWaitInRegularActivity
	if local {
		limit = maxCacheWaitInLocalActivity
	}
	switch {
	case a.Cluster.AwaitVersions(ctx, in.Ref.Namespace, in.Versions, limit):
		a.Metrics.countFactRead("cached")
		return false, nil
	case local:
		a.Metrics.countFactRead("behind")
		return false, CacheBehindError("the caches have not reached the required versions yet")
	}
	rewound, err := a.Cluster.IsServerOlder(ctx, in.Ref.Namespace, in.Versions)
	if err == nil && rewound {
		a.Metrics.countFactRead("rewound")
		return true, benignFailure(
			FailureTypeRewound,
			"the API server was restored to a state older than the versions that were seen",
			true,
		)
	}
	a.Metrics.countFactRead("late")
	return true, err
}

// IsManaged reports whether the namespace of an object is managed by Millwright. An object in another namespace counts
// as gone, so its run ends, and nothing is written.
func (a *Kube) IsManaged(in ReadInput) bool { return a.Cluster.ActsOnMachines(in.Ref.Namespace) }

// apiObject is an object of the API server; nil means that the object is gone.
type apiObject interface {
	comparable
	metav1.Object
}

// getter is the part of a client that reads objects of one kind.
type getter[O any] interface {
	Get(context.Context, string, metav1.GetOptions) (O, error)
}

// ReadLive reads an object from the API server. ReadLive returns nil if the object is gone, or if another object has
// its name.
func ReadLive[O apiObject](ctx context.Context, client getter[O], kind string, ref Ref) (O, error) {
	var none O
	switch o, err := client.Get(ctx, ref.Name, metav1.GetOptions{}); {
	case IsNotFoundAnswer(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("get %s %s: %w", kind, ref.Key(), err)
	case string(o.GetUID()) != ref.UID:
		return none, nil
	default:
		return o, nil
	}
}

// ReadLiveAtVersion is ReadLive for an object that must exist at the given resourceVersion. An empty version accepts
// any resourceVersion. ReadLiveAtVersion returns ObjectGoneError if the object is gone, and ConflictError if its
// resourceVersion differs.
func ReadLiveAtVersion[O apiObject](
	ctx context.Context,
	client getter[O],
	kind string,
	ref Ref,
	version string,
) (O, error) {
	var none O
	switch o, err := ReadLive(ctx, client, kind, ref); {
	case err != nil:
		return none, err
	case o == none:
		return none, ObjectGoneError(ref)
	case version != "" && o.GetResourceVersion() != version:
		return none, ConflictError(ref)
	default:
		return o, nil
	}
}

// ReadMachine returns a machine that is as fresh as in requires, and reports whether the machine was read live.
// ReadMachine returns a nil machine if the machine is gone.
func (a *Kube) ReadMachine(ctx context.Context, in ReadInput) (m *v1alpha1.Machine, live bool, err error) {
	if !a.IsManaged(in) {
		return nil, false, nil
	}
	live, err = a.NeedsLiveRead(ctx, in)
	switch {
	case err != nil:
		return nil, false, err
	case live:
		m, err = ReadLive(ctx, a.Machines(in.Ref.Namespace), "machine", in.Ref)
		return m, true, err
	}
	m, found := a.Cluster.Machine(in.Ref.Key())
	if !found || string(m.UID) != in.Ref.UID {
		return nil, false, nil
	}
	return m, false, nil
}

// ReadNode returns the node of a machine, live or from the cache; nil if the machine has no node. If the machine is
// being deleted and its target cluster does not answer within TargetReadTimeout, ReadNode uses the cache.
func (a *Kube) ReadNode(ctx context.Context, m *v1alpha1.Machine, live bool) (*corev1.Node, error) {
	if !live {
		return a.Cluster.NodeOfMachine(m), nil
	}
	node, err := a.ReadExistingNode(ctx, m, live)
	if HasNoServerAnswer(err) && m.DeletionTimestamp != nil && ctx.Err() == nil {
		return nil, nil
	}
	return node, err
}

// ReadExistingNode is Node for a decision that depends on whether the node exists. The cache may lack a node that
// joined a moment ago. If the cache lacks the node, ReadExistingNode reads the node from the API server of the target
// cluster, and fails if the API server does not answer.
func (a *Kube) ReadExistingNode(ctx context.Context, m *v1alpha1.Machine, live bool) (*corev1.Node, error) {
	name, target, cached := cache.NodeNameOfMachine(m), a.Cluster.TargetClient(m.Namespace), a.Cluster.NodeOfMachine(m)
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
	case IsNotFoundAnswer(err):
		return nil, nil
	case HasNoServerAnswer(err) && m.DeletionTimestamp != nil && cached != nil && ctx.Err() == nil:
		return cached, nil
	case err != nil:
		return nil, fmt.Errorf("get node %s of machine %s: %w", name, m.Name, err)
	}
	return node, nil
}

// FindNodeOfInstance lists the nodes of a machine's target cluster live, in pages of 500. FindNodeOfInstance returns
// the first node with the machine's provider ID, or nil. FindNodeOfInstance costs one request per 500 nodes. Use
// FindNodeOfInstance only for a machine without any other link to a node.
func (a *Kube) FindNodeOfInstance(ctx context.Context, m *v1alpha1.Machine) (node *corev1.Node, err error) {
	nodes := a.Cluster.TargetClient(m.Namespace).CoreV1().Nodes()
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return nodes.List(ctx, options)
	})
	err = list.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		if n := o.(*corev1.Node); node == nil && ownership.IsSameInstance(n.Spec.ProviderID, m.Spec.ProviderID) {
			node = n
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for the node of instance %s: %w", m.Spec.ProviderID, err)
	}
	return node, nil
}

// ConfirmNoNode returns nil if a live read of the target cluster proves that a machine has no node. Either no node has
// the name, or the node with the name belongs to another machine or to no machine. For a machine that names no node,
// no node has the provider ID. If the machine owns the node, or the owner is in doubt, ConfirmNoNode returns a
// ConflictError, and the workflow decides again.
func (a *Kube) ConfirmNoNode(ctx context.Context, m *v1alpha1.Machine) error {
	node, err := a.ReadExistingNode(ctx, m, true)
	if cache.UnnamedNodeProviderID(m) != "" && a.Cluster.Target(m.Namespace) != nil {
		node, err = a.FindNodeOfInstance(ctx, m)
	}
	if err != nil || node == nil {
		return err
	}
	if owner := a.Cluster.OwnerOfNode(
		m,
		node,
	); owner.HasOwnerKind(ownership.OwnerSelf) ||
		owner.HasOwnerKind(ownership.OwnerInDoubt) {
		return ConflictError(Ref{Namespace: m.Namespace, Name: m.Name, UID: string(m.UID)})
	}
	return nil
}
