// Package drain has the activities that drain a node: they decide the next step of a drain, evict pods, and wait until
// volumes are detached.
package drain

import (
	"cmp"
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

// Activities are the activities of package drain. Workflows call the methods of Activities by name.
type Activities struct{ Kube *kube.Kube }

// DefaultMaxConcurrentDrains is how many nodes of a cluster are drained at a time. Source: each drain sends at most 20
// concurrent requests, and the API server can serve 100 drains. A cluster that loses more than 100 nodes at once has no
// room for their pods.
const DefaultMaxConcurrentDrains = 100

// Input is the input of DecideDrain: how fresh the objects that it reads must be, and what the workflow run has found
// out about the node's pods.
type Input struct {
	kube.ReadInput
	Purpose string // vocabulary.DrainForUpdate or DrainForPreservation; empty for a machine that is being deleted
	Unasked bool   // since the run began, or since an outage, the workflow has not listed the node's pods
	// Unanswered is why the last EvictPods got no answer of the node's cluster; empty: it got one.
	Unanswered string        `json:",omitzero"`
	Grace      time.Duration // longest grace period of the remaining pods; zero before the first list of pods
}

// Decision is the next step of a drain.
type Decision struct {
	Result string // result of a drain that has ended; empty: the drain continues
	Why    string
	Step   drain.Step
	// Unanswered is why the node's cluster does not answer; empty: it answers, or its answer is not known.
	Unanswered string    `json:",omitzero"`
	Started    time.Time // time of the first evictions; zero: no eviction yet
	Recorded   string    // removal means that the machine's status records
	Hold       string    // who holds the drain, and why, for example "ann: lunch"; empty: no hold, pods are removed
	Retry      string    // value of the annotation retry; a new value retries all pods at once
	Version    string    // resourceVersion of the machine that was read
	Phase      string    // phase of the machine
	Purpose    attention.DrainPurpose

	ClusterAPI ClusterAPIFacts `json:",omitzero"` // set only for a machine of Cluster API
}

// ClusterAPIFacts has the extra facts for draining a machine of Cluster API. The drain of a machine of Cluster API is
// not a child workflow of a machine workflow.
type ClusterAPIFacts struct {
	NodeName string
	Step     drain.HookStep // next step for the hook of the machine
	Cordon   bool           // the node is schedulable and must be cordoned
	Queue    string         // the machine's place in the queue of drains; empty: the drain may begin
}

// ResultCancelled is the result of a drain that is no longer needed. A status can contain the results
// vocabulary.DrainResultDrained, DrainForced and DrainSkipped, but never ResultCancelled.
const ResultCancelled = "Cancelled"

// DecideDrain reads the machine and its node. DecideDrain returns how pods are removed now, and when the drain changes
// to the next means.
func (a *Activities) DecideDrain(ctx context.Context, in Input) (Decision, error) {
	m, live, err := a.Kube.ReadMachine(ctx, in.ReadInput)
	if err != nil {
		return Decision{}, err
	}
	if m == nil || (m.DeletionTimestamp == nil) != (in.Purpose != "") {
		return Decision{
			Result: ResultCancelled,
			Why:    "the machine is gone, or its node is not drained for this purpose any more",
		}, nil
	}
	named, unknown := a.Kube.ReadExistingNode(ctx, m, live)
	related := machine.RelatedObjects{NodeUnknown: unknown != nil}
	related.SetNodeAndOwner(a.Kube.Cluster, m, named)
	node, now := related.OwnedNode(), in.DecisionTime()
	facts := machine.DeletionFacts(a.Kube.Cluster, m, related, "")
	if unknown != nil && facts.SkipDrainReason == "" && observedrain.ForceReason(m) == "" {
		return Decision{}, unknown
	}
	purpose := attention.PlanMachine(machine.Facts(m, related, now)).Drain
	d := Decision{Version: m.ResourceVersion, Phase: string(m.Status.CurrentStatus.Phase), Purpose: purpose}
	record := observedrain.FindRecord(m, purpose)
	if record != nil && record.Result != "" {
		d.Result, d.Why = record.Result, "the drain has already ended"
	} else if d.Result, d.Why = resultIfDrainNotNeeded(in, facts, purpose); d.Result == "" {
		ladder := a.escalationFacts(m, record, node, in.Grace, now)
		ladder.NoPassYet = in.Unasked
		target := a.Kube.Cluster.Target(m.Namespace)
		ladder.Unanswered = cmp.Or(machine.TargetDownReason(target, m.Namespace), in.Unanswered)
		d.SetRemovalStep(ctx, m, target, ladder)
	}
	return d, nil
}

// escalationFacts returns the facts that decide how a drain removes pods.
func (a *Activities) escalationFacts(
	m *v1alpha1.Machine,
	record *v1alpha1.MachineDrain,
	node *corev1.Node,
	grace time.Duration,
	now time.Time,
) drain.EscalationFacts {
	l := observedrain.EscalationFacts(m, record, node, grace, now)
	absences := a.Kube.Cluster.AbsencesOfTarget(m.Namespace)
	if !l.Started.IsZero() {
		l.Absent = absences.DurationBetween(l.Started, now)
	}
	if !l.ReachedAt.IsZero() {
		l.AbsentInMeans = absences.DurationBetween(l.ReachedAt, now)
	}
	if l.Unusable == "" {
		return l
	}
	// JoinedNodeCounts reads every node: call it only for an unusable node.
	nodes := machine.JoinedNodeCounts(a.Kube.Cluster, m.Namespace, now)
	if l.Breaker = replace.UntrustedLossReason(nodes); !l.Lost {
		_, l.Breaker, _ = replace.BreakerState(nodes, now)
	}
	return l
}

// resultIfDrainNotNeeded returns the result of a drain that is not needed. resultIfDrainNotNeeded returns "" if the
// drain is needed.
func resultIfDrainNotNeeded(in Input, facts deletion.Facts, purpose attention.DrainPurpose) (result, why string) {
	switch doubt := facts.Owner.HasOwnerKind(ownership.OwnerInDoubt); {
	case doubt && facts.SkipDrainReason == "":
		return ResultCancelled, facts.Owner.Why
	case !facts.HasNode && !doubt && facts.Owner.Why != "":
		return vocabulary.DrainResultSkipped, facts.Owner.Why
	case !facts.HasNode && !doubt && !facts.NodeUnknown:
		return vocabulary.DrainResultDrained, "there is no node " + facts.NodeName
	case purpose.For != in.Purpose:
		return ResultCancelled, "the node does not have to be drained any more"
	case facts.SkipDrainReason != "":
		return vocabulary.DrainResultSkipped, facts.SkipDrainReason
	default:
		return "", ""
	}
}

// SetRemovalStep completes the decision about a drain that continues. SetRemovalStep sets how pods are removed
// now, and when the drain changes to the next means.
func (d *Decision) SetRemovalStep(
	ctx context.Context,
	m *v1alpha1.Machine,
	target *cache.Target,
	ladder drain.EscalationFacts,
) {
	d.Hold, d.Retry = observedrain.HoldReason(m), m.Annotations[v1alpha1.AnnotationRetry]
	d.Step = decideRemovalStep(ctx, target, ladder)
	d.Started, d.Recorded, d.Why = ladder.Started, string(ladder.Reached), d.Step.Why
	d.Unanswered = ladder.Unanswered
	// a drain with a hold does not end here, because an operator may want to see the remaining pods
	if d.Step.Over && d.Hold == "" {
		d.Result = vocabulary.DrainResultForced
	}
}

// decideRemovalStep returns how the drain removes pods now. If pods are to be evicted, decideRemovalStep asks the
// target cluster whether it serves the eviction API. If the cluster does not answer, pods are evicted, because an
// eviction request does no harm if the cluster has no eviction API. The next decision repeats the question.
func decideRemovalStep(ctx context.Context, target *cache.Target, ladder drain.EscalationFacts) drain.Step {
	step := drain.DecideStep(ladder)
	if step.Means != drain.MeansEvict || ladder.Unanswered != "" {
		return step
	}
	bounded, cancel := context.WithTimeout(ctx, kube.TargetReadTimeout)
	defer cancel()
	why, err := target.NoEvictionReason(bounded)
	if err != nil {
		activity.GetLogger(ctx).Warn("whether the cluster can evict pods is not known yet", "error", err)
	}
	ladder.NoEviction = why
	return drain.DecideStep(ladder)
}

// HoldInput is a request to hold a drain. HoldInput is sent when an operator cancels the workflow in Temporal.
type HoldInput struct {
	Read kube.ReadInput
	Why  string
}

// HoldDrain writes the hold annotation on a machine. A hold stops the drain of the machine's node, and keeps the
// deletion of the machine in its current stage. An existing hold is not overwritten. HoldDrain returns the
// resourceVersion to wait for; a second run writes nothing.
func (a *Activities) HoldDrain(ctx context.Context, in HoldInput) (string, error) {
	return a.Kube.ChangeMachine(ctx, in.Read, func(m *v1alpha1.Machine) {
		if _, held := m.Annotations[v1alpha1.AnnotationHold]; !held {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationHold, in.Why)
		}
	})
}

