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

// NodeChanges are what a rollout does at the nodes of a deployment's machines; each target is a machine. One may be on several
// lists.
type NodeChanges struct {
	Deployment kube.Ref
	Settle     []rollout.Target // end an in-place update: labels off, uncordon, await critical components
	Strip      []rollout.Target // take the labels of an in-place update off, and no more
	Candidates []rollout.Target // label candidate-for-update
	Select     []rollout.Target // label selected-for-update
	Taint      []rollout.Target // put the taint prefer-no-schedule on
	Untaint    []rollout.Target // take it off
	Guard      []rollout.Target // keep the cluster autoscaler off
	Unguard    []rollout.Target // and no more, where that is ours
}

// ChangeNodes writes each node once, as all lists want it. A node that says so already is not written, nor is one that is not as
// the decision saw it in what matters: it is decided anew. Passed over is a machine that is gone or to go, and one that has
// no node, or none for itself alone. A node that cannot be written keeps no other from it; the first failure is returned when
// all were tried. It returns the version of the nodes to wait for. Running it twice writes once.
func (a *Activities) ChangeNodes(ctx context.Context, in NodeChanges) (kube.MinVersions, error) {
	list := in.edits()
	return kube.InParallel(cache.Nodes, len(list), func(i int) (string, error) {
		versions, err := a.Kube.ChangeNode(ctx, list[i].machine, list[i].machine.Live, list[i].apply)
		return versions[cache.Nodes], err
	})
}

// nodeEdit is what is done at the node of one machine. Each edit sees what those before it left.
type nodeEdit struct {
	machine kube.Read
	edits   []func(*v1alpha1.Machine, *corev1.Node)
}

// edits turns lists of machines into a list of what is done at each.
func (in NodeChanges) edits() []*nodeEdit {
	var all []*nodeEdit
	for _, l := range []struct {
		targets []rollout.Target
		edit    func(*v1alpha1.Machine, *corev1.Node)
		live    bool // to uncordon a node that is being emptied for a deletion would be worse than one more request
	}{
		{in.Settle, settle, true},
		{in.Strip, strip, false},
		{in.Candidates, nominate, false},
		{in.Select, choose, false},
		{in.Taint, taint, false},
		{in.Untaint, untaint, false},
		{in.Guard, guard, false},
		{in.Unguard, unguard, false},
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

// isUpdated reports whether an in-place update of a node ended well, and is not settled yet.
func isUpdated(n inplace.Node) bool {
	return n.Result == v1alpha1.ValueUpdateSuccessful && n.Reason == v1alpha1.ReasonUpdateSuccessful
}

// settle ends an in-place update that ended well. The condition stays: a node without labels that says that it was updated may
// become a candidate again. Pods that the node cannot do without have to run before others come, as after its first start.
// Whoever puts these there takes the taint off. A cordon goes, whoever made it.
func settle(m *v1alpha1.Machine, node *corev1.Node) {
	if !isUpdated(drain.InPlaceNode(node)) || m.Status.CurrentStatus.Phase == v1alpha1.MachineInPlaceUpdating {
		return
	}
	withoutUpdate(node)
	delete(node.Annotations, v1alpha1.AnnotationUpdateFailedReason)
	node.Spec.Unschedulable = false
	putTaint(node, corev1.Taint{Key: v1alpha1.TaintCriticalComponentsNotReady, Effect: v1alpha1.TaintCriticalComponentsNotReadyEffect})
}

// strip leaves a node alone whose update is under way, or ended well by now: labels that go would leave it cordoned.
func strip(m *v1alpha1.Machine, node *corev1.Node) {
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

func nominate(_ *v1alpha1.Machine, node *corev1.Node) {
	putLabel(node, v1alpha1.LabelCandidateForUpdate)
}

// choose selects none that somebody called off: without the other label a selection is a mistake, and holds a place.
func choose(_ *v1alpha1.Machine, node *corev1.Node) {
	if drain.InPlaceNode(node).Candidate {
		putLabel(node, v1alpha1.LabelSelectedForUpdate)
	}
}

func putLabel(node *corev1.Node, key string) {
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	node.Labels[key] = v1alpha1.ValueLowerTrue
}

func taint(_ *v1alpha1.Machine, node *corev1.Node) {
	putTaint(node, corev1.Taint{
		Key: v1alpha1.TaintPreferNoSchedule, Value: v1alpha1.ValueTrue, Effect: v1alpha1.TaintPreferNoScheduleEffect,
	})
}

// untaint goes by the key alone, as the decision does: else it would be decided again and again.
func untaint(_ *v1alpha1.Machine, node *corev1.Node) {
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintPreferNoSchedule })
}

// putTaint puts a taint on a node that has none of its key.
func putTaint(node *corev1.Node, t corev1.Taint) {
	if !cache.HasTaint(node, t.Key) {
		node.Spec.Taints = append(node.Spec.Taints, t)
	}
}

// guard keeps the cluster autoscaler off, and says by the marker that it was not a user. Where it is kept off already, the
// guard is not ours, and stays after us.
func guard(_ *v1alpha1.Machine, node *corev1.Node) {
	if node.Annotations[v1alpha1.AnnotationScaleDownDisabled] == v1alpha1.ValueLowerTrue {
		return
	}
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.AnnotationScaleDownDisabled, v1alpha1.ValueLowerTrue)
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.AnnotationScaleDownDisabledByMCM, v1alpha1.ValueLowerTrue)
}

// unguard takes off what is ours. The guard of a preserved machine looks the same, and stays.
func unguard(m *v1alpha1.Machine, node *corev1.Node) {
	if node.Annotations[v1alpha1.AnnotationScaleDownDisabledByMCM] == "" || machine.IsPreserved(m) {
		return
	}
	delete(node.Annotations, v1alpha1.AnnotationScaleDownDisabled)
	delete(node.Annotations, v1alpha1.AnnotationScaleDownDisabledByMCM)
}
