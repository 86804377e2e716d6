package activities

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/inplace"
	"millwright/observe"
)

// InPlaceMark is what the condition InPlaceUpdate of a machine's node is to say, as decide/inplace said it.
type InPlaceMark struct {
	Read    Read
	Reason  string
	Message string
}

// MarkInPlace writes how far the in-place update of a machine's node is. Nothing is written where the node says so already,
// or where this is not what comes next any more: the update was called off, the agent was faster, or somebody has uncordoned
// the node that was to be empty. In each case it returns the version of the node to decide with; the gate is empty where
// there is no node that is the machine's alone. Running it twice writes once.
func (a *Activities) MarkInPlace(ctx context.Context, in InPlaceMark) (Gate, error) {
	return a.changeNode(ctx, in.Read, func(m *v1alpha1.Machine, node *corev1.Node) map[string]any {
		now, next := observe.InPlaceNode(node), observe.InPlace(m, node)
		switch {
		case next.Reason == "", next.Reason != in.Reason:
			return nil
		case next.Step == inplace.Drain && !now.Cordoned:
			return nil
		case now.Reason == in.Reason && now.Message == in.Message: // what an agent says of a failure has changed again
			return nil
		}
		return map[string]any{"status": map[string]any{"conditions": marked(node.Status.Conditions, in, metav1.Now().Rfc3339Copy())}}
	}, "status")
}

// marked returns conditions with the one of in-place updates. Its status never changes: its time is that of the step.
func marked(list []corev1.NodeCondition, in InPlaceMark, now metav1.Time) []corev1.NodeCondition {
	list = slices.DeleteFunc(slices.Clone(list), func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.NodeInPlaceUpdate && c.Reason != in.Reason
	})
	return setCondition(list, Condition{Type: string(v1alpha1.NodeInPlaceUpdate), True: true, Reason: in.Reason, Message: in.Message}, now)
}

// CordonNode keeps new pods off the node of a machine. A cordon that is there, whoever made it, is left alone, and so is a
// node whose in-place update was called off, or is held. It returns the version of the node to decide with; the gate is empty where
// there is no node that is the machine's alone. Running it twice writes once.
func (a *Activities) CordonNode(ctx context.Context, in Read) (Gate, error) {
	return a.cordon(ctx, in, true)
}

// cordon is CordonNode, which looks at the node as the cache has it first, unless it is to be live.
func (a *Activities) cordon(ctx context.Context, in Read, live bool) (Gate, error) {
	return a.changeNodeAsSeen(ctx, in, live, func(m *v1alpha1.Machine, node *corev1.Node) map[string]any {
		_, held := m.Annotations[v1alpha1.AnnotationHold]
		if node.Spec.Unschedulable || (m.DeletionTimestamp == nil && (held || observe.InPlaceNode(node).CalledOff())) {
			return nil
		}
		return map[string]any{"spec": map[string]any{"unschedulable": true}}
	})
}

// UncordonNode lets new pods onto the node of a machine that is to stay. It returns as CordonNode does; running it twice
// writes once.
func (a *Activities) UncordonNode(ctx context.Context, in Read) (Gate, error) {
	return a.changeNode(ctx, in, func(m *v1alpha1.Machine, node *corev1.Node) map[string]any {
		if !node.Spec.Unschedulable || m.DeletionTimestamp != nil {
			return nil
		}
		return map[string]any{"spec": map[string]any{"unschedulable": nil}}
	})
}

// changeNode patches the node of a machine with what change returns for it as it is now; nil means that there is nothing to
// do. It returns the version that the node has then. A node that is not there, or that another machine names too, is left
// alone: then the gate is empty.
func (a *Activities) changeNode(ctx context.Context, in Read, change func(*v1alpha1.Machine, *corev1.Node) map[string]any, subresources ...string) (Gate, error) {
	return a.changeNodeAsSeen(ctx, in, true, change, subresources...)
}

// changeNodeAsSeen is changeNode, which looks at the node as the cache has it first, unless it is to be live from the start: for
// what was decided from the cache, too.
func (a *Activities) changeNodeAsSeen(ctx context.Context, in Read, live bool, change func(*v1alpha1.Machine, *corev1.Node) map[string]any, subresources ...string) (Gate, error) {
	gate := Gate{}
	m, _, err := a.machine(ctx, in)
	if err != nil {
		return nil, err
	}
	if m == nil || a.claimed(NodeRemoval{Machine: in.Ref, NodeName: m.Labels[v1alpha1.LabelNode]}) {
		return gate, nil
	}
	for attempt := range maxConflicts {
		node, err := a.node(ctx, m, live || attempt > 0 || a.Cluster.NodeOf(m) == nil) // one that has just joined may not be in the cache yet
		if err != nil || node == nil {
			return gate, err
		}
		patch := change(m, node)
		if patch == nil {
			gate.Raise(observe.Nodes, node.ResourceVersion)
			return gate, nil
		}
		data, err := seen(patch, node)
		if err != nil {
			return nil, err
		}
		node, err = a.Cluster.Target(m.Namespace).CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, data, metav1.PatchOptions{}, subresources...)
		switch {
		case err == nil:
			gate.Raise(observe.Nodes, node.ResourceVersion)
			return gate, nil
		case apierrors.IsNotFound(err): // it went while we looked
			return gate, nil
		case !apierrors.IsConflict(err):
			return nil, writeError(in.Ref, fmt.Errorf("patch node of machine %s: %w", m.Name, err))
		}
	}
	return nil, contended(in.Ref)
}
