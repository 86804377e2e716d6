// Package orphan has the activities on clusters of a sweep for orphans: marking nodes without a Machine, and the report
// about a class.
package orphan

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/orphan"
	observeorphan "millwright/observe/orphan"
)

// Activities are the activities of this package. Workflows call its methods by name.
type Activities struct{ Kube *kube.Kube }

// NodeSweep names the namespace whose target is searched for nodes that no machine claims.
type NodeSweep struct {
	Namespace string
	At        time.Time // the workflow's time
}

// MarkNodes marks nodes that no machine claims and removes our finalizer from them: nothing else would remove it when
// they are deleted. The sync of a machine that claims such a node later undoes both. A node that changed or was deleted
// meanwhile is left to the next sweep. It returns how many nodes it wrote. Running it twice writes once.
func (a *Activities) MarkNodes(ctx context.Context, in NodeSweep) (int, error) {
	nodes, facts, owners := observeorphan.NodesAndOwners(a.Kube.Cluster, in.Namespace)
	if len(orphan.Unmanaged(in.At, facts, owners)) == 0 {
		return 0, nil
	}
	owners, err := observeorphan.LiveOwners(ctx, a.Kube.Cluster) // a stale cache must not make it remove a finalizer
	if err != nil {
		return 0, err
	}
	target, written := a.Kube.Cluster.Target(in.Namespace).CoreV1().Nodes(), 0
	for _, name := range orphan.Unmanaged(in.At, facts, owners) {
		_, err := kube.Patch(ctx, target, nodes[name], map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{v1alpha1.AnnotationNotManaged: v1alpha1.ValueNotManaged},
			"finalizers":  kube.Without(nodes[name].Finalizers, v1alpha1.FinalizerNode),
		}})
		switch {
		case err == nil:
			written++
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
			return written, fmt.Errorf("mark node %s: %w", name, err)
		}
	}
	return written, nil
}

// Report is the result of one sweep.
type Report struct {
	Class     kube.Ref
	Collected []string // provider IDs
	Held      string   // why nothing was deleted although there were candidates
	Failed    string   // why the sweep failed
	Unclear   []string // instances that no sweep deletes
}

// ReportOrphans counts a sweep in the metrics, and reports it by events on the class. Running it twice counts twice and
// repeats the events.
func (a *Activities) ReportOrphans(_ context.Context, in Report) error {
	a.Kube.Metrics.Swept(in.Class, in.result(), len(in.Collected))
	class := &v1alpha1.MachineClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "MachineClass"},
		ObjectMeta: metav1.ObjectMeta{Namespace: in.Class.Namespace, Name: in.Class.Name, UID: types.UID(in.Class.UID)},
	}
	if len(in.Collected) > 0 {
		collected := fmt.Sprintf(
			"Deleted instances that no Machine claims (%d): %s",
			len(in.Collected),
			strings.Join(in.Collected, ", "),
		)
		a.Kube.Recorder.Event(class, corev1.EventTypeNormal, v1alpha1.ReasonOrphansCollected, kube.Brief(collected))
	}
	for _, warning := range []struct{ reason, message string }{
		{v1alpha1.ReasonOrphansHeld, in.Held},
		{v1alpha1.ReasonOrphanSweepFailed, in.Failed},
		{v1alpha1.ReasonInstancesUnclear, strings.Join(in.Unclear, "; ")},
	} {
		if warning.message != "" {
			a.Kube.Recorder.Event(class, corev1.EventTypeWarning, warning.reason, kube.Brief(warning.message))
		}
	}
	return nil
}

// result is the value of the metric's label result.
func (r Report) result() string {
	switch {
	case r.Failed != "":
		return "failed"
	case r.Held != "":
		return "held"
	case len(r.Collected) > 0:
		return "collected"
	default:
		return "clean"
	}
}
