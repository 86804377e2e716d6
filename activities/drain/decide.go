// Package drain has the activities that drain a node: they decide about the drain, evict pods and wait for volumes.
package drain

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/deletion"
	"millwright/decide/drain"
	"millwright/decide/ownership"
	"millwright/decide/replace"
	"millwright/observe/cache"
	observedrain "millwright/observe/drain"
	"millwright/observe/machine"
)

// Activities are the activities of this package. Workflows call its methods by name.
type Activities struct{ Kube *kube.Kube }

// DefaultMaxDrains is how many nodes of a cluster are drained at a time. Source: each drain sends at most 20 requests
// at once, which the API server can serve, and a cluster that loses more nodes at once has no room for their pods.
const DefaultMaxDrains = 100

// Input says how fresh the facts of a drain's decision must be, and what this run knows about the node's pods.
type Input struct {
	kube.Read
	Purpose string        // vocabulary.DrainForUpdate or DrainForPreservation; empty for a machine that is being deleted
	Unasked bool          // this run has not looked at the pods yet
	Grace   time.Duration // longest grace period of the pods that were left; zero before the first look
}

// Decision is what a drain does next.
type Decision struct {
	Result   string // how the drain ended; empty while it goes on
	Why      string
	Step     drain.Step
	Started  time.Time // of the first evictions; zero before
	Recorded string    // the means that the status shows
	Hold     string    // who holds the drain, and why: "ann: lunch"; empty: nobody, and pods are removed
	Retry    string    // a change of it retries all pods at once
	Version  string    // resourceVersion of the machine that was read
	Phase    string    // of the machine
	Purpose  attention.DrainPurpose

	ClusterAPI Hook `json:",omitzero"` // zero for a machine of MCM's kinds
}

// Hook is what the drain of a machine of Cluster API does in addition, because it is not the child of a machine's
// workflow.
type Hook struct {
	NodeName string
	Step     drain.HookStep // what follows for the machine's hook
	Cordon   bool           // the node takes new pods
	Queue    string         // its place in the queue of drains; empty: it is its turn
}

// Cancelled is the result of a drain that is not wanted any more. It is never written to a status, unlike the results
// vocabulary.DrainDrained, DrainForced and DrainSkipped.
const Cancelled = "Cancelled"

// DecideDrain reads a machine whose node is drained, and the node. It returns the means that removes pods now, and when
// that means ends.
func (a *Activities) DecideDrain(ctx context.Context, in Input) (Decision, error) {
	m, live, err := a.Kube.Machine(ctx, in.Read)
	if err != nil {
		return Decision{}, err
	}
	if m == nil || (m.DeletionTimestamp == nil) != (in.Purpose != "") {
		return Decision{
			Result: Cancelled,
			Why:    "the machine is gone, or its node is not drained for this purpose any more",
		}, nil
	}
	named, unknown := a.Kube.ExistingNode(ctx, m, live)
	related := machine.Related{NodeUnknown: unknown != nil}
	related.Sees(a.Kube.Cluster, m, named)
	node, now := related.Own(), in.Time()
	facts := machine.DeletionFacts(a.Kube.Cluster, m, related, "")
	if unknown != nil && facts.Skip == "" {
		return Decision{}, unknown
	}
	purpose := attention.PlanMachine(machine.Facts(m, related, now)).Drain
	d := Decision{Version: m.ResourceVersion, Phase: string(m.Status.CurrentStatus.Phase), Purpose: purpose}
	record := observedrain.RecordOf(m, purpose)
	if record != nil && record.Result != "" {
		d.Result, d.Why = record.Result, "the drain has already ended"
	} else if d.Result, d.Why = needless(in, facts, purpose); d.Result == "" {
		ladder := a.ladder(m, record, node, in.Grace, now)
		ladder.NoPassYet = in.Unasked
		d.Climb(ctx, m, a.Kube.Cluster, ladder)
	}
	return d, nil
}

// ladder returns the facts from which the means of a drain is decided.
func (a *Activities) ladder(
	m *v1alpha1.Machine,
	record *v1alpha1.MachineDrain,
	node *corev1.Node,
	grace time.Duration,
	now time.Time,
) drain.Ladder {
	l := observedrain.Ladder(m, record, node, grace, now)
	if l.Unusable == "" {
		return l
	}
	nodes := machine.JoinedNodes(a.Kube.Cluster, m.Namespace, now) // it reads every node
	if l.Breaker = replace.Disbelief(nodes); !l.Lost {
		_, l.Breaker, _ = replace.Breaker(nodes, now)
	}
	return l
}

