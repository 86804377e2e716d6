package machine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"go.temporal.io/sdk/activity"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/inplace"
	"millwright/decide/nodesync"
	"millwright/decide/ownership"
	"millwright/observe/cache"
	observedeployment "millwright/observe/deployment"
	"millwright/observe/drain"
	"millwright/observe/machine"
)

// SyncNode writes the settings of the machine's node template and class, Millwright's finalizer and the machine's name
// to the machine's node. SyncNode writes nothing if the node is in sync or missing, or if the machine is being deleted.
// The result holds the node's resource version if the node was written. The activity is idempotent.
func (a *Activities) SyncNode(ctx context.Context, in kube.ReadInput) (kube.MinVersions, error) {
	versions := kube.MinVersions{}
	m, live, err := a.Kube.ReadMachine(ctx, in)
	if err != nil {
		return nil, err
	}
	if m == nil || m.DeletionTimestamp != nil || cache.NodeNameOfMachine(m) == "" {
		return versions, nil
	}
	related, err := a.readRelatedObjects(ctx, m, live)
	if err != nil {
		return nil, err
	}
	for attempt := range kube.MaxConflictRetries {
		node, err := a.nodeToWrite(ctx, m, related.Node, attempt > 0)
		if err != nil || node == nil || !a.Kube.Cluster.OwnerOfNode(m, node).HasOwnerKind(ownership.OwnerSelf) {
			return versions, err
		}
		changes := nodesync.Decide(machine.NodeSyncFacts(m, related.Class, node))
		if attempt == 0 && isFirstMetadataWrite(node, changes) {
			err = a.patchNewNode(
				ctx,
				m.Namespace,
				node,
				a.withScaleDownDisabledDuringRollout(related.Set, node, changes),
				versions,
			)
		} else {
			err = a.writeNodeUnlessMachineIsGone(ctx, in.Ref, node, changes, versions)
		}
		switch {
		case err == nil, apierrors.IsNotFound(err): // the node is in sync, or was deleted after the read
			return versions, nil
		case !apierrors.IsConflict(err):
			return nil, kube.ClassifyWriteError(ctx, in.Ref, err)
		}
	}
	return nil, kube.RepeatedConflictError(in.Ref)
}

// isFirstMetadataWrite reports whether no machine has written to a node yet, and only metadata must be written. While a
// node joins, other controllers write the node several times a second. A patch of Millwright's metadata cannot revert
// these writes, but an update of the taint list or the capacity can.
func isFirstMetadataWrite(node *corev1.Node, changes nodesync.Changes) bool {
	return node.Labels[v1alpha1.LabelMachineName] == "" && changes.Finalizer && changes.Taints.IsEmpty() &&
		changes.Capacity.IsEmpty()
}

// withScaleDownDisabledDuringRollout adds annotations to the first write of a node while its deployment is rolled out.
// The annotations keep the cluster autoscaler from removing the node. Without the annotations in the first write, the
// rollout would need a second write. At its end, the rollout removes the annotations.
func (a *Activities) withScaleDownDisabledDuringRollout(
	set *v1alpha1.MachineSet,
	node *corev1.Node,
	changes nodesync.Changes,
) nodesync.Changes {
	_, wanted := changes.Annotations.Set[v1alpha1.AnnotationScaleDownDisabled]
	if wanted || node.Annotations[v1alpha1.AnnotationScaleDownDisabled] != "" || a.Kube.Cluster.WithoutAutoscalerGuard ||
		!a.isDeploymentRollingOut(set) {
		return changes
	}
	changes.Annotations.SetKey(v1alpha1.AnnotationScaleDownDisabled, v1alpha1.ValueLowerTrue)
	changes.Annotations.SetKey(v1alpha1.AnnotationScaleDownDisabledByMCM, v1alpha1.ValueLowerTrue)
	return changes
}

