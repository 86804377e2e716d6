package activities

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"millwright/api/v1alpha1"
)

// NodeRemoval names the node of an instance that is gone.
type NodeRemoval struct {
	Machine    Ref
	NodeName   string
	ProviderID string // empty when none is known
}

// DeleteNode removes the Node object of an instance that is gone. A node that is not there is a success, and so is one that
// belongs to another instance or machine by now: it is left alone. Only the node that was looked at is deleted.
func (a *Activities) DeleteNode(ctx context.Context, in NodeRemoval) error {
	target := a.Cluster.Target(in.Machine.Namespace)
	if in.NodeName == "" || target == nil {
		return nil
	}
	for attempt := range maxConflicts {
		node, err := a.lastNode(ctx, in, attempt > 0 || len(a.Cluster.AttachmentsOf(in.NodeName)) > 0) // they go before the node is held against what was read
		switch {
		case err != nil:
			return err
		case node == nil && a.claimed(in):
			return nil
		case node == nil:
			return a.deleteAttachments(ctx, in)
		case in.ProviderID != "" && node.Spec.ProviderID != "" && node.Spec.ProviderID != in.ProviderID, a.claimed(in):
			return nil
		}
		if err := a.deleteAttachments(ctx, in); err != nil {
			return err
		}
		if err := removeNode(ctx, target.CoreV1().Nodes(), node); !apierrors.IsConflict(err) {
			return err
		}
	}
	return contended(in.Machine)
}

// lastNode returns a node as the cache has it, and asks the API server when it is to be live or the cache has none: nil
// then says that there is none.
func (a *Activities) lastNode(ctx context.Context, in NodeRemoval, live bool) (*corev1.Node, error) {
	if node, found := a.Cluster.Node(in.NodeName); found && !live {
		return node, nil
	}
	node, err := a.Cluster.Target(in.Machine.Namespace).CoreV1().Nodes().Get(ctx, in.NodeName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get node %s: %w", in.NodeName, err)
	}
	return node, nil
}

// removeNode takes our finalizer off a node, and deletes it.
func removeNode(ctx context.Context, nodes typedcorev1.NodeInterface, node *corev1.Node) error {
	if list := without(node.Finalizers, v1alpha1.FinalizerNode); len(list) != len(node.Finalizers) {
		node = node.DeepCopy()
		node.Finalizers = list
		var err error
		switch node, err = nodes.Update(ctx, node, metav1.UpdateOptions{}); {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("release node: %w", err)
		}
	}
	err := nodes.Delete(ctx, node.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &node.UID, ResourceVersion: &node.ResourceVersion}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete node %s: %w", node.Name, err)
	}
	return nil
}

// claimed reports whether another machine that is to stay names the node as its own. It tells where provider IDs do not: a
// node that has just joined may not have one yet, and of the instance that is gone it may never have been known.
func (a *Activities) claimed(in NodeRemoval) bool {
	return slices.ContainsFunc(a.Cluster.MachinesOfNode(in.NodeName), func(m *v1alpha1.Machine) bool {
		return string(m.UID) != in.Machine.UID && m.DeletionTimestamp == nil
	})
}
