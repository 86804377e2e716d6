package class_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"millwright/activities/activitiestest"
	"millwright/activities/class"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

func newSecretChanges(secrets ...class.SecretTarget) class.SecretChanges {
	return class.SecretChanges{Class: activitiestest.Ref(activitiestest.Class()), Secrets: secrets}
}

func TestFinalizeSecrets(t *testing.T) {
	t.Parallel()
	const ours = v1alpha1.FinalizerSecret
	t.Run("writes finalizers and nothing else, by metadata", func(t *testing.T) {
		w := activitiestest.NewWorld(
			t,
			activitiestest.Keys("a", activitiestest.Backup),
			activitiestest.Keys("b", ours),
			activitiestest.Keys("c", ours),
		)
		w.Forget()
		versions, err := activitiestest.Run[kube.MinVersions](
			w,
			newActivities(w.Kube).FinalizeSecrets,
			newSecretChanges(activitiestest.Target("a", activitiestest.Backup, ours), activitiestest.Target("b")),
		)
		require.NoError(t, err)
		assert.Equal(t, kube.MinVersions{cache.Secrets: "1002"}, versions, "the version to wait for")
		assert.Equal(t, []string{activitiestest.Backup, ours}, w.Keys("a").Finalizers)
		assert.Empty(t, w.Keys("b").Finalizers)
		assert.Equal(t, []string{ours}, w.Keys("c").Finalizers)
		assert.Equal(t, []string{"patch secrets", "patch secrets"}, w.Requests())
		assert.Len(t, w.Meta.Actions(), 2, "never by a client that is answered with data")
		for _, action := range w.Meta.Actions() {
			assert.Regexp(
				t,
				`^\{"metadata":\{"finalizers":\[[^]]*\],"resourceVersion":"900","uid":"uid-[ab]"\}\}$`,
				string(action.(clienttesting.PatchAction).GetPatch()),
			)
		}
	})
	t.Run("a Secret that waited for that is gone then", func(t *testing.T) {
		w := activitiestest.NewWorld(
			t,
			activitiestest.With(
				activitiestest.Keys("a", ours),
				[]func(*metav1.PartialObjectMetadata){activitiestest.Going[*metav1.PartialObjectMetadata]},
			),
		)
		_, err := activitiestest.Run[kube.MinVersions](
			w,
			newActivities(w.Kube).FinalizeSecrets,
			newSecretChanges(activitiestest.Target("a")),
		)
		require.NoError(t, err)
		assert.Nil(t, w.Keys("a"))
	})
	t.Run("run again it meets the version that it made itself, and changes nothing", func(t *testing.T) {
		w := activitiestest.NewWorld(t, activitiestest.Keys("a"))
		_, err := activitiestest.Run[kube.MinVersions](
			w,
			newActivities(w.Kube).FinalizeSecrets,
			newSecretChanges(activitiestest.Target("a", ours)),
		)
		require.NoError(t, err)
		before := w.Snapshot()
		_, err = activitiestest.Run[kube.MinVersions](
			w,
			newActivities(w.Kube).FinalizeSecrets,
			newSecretChanges(activitiestest.Target("a", ours)),
		)
		activitiestest.AssertFailure(t, err, kube.TypeConflict, false)
		assert.Equal(t, before, w.Snapshot())
	})
	t.Run("one that is gone needs nothing", func(t *testing.T) {
		w := activitiestest.NewWorld(t)
		assert.Empty(
			t,
			activitiestest.Twice[kube.MinVersions](
				w,
				newActivities(w.Kube).FinalizeSecrets,
				newSecretChanges(activitiestest.Target("a", ours)),
			),
		)
	})
	t.Run("one that changed is left alone, and said so when the others are done", func(t *testing.T) {
		replaced := activitiestest.Target("b", ours)
		replaced.UID = "uid-of-a-former-one"
		w := activitiestest.NewWorld(t, activitiestest.Keys("a"), activitiestest.Keys("b"), activitiestest.Keys("c"))
		stale := activitiestest.Target("a", ours)
		stale.Version = "899"
		_, err := activitiestest.Run[kube.MinVersions](
			w,
			newActivities(w.Kube).FinalizeSecrets,
			newSecretChanges(stale, replaced, activitiestest.Target("c", ours)),
		)
		activitiestest.AssertFailure(t, err, kube.TypeConflict, false)
		assert.Empty(t, w.Keys("a").Finalizers)
		assert.Empty(t, w.Keys("b").Finalizers)
		assert.Equal(t, []string{ours}, w.Keys("c").Finalizers)
	})
}

// The error of a webhook that rejects a Secret may contain the Secret's data.
func TestErrorsAboutASecretRevealNoData(t *testing.T) {
	t.Parallel()
	gr := corev1.Resource("secrets")
	for name, row := range map[string]struct {
		err       error
		kind      string
		retryable bool
		message   string
	}{
		"refused": {apierrors.NewForbidden(gr, "a", errors.New(activitiestest.Canary)), kube.TypeRefused, false, "change finalizers of Secret shop/a: the API server answered 403 Forbidden"},
		"away":    {apierrors.NewServiceUnavailable(activitiestest.Canary), "", true, "change finalizers of Secret shop/a: the API server answered 503 ServiceUnavailable"},
		"odd":     {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 418, Message: activitiestest.Canary}}, kube.TypeRefused, false, "change finalizers of Secret shop/a: the API server answered 418 "},
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, activitiestest.Keys("a"))
			activitiestest.Failing(w.Meta, "patch", "secrets", 1, row.err, nil)
			_, err := activitiestest.Run[kube.MinVersions](
				w,
				newActivities(w.Kube).FinalizeSecrets,
				newSecretChanges(activitiestest.Target("a", v1alpha1.FinalizerSecret)),
			)
			kind, retryable := activitiestest.Failure(t, err)
			assert.Equal(t, row.retryable, retryable)
			if row.kind != "" {
				assert.Equal(t, row.kind, kind)
			}
			require.ErrorContains(t, err, row.message)
			assert.NotContains(t, err.Error(), activitiestest.Canary)
		})
	}
}