// isDeploymentRollingOut reports whether the status of a set's deployment names a rollout. The set may be nil.
func (a *Activities) isDeploymentRollingOut(set *v1alpha1.MachineSet) bool {
	if set == nil || !machine.HasDeployment(set) {
		return false
	}
	owner := metav1.GetControllerOf(set)
	d, found := a.Kube.Cluster.Deployment(set.Namespace + "/" + owner.Name)
	return found && d.UID == owner.UID && observedeployment.CurrentRolloutID(d) != ""
}

// patchNewNode writes the first changes to a node at any resource version, and adds the new version to versions.
// patchNewNode returns a conflict if the API server rejects the patch as invalid. Either the node is being deleted and
// accepts no new finalizer, or another node has the same name. If a value of the node template is invalid, the next
// write reports the invalid value.
func (a *Activities) patchNewNode(
	ctx context.Context,
	namespace string,
	seen *corev1.Node,
	changes nodesync.Changes,
	versions kube.MinVersions,
) error {
	node, err := kube.PatchIgnoringVersion(
		ctx,
		a.Kube.Cluster.TargetClient(namespace).CoreV1().Nodes(),
		seen.UID,
		seen.Name,
		map[string]any{
			"labels":      kube.MergePatchOfMap(changes.Labels),
			"annotations": kube.MergePatchOfMap(changes.Annotations),
			"finalizers":  []string{v1alpha1.FinalizerNode},
		},
	)
	switch {
	case apierrors.IsInvalid(err):
		return apierrors.NewConflict(corev1.Resource("nodes"), seen.Name, err)
	case err != nil:
		return fmt.Errorf("write labels and annotations of new node: %w", err)
	}
	versions.RaiseVersion(cache.NodesResource, node.ResourceVersion)
	return nil
}

// nodeToWrite returns the known node of a machine. After a conflict, or if no node is known, the node is read live,
// because the cache is stale. The result is nil if there is no node.
func (a *Activities) nodeToWrite(
	ctx context.Context,
	m *v1alpha1.Machine,
	known *corev1.Node,
	conflict bool,
) (*corev1.Node, error) {
	if known != nil && !conflict {
		return known, nil
	}
	return a.Kube.ReadNode(ctx, m, true)
}

// writeNodeUnlessMachineIsGone writes changes to a node if the node has not changed since it was read. If the changes
// add Millwright's finalizer, the machine is first read live. If the machine is gone or is being deleted, nothing is
// written. A person may have removed the machine's finalizer by force. A new finalizer on the node would then stay
// until the next sweep for orphans. The machine is read after the node. If a person removes both finalizers after the
// read, the node's resource version changes, and the write fails with a conflict. patchNewNode needs no live read of
// the machine, because a new node had no finalizer before.
func (a *Activities) writeNodeUnlessMachineIsGone(
	ctx context.Context,
	ref kube.Ref,
	node *corev1.Node,
	changes nodesync.Changes,
	versions kube.MinVersions,
) error {
	if changes.Finalizer {
		if m, err := kube.ReadLive(ctx, a.Kube.Machines(ref.Namespace), "machine", ref); err != nil || m == nil ||
			m.DeletionTimestamp != nil {
			return err
		}
	}
	return a.writeNode(ctx, ref.Namespace, node, changes, versions)
}

// writeNode writes changes to a node if the node has not changed since it was read, and adds the new version to
// versions. The capacity is written first, because the second write records the applied template.
func (a *Activities) writeNode(
	ctx context.Context,
	namespace string,
	node *corev1.Node,
	changes nodesync.Changes,
	versions kube.MinVersions,
) error {
	nodes := a.Kube.Cluster.TargetClient(namespace).CoreV1().Nodes()
	if !changes.Capacity.IsEmpty() {
		var err error
		patch := map[string]any{"status": map[string]any{"capacity": kube.MergePatchOfMap(changes.Capacity)}}
		if node, err = kube.PatchObject(ctx, nodes, node, patch, "status"); err != nil {
			return fmt.Errorf("write capacity of node: %w", err)
		}
		versions.RaiseVersion(cache.NodesResource, node.ResourceVersion)
	}
	changes.Capacity = nodesync.MapEdit{}
	if changes.IsEmpty() {
		return nil
	}
	node, err := nodes.Update(ctx, withNodeChanges(node, changes), metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write labels, annotations and taints of node: %w", err)
	}
	versions.RaiseVersion(cache.NodesResource, node.ResourceVersion)
	return nil
}

