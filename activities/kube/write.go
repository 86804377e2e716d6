package kube

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/nodesync"
	"millwright/decide/ownership"
	"millwright/observe/cache"
	"millwright/observe/drain"
)

// statusWriter is the part of a client that writes the status of objects of one kind.
type statusWriter[O any] interface {
	UpdateStatus(context.Context, O, metav1.UpdateOptions) (O, error)
}

// WriteStatus writes the status of an object. The function look returns the object as read (before) and with the wanted
// status (after). If before and after are the same pointer, nothing is written. A nil before means that the object is
// gone. On a conflict, WriteStatus calls look again, with a live read. WriteStatus returns the object as last read and
// as written, or ObjectGoneError.
func WriteStatus[O apiObject](
	ctx context.Context, in ReadInput, client statusWriter[O], look func(ReadInput) (before, after O, err error),
) (before, after O, err error) {
	return writeStatus(ctx, in, look, func(_, after O) (O, error) {
		return client.UpdateStatus(ctx, after, metav1.UpdateOptions{})
	})
}

// PatchStatus is WriteStatus for a kind of another project: it writes with PatchChanges, so that the fields of a newer
// version of the API stay.
func PatchStatus[O apiObject](
	ctx context.Context, in ReadInput, client patcher[O], look func(ReadInput) (before, after O, err error),
) (before, after O, err error) {
	return writeStatus(ctx, in, look, func(before, after O) (O, error) {
		return PatchChanges(ctx, client, before, after, "status")
	})
}

func writeStatus[O apiObject](
	ctx context.Context,
	in ReadInput,
	look func(ReadInput) (before, after O, err error),
	write func(before, after O) (O, error),
) (before, after O, err error) {
	var none O
	for range MaxConflictRetries {
		before, after, err = look(in)
		switch {
		case err != nil:
			return none, none, err
		case before == none:
			return none, none, ObjectGoneError(in.Ref)
		case after == before:
			return before, after, nil
		}
		if after, err = write(before, after); err == nil {
			return before, after, nil
		}
		if !apierrors.IsConflict(err) {
			return none, none, ClassifyWriteError(ctx, in.Ref, err)
		}
		in.Live = true
	}
	return none, none, RepeatedConflictError(in.Ref)
}

// UnfreezeObject removes the label freeze and the annotation unfreeze from a set or deployment that still has the
// resourceVersion of o. UnfreezeObject returns the resourceVersion to wait for, or ConflictError.
func UnfreezeObject[O apiObject](ctx context.Context, client patcher[O], ref Ref, o O) (string, error) {
	written, err := PatchObject(ctx, client, o, map[string]any{"metadata": map[string]any{
		"labels": map[string]any{v1alpha1.LabelFreeze: nil}, "annotations": map[string]any{v1alpha1.AnnotationUnfreeze: nil},
	}})
	if err != nil {
		return "", ClassifyWriteError(ctx, ref, err)
	}
	return written.GetResourceVersion(), nil
}

// ChangeMachine calls the function change with a machine, and writes the changes to the machine, except to its status.
// On a conflict, ChangeMachine reads the machine live and calls change again. ChangeMachine returns the current
// resourceVersion of the machine, or ObjectGoneError.
func (a *Kube) ChangeMachine(ctx context.Context, in ReadInput, change func(*v1alpha1.Machine)) (string, error) {
	return PatchAfterRead(ctx, in.Ref, a.Machines(in.Ref.Namespace), func() (*v1alpha1.Machine, map[string]any, error) {
		m, _, err := a.ReadMachine(ctx, in)
		if err != nil || m == nil {
			return nil, nil, err
		}
		in.Live = true
		changed := m.DeepCopy()
		change(changed)
		patch, err := mergePatchBetween(m, changed)
		return m, patch, err
	})
}

// ChangeMachineAtVersion calls the function change with a machine at the resourceVersion that the decision saw, and
// writes the machine if change returns true. ChangeMachineAtVersion returns the machine's current resourceVersion, and
// whether it wrote the machine. The resourceVersion is empty if the machine is gone. If the machine changed since the
// decision, ChangeMachineAtVersion returns a ConflictError.
func (a *Kube) ChangeMachineAtVersion(
	ctx context.Context,
	ref Ref,
	seen string,
	change func(*v1alpha1.Machine) bool,
) (version string, changed bool, err error) {
	machines := a.Machines(ref.Namespace)
	m, err := ReadLive(ctx, machines, "machine", ref)
	switch {
	case err != nil, m == nil:
		return "", false, err
	case m.ResourceVersion != seen:
		return "", false, ConflictError(ref)
	case !change(m):
		return m.ResourceVersion, false, nil
	}
	switch m, err = machines.Update(ctx, m, metav1.UpdateOptions{}); {
	case apierrors.IsNotFound(err):
		return "", false, nil
	case err != nil:
		return "", false, ClassifyWriteError(ctx, ref, err)
	}
	return m.ResourceVersion, true, nil
}

// CordonNode cordons the node of a machine; see machine.CordonNode. CordonNode reads the node as ChangeNode does.
func (a *Kube) CordonNode(ctx context.Context, in ReadInput, live bool) (MinVersions, error) {
	return a.ChangeNode(ctx, in, live, func(m *v1alpha1.Machine, node *corev1.Node) {
		_, held := m.Annotations[v1alpha1.AnnotationHold]
		if m.DeletionTimestamp != nil || !held && !drain.InPlaceFacts(node).IsSelectionWithdrawn() {
			node.Spec.Unschedulable = true
		}
	})
}

