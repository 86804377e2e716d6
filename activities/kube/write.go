package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"

	"millwright/api/v1alpha1"
	"millwright/decide/nodesync"
	"millwright/observe/cache"
	"millwright/observe/drain"
)

// patcher is the part of a client that patches objects of one kind.
type patcher[O any] interface {
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (O, error)
}

// Patch writes a merge patch on an object that still is as it was read: it carries the UID and the version of that.
func Patch[O object](ctx context.Context, client patcher[O], seen metav1.Object, patch map[string]any, subresources ...string) (O, error) {
	metadata, _ := patch["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		patch["metadata"] = metadata
	}
	metadata["uid"], metadata["resourceVersion"] = seen.GetUID(), seen.GetResourceVersion()
	data, err := json.Marshal(patch)
	if err != nil {
		var none O
		return none, fmt.Errorf("encode patch of %s: %w", seen.GetName(), err)
	}
	return client.Patch(ctx, seen.GetName(), types.MergePatchType, data, metav1.PatchOptions{}, subresources...)
}

// Change makes an object that still is as it was read what it was changed to, by a merge patch of the difference. Where there is
// none, nothing is written.
func Change[O object](ctx context.Context, client patcher[O], seen, changed O, subresources ...string) (O, error) {
	patch, err := difference(seen, changed)
	if err != nil || len(patch) == 0 {
		return seen, err
	}
	return Patch(ctx, client, seen, patch, subresources...)
}

// difference returns the JSON merge patch (RFC 7396) between two states of an object; empty where they are the same. Lists are
// replaced as a whole.
func difference(before, after metav1.Object) (patch map[string]any, err error) {
	was, err := json.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", before.GetName(), err)
	}
	is, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", before.GetName(), err)
	}
	data, err := jsonmergepatch.CreateThreeWayJSONMergePatch(was, is, was)
	if err == nil {
		err = json.Unmarshal(data, &patch)
	}
	if err != nil {
		return nil, fmt.Errorf("compare states of %s: %w", before.GetName(), err)
	}
	return patch, nil
}

// PatchSeen patches an object with what look returns beside it; no patch means that there is nothing to do, and no object
// that it is gone. When another writer was faster, look is asked again. It returns the version that the object has now, or
// ObjectGone.
func PatchSeen[O object](ctx context.Context, ref Ref, client patcher[O], look func() (O, map[string]any, error)) (string, error) {
	var none O
	for range MaxConflicts {
		o, patch, err := look()
		switch {
		case err != nil:
			return "", err
		case o == none:
			return "", ObjectGone(ref)
		case len(patch) == 0:
			return o.GetResourceVersion(), nil
		}
		o, err = Patch(ctx, client, o, patch)
		switch {
		case err == nil:
			return o.GetResourceVersion(), nil
		case !apierrors.IsConflict(err):
			return "", WriteError(ref, err)
		}
	}
	return "", Contended(ref)
}

// ChangeMachine writes a machine as change leaves it, its status apart. When another writer was faster, the machine is read live
// and change is asked again. It returns the version that the machine has now, or ObjectGone.
func (a *Kube) ChangeMachine(ctx context.Context, in Read, change func(*v1alpha1.Machine)) (string, error) {
	client := a.Cluster.Client().MachineV1alpha1().Machines(in.Ref.Namespace)
	return PatchSeen(ctx, in.Ref, client, func() (*v1alpha1.Machine, map[string]any, error) {
		m, _, err := a.Machine(ctx, in)
		if err != nil || m == nil {
			return nil, nil, err
		}
		in.Live = true
		changed := m.DeepCopy()
		change(changed)
		patch, err := difference(m, changed)
		return m, patch, err
	})
}

// ChangeMember writes one machine that still has the version that a decision saw, and returns the version that it has now; empty for
// one that is gone.
func (a *Kube) ChangeMember(ctx context.Context, ref Ref, seen string, change func(*v1alpha1.Machine) bool) (version string, changed bool, err error) {
	machines := a.Cluster.Client().MachineV1alpha1().Machines(ref.Namespace)
	m, err := Live(ctx, machines, "machine", ref)
	switch {
	case err != nil, m == nil:
		return "", false, err
	case m.ResourceVersion != seen:
		return "", false, Conflict(ref)
	case !change(m):
		return m.ResourceVersion, false, nil
	}
	switch m, err = machines.Update(ctx, m, metav1.UpdateOptions{}); {
	case apierrors.IsNotFound(err):
		return "", false, nil
	case err != nil:
		return "", false, WriteError(ref, err)
	}
	return m.ResourceVersion, true, nil
}