// withNodeChanges returns a copy of a node with changed metadata and taints.
func withNodeChanges(node *corev1.Node, changes nodesync.Changes) *corev1.Node {
	node = node.DeepCopy()
	node.Labels = changes.Labels.Apply(node.Labels)
	node.Annotations = changes.Annotations.Apply(node.Annotations)
	node.Spec.Taints = taintsAfterEdit(node.Spec.Taints, changes.Taints)
	if changes.Finalizer {
		node.Finalizers = append(node.Finalizers, v1alpha1.FinalizerNode)
	}
	return node
}

// taintsAfterEdit returns a list of taints after an edit. Unchanged taints keep their order and their TimeAdded.
func taintsAfterEdit(list []corev1.Taint, edit nodesync.TaintEdit) []corev1.Taint {
	named := slices.Concat(edit.Remove, edit.Set)
	result := slices.DeleteFunc(slices.Clone(list), func(t corev1.Taint) bool {
		return slices.ContainsFunc(
			named,
			func(n nodesync.Taint) bool { return n.Key == t.Key && n.Effect == string(t.Effect) },
		)
	})
	for _, t := range edit.Set {
		result = append(result, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	return result
}

// InPlaceCondition is the condition InPlaceUpdate that the package decide/inplace chose for a machine's node.
type InPlaceCondition struct {
	Read    kube.ReadInput
	Reason  string
	Message string
}

// MarkInPlace writes the progress of an in-place update into the condition InPlaceUpdate of the machine's node.
// MarkInPlace writes nothing if the condition is up to date. MarkInPlace also writes nothing if Reason is no longer the
// next step, because the update was cancelled, the agent was faster, or the node to drain was uncordoned. The result
// holds the node's resource version. The result is empty if the machine has no node, or shares its node with another
// machine. The activity is idempotent.
func (a *Activities) MarkInPlace(ctx context.Context, in InPlaceCondition) (kube.MinVersions, error) {
	return a.Kube.ChangeNode(ctx, in.Read, true, func(m *v1alpha1.Machine, node *corev1.Node) {
		now := drain.InPlaceFacts(node)
		next := inplace.Decide(now, string(m.Status.CurrentStatus.Phase))
		switch {
		case m.DeletionTimestamp != nil,
			next.Reason == "", next.Reason != in.Reason,
			next.Step == inplace.StepDrain && !now.Cordoned,
			now.Reason == in.Reason && now.Message == in.Message: // an agent may change the message of a failure
			return
		}
		others := slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			// the condition's status is always True, so a new step gets a new condition with a new time
			return c.Type == v1alpha1.NodeInPlaceUpdate && c.Reason != in.Reason
		})
		c := Condition{Type: string(v1alpha1.NodeInPlaceUpdate), True: true, Reason: in.Reason, Message: in.Message}
		node.Status.Conditions = setCondition(others, c, metav1.NewTime(in.Read.TimeToRecord(ctx)).Rfc3339Copy())
	}, "status")
}

// CordonNode cordons the node of a machine. CordonNode keeps an existing cordon, and skips a node whose in-place update
// was cancelled or is held. The result holds the node's resource version. The result is empty if the machine has no
// node, or shares its node with another machine. The activity is idempotent.
func (a *Activities) CordonNode(ctx context.Context, in kube.ReadInput) (kube.MinVersions, error) {
	return a.Kube.CordonNode(ctx, in, true)
}

