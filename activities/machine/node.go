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

// SyncNode writes to the node of a machine what the machine's node template and its class want, our finalizer and the
// machine's name. It writes nothing if the node has it all, does not exist, or its machine is being deleted. It returns
// the version of the node to wait for; the map is empty when nothing was written. Running it twice writes once.
func (a *Activities) SyncNode(ctx context.Context, in kube.Read) (kube.MinVersions, error) {
	versions := kube.MinVersions{}
	m, live, err := a.Kube.Machine(ctx, in)
	if err != nil {
		return nil, err
	}
	if m == nil || m.DeletionTimestamp != nil || cache.NodeNameOf(m) == "" {
		return versions, nil
	}
	related, err := a.around(ctx, m, live)
	if err != nil {
		return nil, err
	}
	for attempt := range kube.MaxConflicts {
		node, err := a.nodeToWrite(ctx, m, related.Node, attempt > 0)
		if err != nil || node == nil || !a.Kube.Cluster.WhoseNode(m, node).Is(ownership.Ours) {
			return versions, err
		}
		changes := nodesync.Decide(machine.NodeSyncFacts(m, related.Class, node))
		if attempt == 0 && isNew(node, changes) {
			err = a.markNew(ctx, m.Namespace, node, a.guarded(related.Set, node, changes), versions)
		} else {
			err = a.writeIfStays(ctx, in.Ref, node, changes, versions)
		}
		switch {
		case err == nil, apierrors.IsNotFound(err): // deleted since it was read
			return versions, nil
		case !apierrors.IsConflict(err):
			return nil, kube.WriteError(ctx, in.Ref, err)
		}
	}
	return nil, kube.Contended(in.Ref)
}

// isNew reports whether no machine has written to a node yet, and only metadata are to be written. While a node joins,
// others write to it several times a second. A patch of our metadata undoes none of these writes, but a write of the
// list of taints or of the capacity might.
func isNew(node *corev1.Node, changes nodesync.Changes) bool {
	return node.Labels[v1alpha1.LabelMachineName] == "" && changes.Finalizer && changes.Taints.Empty() &&
		changes.Capacity.Empty()
}

// guarded adds to the first changes on a node the annotations that keep the cluster autoscaler off it, while the
// deployment of its machine is rolled out: otherwise the rollout would write them next. The rollout removes them when
// it ends.
func (a *Activities) guarded(set *v1alpha1.MachineSet, node *corev1.Node, changes nodesync.Changes) nodesync.Changes {
	_, wanted := changes.Annotations.Set[v1alpha1.AnnotationScaleDownDisabled]
	if wanted || node.Annotations[v1alpha1.AnnotationScaleDownDisabled] != "" || a.Kube.Cluster.Unguided ||
		!a.isRolledOut(set) {
		return changes
	}
	changes.Annotations.Put(v1alpha1.AnnotationScaleDownDisabled, v1alpha1.ValueLowerTrue)
	changes.Annotations.Put(v1alpha1.AnnotationScaleDownDisabledByMCM, v1alpha1.ValueLowerTrue)
	return changes
}

// isRolledOut reports whether the deployment of a set is being rolled out, by its status. The set may be nil.
func (a *Activities) isRolledOut(set *v1alpha1.MachineSet) bool {
	if set == nil || !machine.HasDeployment(set) {
		return false
	}
	owner := metav1.GetControllerOf(set)
	d, found := a.Kube.Cluster.Deployment(set.Namespace + "/" + owner.Name)
	return found && d.UID == owner.UID && observedeployment.Named(d) != ""
}

