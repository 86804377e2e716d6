// Package orphan has the cluster activities of a sweep for orphans: marking nodes without a Machine, and reporting
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

// Activities are the activities of package orphan. Workflows call the methods of Activities by name.
type Activities struct{ Kube *kube.Kube }

// NodeSweep is the input of MarkNodes: the namespace whose target cluster is searched for nodes that no machine claims.
type NodeSweep struct {
	Namespace string
	At        time.Time // the workflow's time of the sweep
}

// MarkNodes marks nodes that no machine claims, and removes Millwright's finalizer from them. The finalizer would
// otherwise block the deletion of a node without a machine. If a machine claims a marked node later, the sync of the
// machine removes the mark and restores the finalizer. MarkNodes skips a node that changed or was deleted after the
// read; the next sweep reads the node again. MarkNodes returns how many nodes it wrote. Running MarkNodes twice writes
// once.
func (a *Activities) MarkNodes(ctx context.Context, in NodeSweep) (int, error) {
	nodes, facts, owners := observeorphan.NodesAndOwners(a.Kube.Cluster, in.Namespace)
	if len(orphan.UnmanagedNodes(in.At, facts, owners)) == 0 {
		return 0, nil
	}
	owners, err := observeorphan.LiveNodeOwners(
		ctx,
		a.Kube.Cluster,
		in.Namespace,
	) // a stale cache must not cause the removal of a finalizer
	if err != nil {
		return 0, err
	}
	target, written := a.Kube.Cluster.TargetClient(in.Namespace).CoreV1().Nodes(), 0
	for _, name := range orphan.UnmanagedNodes(in.At, facts, owners) {
		_, err := kube.PatchObject(ctx, target, nodes[name], map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{v1alpha1.AnnotationNotManaged: v1alpha1.ValueNotManaged},
			"finalizers":  kube.WithoutItem(nodes[name].Finalizers, v1alpha1.FinalizerNode),
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
	Collected []string // provider IDs of deleted instances
	Held      string   // why nothing was deleted although candidates exist
	Failed    string   // why the sweep failed
	Unclear   []string // messages about instances that no sweep deletes
}

// ReportOrphans counts a sweep in the metrics, and records events on the class. Running ReportOrphans twice counts
// twice and repeats the events.
func (a *Activities) ReportOrphans(_ context.Context, in Report) error {
	a.Kube.Metrics.CountSweep(in.Class, in.metricResultLabel(), len(in.Collected))
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
		a.Kube.Recorder.Event(class, corev1.EventTypeNormal, v1alpha1.ReasonOrphansCollected, kube.ShortenMessage(collected))
	}
	for _, warning := range []struct{ reason, message string }{
		{v1alpha1.ReasonOrphansHeld, in.Held},
		{v1alpha1.ReasonOrphanSweepFailed, in.Failed},
		{v1alpha1.ReasonInstancesUnclear, strings.Join(in.Unclear, "; ")},
	} {
		if warning.message != "" {
			a.Kube.Recorder.Event(class, corev1.EventTypeWarning, warning.reason, kube.ShortenMessage(warning.message))
		}
	}
	return nil
}

// metricResultLabel returns the value of the metric's label result.
func (r Report) metricResultLabel() string {
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