// UncordonNode uncordons the node of a machine, unless the machine is being deleted. The result holds the node's
// resource version. The result is empty if the machine has no node, or shares its node with another machine. The
// activity is idempotent.
func (a *Activities) UncordonNode(ctx context.Context, in kube.ReadInput) (kube.MinVersions, error) {
	return a.Kube.ChangeNode(ctx, in, true, func(m *v1alpha1.Machine, node *corev1.Node) {
		node.Spec.Unschedulable = node.Spec.Unschedulable && m.DeletionTimestamp != nil
	})
}

// AnnounceTermination sets the condition Terminating on the node of a machine that is being deleted. An existing
// condition with status True keeps its reason. The result holds the node's resource version. The result is empty if the
// machine has no node, shares its node with another machine, or is not being deleted according to the cache. The
// activity is idempotent.
func (a *Activities) AnnounceTermination(ctx context.Context, in kube.ReadInput) (kube.MinVersions, error) {
	known := false
	versions, err := a.Kube.ChangeNode(ctx, in, in.Live, func(m *v1alpha1.Machine, node *corev1.Node) {
		known = m.DeletionTimestamp != nil
		if !known || cache.IsConditionTrue(node.Status.Conditions, v1alpha1.NodeTerminating) {
			return
		}
		c := Condition{
			Type:    string(v1alpha1.NodeTerminating),
			True:    true,
			Reason:  v1alpha1.ReasonScaleDown,
			Message: v1alpha1.MessageTerminatingScaleDown,
		}
		if m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed || machine.IsReplacementDue(m) ||
			machine.IsReplacementGranted(m) {
			// the phase may have changed from Failed to Terminating already
			c.Reason, c.Message = v1alpha1.ReasonUnhealthy, v1alpha1.MessageTerminatingUnhealthy
		}
		node.Status.Conditions = setCondition(node.Status.Conditions, c, metav1.NewTime(in.TimeToRecord(ctx)).Rfc3339Copy())
	}, "status")
	if err != nil || !known {
		return kube.MinVersions{}, err
	}
	return versions, nil
}

// deleteVolumeAttachments deletes the VolumeAttachments of a node whose instance is gone, without waiting for the end
// of the deletions. Kubernetes would keep the attachments for six minutes, or for ever. A deletion that the API server
// rejects is logged and ignored. If InstanceStays is set, deleteVolumeAttachments does nothing.
func (a *Activities) deleteVolumeAttachments(ctx context.Context, in NodeRemoval) error {
	if in.InstanceStays {
		return nil
	}
	attachments := a.Kube.Cluster.TargetClient(in.Machine.Namespace).StorageV1().VolumeAttachments()
	for _, item := range a.Kube.Cluster.Target(in.Machine.Namespace).AttachmentsOfNode(in.NodeName) {
		if item.DeletionTimestamp != nil {
			continue
		}
		err := attachments.Delete(ctx, item.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &item.UID}})
		switch {
		case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		case kube.HasNoServerAnswer(err), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err):
			// the API server was too busy, so Temporal retries the activity
			return fmt.Errorf("delete attachment %s of node %s: %w", item.Name, in.NodeName, err)
		default:
			activity.GetLogger(ctx).
				Warn("attachment cannot be deleted", "attachment", item.Name, "node", in.NodeName, "error", err)
		}
	}
	return nil
}

// NodeRemoval names a Node to delete. The node's instance is gone, or the machine is deleted without its instance.
type NodeRemoval struct {
	Machine    kube.Ref
	NodeName   string
	ProviderID string // empty: unknown
	// InstanceStays is true if the provider was not asked to delete the instance, so the instance may still run and use
	// its volumes.
	InstanceStays bool
}

