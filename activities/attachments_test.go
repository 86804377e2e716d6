package activities_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"millwright/activities"
	"millwright/api/v1alpha1"
)

func TestD16_TheAttachmentsOfAnInstanceThatIsGone(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, going[*v1alpha1.Machine])
	removal := activities.NodeRemoval{Machine: ref(m), NodeName: "n", ProviderID: "fake:///n"}
	objects := func(more ...runtime.Object) []runtime.Object {
		return append(more, m, node(), attached("a", "n"), attached("gone", "n", detaching), attached("b", "other"), attached("", "n"))
	}
	t.Run("D16: are released, with the node", func(t *testing.T) {
		w := newWorld(t, objects()...)
		twice[any](w, w.DeleteNode, removal)
		assert.Nil(t, w.node())
		assert.Nil(t, w.attachment("a", "n"))
		assert.Nil(t, w.attachment("", "n"), "one whose volume is not known, too")
		assert.NotNil(t, w.attachment("b", "other"))
		assert.NotNil(t, w.attachment("gone", "n"), "its own finalizer holds it: nobody waits for it")

		uids := map[string]string{}
		for _, action := range w.target.Actions() {
			if a, ok := action.(clienttesting.DeleteActionImpl); ok && a.Resource.Resource == "volumeattachments" {
				require.NotNil(t, a.DeleteOptions.Preconditions)
				uids[a.Name] = string(*a.DeleteOptions.Preconditions.UID)
			}
		}
		assert.Equal(t, map[string]string{"a-on-n": "uid-a-n", "-on-n": "uid--n"}, uids, "those that live, once each, and no other of their names")
		assert.Equal(t, "delete nodes", w.writes()[2], "before the node")
	})
	resource := storagev1.SchemeGroupVersion.WithResource("volumeattachments").GroupResource()
	for name, refusal := range map[string]error{
		"D16: forbidden is no failure":    apierrors.NewForbidden(resource, "a-on-n", errors.New("no")),
		"D16: nor is one that is invalid": apierrors.NewInvalid(storagev1.SchemeGroupVersion.WithKind("VolumeAttachment").GroupKind(), "a-on-n", nil),
		"one that has just gone":          apierrors.NewNotFound(resource, "a-on-n"),
		"another one of its name":         apierrors.NewConflict(resource, "a-on-n", nil),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, objects()...)
			failing(w.target, "delete", "volumeattachments", 2, refusal, nil)
			_, err := run[any](w, w.DeleteNode, removal)
			require.NoError(t, err)
			assert.Nil(t, w.node())
		})
	}
	t.Run("D16: an API server that fails is asked again, and the node waits for that", func(t *testing.T) {
		w := newWorld(t, objects()...)
		failing(w.target, "delete", "volumeattachments", 1, errors.New("no answer"), nil)
		_, err := run[any](w, w.DeleteNode, removal)
		require.ErrorContains(t, err, "of node n: no answer")
		_, retryable := failure(t, err)
		assert.True(t, retryable)
		assert.NotNil(t, w.node())
		twice[any](w, w.DeleteNode, removal)
		assert.Nil(t, w.node())
		assert.Nil(t, w.attachment("a", "n"))
	})
	for name, around := range map[string][]runtime.Object{
		"those of another instance's node stay": {m, node(providerID("fake:///new")), attached("a", "n")},
		"those of another machine's node stay":  {m, machine("other", onNode), node(), attached("a", "n")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, around...)
			twice[any](w, w.DeleteNode, removal)
			assert.NotNil(t, w.attachment("a", "n"))
			assert.Empty(t, w.writes())
		})
	}
}

func TestND11_ANodeThatCannotBeRemovedIsTriedAgain(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, going[*v1alpha1.Machine])
	removal := activities.NodeRemoval{Machine: ref(m), NodeName: "n"}
	for _, verb := range []string{"get", "delete"} {
		w := newWorld(t, m)
		release := w.hold()
		require.NoError(t, w.target.Tracker().Add(node())) // the cache has yet to hear of it
		failing(w.target, verb, "nodes", 1, errors.New("no answer"), nil)
		_, err := run[any](w, w.DeleteNode, removal)
		require.ErrorContains(t, err, verb+" node n: no answer")
		_, retryable := failure(t, err)
		assert.True(t, retryable)
		assert.NotNil(t, w.node())
		release()
		twice[any](w, w.DeleteNode, removal)
		assert.Nil(t, w.node(), "ND-10")
	}
}
