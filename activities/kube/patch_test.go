package kube_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
)

// storedSet is a set in an API server that has a newer version of the API than the client: the Go type lacks the fields
// whose names begin with "new".
type storedSet struct {
	text     string
	version  int
	requests []string // the patch type, the field manager, the subresource and the body of each request
	discards bool     // a webhook restores the former values
	err      error
}

func newStoredSet() *storedSet {
	return &storedSet{version: 7, text: `{
		"metadata":{"name":"s","uid":"uid-s","resourceVersion":"7","labels":{"a":"1"},"finalizers":["x"]},
		"spec":{"replicas":3,"newField":1,"template":{"newField":2,"spec":{"newField":3,"providerID":"p"}}},
		"status":{"replicas":3,"newField":4}}`}
}

func (o *storedSet) read() (set *v1alpha1.MachineSet) {
	if err := json.Unmarshal([]byte(o.text), &set); err != nil {
		panic(err)
	}
	return set
}

// Patch is the API server's answer to a merge patch.
func (o *storedSet) Patch(
	_ context.Context,
	_ string,
	kind types.PatchType,
	data []byte,
	options metav1.PatchOptions,
	subresources ...string,
) (*v1alpha1.MachineSet, error) {
	o.requests = append(o.requests, fmt.Sprint(kind, " ", options.FieldManager, subresources, " ", string(data)))
	if o.err != nil {
		return nil, o.err
	}
	if seen := o.read(); o.discards {
		return seen, nil
	}
	merged, err := jsonpatch.MergePatch([]byte(o.text), data)
	if err != nil {
		return nil, err
	}
	o.version++
	o.text = fmt.Sprintf(`{"metadata":{"resourceVersion":"%d"}}`, o.version)
	if merged, err = jsonpatch.MergePatch(merged, []byte(o.text)); err != nil {
		return nil, err
	}
	o.text = string(merged)
	return o.read(), nil
}

func TestPatchChanges(t *testing.T) {
	server := newStoredSet()
	before := server.read()
	after := before.DeepCopy()
	after.Labels = map[string]string{"b": "2"}
	after.Spec.Replicas, after.Spec.Template.Spec.ProviderID = 4, ""
	after.Spec.Template.Labels = map[string]string{"x": "y"}
	written, err := kube.PatchChanges(t.Context(), server, before, after)
	require.NoError(t, err)
	assert.Equal(t, server.read(), written)
	assert.JSONEq(t, `{
		"metadata":{"name":"s","uid":"uid-s","resourceVersion":"8","labels":{"b":"2"},"finalizers":["x"]},
		"spec":{"replicas":4,"newField":1,"template":{"newField":2,"metadata":{"labels":{"x":"y"}},"spec":{"newField":3}}},
		"status":{"replicas":3,"newField":4}}`, server.text)
	assert.Equal(t, []string{
		`application/merge-patch+json [] {"metadata":{"labels":{"a":null,"b":"2"},"resourceVersion":"7","uid":"uid-s"},` +
			`"spec":{"replicas":4,"template":{"metadata":{"labels":{"x":"y"}},"spec":{"providerID":null}}}}`,
	}, server.requests)

	before = server.read()
	same, err := kube.PatchChanges(t.Context(), server, before, before.DeepCopy())
	require.NoError(t, err)
	assert.Same(t, before, same)
	assert.Len(t, server.requests, 1, "nothing differs")

	after = before.DeepCopy()
	after.Status.Replicas = 5
	_, err = kube.PatchChanges(t.Context(), kube.WithFieldManager(server, "us"), before, after, "status")
	require.NoError(t, err)
	assert.Equal(
		t,
		`application/merge-patch+json us[status] {"metadata":{"resourceVersion":"8","uid":"uid-s"},"status":{"replicas":5}}`,
		server.requests[1],
	)
	assert.Contains(t, server.text, `"newField":4`)
}

func TestPatchChangesReturnsErrorsUnchanged(t *testing.T) {
	server := newStoredSet()
	server.err = apierrors.NewConflict(schema.GroupResource{Resource: "machinesets"}, "s", errors.New("changed"))
	before := server.read()
	after := before.DeepCopy()
	after.Spec.Replicas = 4
	_, err := kube.PatchChanges(t.Context(), server, before, after)
	assert.Same(t, server.err, err)
}

// An admission webhook may restore the former values. The same write again would have the same result, so callers must
// not repeat it at once.
func TestPatchChangesRefusesAChangeThatTheAPIServerDiscards(t *testing.T) {
	server := newStoredSet()
	server.discards = true
	before := server.read()
	after := before.DeepCopy()
	after.Spec.Replicas, after.Labels = 4, map[string]string{"a": "2"}
	_, err := kube.PatchChanges(t.Context(), server, before, after)
	failure, isRefused := kube.FailureOfType(err, kube.FailureTypeRefused)
	require.True(t, isRefused, err)
	assert.Equal(
		t,
		"s stays unchanged: an admission webhook or the installed schema discards the change of metadata.labels.a, spec.replicas",
		failure.Message(),
	)
	assert.Equal(t, err, kube.ClassifyWriteError(t.Context(), kube.Ref{}, err))

	// the API server answers to the removal of the last finalizer with the object that it has deleted
	after = before.DeepCopy()
	after.Finalizers = nil
	_, err = kube.PatchChanges(t.Context(), server, before, after)
	assert.NoError(t, err)
}

// A conflict is repeated with a live read; a state that is equal is not written.
func TestPatchStatus(t *testing.T) {
	server := newStoredSet()
	var reads []bool
	look := func(in kube.ReadInput) (before, after *v1alpha1.MachineSet, err error) {
		reads = append(reads, in.Live)
		if server.err != nil && in.Live {
			server.err = nil
		}
		before = server.read()
		after = before.DeepCopy()
		after.Status.Replicas = 9
		return before, after, nil
	}
	server.err = apierrors.NewConflict(schema.GroupResource{Resource: "machinesets"}, "s", nil)
	before, after, err := kube.PatchStatus(t.Context(), kube.ReadInput{}, server, look)
	require.NoError(t, err)
	assert.Equal(t, []bool{false, true}, reads)
	assert.Equal(t, []int32{3, 9}, []int32{before.Status.Replicas, after.Status.Replicas})
	assert.Equal(t, "8", after.ResourceVersion)
	assert.Contains(t, server.requests[1], "[status]")
}
