package machine_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"millwright/activities/activitiestest"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
)

func TestDeleteNodeDeletesVolumeAttachments(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])
	removal := machine.NodeRemoval{Machine: activitiestest.NewRef(m), NodeName: "n", ProviderID: "fake:///n"}
	objects := func(more ...runtime.Object) []runtime.Object {
		return append(
			more,
			m,
			activitiestest.NewNode(),
			activitiestest.NewVolumeAttachment("a", "n"),
			activitiestest.NewVolumeAttachment("gone", "n", activitiestest.WithDetachRequest),
			activitiestest.NewVolumeAttachment("b", "other"),
			activitiestest.NewVolumeAttachment("", "n"),
		)
	}
	t.Run("are released, with the node", func(t *testing.T) {
		w := activitiestest.NewWorld(t, objects()...)
		activitiestest.RunActivityTwice[any](w, newActivities(w.Kube).DeleteNode, removal)
		assert.Nil(t, w.Node())
		assert.Nil(t, w.VolumeAttachment("a", "n"))
		assert.Nil(t, w.VolumeAttachment("", "n"), "one whose volume is not known, too")
		assert.NotNil(t, w.VolumeAttachment("b", "other"))
		assert.NotNil(t, w.VolumeAttachment("gone", "n"), "its own finalizer holds it: nobody waits for it")

		uids := map[string]string{}
		for _, action := range w.TargetClient.Actions() {
			if a, ok := action.(clienttesting.DeleteActionImpl); ok && a.Resource.Resource == "volumeattachments" {
				require.NotNil(t, a.DeleteOptions.Preconditions)
				uids[a.Name] = string(*a.DeleteOptions.Preconditions.UID)
			}
		}
		assert.Equal(
			t,
			map[string]string{"a-on-n": "uid-a-n", "-on-n": "uid--n"},
			uids,
			"those that live, once each, and no other of their names",
		)
		assert.Equal(t, "delete nodes", w.MutatingRequests()[2], "before the node")
	})
	t.Run("those of an instance that may still run stay, because its volumes are in use", func(t *testing.T) {
		w := activitiestest.NewWorld(t, objects()...)
		stays := removal
		stays.InstanceStays = true
		activitiestest.RunActivityTwice[any](w, newActivities(w.Kube).DeleteNode, stays)
		assert.Nil(t, w.Node())
		assert.NotNil(t, w.VolumeAttachment("a", "n"))
		assert.NotNil(t, w.VolumeAttachment("", "n"))
	})
	resource := storagev1.SchemeGroupVersion.WithResource("volumeattachments").GroupResource()
	for name, refusal := range map[string]error{
		"forbidden is no failure":    apierrors.NewForbidden(resource, "a-on-n", errors.New("no")),
		"nor is one that is invalid": apierrors.NewInvalid(storagev1.SchemeGroupVersion.WithKind("VolumeAttachment").GroupKind(), "a-on-n", nil),
		"one that has just gone":     apierrors.NewNotFound(resource, "a-on-n"),
		"another one of its name":    apierrors.NewConflict(resource, "a-on-n", nil),
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, objects()...)
			activitiestest.FailRequests(w.TargetClient, "delete", "volumeattachments", 2, refusal, nil)
			_, err := activitiestest.RunActivity[any](w, newActivities(w.Kube).DeleteNode, removal)
			require.NoError(t, err)
			assert.Nil(t, w.Node())
		})
	}
	t.Run("an API server that fails is asked again, and the node waits for that", func(t *testing.T) {
		w := activitiestest.NewWorld(t, objects()...)
		activitiestest.FailRequests(w.TargetClient, "delete", "volumeattachments", 1, errors.New("no answer"), nil)
		_, err := activitiestest.RunActivity[any](w, newActivities(w.Kube).DeleteNode, removal)
		require.ErrorContains(t, err, "of node n: no answer")
		_, retryable := activitiestest.FailureTypeOf(t, err)
		assert.True(t, retryable)
		assert.NotNil(t, w.Node())
		activitiestest.RunActivityTwice[any](w, newActivities(w.Kube).DeleteNode, removal)
		assert.Nil(t, w.Node())
		assert.Nil(t, w.VolumeAttachment("a", "n"))
	})
	for name, related := range map[string][]runtime.Object{
		"those of another instance's node stay": {m, activitiestest.NewNode(activitiestest.WithProviderID("fake:///new")), activitiestest.NewVolumeAttachment("a", "n")},
		"those of another machine's node stay": {
			m, activitiestest.NewMachine("other", activitiestest.WithNode),
			activitiestest.NewNode(activitiestest.WithMachineUID(activitiestest.NewMachine("other"))), activitiestest.NewVolumeAttachment("a", "n"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, related...)
			activitiestest.RunActivityTwice[any](w, newActivities(w.Kube).DeleteNode, removal)
			assert.NotNil(t, w.VolumeAttachment("a", "n"))
			assert.Empty(t, w.MutatingRequests())
		})
	}
}

func TestFailedNodeDeletionIsRetried(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])
	removal := machine.NodeRemoval{Machine: activitiestest.NewRef(m), NodeName: "n"}
	for _, verb := range []string{"get", "delete"} {
		w := activitiestest.NewWorld(t, m)
		release := w.HoldEvents()
		require.NoError(t, w.TargetClient.Tracker().Add(activitiestest.NewNode())) // the cache lacks the node
		activitiestest.FailRequests(w.TargetClient, verb, "nodes", 1, errors.New("no answer"), nil)
		_, err := activitiestest.RunActivity[any](w, newActivities(w.Kube).DeleteNode, removal)
		require.ErrorContains(t, err, verb+" node n: no answer")
		_, retryable := activitiestest.FailureTypeOf(t, err)
		assert.True(t, retryable)
		assert.NotNil(t, w.Node())
		release()
		activitiestest.RunActivityTwice[any](w, newActivities(w.Kube).DeleteNode, removal)
		assert.Nil(t, w.Node())
	}
}
