package activities

import (
	"context"
	"time"

	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	"millwright/observe"
)

// DefaultMaxDrains is how many nodes of a cluster are drained at a time. Source: each of them asks 20 pods at once at the
// most, and the API server serves that many with ease; a cluster that loses more nodes at once has nowhere to put their pods.
const DefaultMaxDrains = 100

// Purpose is what the node of a machine that is to stay is emptied for; empty for one that is to go.
type Purpose = v1alpha1.DrainPurpose

// The purposes.
const (
	ForUpdate       = v1alpha1.DrainForUpdate
	ForPreservation = v1alpha1.DrainForPreservation
)

// DrainRead says how fresh the facts of a drain's decision must be, and what the drain has seen of the node's pods.
type DrainRead struct {
	Read
	Purpose Purpose
	Unasked bool          // this run has not looked at the pods yet
	Grace   time.Duration // longest own grace period of the pods that were left; zero before the first look
}

// DrainDecision is what a drain does next.
type DrainDecision struct {
	Result   string // how it ends; empty while it goes on
	Why      string
	Step     drain.Step
	Started  time.Time // when it began to ask pods to go; zero before
	Recorded string    // the means that the status names
	Hold     string    // why nobody is asked to go now; empty when somebody is
	Retry    string    // changes when all pods are to be asked again at once
	Version  string    // resourceVersion of the machine that was read
	Phase    string    // of the machine
	Emptying observe.Emptying
}

// The ways in which a drain ends, as the machine's status names them.
const (
	Drained   = "Drained"   // all pods are gone
	Forced    = "Forced"    // pods were deleted by force
	Skipped   = "Skipped"   // nobody was asked to go
	Cancelled = "Cancelled" // the machine is not to be drained any more; in no status
)

// DecideDrain reads a machine whose node is to be empty and the node, and says how its pods are made to go now, and until
// when.
func (a *Activities) DecideDrain(ctx context.Context, in DrainRead) (DrainDecision, error) {
	m, live, err := a.machine(ctx, in.Read)
	if err != nil {
		return DrainDecision{}, err
	}
	if m == nil || (m.DeletionTimestamp == nil) != (in.Purpose != "") {
		return DrainDecision{Result: Cancelled, Why: "the machine is gone, or its node is not emptied for that any more"}, nil
	}
	node, err := a.node(ctx, m, live)
	if err != nil {
		return DrainDecision{}, err
	}
	node = a.own(m, node)
	now := later(time.Now(), in.At)
	facts := a.Cluster.DeletionFacts(m, node, "")
	d := DrainDecision{Version: m.ResourceVersion, Phase: string(m.Status.CurrentStatus.Phase), Emptying: observe.EmptyingOf(m, node, now)}
	record := observe.DrainOf(m, d.Emptying)
	switch {
	case record != nil && record.Result != "":
		d.Result, d.Why = record.Result, "the drain has ended before"
		return d, nil
	case node == nil:
		d.Result, d.Why = Drained, "there is no node "+facts.NodeName
		return d, nil
	case d.Emptying.Purpose != in.Purpose:
		d.Result, d.Why = Cancelled, "the node may keep its pods"
		return d, nil
	case facts.Skip != "":
		d.Result, d.Why = Skipped, facts.Skip
		return d, nil
	}
	d.Hold, d.Retry = facts.Hold, m.Annotations[v1alpha1.AnnotationRetry]
	ladder := observe.LadderFacts(m, node, in.Grace, now)
	ladder.Unasked = in.Unasked
	d.Step = drain.Climb(ladder)
	d.Started, d.Recorded, d.Why = ladder.Started, string(ladder.Reached), d.Step.Why
	if d.Step.Over && d.Hold == "" { // what is left behind is not left while a person wants to look at it
		d.Result = Forced
	}
	return d, nil
}

// Holding is a hold that is written because somebody cancelled in Temporal.
type Holding struct {
	Read Read
	Why  string
}

// HoldDrain makes a machine say that its node is not drained for now, and its deletion stays in the stage in which it is. A
// hold that is there stays as it is. It returns the version to wait for; running it twice writes once.
func (a *Activities) HoldDrain(ctx context.Context, in Holding) (string, error) {
	return a.changeMachine(ctx, in.Read, func(m *v1alpha1.Machine) map[string]any {
		if _, held := m.Annotations[v1alpha1.AnnotationHold]; held {
			return nil
		}
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationHold: in.Why}}}
	})
}

// NodeLoad is what stands on a node.
type NodeLoad struct {
	Pods     int    // that have to go
	Attached int    // volumes
	Queue    string // its place in the queue of drains; empty when it is its turn. One that is to be forced waits for nobody
	Versions Gate
}

// WeighNode cordons the node of a machine that is to go, counts what has to leave it, and says whether it is its turn, which holds only
// for a machine whose stage Drain is on record. It reads the pods live: a node that is said to be empty gets no drain. Running it twice is harmless.
func (a *Activities) WeighNode(ctx context.Context, in Read) (NodeLoad, error) {
	gate, err := a.cordon(ctx, in, in.Live)
	if err != nil {
		return NodeLoad{}, err
	}
	m, _, err := a.machine(ctx, in)
	if err != nil {
		return NodeLoad{}, err
	}
	if m == nil || len(gate) == 0 {
		return NodeLoad{Versions: gate}, nil // there is no such node
	}
	pods, _, err := listPods(ctx, a.Cluster.Target(m.Namespace), m.Labels[v1alpha1.LabelNode])
	if err != nil {
		return NodeLoad{}, err
	}
	load := NodeLoad{Versions: gate, Attached: a.Cluster.Attached(m.Labels[v1alpha1.LabelNode])}
	facts, err := a.podFacts(ctx, in.Ref, pods, namespaces{}, drain.Delete)
	if err != nil {
		return NodeLoad{}, err
	}
	for _, pod := range facts {
		if goes(pod) {
			load.Pods++
		}
	}
	if node := a.Cluster.NodeOf(m); node != nil && observe.LadderFacts(m, node, 0, time.Now()).Force == "" {
		_, load.Queue = drain.MayDrain(a.Cluster.Turns(), in.Ref.UID, a.MaxDrains)
	}
	return load, nil
}
