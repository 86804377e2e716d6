// Package kube holds what all activities on clusters share: the clients, how fresh a decision's facts must be, writes that carry what the decision saw, errors and policies.
package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/deletion"
	"millwright/decide/drain"
	"millwright/observe/cache"
)

// Ref names one object for good; see cache.Ref.
type Ref = cache.Ref

// MinVersions holds the versions that caches must have reached before a decision; see cache.MinVersions.
type MinVersions = cache.MinVersions

// Resource names a kind of object in a MinVersions; see cache.Resource.
type Resource = cache.Resource

// The resources whose versions writes return.
const (
	MachinesResource    = cache.Machines
	SetsResource        = cache.Sets
	DeploymentsResource = cache.Deployments
	NodesResource       = cache.Nodes
)

// Kube are the steps on the clusters: decisions, and writes of machine objects, nodes and statuses. They run on the
// task queues machines and kubernetes.
type Kube struct {
	Cluster     *cache.Cluster
	Recorder    record.EventRecorder
	TokenGroups string // auth-extra-groups of bootstrap tokens; empty means none
	Draining    drain.Settings
	Metrics     Metrics
	MaxDrains   int // nodes of a target cluster that are drained at a time; zero: all
	FairCalls   int // for so many machines of a set the cloud is called as for all others; further ones yield to those; zero: none does

	Evictions keyedMutex // by disruption budget
}

// ObjectIsGone is what is left of an object that does not exist any more.
var ObjectIsGone = attention.Decision{Why: "the object is gone"}

// Read says how fresh the facts of a decision must be.
type Read struct {
	Ref      Ref
	Versions MinVersions
	Live     bool // read from the API server, not from caches: the first decision about a group in a run, and the one after a conflict

	// At is the workflow's time. A decision about deadlines is made for it, or for the worker's own time where that is
	// later: a timer that has fired must not meet a worker whose clock says that it is not yet time.
	At time.Time

	// Done is the stage of a deletion that the run has done although the status may not say so yet; empty when none.
	Done deletion.Stage
}

// Fresh reports whether the facts must be read live. A local activity that finds the caches behind gives up with
// CacheBehind, so that the workflow runs it again as a regular one; that one waits longer and then reads live.
func (a *Kube) Fresh(ctx context.Context, in Read) (live bool, err error) {
	if in.Live {
		return true, nil
	}
	local, limit := activity.GetInfo(ctx).IsLocalActivity, cacheWaitRegular
	if local {
		limit = cacheWaitLocal
	}
	switch {
	case a.Cluster.Await(ctx, in.Versions, limit):
		return false, nil
	case local:
		return false, benign(TypeCacheBehind, "caches are behind what woke us", false)
	default:
		return true, nil
	}
}

// object is an object of the API server; nil stands for one that is gone.
type object interface {
	comparable
	metav1.Object
}

// getter is the part of a client that reads objects of one kind.
type getter[O any] interface {
	Get(context.Context, string, metav1.GetOptions) (O, error)
}

// Live reads an object from the API server; nil when it is gone, or another one has its name.
func Live[O object](ctx context.Context, client getter[O], kind string, ref Ref) (O, error) {
	var none O
	switch o, err := client.Get(ctx, ref.Name, metav1.GetOptions{}); {
	case apierrors.IsNotFound(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("get %s %s: %w", kind, ref.Key(), err)
	case string(o.GetUID()) != ref.UID:
		return none, nil
	default:
		return o, nil
	}
}

// LiveAt is Live of an object that has to be there in the version that a decision saw, or in any where that is empty: ObjectGone
// or a Conflict when it is not.
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
	live, err = a.Fresh(ctx, in)
	switch {
	case err != nil:
		return nil, false, err
	case live:
		m, err = Live(ctx, a.Cluster.Client().MachineV1alpha1().Machines(in.Ref.Namespace), "machine", in.Ref)
		return m, true, err
	}
	m, found := a.Cluster.Machine(in.Ref.Key())
	if !found || string(m.UID) != in.Ref.UID {
		return nil, false, nil
	}
	return m, false, nil
}

// Node returns the node of a machine, nil when there is none, as fresh as asked for.
func (a *Kube) Node(ctx context.Context, m *v1alpha1.Machine, live bool) (*corev1.Node, error) {
	name, target := m.Labels[v1alpha1.LabelNode], a.Cluster.Target(m.Namespace)
	if !live || name == "" || target == nil {
		return a.Cluster.NodeOf(m), nil
	}
	bounded := ctx
	if m.DeletionTimestamp != nil { // it is held up by no cluster that is away
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, TargetReadTimeout)
		defer cancel()
	}
	node, err := target.CoreV1().Nodes().Get(bounded, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case Unanswered(err) && m.DeletionTimestamp != nil && ctx.Err() == nil:
		return a.Cluster.NodeOf(m), nil
	case err != nil:
		return nil, fmt.Errorf("get node %s of machine %s: %w", name, m.Name, err)
	}
	return node, nil
}

// Own returns the node of a machine that is being deleted; nil when it is another instance's, or when another machine names it,
// too, and is to stay.
func (a *Kube) Own(m *v1alpha1.Machine, node *corev1.Node) *corev1.Node {
	switch {
	case node == nil, a.Claimed(string(m.UID), m.Labels[v1alpha1.LabelNode]):
		return nil
	case m.Spec.ProviderID != "" && node.Spec.ProviderID != "" && node.Spec.ProviderID != m.Spec.ProviderID:
		return nil
	default:
		return node
	}
}

// Claimed reports whether another machine that stays names the node as its own. It tells where provider IDs do not: a
// node that has just joined may not have one yet, and of the instance that is gone it may never have been known.
func (a *Kube) Claimed(machineUID, node string) bool {
	return slices.ContainsFunc(a.Cluster.MachinesOfNode(node), func(m *v1alpha1.Machine) bool {
		return string(m.UID) != machineUID && m.DeletionTimestamp == nil
	})
}