// markNew makes the first changes on a node, whatever version it has now, and raises the versions. It returns a
// conflict if the API server finds the patch invalid: the node is being deleted and can get no finalizer, or another
// node has its name. If the reason is a value of the node template, the next write reports that.
func (a *Activities) markNew(
	ctx context.Context,
	namespace string,
	seen *corev1.Node,
	changes nodesync.Changes,
	versions kube.MinVersions,
) error {
	node, err := kube.PatchAnyVersion(
		ctx,
		a.Kube.Cluster.Target(namespace).CoreV1().Nodes(),
		seen.UID,
		seen.Name,
		map[string]any{
			"labels":      kube.MergePatch(changes.Labels),
			"annotations": kube.MergePatch(changes.Annotations),
			"finalizers":  []string{v1alpha1.FinalizerNode},
		},
	)
	switch {
	case apierrors.IsInvalid(err):
		return apierrors.NewConflict(corev1.Resource("nodes"), seen.Name, err)
	case err != nil:
		return fmt.Errorf("write labels and annotations of new node: %w", err)
	}
	versions.Raise(cache.Nodes, node.ResourceVersion)
	return nil
}

// nodeToWrite returns the known node of a machine. If there was a conflict or no node is known, the cache was behind,
// and it reads the node live. It returns nil when there is no node.
func (a *Activities) nodeToWrite(
	ctx context.Context,
	m *v1alpha1.Machine,
	known *corev1.Node,
	conflict bool,
) (*corev1.Node, error) {
	if known != nil && !conflict {
		return known, nil
	}
	return a.Kube.Node(ctx, m, true)
}

// writeIfStays makes changes on a node that still is as it was read. If they add our finalizer, it first reads the
// machine live, and writes nothing if the machine is gone or being deleted: after a person has removed the machine's
// finalizer by force, a finalizer on the node would stay until a sweep for orphans. The machine is read after the node:
// if a person removes both finalizers later, the node has changed too, and the write conflicts. For a new node markNew
// needs no such read: nobody has removed a finalizer from it.
func (a *Activities) writeIfStays(
	ctx context.Context,
	ref kube.Ref,
	node *corev1.Node,
	changes nodesync.Changes,
	versions kube.MinVersions,
) error {
	if changes.Finalizer {
		if m, err := kube.Live(ctx, a.Kube.Machines(ref.Namespace), "machine", ref); err != nil || m == nil ||
			m.DeletionTimestamp != nil {
			return err
		}
	}
	return a.writeNode(ctx, ref.Namespace, node, changes, versions)
}

// writeNode makes changes on a node that still is as it was read, and raises the versions. The capacity is written
// first, because the second write records what was applied.
func (a *Activities) writeNode(
	ctx context.Context,
	namespace string,
	node *corev1.Node,
	changes nodesync.Changes,
	versions kube.MinVersions,
) error {
	nodes := a.Kube.Cluster.Target(namespace).CoreV1().Nodes()
	if !changes.Capacity.Empty() {
		var err error
		patch := map[string]any{"status": map[string]any{"capacity": kube.MergePatch(changes.Capacity)}}
		if node, err = kube.Patch(ctx, nodes, node, patch, "status"); err != nil {
			return fmt.Errorf("write capacity of node: %w", err)
		}
		versions.Raise(cache.Nodes, node.ResourceVersion)
	}
	changes.Capacity = nodesync.Edit{}
	if changes.Empty() {
		return nil
	}
	node, err := nodes.Update(ctx, withChanges(node, changes), metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write labels, annotations and taints of node: %w", err)
	}
	versions.Raise(cache.Nodes, node.ResourceVersion)
	return nil
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

// tainted returns a list of taints after an edit. Unchanged taints keep their order and the time when they were added.
func tainted(list []corev1.Taint, edit nodesync.TaintEdit) []corev1.Taint {
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

// InPlaceMark is the condition InPlaceUpdate to write on a machine's node, as decide/inplace decided it.
type InPlaceMark struct {
	Read    kube.Read
	Reason  string
	Message string
}

// MarkInPlace writes the progress of the in-place update of a machine's node. It writes nothing if the node says so
// already, or this is not the next step any more: the update was called off, the agent was faster, or the node that
// must be empty was uncordoned. It returns the version of the node to decide with; the map is empty when the machine
// has no node for itself alone. Running it twice writes once.
func (a *Activities) MarkInPlace(ctx context.Context, in InPlaceMark) (kube.MinVersions, error) {
	return a.Kube.ChangeNode(ctx, in.Read, true, func(m *v1alpha1.Machine, node *corev1.Node) {
		now := drain.InPlaceNode(node)
		next := inplace.Decide(now, string(m.Status.CurrentStatus.Phase))
		switch {
		case m.DeletionTimestamp != nil,
			next.Reason == "", next.Reason != in.Reason,
			next.Step == inplace.Drain && !now.Cordoned,
			now.Reason == in.Reason && now.Message == in.Message: // an agent may change the message of a failure
			return
		}
		others := slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			// its status is always True: a new step needs a new time
			return c.Type == v1alpha1.NodeInPlaceUpdate && c.Reason != in.Reason
		})
		c := Condition{Type: string(v1alpha1.NodeInPlaceUpdate), True: true, Reason: in.Reason, Message: in.Message}
		node.Status.Conditions = setCondition(others, c, metav1.NewTime(in.Read.Stamp(ctx)).Rfc3339Copy())
	}, "status")
}

