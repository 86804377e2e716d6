// Package drain has the activities that empty a node: it decides about a drain, evicts pods and awaits volumes.
package drain

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/drain"
	"millwright/decide/phrase"
	observedrain "millwright/observe/drain"
	"millwright/observe/machine"
)

// Activities are the activities of this package. Workflows call its methods by name.
type Activities struct{ Kube *kube.Kube }

// DefaultMaxDrains is how many nodes of a cluster are drained at a time. Source: each of them asks 20 pods at once at the
// most, and the API server serves that many with ease; a cluster that loses more nodes at once has nowhere to put their pods.
const DefaultMaxDrains = 100

// Input says how fresh the facts of a drain's decision must be, and what the drain has seen of the node's pods.
type Input struct {
	kube.Read
	Purpose string        // vocabulary.DrainForUpdate or DrainForPreservation; empty for a machine that is deleted
	Unasked bool          // this run has not looked at the pods yet
	Grace   time.Duration // longest own grace period of the pods that were left; zero before the first look
}

// Decision is what a drain does next.
type Decision struct {
	Result   string // how it ends; empty while it goes on
	Why      string
	Step     drain.Step
	Started  time.Time // when it began to ask pods to go; zero before
	Recorded string    // the means that the status names
	Hold     string    // why nobody is asked to go now; empty when somebody is
	Retry    string    // changes when all pods are to be asked again at once
	Version  string    // resourceVersion of the machine that was read
	Phase    string    // of the machine
	Purpose  attention.DrainPurpose
}

// Cancelled is how a drain ends that is not wanted any more, besides vocabulary.DrainDrained, DrainForced and DrainSkipped. It
// stands in no status.
const Cancelled = "Cancelled"

// DecideDrain reads a machine whose node is to be empty and the node, and says how its pods are made to go now, and until
// when.
func (a *Activities) DecideDrain(ctx context.Context, in Input) (Decision, error) {
	m, live, err := a.Kube.Machine(ctx, in.Read)
	if err != nil {
		return Decision{}, err
	}
	if m == nil || (m.DeletionTimestamp == nil) != (in.Purpose != "") {
		return Decision{Result: Cancelled, Why: "the machine is gone, or its node is not emptied for that any more"}, nil
	}
	node, err := a.Kube.Node(ctx, m, live)
	if err != nil {
		return Decision{}, err
	}
	node = a.Kube.Own(m, node)
	now := phrase.Later(time.Now(), in.At)
	facts := machine.DeletionFacts(a.Kube.Cluster, m, node, "")
	purpose := attention.Machine(machine.Facts(m, machine.Around{Node: node}, now)).Drain
	d := Decision{Version: m.ResourceVersion, Phase: string(m.Status.CurrentStatus.Phase), Purpose: purpose}
	record := observedrain.RecordOf(m, purpose)
	switch {
	case record != nil && record.Result != "":
		d.Result, d.Why = record.Result, "the drain has ended before"
	case node == nil:
		d.Result, d.Why = vocabulary.DrainDrained, "there is no node "+facts.NodeName
	case purpose.For != in.Purpose:
		d.Result, d.Why = Cancelled, "the node may keep its pods"
	case facts.Skip != "":
		d.Result, d.Why = vocabulary.DrainSkipped, facts.Skip
	default:
		d.Hold, d.Retry = facts.Hold, m.Annotations[v1alpha1.AnnotationRetry]
		ladder := observedrain.Ladder(m, record, node, in.Grace, now)
		ladder.Unasked = in.Unasked
		d.Step = drain.Climb(ladder)
		d.Started, d.Recorded, d.Why = ladder.Started, string(ladder.Reached), d.Step.Why
		if d.Step.Over && d.Hold == "" { // what is left behind is not left while a person wants to look at it
			d.Result = vocabulary.DrainForced
		}
	}
	return d, nil
}

// Holding is a hold that is written because somebody cancelled in Temporal.
type Holding struct {
	Read kube.Read
	Why  string
}

// HoldDrain makes a machine say that its node is not drained for now, and its deletion stays in the stage in which it is. A
// hold that is there stays as it is. It returns the version to wait for; running it twice writes once.
func (a *Activities) HoldDrain(ctx context.Context, in Holding) (string, error) {
	return a.Kube.ChangeMachine(ctx, in.Read, func(m *v1alpha1.Machine) {
		if _, held := m.Annotations[v1alpha1.AnnotationHold]; !held {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationHold, in.Why)
		}
	})
}

// NodeLoad is what stands on a node.
type NodeLoad struct {
	Pods     int    // that have to go
	Attached int    // volumes
	Queue    string // its place in the queue of drains; empty when it is its turn. One that is to be forced waits for nobody
	Versions kube.MinVersions
}

// CordonAndCountPods cordons the node of a machine that is being deleted, counts what has to leave it, and says whether it is its turn, which holds only
// for a machine whose stage Drain is on record. It reads the pods live: a node that is said to be empty gets no drain. Running it twice is harmless.
func (a *Activities) CordonAndCountPods(ctx context.Context, in kube.Read) (NodeLoad, error) {
	versions, err := a.Kube.Cordon(ctx, in, in.Live)
	if err != nil {
		return NodeLoad{}, err
	}
	m, _, err := a.Kube.Machine(ctx, in)
	if err != nil {
		return NodeLoad{}, err
	}
	if m == nil || len(versions) == 0 {
		return NodeLoad{Versions: versions}, nil // there is no such node
	}
	pods, _, err := listPods(ctx, a.Kube.Cluster.Target(m.Namespace), m.Labels[v1alpha1.LabelNode])
	if err != nil {
		return NodeLoad{}, err
	}
	load := NodeLoad{Versions: versions, Attached: a.Kube.Cluster.Attached(m.Labels[v1alpha1.LabelNode])}
	facts, err := a.podFacts(ctx, in.Ref, pods, namespaces{}, drain.Delete)
	if err != nil {
		return NodeLoad{}, err
	}
	for _, pod := range facts {
		if goes(pod) {
			load.Pods++
		}
	}
	if a.Kube.Cluster.NodeOf(m) != nil && observedrain.Forced(m) == "" {
		_, load.Queue = drain.MayDrain(observedrain.Turns(a.Kube.Cluster), in.Ref.UID, a.Kube.MaxDrains)
	}
	return load, nil
}
