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

// NodeChanges are the changes that a rollout makes to the nodes of a deployment's machines. Each target is a machine; a
// machine may be on several lists.
type NodeChanges struct {
	Deployment kube.Ref
	rollout.NodeChanges
}

// ChangeNodes writes each node once, with the edits of all lists. ChangeNodes skips nodes in the desired state, and
// nodes that changed since the decision. ChangeNodes also skips machines that are gone, are being deleted, have no
// node, or share their node. If a write fails, ChangeNodes still writes the other nodes, and returns the first error at
// the end. The activity is idempotent. The result holds the resource versions of the nodes.
func (a *Activities) ChangeNodes(ctx context.Context, in NodeChanges) (kube.MinVersions, error) {
	list := in.editsOfNodes()
	return kube.WriteInParallel(cache.NodesResource, len(list), func(i int) (string, error) {
		versions, err := a.Kube.ChangeNode(ctx, list[i].machineInput, list[i].machineInput.Live, list[i].apply)
		return versions[cache.NodesResource], err
	})
}

// nodeEdit collects the edits of one machine's node. Each edit sees the results of the previous edits.
type nodeEdit struct {
	machineInput kube.ReadInput
	edits        []func(*v1alpha1.Machine, *corev1.Node)
}

// editsOfNodes turns the lists of machines into one edit for each machine's node.
func (in NodeChanges) editsOfNodes() []*nodeEdit {
	var all []*nodeEdit
	for _, l := range []struct {
		targets []rollout.ObjectTarget
		edit    func(*v1alpha1.Machine, *corev1.Node)
		// read live, because with a stale cache the edit could uncordon a node that is being drained for a deletion
		live bool
	}{
		{in.FinishUpdate, finishInPlaceUpdate, true},
		{in.ClearUpdateLabels, removeUnusedUpdateLabels, false},
		{in.Candidates, addCandidateLabel, false},
		{in.Select, selectNodeForUpdate, false},
		{in.Taint, addPreferNoScheduleTaint, false},
		{in.Untaint, removePreferNoScheduleTaint, false},
		{in.ProtectFromAutoscaler, disableScaleDown, false},
		{in.UnprotectFromAutoscaler, enableScaleDown, false},
	} {
		for _, t := range l.targets {
			ref := kube.Ref{Namespace: in.Deployment.Namespace, Name: t.Name, UID: t.UID}
			i := slices.IndexFunc(all, func(e *nodeEdit) bool { return e.machineInput.Ref == ref })
			if i < 0 {
				i, all = len(all), append(all, &nodeEdit{machineInput: kube.ReadInput{Ref: ref}})
			}
			all[i].edits = append(all[i].edits, l.edit)
			all[i].machineInput.Live = all[i].machineInput.Live || l.live
		}
	}
	return all
}

// apply makes the edits on a node, unless the node's machine is being deleted.
func (e *nodeEdit) apply(m *v1alpha1.Machine, node *corev1.Node) {
	if m.DeletionTimestamp != nil {
		return
	}
	for _, edit := range e.edits {
		edit(m, node)
	}
}

// isUpdateReadyToFinish reports whether the in-place update of a node succeeded and is not finished yet.
func isUpdateReadyToFinish(n inplace.Node) bool {
	return n.Result == v1alpha1.ValueUpdateSuccessful && n.Reason == v1alpha1.ReasonUpdateSuccessful
}

// finishInPlaceUpdate finishes an in-place update that succeeded, and uncordons the node. The condition InPlaceUpdate
// stays, because an updated node without the update labels may become a candidate again. A taint keeps other pods away
// until the node's critical components run, as after the first start of the node. The installer of the components
// removes the taint.
func finishInPlaceUpdate(m *v1alpha1.Machine, node *corev1.Node) {
	if !isUpdateReadyToFinish(drain.InPlaceFacts(node)) ||
		m.Status.CurrentStatus.Phase == v1alpha1.MachineInPlaceUpdating {
		return
	}
	removeUpdateLabels(node)
	delete(node.Annotations, v1alpha1.AnnotationUpdateFailedReason)
	node.Spec.Unschedulable = false
	addTaintIfMissing(
		node,
		corev1.Taint{Key: v1alpha1.TaintCriticalComponentsNotReady, Effect: v1alpha1.TaintCriticalComponentsNotReadyEffect},
	)
}