// CordonNode keeps new pods off the node of a machine. It leaves alone an existing cordon, and a node whose in-place
// update was called off or is held. It returns the version of the node to decide with; the map is empty when the
// machine has no node for itself alone. Running it twice writes once.
func (a *Activities) CordonNode(ctx context.Context, in kube.Read) (kube.MinVersions, error) {
	return a.Kube.Cordon(ctx, in, true)
}

// UncordonNode lets new pods onto the node of a machine that is not being deleted. It returns the same as CordonNode;
// running it twice writes once.
func (a *Activities) UncordonNode(ctx context.Context, in kube.Read) (kube.MinVersions, error) {
	return a.Kube.ChangeNode(ctx, in, true, func(m *v1alpha1.Machine, node *corev1.Node) {
		node.Spec.Unschedulable = node.Spec.Unschedulable && m.DeletionTimestamp != nil
	})
}

// AnnounceTermination sets the condition Terminating on the node of a machine that is being deleted. A node that has it
// already keeps its reason. It returns the version of the node to decide with; the map is empty when the machine has no
// node for itself alone, or this worker's cache does not know of the deletion yet. Running it twice writes once.
func (a *Activities) AnnounceTermination(ctx context.Context, in kube.Read) (kube.MinVersions, error) {
	known := false
	versions, err := a.Kube.ChangeNode(ctx, in, in.Live, func(m *v1alpha1.Machine, node *corev1.Node) {
		known = m.DeletionTimestamp != nil
		if !known || cache.IsTrue(node.Status.Conditions, v1alpha1.NodeTerminating) {
			return
		}
		c := Condition{
			Type:    string(v1alpha1.NodeTerminating),
			True:    true,
			Reason:  v1alpha1.ReasonScaleDown,
			Message: v1alpha1.MessageTerminatingScaleDown,
		}
		if m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed || machine.IsDue(m) || machine.IsGranted(m) {
			// the phase may already be Terminating
			c.Reason, c.Message = v1alpha1.ReasonUnhealthy, v1alpha1.MessageTerminatingUnhealthy
		}
		node.Status.Conditions = setCondition(node.Status.Conditions, c, metav1.NewTime(in.Stamp(ctx)).Rfc3339Copy())
	}, "status")
	if err != nil || !known {
		return kube.MinVersions{}, err
	}
	return versions, nil
}

// deleteAttachments deletes the volume attachments of the node of an instance that is gone. Otherwise they would stay
// for six minutes, or forever. It does not wait until they are gone. A deletion that the API server rejects is logged
// and ignored. If the instance stays, deleteAttachments does nothing.
func (a *Activities) deleteAttachments(ctx context.Context, in NodeRemoval) error {
	if in.InstanceStays {
		return nil
	}
	attachments := a.Kube.Cluster.Target(in.Machine.Namespace).StorageV1().VolumeAttachments()
	for _, item := range a.Kube.Cluster.AttachmentsOf(in.NodeName) {
		if item.DeletionTimestamp != nil {
			continue
		}
		err := attachments.Delete(ctx, item.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &item.UID}})
		switch {
		case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		case kube.Unanswered(err), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err):
			// the API server was too busy
			return fmt.Errorf("delete attachment %s of node %s: %w", item.Name, in.NodeName, err)
		default:
			activity.GetLogger(ctx).
				Warn("attachment cannot be deleted", "attachment", item.Name, "node", in.NodeName, "error", err)
		}
	}
	return nil
}

