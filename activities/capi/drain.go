package capi

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	decidedrain "millwright/decide/drain"
	"millwright/decide/ownership"
	"millwright/decide/replace"
	"millwright/observe/cache"
	"millwright/observe/capi"
	capidrain "millwright/observe/capi/drain"
	observedrain "millwright/observe/drain"
)

// MachinesResource is the key of Machines in the resource versions that activities return.
const MachinesResource = capi.MachinesResource

// DecideClusterAPIDrain returns the next step for a machine with Millwright's drain hook. Millwright drains the
// machine's node in place of Cluster API. While the drain runs, the decision also contains how pods are removed (Evict,
// DeleteInOrder, Delete or Kill), and when the drain changes to the next of these means.
func (a *Activities) DecideClusterAPIDrain(ctx context.Context, in drain.Input) (drain.Decision, error) {
	m, err := a.readMachine(ctx, in.ReadInput)
	if err != nil {
		return drain.Decision{}, err
	}
	if m == nil {
		return drain.Decision{Result: drain.ResultCancelled, Why: "the machine is gone"}, nil
	}
	v, now := capidrain.ToMillwrightMachine(m), in.DecisionTime()
	d := drain.Decision{
		Version:    m.ResourceVersion,
		Phase:      string(v.Status.CurrentStatus.Phase),
		ClusterAPI: drain.ClusterAPIFacts{NodeName: cache.NodeNameOfMachine(v)},
	}
	hook, err := capidrain.HookFacts(ctx, a.Cache, m, v)
	if err != nil {
		return d, err
	}
	step, why := hook.Decide()
	var node *corev1.Node
	var target *cache.Target
	if step == decidedrain.HookDrain {
		target, err = a.WorkloadClusters.Target(ctx, m.Namespace, m.Spec.ClusterName)
		if err == nil {
			node, err = readNodeOfMachine(ctx, target.Client(), m)
		}
		if err != nil && ctx.Err() != nil {
			return d, err
		}
		if hook.NodeGone = node == nil; err != nil {
			hook.UnknownNodeReason = unreadableNodeReason(m, err)
		}
		step, why = hook.Decide()
	}
	d.ClusterAPI.Step, d.Why = step, why
	switch step {
	default: // the workflow waits, or removes the hook
	case decidedrain.HookNothing:
		d.Result = drain.ResultCancelled
	case decidedrain.HookDrainEnded:
		d.Result = resultOfEndedDrain(hook)
	case decidedrain.HookDrain:
		record := observedrain.FindRecord(v, d.Purpose)
		ladder := observedrain.EscalationFacts(v, record, node, in.Grace, now)
		ladder.NoPassYet = in.Unasked
		if ladder.Unusable != "" {
			_, ladder.Breaker, _ = replace.BreakerState(
				capidrain.JoinedNodeCounts(a.Cache, m.Namespace, m.Spec.ClusterName),
				now,
			)
		}
		d.SetRemovalStep(ctx, v, target, ladder)
		d.ClusterAPI.Cordon = !node.Spec.Unschedulable
		if record == nil && ladder.ForceReason() == "" {
			_, d.ClusterAPI.Queue = decidedrain.MayDrainNow(
				capidrain.QueueEntries(a.Cache, m.Namespace, m.Spec.ClusterName),
				string(m.UID),
				a.Kube.MaxDrains,
			)
		}
	}
	return d, nil
}

// resultOfEndedDrain returns the result of a drain that has ended, or that ends before any pod is removed.
func resultOfEndedDrain(hook decidedrain.HookFacts) string {
	switch {
	case hook.DrainResult != "":
		return hook.DrainResult
	case hook.SkipDrainReason != "":
		return vocabulary.DrainResultSkipped
	default:
		return vocabulary.DrainResultDrained
	}
}

// unreadableNodeReason says why a node could not be read.
func unreadableNodeReason(m *clusterv1.Machine, err error) string {
	why := "Cluster " + m.Spec.ClusterName + " does not answer: "
	if errors.Is(err, capidrain.ErrNoKubeconfig) || !kube.HasNoServerAnswer(err) {
		why = "the nodes of Cluster " + m.Spec.ClusterName + " cannot be read: "
	}
	return kube.ShortenMessage(why + err.Error())
}

