package activities

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
)

// NodeSweep asks for the nodes of a namespace's target that no machine claims.
type NodeSweep struct {
	Namespace string
	At        time.Time // the workflow's time
}

// MarkNodes marks nodes that no machine claims, and takes our finalizer off them: nobody would when they go. The sync of a machine
// that claims one later undoes both. A node that changed or went since it was looked at is left to the next sweep. It returns how
// many it has written; done twice it writes none twice.
func (a *Activities) MarkNodes(ctx context.Context, in NodeSweep) (int, error) {
	unmanaged, err := a.Cluster.Unmanaged(ctx, in.Namespace, in.At)
	if err != nil {
		return 0, err
	}
	written := 0
	for _, node := range unmanaged {
		err := a.markNode(ctx, in.Namespace, node)
		switch {
		case err == nil:
			written++
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
			return written, fmt.Errorf("mark node %s: %w", node.Name, err)
		}
	}
	return written, nil
}

func (a *Activities) markNode(ctx context.Context, namespace string, node *corev1.Node) error {
	patch, err := seen(map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{v1alpha1.AnnotationNotManaged: v1alpha1.ValueNotManaged},
		"finalizers":  without(node.Finalizers, v1alpha1.FinalizerNode),
	}}, node)
	if err != nil {
		return err
	}
	_, err = a.Cluster.Target(namespace).CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