// needless returns the result of a drain that is not needed; empty: the drain is needed.
func needless(in Input, facts deletion.Facts, purpose attention.DrainPurpose) (result, why string) {
	switch doubt := facts.Owner.Is(ownership.InDoubt); {
	case doubt && facts.Skip == "":
		return Cancelled, facts.Owner.Why
	case !facts.Node && !doubt && facts.Owner.Why != "":
		return vocabulary.DrainSkipped, facts.Owner.Why
	case !facts.Node && !doubt && !facts.NodeUnknown:
		return vocabulary.DrainDrained, "there is no node " + facts.NodeName
	case purpose.For != in.Purpose:
		return Cancelled, "the node does not have to be drained any more"
	case facts.Skip != "":
		return vocabulary.DrainSkipped, facts.Skip
	default:
		return "", ""
	}
}

// Climb completes the decision about a drain that goes on: it sets the means that removes pods now, and when that means
// ends.
func (d *Decision) Climb(ctx context.Context, m *v1alpha1.Machine, cluster *cache.Cluster, ladder drain.Ladder) {
	d.Hold, d.Retry = observedrain.Held(m), m.Annotations[v1alpha1.AnnotationRetry]
	d.Step = climb(ctx, m.Namespace, cluster, ladder)
	d.Started, d.Recorded, d.Why = ladder.Started, string(ladder.Reached), d.Step.Why
	if d.Step.Over && d.Hold == "" { // during a hold, an operator may want to see the remaining pods
		d.Result = vocabulary.DrainForced
	}
}

// climb returns the means for now. It asks the target cluster whether it can evict pods, but only if they are to be
// evicted. If the cluster does not answer, the pods are evicted; this does no harm if the cluster cannot evict, and the
// next decision asks again.
func climb(ctx context.Context, namespace string, cluster *cache.Cluster, ladder drain.Ladder) drain.Step {
	step := drain.DecideStep(ladder)
	if step.Means != drain.Evict {
		return step
	}
	bounded, cancel := context.WithTimeout(ctx, kube.TargetReadTimeout)
	defer cancel()
	why, err := cluster.NoEviction(bounded, namespace)
	if err != nil {
		activity.GetLogger(ctx).Warn("whether the cluster can evict pods is not known yet", "error", err)
	}
	ladder.NoEviction = why
	return drain.DecideStep(ladder)
}

// Holding asks for a hold, because an operator cancelled the workflow in Temporal.
type Holding struct {
	Read kube.Read
	Why  string
}

// HoldDrain writes a hold on a machine: its node is not drained for now, and its deletion stays in its stage. An
// existing hold stays as it is. It returns the version to wait for; running it twice writes once.
func (a *Activities) HoldDrain(ctx context.Context, in Holding) (string, error) {
	return a.Kube.ChangeMachine(ctx, in.Read, func(m *v1alpha1.Machine) {
		if _, held := m.Annotations[v1alpha1.AnnotationHold]; !held {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationHold, in.Why)
		}
	})
}

// NodeLoad is what a drain has to remove from a node.
type NodeLoad struct {
	Pods     int    // pods to remove
	Attached int    // volumes; at least 1 while that is not known
	Queue    string // its place in the queue of drains; empty when it is its turn, or when pods are killed by force
	Versions kube.MinVersions
}

// CordonAndCountPods cordons the node of a machine that is being deleted, counts the pods that must leave the node, and
// returns whether it is the machine's turn to be drained. The turn is known only for a machine whose stage Drain is on
// record. Pods are read live, because a node without pods gets no drain. Running it twice is harmless.
func (a *Activities) CordonAndCountPods(ctx context.Context, in kube.Read) (NodeLoad, error) {
	versions, err := a.Kube.Cordon(ctx, in, in.Live)
	if err != nil {
		return NodeLoad{}, err
	}
	m, _, err := a.Kube.Machine(ctx, in)
	if err != nil {
		return NodeLoad{}, err
	}
	switch {
	case m == nil:
		return NodeLoad{Versions: versions}, nil
	case len(versions) == 0: // nothing was cordoned: a doubt must not look like an empty node
		return NodeLoad{Versions: versions}, a.Kube.NoNode(ctx, m)
	}
	pods, _, err := listPods(ctx, a.Kube.Cluster.Target(m.Namespace), cache.NodeNameOf(m))
	if err != nil {
		return NodeLoad{}, err
	}
	load := NodeLoad{Versions: versions, Attached: a.Kube.Cluster.Attached(cache.NodeNameOf(m))}
	facts, err := a.place(in.Ref).podFacts(ctx, pods, namespaces{}, drain.Delete)
	if err != nil {
		return NodeLoad{}, err
	}
	for _, pod := range facts {
		if mustLeave(pod) {
			load.Pods++
		}
	}
	if node := a.Kube.Cluster.NodeOf(m); node != nil && a.ladder(m, nil, node, 0, in.Time()).Forced() == "" {
		_, load.Queue = drain.DecideTurn(observedrain.Turns(a.Kube.Cluster), in.Ref.UID, a.Kube.MaxDrains)
	}
	return load, nil
}