// NodeRemoval names the node of an instance that is gone, or that stays without its machine.
type NodeRemoval struct {
	Machine    kube.Ref
	NodeName   string
	ProviderID string // empty when none is known
	// InstanceStays: the provider was not asked to delete the instance, so that it may still run and use its volumes.
	InstanceStays bool
}

// DeleteNode deletes the Node object of an instance that is gone. A node that does not exist is a success, and so is
// one that belongs to another instance or machine by now: it is left alone. Only the version of the node that was
// checked is deleted. The volume attachments of an instance that may still run stay: without them, a volume could be
// attached to a second node while the instance writes to it. Kubernetes releases them when it considers that safe.
func (a *Activities) DeleteNode(ctx context.Context, in NodeRemoval) error {
	target := a.Kube.Cluster.Target(in.Machine.Namespace)
	if in.NodeName == "" || target == nil {
		return nil
	}
	for attempt := range kube.MaxConflicts {
		// Attachments are deleted before the precondition checks the node, so the node is read live when there are any.
		node, err := a.lastNode(ctx, in, attempt > 0 || len(a.Kube.Cluster.AttachmentsOf(in.NodeName)) > 0)
		switch {
		case err != nil:
			return err
		case node != nil:
			switch owner := a.Kube.Cluster.WhoseNode(a.removing(in), node); owner.Whose {
			case ownership.Ours:
			case ownership.InDoubt:
				return kube.Conflict(in.Machine)
			default:
				return nil
			}
		}
		if err := a.deleteAttachments(ctx, in); err != nil || node == nil {
			return err
		}
		if err := removeNode(ctx, target.CoreV1().Nodes(), node); !apierrors.IsConflict(err) {
			return err
		}
	}
	return kube.Contended(in.Machine)
}

// removing returns the machine whose node is removed, from the cache if the machine is there. Otherwise the result has
// no status, and so does not prove that the provider reported the node's name.
func (a *Activities) removing(in NodeRemoval) *v1alpha1.Machine {
	removed := &v1alpha1.Machine{}
	if m, found := a.Kube.Cluster.Machine(in.Machine.Key()); found && string(m.UID) == in.Machine.UID {
		removed = m.DeepCopy()
	}
	removed.Namespace, removed.Name, removed.UID = in.Machine.Namespace, in.Machine.Name, types.UID(in.Machine.UID)
	removed.Spec.ProviderID = cmp.Or(in.ProviderID, removed.Spec.ProviderID)
	return removed
}

// lastNode returns a node from the cache, or from the API server if live is set or the cache has none; nil when it does
// not exist.
func (a *Activities) lastNode(ctx context.Context, in NodeRemoval, live bool) (*corev1.Node, error) {
	if node, found := a.Kube.Cluster.Node(in.NodeName); found && !live {
		return node, nil
	}
	node, err := a.Kube.Cluster.Target(in.Machine.Namespace).CoreV1().Nodes().Get(ctx, in.NodeName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, kube.Answered(ctx, fmt.Errorf("get node %s: %w", in.NodeName, err))
	}
	return node, nil
}

// removeNode removes our finalizer from a node and deletes it.
func removeNode(ctx context.Context, nodes typedcorev1.NodeInterface, node *corev1.Node) error {
	if list := kube.Without(node.Finalizers, v1alpha1.FinalizerNode); len(list) != len(node.Finalizers) {
		node = node.DeepCopy()
		node.Finalizers = list
		var err error
		switch node, err = nodes.Update(ctx, node, metav1.UpdateOptions{}); {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return kube.Answered(ctx, fmt.Errorf("release node: %w", err))
		}
	}
	err := nodes.Delete(
		ctx,
		node.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &node.UID, ResourceVersion: &node.ResourceVersion}},
	)
	if err != nil && !apierrors.IsNotFound(err) {
		return kube.Answered(ctx, fmt.Errorf("delete node %s: %w", node.Name, err))
	}
	return nil
}