// removeUnusedUpdateLabels removes the update labels from a node. A node whose update is in progress or has succeeded
// keeps the labels. Without the labels, the node would stay cordoned.
func removeUnusedUpdateLabels(m *v1alpha1.Machine, node *corev1.Node) {
	now := drain.InPlaceFacts(node)
	if now.Selected || isUpdateReadyToFinish(now) || m.Status.CurrentStatus.Phase == v1alpha1.MachineInPlaceUpdating {
		return
	}
	removeUpdateLabels(node)
}

func removeUpdateLabels(node *corev1.Node) {
	for _, key := range []string{v1alpha1.LabelCandidateForUpdate, v1alpha1.LabelSelectedForUpdate, v1alpha1.LabelUpdateResult} {
		delete(node.Labels, key)
	}
}

func addCandidateLabel(_ *v1alpha1.Machine, node *corev1.Node) {
	metav1.SetMetaDataLabel(&node.ObjectMeta, v1alpha1.LabelCandidateForUpdate, v1alpha1.ValueLowerTrue)
}

// selectNodeForUpdate selects a node for an in-place update. A node without the candidate label is skipped, because a
// selected node without this label is an error and counts as a node that is being updated.
func selectNodeForUpdate(_ *v1alpha1.Machine, node *corev1.Node) {
	if drain.InPlaceFacts(node).Candidate {
		metav1.SetMetaDataLabel(&node.ObjectMeta, v1alpha1.LabelSelectedForUpdate, v1alpha1.ValueLowerTrue)
	}
}

func addPreferNoScheduleTaint(_ *v1alpha1.Machine, node *corev1.Node) {
	addTaintIfMissing(node, corev1.Taint{
		Key: v1alpha1.TaintPreferNoSchedule, Value: v1alpha1.ValueTrue, Effect: v1alpha1.TaintPreferNoScheduleEffect,
	})
}

// removePreferNoScheduleTaint removes the taint by its key only, because the decision compares only the key.
func removePreferNoScheduleTaint(_ *v1alpha1.Machine, node *corev1.Node) {
	node.Spec.Taints = slices.DeleteFunc(
		node.Spec.Taints,
		func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintPreferNoSchedule },
	)
}

// addTaintIfMissing adds a taint to a node that has no taint with the same key.
func addTaintIfMissing(node *corev1.Node, t corev1.Taint) {
	if !cache.HasTaint(node, t.Key) {
		node.Spec.Taints = append(node.Spec.Taints, t)
	}
}

// disableScaleDown annotates a node to keep the cluster autoscaler from removing the node, and marks the annotation as
// Millwright's. If a user has already disabled the scale-down, nothing is written, and Millwright never removes the
// user's annotation.
func disableScaleDown(_ *v1alpha1.Machine, node *corev1.Node) {
	if node.Annotations[v1alpha1.AnnotationScaleDownDisabled] == v1alpha1.ValueLowerTrue {
		return
	}
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.AnnotationScaleDownDisabled, v1alpha1.ValueLowerTrue)
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.AnnotationScaleDownDisabledByMCM, v1alpha1.ValueLowerTrue)
}

// enableScaleDown removes Millwright's scale-down annotations. Equal annotations on the node of a preserved machine
// stay.
func enableScaleDown(m *v1alpha1.Machine, node *corev1.Node) {
	if node.Annotations[v1alpha1.AnnotationScaleDownDisabledByMCM] == "" || machine.IsPreserved(m) {
		return
	}
	delete(node.Annotations, v1alpha1.AnnotationScaleDownDisabled)
	delete(node.Annotations, v1alpha1.AnnotationScaleDownDisabledByMCM)
}
