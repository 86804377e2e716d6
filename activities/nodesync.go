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
	"millwright/decide/nodesync"
	"millwright/observe"
)

// SyncNode makes the node of a machine carry what the machine's node template and its class want, our finalizer and the
// machine's name. Where the node carries it already, is not there, or its machine is to go, nothing is written. It returns
// the version of the node to wait for; the gate is empty when nothing was written. Running it twice writes once.
func (a *Activities) SyncNode(ctx context.Context, in Read) (Gate, error) {
	gate := Gate{}
	m, live, err := a.machine(ctx, in)
	if err != nil {
		return nil, err
	}
	if m == nil || m.DeletionTimestamp != nil || m.Labels[v1alpha1.LabelNode] == "" {
		return gate, nil
	}
	// Two machines that name one node are somebody's mistake. If each wrote its own wishes, the node would change to and
	// fro without end; so it stays as it is until one of them goes.
	if a.claimed(NodeRemoval{Machine: in.Ref, NodeName: m.Labels[v1alpha1.LabelNode]}) {
		return gate, nil
	}
	around, err := a.around(ctx, m, live)
	if err != nil {
		return nil, err
	}
	for range maxConflicts {
		node, err := a.node(ctx, m, true) // a cache that is behind would make each write meet a conflict
		if err != nil || node == nil {
			return gate, err
		}
		err = a.writeNode(ctx, m.Namespace, node, observe.NodeSync(m, around.Class, node), gate)
		switch {
		case err == nil:
			return gate, nil
		case apierrors.IsNotFound(err): // it went while we looked
			return gate, nil
		case !apierrors.IsConflict(err):
			return nil, writeError(in.Ref, err)
		}
	}
	return nil, contended(in.Ref)
}

// writeNode makes changes on a node that is as it was read, and raises the gate. The capacity goes first: the record of
// what was applied, in the second write, must not say more than is true.
func (a *Activities) writeNode(ctx context.Context, namespace string, node *corev1.Node, changes nodesync.Changes, gate Gate) error {
	nodes := a.Cluster.Target(namespace).CoreV1().Nodes()
	if !changes.Capacity.Empty() {
		patch, err := seen(map[string]any{"status": map[string]any{"capacity": mergePatch(changes.Capacity)}}, node)
		if err != nil {
			return err
		}
		node, err = nodes.Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil {
			return fmt.Errorf("write capacity of node: %w", err)
		}
		gate.Raise(observe.Nodes, node.ResourceVersion)
	}
	changes.Capacity = nodesync.Edit{}
	if changes.Empty() {
		return nil
	}
	node, err := nodes.Update(ctx, withChanges(node, changes), metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write labels, annotations and taints of node: %w", err)
	}
	gate.Raise(observe.Nodes, node.ResourceVersion)
	return nil
}

// mergePatch returns the JSON merge patch of a map (RFC 7396): null removes.
func mergePatch(edit nodesync.Edit) map[string]any {
	patch := map[string]any{}
	for _, key := range edit.Remove {
		patch[key] = nil
	}
	for key, value := range edit.Set {
		patch[key] = value
	}
	return patch
}

// withChanges returns a copy of a node with its metadata and taints changed.
func withChanges(node *corev1.Node, changes nodesync.Changes) *corev1.Node {
	node = node.DeepCopy()
	node.Labels = changes.Labels.Apply(node.Labels)
	node.Annotations = changes.Annotations.Apply(node.Annotations)
	node.Spec.Taints = tainted(node.Spec.Taints, changes.Taints)
	if changes.Finalizer {
		node.Finalizers = append(node.Finalizers, v1alpha1.FinalizerNode)
	}
	return node
}

// tainted returns a list of taints with the changes made. Those that stay keep their order and when they were added.
func tainted(list []corev1.Taint, edit nodesync.TaintEdit) []corev1.Taint {
	named := slices.Concat(edit.Remove, edit.Set)
	result := slices.DeleteFunc(slices.Clone(list), func(t corev1.Taint) bool {
		return slices.ContainsFunc(named, func(n nodesync.Taint) bool { return n.Key == t.Key && n.Effect == string(t.Effect) })
	})
	for _, t := range edit.Set {
		result = append(result, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	return result
}