// readNodeOfMachine reads the node of a machine; nil if the node is gone, or belongs to another instance.
func readNodeOfMachine(ctx context.Context, client kubernetes.Interface, m *clusterv1.Machine) (*corev1.Node, error) {
	bounded, cancel := context.WithTimeout(ctx, kube.TargetReadTimeout)
	defer cancel()
	node, err := client.CoreV1().Nodes().Get(bounded, m.Status.NodeRef.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get node %s: %w", m.Status.NodeRef.Name, err)
	}
	owner := ownership.OwnerOfNode(
		ownership.Node{Name: node.Name, ProviderID: node.Spec.ProviderID},
		ownership.Machine{
			UID:        string(m.UID),
			ProviderID: cmp.Or(m.Spec.ProviderID, node.Spec.ProviderID),
			Told:       m.Status.NodeRef.Name, // set by Cluster API's Machine controller
		},
		nil,
	)
	if !owner.HasOwnerKind(ownership.OwnerSelf) {
		return nil, nil
	}
	return node, nil
}

// readMachine returns a machine from the cache, or live if the input requires a live read; nil if the machine is gone.
func (a *Activities) readMachine(ctx context.Context, in kube.ReadInput) (*clusterv1.Machine, error) {
	if !a.Kube.Cluster.ActsInNamespace(in.Ref.Namespace) {
		return nil, nil
	}
	live, err := a.Kube.NeedsLiveRead(ctx, in)
	if err != nil {
		return nil, err
	}
	if live {
		return kube.ReadLive(ctx, a.Cache.Client().Machines(in.Ref.Namespace), "machine", in.Ref)
	}
	m, found := a.Cache.Machine(in.Ref.Key())
	if !found || string(m.UID) != in.Ref.UID {
		return nil, nil
	}
	return m, nil
}

// CordonClusterAPINode cordons the node of a machine. A node that is gone or belongs to another instance stays
// unchanged. The activity is idempotent.
func (a *Activities) CordonClusterAPINode(ctx context.Context, in kube.ReadInput) (kube.MinVersions, error) {
	m, err := a.readMachine(ctx, in)
	if err != nil || m == nil {
		return nil, err
	}
	target, err := a.WorkloadClusters.Target(ctx, m.Namespace, m.Spec.ClusterName)
	if err != nil {
		return nil, err
	}
	for range kube.MaxConflictRetries {
		node, err := readNodeOfMachine(ctx, target.Client(), m)
		if err != nil || node == nil || node.Spec.Unschedulable {
			return nil, err
		}
		_, err = kube.PatchObject(
			ctx,
			target.Client().CoreV1().Nodes(),
			node,
			map[string]any{"spec": map[string]any{"unschedulable": true}},
		)
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil, nil
		case !apierrors.IsConflict(err):
			return nil, kube.ClassifyWriteError(ctx, in.Ref, fmt.Errorf("cordon node %s: %w", node.Name, err))
		}
	}
	return nil, kube.RepeatedConflictError(in.Ref)
}

// EvictClusterAPIPods is drain.EvictPods for the node of a Machine of Cluster API.
func (a *Activities) EvictClusterAPIPods(ctx context.Context, in drain.Eviction) (drain.EvictionResult, error) {
	m, err := kube.ReadLive(ctx, a.Cache.Client().Machines(in.Machine.Namespace), "machine", in.Machine)
	if err != nil {
		return drain.EvictionResult{}, err
	}
	if m == nil {
		return drain.EvictionResult{}, kube.ObjectGoneError(in.Machine)
	}
	target, err := a.WorkloadClusters.Target(ctx, m.Namespace, m.Spec.ClusterName)
	if err != nil {
		return drain.ResultWithoutAnswer(ctx, in, err)
	}
	release, err := target.UseDrainCaches(ctx)
	if err != nil {
		return drain.ResultWithoutAnswer(
			ctx,
			in,
			fmt.Errorf("read budgets and volume attachments of Cluster %s: %w", m.Spec.ClusterName, err),
		)
	}
	defer release()
	sources := observedrain.NewChangeSources(
		a.Kube.Cluster.Informer(capi.MachinesResource),
		a.Kube.Cluster.Informer(capi.DrainRulesResource),
		target,
	)
	cached := func() *clusterv1.Machine {
		if now, found := a.Cache.Machine(in.Machine.Key()); found && now.UID == m.UID {
			return now
		}
		return nil
	}
	return drain.EvictNodePods(ctx, drain.NodeLocation{
		Kube: a.Kube, Name: m.Namespace + "/" + m.Spec.ClusterName, Target: target, Sources: sources,
		Machine: func() *v1alpha1.Machine {
			if now := cached(); now != nil {
				return capidrain.ToMillwrightMachine(now)
			}
			return nil
		},
		Rules: func() (observedrain.MachineRules, error) {
			if now := cached(); now != nil {
				return capidrain.RulesOfMachine(a.Cache, now)
			}
			return capidrain.RulesOfMachine(a.Cache, m)
		},
	}, in)
}