// DeleteNode deletes the Node object of an instance that is gone. DeleteNode succeeds without a deletion if the node
// does not exist, or belongs to another instance or machine. A precondition protects a node that changed after the
// check. The VolumeAttachments stay if the instance may still run. If the VolumeAttachments were deleted, Kubernetes
// could attach a volume to a second node while the instance writes to the volume. Kubernetes later removes the
// VolumeAttachments when the removal is safe.
func (a *Activities) DeleteNode(ctx context.Context, in NodeRemoval) error {
	target := a.Kube.Cluster.Target(in.Machine.Namespace)
	if in.NodeName == "" || target == nil {
		return nil
	}
	release, err := target.UseDrainCaches(ctx)
	if err != nil {
		return fmt.Errorf("read the attachments of node %s: %w", in.NodeName, err)
	}
	defer release()
	for attempt := range kube.MaxConflictRetries {
		// If attachments exist, the node is read live, because the attachments are deleted before the precondition
		// checks the node.
		node, err := a.nodeToRemove(
			ctx,
			in,
			attempt > 0 || len(target.AttachmentsOfNode(in.NodeName)) > 0,
		)
		switch {
		case err != nil:
			return err
		case node != nil:
			switch owner := a.Kube.Cluster.OwnerOfNode(a.machineOfNodeToRemove(in), node); owner.Whose {
			case ownership.OwnerSelf:
			case ownership.OwnerInDoubt:
				return kube.ConflictError(in.Machine)
			default:
				return nil
			}
		}
		if err := a.deleteVolumeAttachments(ctx, in); err != nil || node == nil {
			return err
		}
		if err := removeNode(ctx, target.Client().CoreV1().Nodes(), node); !apierrors.IsConflict(err) {
			return err
		}
	}
	return kube.RepeatedConflictError(in.Machine)
}

// machineOfNodeToRemove returns the machine whose node is removed, from the cache if possible. If the cache lacks the
// machine, the returned machine has no status, so it cannot prove that the provider reported the node's name.
func (a *Activities) machineOfNodeToRemove(in NodeRemoval) *v1alpha1.Machine {
	removed := &v1alpha1.Machine{}
	if m, found := a.Kube.Cluster.Machine(in.Machine.Key()); found && string(m.UID) == in.Machine.UID {
		removed = m.DeepCopy()
	}
	removed.Namespace, removed.Name, removed.UID = in.Machine.Namespace, in.Machine.Name, types.UID(in.Machine.UID)
	removed.Spec.ProviderID = cmp.Or(in.ProviderID, removed.Spec.ProviderID)
	return removed
}

// nodeToRemove returns a node from the cache, or from the API server if live is set or the cache lacks the node. The
// result is nil if the node does not exist.
func (a *Activities) nodeToRemove(ctx context.Context, in NodeRemoval, live bool) (*corev1.Node, error) {
	if node, found := a.Kube.Cluster.Target(in.Machine.Namespace).Node(in.NodeName); found && !live {
		return node, nil
	}
	node, err := a.Kube.Cluster.TargetClient(in.Machine.Namespace).
		CoreV1().
		Nodes().
		Get(ctx, in.NodeName, metav1.GetOptions{})
	switch {
	case kube.IsNotFoundAnswer(err):
		return nil, nil
	case err != nil:
		return nil, kube.ClassifyTargetError(ctx, fmt.Errorf("get node %s: %w", in.NodeName, err))
	}
	return node, nil
}

// removeNode removes Millwright's finalizer from a node and deletes the node.
func removeNode(ctx context.Context, nodes typedcorev1.NodeInterface, node *corev1.Node) error {
	if list := kube.WithoutItem(node.Finalizers, v1alpha1.FinalizerNode); len(list) != len(node.Finalizers) {
		node = node.DeepCopy()
		node.Finalizers = list
		var err error
		switch node, err = nodes.Update(ctx, node, metav1.UpdateOptions{}); {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return kube.ClassifyTargetError(ctx, fmt.Errorf("release node: %w", err))
		}
	}
	err := nodes.Delete(
		ctx,
		node.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &node.UID, ResourceVersion: &node.ResourceVersion}},
	)
	if err != nil && !apierrors.IsNotFound(err) {
		return kube.ClassifyTargetError(ctx, fmt.Errorf("delete node %s: %w", node.Name, err))
	}
	return nil
}
