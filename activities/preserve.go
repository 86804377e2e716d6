package activities

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/nodesync"
	"millwright/decide/preserve"
	"millwright/observe"
)

// Reasons of the events on a machine when its preservation begins and ends.
const (
	reasonPreserved           = "Preserved"
	reasonPreservationStopped = "PreservationStopped"
)

// PreserveMachine makes a machine and its node say what was decided about the machine's preservation. Where both say it
// already, the machine is to go, or another machine names its node too, nothing is written. It returns the versions to wait
// for; the gate is empty when nothing was written. Where it was interrupted, running it again goes on; running it twice
// writes once.
func (a *Activities) PreserveMachine(ctx context.Context, in Read) (Gate, error) {
	gate := Gate{}
	for range maxConflicts {
		p, err := a.preservation(ctx, in)
		if err != nil {
			return nil, err
		}
		if p == nil || p.decision.Empty() {
			return gate, nil
		}
		err = p.write(ctx, gate)
		switch {
		case err == nil:
			return gate, nil
		case apierrors.IsConflict(err), apierrors.IsNotFound(err): // somebody was faster, or node or machine went: look again
			in.Live = true
		default:
			return nil, writeError(in.Ref, err)
		}
	}
	return nil, contended(in.Ref)
}

// preservation is what was decided about a machine, with the objects as they were read or last written.
type preservation struct {
	*Activities
	machine  *v1alpha1.Machine
	node     *corev1.Node // nil: it has none
	now      time.Time
	decision preserve.Decision
}

// preservation reads a machine and its node and decides; nil means that there is nothing to decide. The node is read live:
// that it has no wish any more ends a preservation, and a cache that is behind must not say so.
func (a *Activities) preservation(ctx context.Context, in Read) (*preservation, error) {
	m, _, err := a.machine(ctx, in)
	if err != nil || m == nil {
		return nil, err
	}
	// If two machines decided for one node, each would take back what the other one wrote.
	if name := m.Labels[v1alpha1.LabelNode]; name != "" && a.claimed(NodeRemoval{Machine: in.Ref, NodeName: name}) {
		return nil, nil
	}
	node, err := a.node(ctx, m, true)
	if err != nil {
		return nil, err
	}
	now := later(time.Now(), in.At)
	return &preservation{Activities: a, machine: m, node: node, now: now, decision: observe.Preservation(m, node, now)}, nil
}

// write makes the changes and raises the gate. The end on record is the first thing to be there and the last one to go: as
// long as it stands, whoever comes next knows that there is something to do.
func (p *preservation) write(ctx context.Context, gate Gate) error {
	steps := []func(context.Context, Gate) error{p.writeExpiry, p.markNode, p.declare, p.annotate}
	if !p.decision.Preserve {
		steps = []func(context.Context, Gate) error{p.declare, p.markNode, p.annotate, p.writeExpiry}
	}
	for _, step := range steps {
		if err := step(ctx, gate); err != nil {
			return err
		}
	}
	return nil
}

// writeExpiry writes the end of preservation and nothing else of the status: the phase did not change, so its time must not
// move, nor any clock that counts from it (D26).
func (p *preservation) writeExpiry(ctx context.Context, gate Gate) error {
	if !p.decision.StatusChange {
		return nil
	}
	m := p.machine.DeepCopy()
	m.Status.CurrentStatus.PreserveExpiryTime = nil
	if !p.decision.Expiry.IsZero() {
		m.Status.CurrentStatus.PreserveExpiryTime = new(metav1.NewTime(p.decision.Expiry).Rfc3339Copy())
	}
	m, err := p.Cluster.Client().MachineV1alpha1().Machines(m.Namespace).UpdateStatus(ctx, m, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write end of preservation: %w", err)
	}
	p.machine = m
	gate.Raise(observe.Machines, m.ResourceVersion)
	if p.node == nil || !p.decision.Preserve { // else it is told when the node says so
		p.tellPeople()
	}
	return nil
}

// markNode writes the annotations and the taint of the node.
func (p *preservation) markNode(ctx context.Context, gate Gate) error {
	changes := p.decision.Node
	changes.Condition = nil
	if changes.Empty() {
		return nil
	}
	node := p.node.DeepCopy()
	node.Annotations = nodesync.Edit(changes.Annotations).Apply(node.Annotations)
	if changes.Untaint {
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, observe.IsPreservedTaint)
	}
	if changes.Taint {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{
			Key: v1alpha1.TaintPreserved, Effect: v1alpha1.TaintPreservedEffect, TimeAdded: new(metav1.NewTime(p.now).Rfc3339Copy()),
		})
	}
	node, err := p.Cluster.Target(p.machine.Namespace).CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write annotations and taint of node: %w", err)
	}
	p.node = node
	gate.Raise(observe.Nodes, node.ResourceVersion)
	return nil
}

// declare writes the condition of the node.
func (p *preservation) declare(ctx context.Context, gate Gate) error {
	c := p.decision.Node.Condition
	if c == nil {
		return nil
	}
	before := p.node.Status.Conditions
	after := setCondition(slices.Clone(before), Condition{
		Type: string(v1alpha1.NodePreserved), True: c.True, Reason: c.Reason, Message: c.Message,
	}, metav1.NewTime(p.now).Rfc3339Copy())
	patch, err := seen(map[string]any{"status": map[string]any{"conditions": after}}, p.node)
	if err != nil {
		return err
	}
	node, err := p.Cluster.Target(p.machine.Namespace).CoreV1().Nodes().Patch(ctx, p.node.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("write condition of node: %w", err)
	}
	p.node = node
	gate.Raise(observe.Nodes, node.ResourceVersion)
	began := c.True && !slices.ContainsFunc(before, func(o corev1.NodeCondition) bool {
		return o.Type == v1alpha1.NodePreserved && o.Status == corev1.ConditionTrue
	})
	if lost := !c.True && !p.decision.StatusChange; began || lost { // with its end still on record, the end is told last
		p.tellPeople()
	}
	return nil
}

// annotate writes the annotations of the machine.
func (p *preservation) annotate(ctx context.Context, gate Gate) error {
	edit := p.decision.Machine.Annotations
	if edit.Empty() {
		return nil
	}
	patch, err := seen(map[string]any{"metadata": map[string]any{"annotations": mergePatch(nodesync.Edit(edit))}}, p.machine)
	if err != nil {
		return err
	}
	m, err := p.Cluster.Client().MachineV1alpha1().Machines(p.machine.Namespace).Patch(ctx, p.machine.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("write annotations of machine: %w", err)
	}
	p.machine = m
	gate.Raise(observe.Machines, m.ResourceVersion)
	return nil
}

// tellPeople says that preservation begins or ends, in the words of the node's condition.
func (p *preservation) tellPeople() {
	reason := reasonPreserved
	if !p.decision.Preserve {
		reason = reasonPreservationStopped
	}
	p.tell(p.machine, &Event{Reason: reason, Message: p.decision.Message})
}