// ReportClusterAPIDrain writes the progress of a drain into the machine's drain annotation and conditions, unless they
// are up to date. The result contains the resource version and the current operation of the machine after the write. If
// the machine is gone, the activity fails with ObjectGone.
func (a *Activities) ReportClusterAPIDrain(ctx context.Context, in machine.Report) (kube.ReportResult, error) {
	machines, stamp := a.Cache.Client().Machines(in.Read.Ref.Namespace), in.Read.TimeToRecord(ctx)
	for attempt := range kube.MaxConflictRetries {
		if attempt > 0 {
			in.Read.Live = true
		}
		m, err := a.readMachine(ctx, in.Read)
		if err != nil {
			return kube.ReportResult{}, err
		}
		if m == nil {
			return kube.ReportResult{}, kube.ObjectGoneError(in.Read.Ref)
		}
		before := capidrain.ToMillwrightMachine(m)
		after := machine.CopyWithReport(before, in, stamp)
		written, err := a.writeDrainProgress(ctx, machines, m, after)
		switch {
		case apierrors.IsConflict(err):
			continue
		case apierrors.IsNotFound(err):
			return kube.ReportResult{}, kube.ObjectGoneError(in.Read.Ref)
		case err != nil:
			return kube.ReportResult{}, kube.ClassifyWriteError(ctx, in.Read.Ref, err)
		}
		if written.ResourceVersion != m.ResourceVersion {
			a.Kube.RecordEvent(written, in.Event)
			if result, took := machine.EndedDrainResult(before, after, stamp); result != "" {
				a.Kube.Metrics.CountDrain(result, took)
			}
		}
		r := kube.ReportResult{Version: written.ResourceVersion}
		if o := after.Status.CurrentOperation; o != nil {
			r.WaitsFor, r.BlockedBy = o.WaitsFor, o.BlockedBy
		}
		return r, nil
	}
	return kube.ReportResult{}, kube.RepeatedConflictError(in.Read.Ref)
}

// writeDrainProgress writes the drain annotation and the conditions of a machine if they differ. The annotation is
// written first, because the timeouts of the drain start at timestamps in the annotation.
func (a *Activities) writeDrainProgress(
	ctx context.Context,
	machines capi.TypedClient[*clusterv1.Machine, *clusterv1.MachineList],
	m *clusterv1.Machine,
	after *v1alpha1.Machine,
) (*clusterv1.Machine, error) {
	text, err := capidrain.StatusText(after)
	if err != nil {
		return nil, err
	}
	if m.Annotations[v1alpha1.AnnotationDrainStatus] != text {
		if m, err = kube.PatchObject(
			ctx,
			machines,
			m,
			map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationDrainStatus: text}}},
		); err != nil {
			return nil, err
		}
	}
	next := m.DeepCopy()
	if !capidrain.CopyConditions(next, after) {
		return m, nil
	}
	return kube.PatchChanges(ctx, machines, m, next, "status")
}

// HoldClusterAPIDrain annotates a machine with a hold after an operator has cancelled the machine's drain in Temporal.
// The node of a machine with a hold is not drained. An existing hold stays unchanged. If the machine is gone, the
// activity fails with ObjectGone. The activity is idempotent.
func (a *Activities) HoldClusterAPIDrain(ctx context.Context, in drain.HoldInput) (string, error) {
	machines := a.Cache.Client().Machines(in.Read.Ref.Namespace)
	return kube.PatchAfterRead(ctx, in.Read.Ref, machines, func() (*clusterv1.Machine, map[string]any, error) {
		m, err := kube.ReadLive(ctx, machines, "machine", in.Read.Ref)
		if err != nil || m == nil {
			return nil, nil, err
		}
		if _, held := m.Annotations[v1alpha1.AnnotationHold]; held || !capidrain.HasDrainHook(m) {
			return m, nil, nil
		}
		return m, map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationHold: in.Why}},
		}, nil
	})
}

// HookRelease says how the hook of a machine is removed.
type HookRelease struct {
	Read    kube.ReadInput
	Drained bool // Cluster API must not drain the node: Millwright has drained it, or a person skipped the drain
}

// ReleaseClusterAPIHook removes Millwright's hook from a machine, so that Cluster API continues the deletion of the
// machine. If the machine is gone, the activity fails with ObjectGone. The activity is idempotent.
func (a *Activities) ReleaseClusterAPIHook(ctx context.Context, in HookRelease) (string, error) {
	machines := a.Cache.Client().Machines(in.Read.Ref.Namespace)
	return kube.PatchAfterRead(ctx, in.Read.Ref, machines, func() (*clusterv1.Machine, map[string]any, error) {
		m, err := kube.ReadLive(ctx, machines, "machine", in.Read.Ref)
		if err != nil || m == nil {
			return nil, nil, err
		}
		return m, capidrain.HookRemovalPatch(m, in.Drained), nil
	})
}