// Cordon keeps new pods off the node of a machine; see machine.CordonNode. It looks at the node as ChangeNode does.
func (a *Kube) Cordon(ctx context.Context, in Read, live bool) (MinVersions, error) {
	return a.ChangeNode(ctx, in, live, func(m *v1alpha1.Machine, node *corev1.Node) {
		_, held := m.Annotations[v1alpha1.AnnotationHold]
		if m.DeletionTimestamp != nil || !held && !drain.InPlaceNode(node).CalledOff() {
			node.Spec.Unschedulable = true
		}
	})
}

// ChangeNode writes the node of a machine as change leaves it. It looks at the node as the cache has it first, for what was
// decided from the cache, too, unless it is to be live from the start. It returns the version that the node has then. A node that
// is not there, or that another machine names too, is left alone: then the map is empty.
func (a *Kube) ChangeNode(ctx context.Context, in Read, live bool, change func(*v1alpha1.Machine, *corev1.Node), subresources ...string) (MinVersions, error) {
	versions := MinVersions{}
	m, _, err := a.Machine(ctx, in)
	if err != nil {
		return nil, err
	}
	if m == nil || a.Claimed(in.Ref.UID, m.Labels[v1alpha1.LabelNode]) {
		return versions, nil
	}
	for attempt := range MaxConflicts {
		node, err := a.Node(ctx, m, live || attempt > 0 || a.Cluster.NodeOf(m) == nil) // one that has just joined may not be in the cache yet
		if err != nil || node == nil {
			return versions, err
		}
		changed := node.DeepCopy()
		change(m, changed)
		node, err = Change(ctx, a.Cluster.Target(m.Namespace).CoreV1().Nodes(), node, changed, subresources...)
		switch {
		case err == nil:
			versions.Raise(cache.Nodes, node.ResourceVersion)
			return versions, nil
		case apierrors.IsNotFound(err): // it went while we looked
			return versions, nil
		case !apierrors.IsConflict(err):
			return nil, WriteError(in.Ref, fmt.Errorf("patch node of machine %s: %w", m.Name, err))
		}
	}
	return nil, Contended(in.Ref)
}

// parallelWrites is how many objects of one batch are written at a time. Source: MCM starts 100 at once; API servers allow
// a priority level about 16 seats of one user before they queue.
const parallelWrites = 16

// InParallel does n writes of objects of one kind, some at a time, and returns the versions to wait for and the first error.
// No request is cut short by another's failure: what is under way must be done before the next look. A write that returns no
// version has nothing to wait for.
func InParallel(resource cache.Resource, n int, write func(i int) (version string, err error)) (MinVersions, error) {
	var group errgroup.Group
	group.SetLimit(parallelWrites)
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
		written.Raise(resource, version)
	}
	return written, err
}

// Finalize gives an object the finalizers that it should have: ours as long as it lives, and then until it is empty. It
// returns the version that the object has now, or ObjectGone for one that is nil.
func Finalize[O object](ctx context.Context, client patcher[O], ref Ref, o O, empty bool) (string, error) {
	var none O
	if o == none {
		return "", ObjectGone(ref)
	}
	list := o.GetFinalizers()
	has, deleting := cache.HasFinalizer(list), o.GetDeletionTimestamp() != nil
	switch {
	case !has && !deleting:
		list = append(slices.Clone(list), v1alpha1.FinalizerMachine)
	case has && deleting && empty:
		list = Without(list, v1alpha1.FinalizerMachine)
	default:
		return o.GetResourceVersion(), nil
	}
	o, err := Patch(ctx, client, o, map[string]any{"metadata": map[string]any{"finalizers": list}})
	if err != nil {
		return "", WriteError(ref, err)
	}
	return o.GetResourceVersion(), nil
}

// Without returns a copy of a list without an item.
func Without(list []string, item string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == item })
}

// MergePatch returns the JSON merge patch of a map (RFC 7396): null removes.
func MergePatch(edit nodesync.Edit) map[string]any {
	patch := map[string]any{}
	for _, key := range edit.Remove {
		patch[key] = nil
	}
	for key, value := range edit.Set {
		patch[key] = value
	}
	return patch
}
