package deployment

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/inplace"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	"millwright/observe/drain"
	"millwright/observe/machine"
)

// NodeChanges are the changes of a rollout at the nodes of a deployment's machines. Each target is a machine, which may
// be on several lists.
type NodeChanges struct {
	Deployment kube.Ref
	rollout.NodeChanges
}

// ChangeNodes writes each node once, as all lists want it. Skipped are nodes in the wanted state, nodes that changed
// since the decision, machines that are gone or being deleted, and machines without a node of their own. A failure
// stops no other write; the first is returned when all were tried. It returns the version of the nodes to wait for.
// Running it twice writes once.
func (a *Activities) ChangeNodes(ctx context.Context, in NodeChanges) (kube.MinVersions, error) {
	list := in.edits()
	return kube.InParallel(cache.Nodes, len(list), func(i int) (string, error) {
		versions, err := a.Kube.ChangeNode(ctx, list[i].machine, list[i].machine.Live, list[i].apply)
		return versions[cache.Nodes], err
	})
}

// nodeEdit collects the edits of the node of one machine. Each edit sees the results of those before it.
type nodeEdit struct {
	machine kube.Read
	edits   []func(*v1alpha1.Machine, *corev1.Node)
}

// edits turns the lists of machines into a list of edits for each machine.
func (in NodeChanges) edits() []*nodeEdit {
	var all []*nodeEdit
	for _, l := range []struct {
		targets []rollout.Target
		edit    func(*v1alpha1.Machine, *corev1.Node)
		live    bool // an old cache could uncordon a node that is being drained for a deletion
	}{
		{in.FinishUpdate, finishInPlace, true},
		{in.ClearUpdateLabels, clearLabels, false},
		{in.Candidates, addCandidate, false},
		{in.Select, selectForUpdate, false},
		{in.Taint, taint, false},
		{in.Untaint, untaint, false},
		{in.ProtectFromAutoscaler, guard, false},
		{in.UnprotectFromAutoscaler, unguard, false},
	} {
		for _, t := range l.targets {
			ref := kube.Ref{Namespace: in.Deployment.Namespace, Name: t.Name, UID: t.UID}
			i := slices.IndexFunc(all, func(e *nodeEdit) bool { return e.machine.Ref == ref })
			if i < 0 {
				i, all = len(all), append(all, &nodeEdit{machine: kube.Read{Ref: ref}})
			}
			all[i].edits = append(all[i].edits, l.edit)
			all[i].machine.Live = all[i].machine.Live || l.live
		}
	}
	return all
}

// apply does the edits on a node, unless its machine is being deleted.
func (e *nodeEdit) apply(m *v1alpha1.Machine, node *corev1.Node) {
	if m.DeletionTimestamp != nil {
		return
	}
	for _, edit := range e.edits {
		edit(m, node)
	}
}

// isUpdated reports whether an in-place update of a node succeeded, and was not ended yet.
func isUpdated(n inplace.Node) bool {
	return n.Result == v1alpha1.ValueUpdateSuccessful && n.Reason == v1alpha1.ReasonUpdateSuccessful
}

// finishInPlace ends an in-place update that succeeded, and removes any cordon. The condition stays: without the
// labels, an updated node may become a candidate again. The taint keeps other pods away until the node's critical
// components run, as after its first start; their installer removes it.
func finishInPlace(m *v1alpha1.Machine, node *corev1.Node) {
	if !isUpdated(drain.InPlaceNode(node)) || m.Status.CurrentStatus.Phase == v1alpha1.MachineInPlaceUpdating {
		return
	}
	withoutUpdate(node)
	delete(node.Annotations, v1alpha1.AnnotationUpdateFailedReason)
	node.Spec.Unschedulable = false
	putTaint(
		node,
		corev1.Taint{Key: v1alpha1.TaintCriticalComponentsNotReady, Effect: v1alpha1.TaintCriticalComponentsNotReadyEffect},
	)
}

// clearLabels leaves alone a node whose update is under way, or has succeeded meanwhile: without its labels it would
// stay cordoned.
func clearLabels(m *v1alpha1.Machine, node *corev1.Node) {
	now := drain.InPlaceNode(node)
	if now.Selected || isUpdated(now) || m.Status.CurrentStatus.Phase == v1alpha1.MachineInPlaceUpdating {
		return
	}
	withoutUpdate(node)
}

func withoutUpdate(node *corev1.Node) {
	for _, key := range []string{v1alpha1.LabelCandidateForUpdate, v1alpha1.LabelSelectedForUpdate, v1alpha1.LabelUpdateResult} {
		delete(node.Labels, key)
	}
}

func addCandidate(_ *v1alpha1.Machine, node *corev1.Node) {
	metav1.SetMetaDataLabel(&node.ObjectMeta, v1alpha1.LabelCandidateForUpdate, v1alpha1.ValueLowerTrue)
}

// selectForUpdate skips a node whose candidate label was removed: a selected node without this label is a mistake, and
// counts as one that is being updated.
func selectForUpdate(_ *v1alpha1.Machine, node *corev1.Node) {
	if drain.InPlaceNode(node).Candidate {
		metav1.SetMetaDataLabel(&node.ObjectMeta, v1alpha1.LabelSelectedForUpdate, v1alpha1.ValueLowerTrue)
	}
}

func taint(_ *v1alpha1.Machine, node *corev1.Node) {
	putTaint(node, corev1.Taint{
		Key: v1alpha1.TaintPreferNoSchedule, Value: v1alpha1.ValueTrue, Effect: v1alpha1.TaintPreferNoScheduleEffect,
	})
}

// untaint removes the taint by its key alone, as the decision reads it.
func untaint(_ *v1alpha1.Machine, node *corev1.Node) {
	node.Spec.Taints = slices.DeleteFunc(
		node.Spec.Taints,
		func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintPreferNoSchedule },
	)
}

// putTaint adds a taint to a node that has none with its key.
func putTaint(node *corev1.Node, t corev1.Taint) {
	if !cache.HasTaint(node, t.Key) {
		node.Spec.Taints = append(node.Spec.Taints, t)
	}
}

// guard keeps the cluster autoscaler from scaling down the node, and marks that as ours. If a user has done so, nothing
// is written, and nothing is removed later.
func guard(_ *v1alpha1.Machine, node *corev1.Node) {
	if node.Annotations[v1alpha1.AnnotationScaleDownDisabled] == v1alpha1.ValueLowerTrue {
		return
	}
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.AnnotationScaleDownDisabled, v1alpha1.ValueLowerTrue)
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.AnnotationScaleDownDisabledByMCM, v1alpha1.ValueLowerTrue)
}

// unguard removes our annotations. The annotations of a preserved machine look the same; they stay.
func unguard(m *v1alpha1.Machine, node *corev1.Node) {
	if node.Annotations[v1alpha1.AnnotationScaleDownDisabledByMCM] == "" || machine.IsPreserved(m) {
		return
	}
	delete(node.Annotations, v1alpha1.AnnotationScaleDownDisabled)
	delete(node.Annotations, v1alpha1.AnnotationScaleDownDisabledByMCM)
}