// ChangeNode writes the changes that change makes to the node of a machine. If live is false, ChangeNode first tries
// the cached node. ChangeNode returns the current resourceVersion of the node, or an empty map if the machine has no
// node. A node that is not proven to belong to the machine stays unchanged.
func (a *Kube) ChangeNode(
	ctx context.Context,
	in ReadInput,
	live bool,
	change func(*v1alpha1.Machine, *corev1.Node),
	subresources ...string,
) (MinVersions, error) {
	versions := MinVersions{}
	m, _, err := a.ReadMachine(ctx, in)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return versions, nil
	}
	for attempt := range MaxConflictRetries {
		node, err := a.ReadExistingNode(ctx, m, live || attempt > 0)
		if err != nil || node == nil || !a.Cluster.OwnerOfNode(m, node).HasOwnerKind(ownership.OwnerSelf) {
			return versions, err
		}
		changed := node.DeepCopy()
		change(m, changed)
		patch, err := mergePatchBetween(node, changed)
		if err == nil && len(patch) > 0 {
			node, err = PatchObject(ctx, a.Cluster.TargetClient(m.Namespace).CoreV1().Nodes(), node, patch, subresources...)
		}
		switch {
		case err == nil:
			versions.RaiseVersion(cache.NodesResource, node.ResourceVersion)
			return versions, nil
		case apierrors.IsNotFound(err): // the node was deleted after the read
			return versions, nil
		case !apierrors.IsConflict(err):
			return nil, ClassifyWriteError(ctx, in.Ref, fmt.Errorf("patch node of machine %s: %w", m.Name, err))
		}
	}
	return nil, RepeatedConflictError(in.Ref)
}

// maxParallelWrites is the maximum number of objects of one batch that are written at the same time. Source: MCM starts
// 100 writes at once. An API server gives one user about 16 seats per priority level before it queues requests.
const maxParallelWrites = 16

// WriteInParallel does n writes of objects of one kind, up to 16 at a time, and returns the versions to wait for and
// the first error. A failure stops no other write, because all writes must end before the next read. A write that
// returns no version adds no version to wait for.
func WriteInParallel(
	resource cache.Resource,
	n int,
	write func(i int) (version string, err error),
) (MinVersions, error) {
	var group errgroup.Group
	group.SetLimit(maxParallelWrites)
	versions := make([]string, n)
	for i := range n {
		group.Go(func() (err error) {
			versions[i], err = write(i)
			return err
		})
	}
	err := group.Wait()
	written := MinVersions{}
	for _, version := range versions {
		written.RaiseVersion(resource, version)
	}
	return written, err
}

// AddOrRemoveFinalizer adds Millwright's finalizer to an object that is not being deleted. If the object is being
// deleted and empty is true, AddOrRemoveFinalizer removes the finalizer. AddOrRemoveFinalizer returns the current
// resourceVersion of the object, or ObjectGoneError for a nil object.
func AddOrRemoveFinalizer[O apiObject](
	ctx context.Context,
	client patcher[O],
	ref Ref,
	o O,
	empty bool,
) (string, error) {
	var none O
	if o == none {
		return "", ObjectGoneError(ref)
	}
	list := o.GetFinalizers()
	has, deleting := cache.HasFinalizer(list), o.GetDeletionTimestamp() != nil
	switch {
	case !has && !deleting:
		list = append(slices.Clone(list), v1alpha1.FinalizerMachine)
	case has && deleting && empty:
		list = WithoutItem(list, v1alpha1.FinalizerMachine)
	default:
		return o.GetResourceVersion(), nil
	}
	o, err := PatchObject(ctx, client, o, map[string]any{"metadata": map[string]any{"finalizers": list}})
	if err != nil {
		return "", ClassifyWriteError(ctx, ref, err)
	}
	return o.GetResourceVersion(), nil
}

// SetController sets the controller reference of an object to controller, which has this kind. SetController replaces
// the current controller.
func SetController(o, controller metav1.Object, kind string) {
	refs := slices.DeleteFunc(
		slices.Clone(o.GetOwnerReferences()),
		func(ref metav1.OwnerReference) bool { return ref.Controller != nil && *ref.Controller },
	)
	o.SetOwnerReferences(append(refs, *metav1.NewControllerRef(controller, v1alpha1.SchemeGroupVersion.WithKind(kind))))
}

// RemoveOwner removes the owner references of an object to the owner with this UID.
func RemoveOwner(o metav1.Object, owner types.UID) {
	ours := func(ref metav1.OwnerReference) bool { return ref.UID == owner }
	o.SetOwnerReferences(slices.DeleteFunc(slices.Clone(o.GetOwnerReferences()), ours))
}

// WithoutItem returns a copy of a list without one item.
func WithoutItem(list []string, item string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == item })
}

// MergePatchOfMap returns the JSON merge patch of a map (RFC 7396): null removes a key.
func MergePatchOfMap(edit nodesync.MapEdit) map[string]any {
	patch := map[string]any{}
	for _, key := range edit.Remove {
		patch[key] = nil
	}
	for key, value := range edit.Set {
		patch[key] = value
	}
	return patch
}
