package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
)

type patcher[O any] interface {
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (O, error)
}

// PatchObject writes a merge patch on an object. PatchObject succeeds only if the object still has the UID and the
// resourceVersion of seen.
func PatchObject[O apiObject](
	ctx context.Context,
	client patcher[O],
	seen metav1.Object,
	patch map[string]any,
	subresources ...string,
) (O, error) {
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

// FieldManagerPatcher patches objects with a field manager.
type FieldManagerPatcher[O any] struct {
	patcher[O]
	manager string
}

// WithFieldManager returns a client that patches objects with a field manager.
func WithFieldManager[O any](client patcher[O], manager string) FieldManagerPatcher[O] {
	return FieldManagerPatcher[O]{client, manager}
}

// Patch patches an object.
func (m FieldManagerPatcher[O]) Patch(
	ctx context.Context,
	name string,
	kind types.PatchType,
	data []byte,
	o metav1.PatchOptions,
	subresources ...string,
) (O, error) {
	o.FieldManager = m.manager
	return m.patcher.Patch(ctx, name, kind, data, o, subresources...)
}

// PatchChanges writes the difference between two states of an object as a merge patch, and returns the written object.
// PatchChanges succeeds only if the object still has the UID and the resourceVersion of before. If the states are equal,
// PatchChanges writes nothing and returns before. PatchChanges returns the API server's errors unchanged.
//
// A newer version of the object's API may have fields that the Go type lacks. These fields stay, with two exceptions: a
// patch replaces a list as a whole, and removes a struct that loses its last known field. So an item of a changed list,
// for example a condition of another controller in status.conditions, loses its unknown fields. Cluster API's own
// controllers have the same limits.
//
// If the API server accepts the patch but the object stays unchanged, PatchChanges returns a RefusedError: an admission
// webhook restores the former values, or the installed schema lacks the fields. The next attempt would have the same
// result, so callers must wait before they repeat it. PatchChanges does not check patches that change finalizers,
// because the last of them deletes the object.
func PatchChanges[O apiObject](
	ctx context.Context,
	client patcher[O],
	before, after O,
	subresources ...string,
) (O, error) {
	var none O
	patch, err := mergePatchBetween(before, after)
	if err != nil || len(patch) == 0 {
		return before, err
	}
	fields := strings.Join(patchedFields(nil, "", patch), ", ")
	written, err := PatchObject(ctx, client, before, patch, subresources...)
	switch {
	case err != nil:
		return none, err
	case written.GetResourceVersion() == before.GetResourceVersion() &&
		slices.Equal(before.GetFinalizers(), after.GetFinalizers()):
		return none, RefusedError(fmt.Sprintf(
			"%s stays unchanged: an admission webhook or the installed schema discards the change of %s",
			before.GetName(), fields,
		))
	default:
		return written, nil
	}
}

// patchedFields adds the paths of the fields in a merge patch to a list, sorted.
func patchedFields(paths []string, at string, patch map[string]any) []string {
	for _, name := range slices.Sorted(maps.Keys(patch)) {
		if inner, isObject := patch[name].(map[string]any); isObject {
			paths = patchedFields(paths, at+name+".", inner)
		} else {
			paths = append(paths, at+name)
		}
	}
	return paths
}

// PatchIgnoringVersion writes a strategic merge patch on the object with this UID, at any resourceVersion. Lists that
// Kubernetes merges, such as finalizers, keep the entries of other writers. Use PatchIgnoringVersion only for a change
// that is correct regardless of other writes. If the object has another UID, the API server answers with an Invalid
// error.
func PatchIgnoringVersion[O apiObject](
	ctx context.Context,
	client patcher[O],
	uid types.UID,
	name string,
	metadata map[string]any,
) (O, error) {
	metadata["uid"] = uid
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		var none O
		return none, fmt.Errorf("encode patch of %s: %w", name, err)
	}
	return client.Patch(ctx, name, types.StrategicMergePatchType, data, metav1.PatchOptions{})
}

// mergePatchBetween returns the JSON merge patch (RFC 7396) between two states of an object; empty if the states are
// equal. The patch replaces lists as a whole.
func mergePatchBetween(before, after metav1.Object) (patch map[string]any, err error) {
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

// PatchAfterRead patches an object. The function look reads the object, and returns the object and the patch. An empty
// patch means that PatchAfterRead writes nothing; a nil object means that the object is gone. On a conflict,
// PatchAfterRead calls look again. PatchAfterRead returns the current resourceVersion of the object, or
// ObjectGoneError.
func PatchAfterRead[O apiObject](
	ctx context.Context,
	ref Ref,
	client patcher[O],
	look func() (O, map[string]any, error),
) (string, error) {
	var none O
	for range MaxConflictRetries {
		o, patch, err := look()
		switch {
		case err != nil:
			return "", err
		case o == none:
			return "", ObjectGoneError(ref)
		case len(patch) == 0:
			return o.GetResourceVersion(), nil
		}
		o, err = PatchObject(ctx, client, o, patch)
		switch {
		case err == nil:
			return o.GetResourceVersion(), nil
		case !apierrors.IsConflict(err):
			return "", ClassifyWriteError(ctx, ref, err)
		}
	}
	return "", RepeatedConflictError(ref)
}
