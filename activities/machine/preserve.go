package machine

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/ownership"
	"millwright/decide/preserve"
	"millwright/observe/cache"
	"millwright/observe/machine"
)

// PreserveMachine writes the decision about a machine's preservation to the machine and its node. PreserveMachine
// writes nothing if the machine and its node are up to date, if the machine is being deleted, or if another machine
// names the same node. The result holds the resource versions of the written objects. The activity is idempotent: a
// retry continues after an interruption.
func (a *Activities) PreserveMachine(ctx context.Context, in kube.ReadInput) (kube.MinVersions, error) {
	versions := kube.MinVersions{}
	for range kube.MaxConflictRetries {
		p, err := a.decidePreservation(ctx, in)
		if err != nil {
			return nil, err
		}
		if p == nil || p.decision.IsEmpty() {
			return versions, nil
		}
		err = p.writeChanges(ctx, versions)
		switch {
		case err == nil:
			return versions, nil
		// the machine or the node was changed or deleted, so the next attempt reads live
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			in.Live = true
		default:
			return nil, kube.ClassifyWriteError(ctx, in.Ref, err)
		}
	}
	return nil, kube.RepeatedConflictError(in.Ref)
}

// decidedPreservation is the decision about a machine, with the machine and node as last read or written.
type decidedPreservation struct {
	*Activities
	machine  *v1alpha1.Machine
	node     *corev1.Node // nil: the machine has no node
	now      time.Time
	decision preserve.Decision
}

// decidePreservation reads a machine and its node, and decides about the preservation. It returns nil if nothing must
// be decided. The node is read live, because a missing annotation ends a preservation, and a stale cache must not end
// it.
func (a *Activities) decidePreservation(ctx context.Context, in kube.ReadInput) (*decidedPreservation, error) {
	m, _, err := a.Kube.ReadMachine(ctx, in)
	if err != nil || m == nil {
		return nil, err
	}
	node, err := a.Kube.ReadNode(ctx, m, true)
	if err != nil {
		return nil, err
	}
	if node != nil && !a.Kube.Cluster.OwnerOfNode(m, node).HasOwnerKind(ownership.OwnerSelf) {
		return nil, nil // two machines with one node would revert each other's writes
	}
	now := in.DecisionTime()
	return &decidedPreservation{
		Activities: a,
		machine:    m,
		node:       node,
		now:        now,
		decision:   preserve.Decide(machine.PreservationFacts(m, node, now)),
	}, nil
}

// writeChanges writes the changes and adds the new versions to versions. The end of the preservation is written to the
// status first and removed last. While the status contains the end, the next run assumes that other changes may be
// missing.
func (p *decidedPreservation) writeChanges(ctx context.Context, versions kube.MinVersions) error {
	steps := []func(context.Context, kube.MinVersions) error{
		p.writeExpiry, p.writeNodeAnnotationsAndTaint, p.writeCondition, p.writeMachineAnnotations,
	}
	if !p.decision.IsPreserved {
		steps = []func(context.Context, kube.MinVersions) error{
			p.writeCondition, p.writeNodeAnnotationsAndTaint, p.writeMachineAnnotations, p.writeExpiry,
		}
	}
	for _, step := range steps {
		if err := step(ctx, versions); err != nil {
			return err
		}
	}
	return nil
}

// writeExpiry writes only the end of preservation into the status. The timestamp of the phase must not change, because
// timeouts start at this timestamp.
func (p *decidedPreservation) writeExpiry(ctx context.Context, versions kube.MinVersions) error {
	if !p.decision.ChangesStatus {
		return nil
	}
	m := p.machine.DeepCopy()
	m.Status.CurrentStatus.PreserveExpiryTime = nil
	if !p.decision.Expiry.IsZero() {
		m.Status.CurrentStatus.PreserveExpiryTime = new(metav1.NewTime(p.decision.Expiry).Rfc3339Copy())
	}
	m, err := p.Kube.Machines(m.Namespace).UpdateStatus(ctx, m, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write end of preservation: %w", err)
	}
	p.machine = m
	versions.RaiseVersion(cache.MachinesResource, m.ResourceVersion)
	if p.node == nil || !p.decision.IsPreserved { // if the node stays preserved, writeCondition records the event
		p.recordEvent()
	}
	return nil
}

// writeNodeAnnotationsAndTaint writes the annotations and the taint of the node.
func (p *decidedPreservation) writeNodeAnnotationsAndTaint(ctx context.Context, versions kube.MinVersions) error {
	changes := p.decision.Node
	changes.Condition = nil
	if changes.IsEmpty() {
		return nil
	}
	node := p.node.DeepCopy()
	node.Annotations = changes.Annotations.Apply(node.Annotations)
	if changes.RemovesTaint {
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, machine.IsPreservationTaint)
	}
	if changes.AddsTaint {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{
			Key:       v1alpha1.TaintPreserved,
			Effect:    v1alpha1.TaintPreservedEffect,
			TimeAdded: new(metav1.NewTime(p.now).Rfc3339Copy()),
		})
	}
	node, err := p.Kube.Cluster.TargetClient(p.machine.Namespace).
		CoreV1().
		Nodes().
		Update(ctx, node, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write annotations and taint of node: %w", err)
	}
	p.node = node
	versions.RaiseVersion(cache.NodesResource, node.ResourceVersion)
	return nil
}

// writeCondition writes the condition of the node.
func (p *decidedPreservation) writeCondition(ctx context.Context, versions kube.MinVersions) error {
	c := p.decision.Node.Condition
	if c == nil {
		return nil
	}
	before := p.node.Status.Conditions
	after := setCondition(slices.Clone(before), Condition{
		Type: string(v1alpha1.NodePreserved), True: c.True, Reason: c.Reason, Message: c.Message,
	}, metav1.NewTime(p.now).Rfc3339Copy())
	nodes := p.Kube.Cluster.TargetClient(p.machine.Namespace).CoreV1().Nodes()
	node, err := kube.PatchObject(
		ctx,
		nodes,
		p.node,
		map[string]any{"status": map[string]any{"conditions": after}},
		"status",
	)
	if err != nil {
		return fmt.Errorf("write condition of node: %w", err)
	}
	p.node = node
	versions.RaiseVersion(cache.NodesResource, node.ResourceVersion)
	began := c.True && !cache.IsConditionTrue(before, v1alpha1.NodePreserved)
	if lost := !c.True && !p.decision.ChangesStatus; began || lost {
		// if the recorded end is still set, writeExpiry records the event
		p.recordEvent()
	}
	return nil
}

func (p *decidedPreservation) writeMachineAnnotations(ctx context.Context, versions kube.MinVersions) error {
	edit := p.decision.Machine.Annotations
	if edit.IsEmpty() {
		return nil
	}
	patch := map[string]any{"metadata": map[string]any{"annotations": kube.MergePatchOfMap(edit)}}
	m, err := kube.PatchObject(ctx, p.Kube.Machines(p.machine.Namespace), p.machine, patch)
	if err != nil {
		return fmt.Errorf("write annotations of machine: %w", err)
	}
	p.machine = m
	versions.RaiseVersion(cache.MachinesResource, m.ResourceVersion)
	return nil
}

// recordEvent records the start or end of preservation as an event, with the message of the node's condition.
func (p *decidedPreservation) recordEvent() {
	reason := "PreservationStopped"
	if p.decision.IsPreserved {
		reason = "Preserved"
	}
	p.Kube.RecordEvent(p.machine, &kube.Event{Reason: reason, Message: p.decision.Message})
}