// NodeLoad is the number of pods and attached volumes that a drain has to remove from a node.
type NodeLoad struct {
	Pods     int    // number of pods to remove
	Attached int    // number of attached volumes; at least 1 while the number is unknown
	Queue    string // the machine's place in the queue of drains; empty: the drain may begin, or its pods are killed
	Versions kube.MinVersions
}

// CordonAndCountPods cordons the node of a machine that is being deleted, counts the pods that must leave the node, and
// returns whether the drain may begin. The queue of drains contains only machines whose status records the stage Drain.
// Pods are read live, because a node without pods is not drained. Running CordonAndCountPods twice is harmless.
func (a *Activities) CordonAndCountPods(ctx context.Context, in kube.ReadInput) (NodeLoad, error) {
	versions, err := a.Kube.CordonNode(ctx, in, in.Live)
	if err != nil {
		return NodeLoad{}, err
	}
	m, _, err := a.Kube.ReadMachine(ctx, in)
	if err != nil {
		return NodeLoad{}, err
	}
	switch {
	case m == nil:
		return NodeLoad{Versions: versions}, nil
	case len(versions) == 0: // no node was cordoned: a node whose owner is in doubt must not count as an empty node
		return NodeLoad{Versions: versions}, a.Kube.ConfirmNoNode(ctx, m)
	}
	p, release, err := a.acquireNodeLocation(ctx, in.Ref)
	if err != nil {
		return NodeLoad{}, err
	}
	defer release()
	pods, _, err := listPods(ctx, p.client(), cache.NodeNameOfMachine(m))
	if err != nil {
		return NodeLoad{}, err
	}
	load := NodeLoad{Versions: versions, Attached: p.Target.AttachedVolumeCount(cache.NodeNameOfMachine(m))}
	facts, err := p.podFacts(ctx, pods, labelsByNamespace{}, drain.MeansDelete)
	if err != nil {
		return NodeLoad{}, err
	}
	for _, pod := range facts {
		if mustPodLeave(pod) {
			load.Pods++
		}
	}
	if node := a.Kube.Cluster.NodeOfMachine(
		m,
	); node != nil &&
		a.escalationFacts(m, nil, node, 0, in.DecisionTime()).ForceReason() == "" {
		turns := observedrain.QueueEntries(a.Kube.Cluster, m.Namespace)
		_, load.Queue = drain.MayDrainNow(turns, in.Ref.UID, a.Kube.MaxDrains)
	}
	return load, nil
}
