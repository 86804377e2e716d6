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
	return class.SecretChanges{Class: activitiestest.NewRef(activitiestest.NewClass()), Secrets: secrets}
}

func TestFinalizeSecrets(t *testing.T) {
	t.Parallel()
	const ours = v1alpha1.FinalizerSecret
	t.Run("writes finalizers and nothing else, by metadata", func(t *testing.T) {
		w := activitiestest.NewWorld(
			t,
			activitiestest.NewSecretMetadata("a", activitiestest.BackupFinalizer),
			activitiestest.NewSecretMetadata("b", ours),
			activitiestest.NewSecretMetadata("c", ours),
		)
		w.ForgetRequests()
		versions, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).FinalizeSecrets,
			newSecretChanges(
				activitiestest.NewSecretTarget("a", activitiestest.BackupFinalizer, ours),
				activitiestest.NewSecretTarget("b"),
			),
		)
		require.NoError(t, err)
		assert.Equal(t, kube.MinVersions{cache.SecretsResource: "1002"}, versions, "the version to wait for")
		assert.Equal(t, []string{activitiestest.BackupFinalizer, ours}, w.SecretMetadata("a").Finalizers)
		assert.Empty(t, w.SecretMetadata("b").Finalizers)
		assert.Equal(t, []string{ours}, w.SecretMetadata("c").Finalizers)
		assert.Equal(t, []string{"patch secrets", "patch secrets"}, w.Requests())
		assert.Len(t, w.MetadataClient.Actions(), 2, "never by a client that is answered with data")
		for _, action := range w.MetadataClient.Actions() {
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
			activitiestest.ApplyChanges(
				activitiestest.NewSecretMetadata("a", ours),
				[]func(*metav1.PartialObjectMetadata){activitiestest.WithDeletionTimestamp[*metav1.PartialObjectMetadata]},
			),
		)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).FinalizeSecrets,
			newSecretChanges(activitiestest.NewSecretTarget("a")),
		)
		require.NoError(t, err)
		assert.Nil(t, w.SecretMetadata("a"))
	})
	t.Run("run again it meets the version that it made itself, and changes nothing", func(t *testing.T) {
		w := activitiestest.NewWorld(t, activitiestest.NewSecretMetadata("a"))
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).FinalizeSecrets,
			newSecretChanges(activitiestest.NewSecretTarget("a", ours)),
		)
		require.NoError(t, err)
		before := w.Snapshot()
		_, err = activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).FinalizeSecrets,
			newSecretChanges(activitiestest.NewSecretTarget("a", ours)),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.Equal(t, before, w.Snapshot())
	})
	t.Run("one that is gone needs nothing", func(t *testing.T) {
		w := activitiestest.NewWorld(t)
		assert.Empty(
			t,
			activitiestest.RunActivityTwice[kube.MinVersions](
				w,
				newActivities(w.Kube).FinalizeSecrets,
				newSecretChanges(activitiestest.NewSecretTarget("a", ours)),
			),
		)
	})
	t.Run("one that changed is left alone, and said so when the others are done", func(t *testing.T) {
		replaced := activitiestest.NewSecretTarget("b", ours)
		replaced.UID = "uid-of-a-former-one"
		w := activitiestest.NewWorld(
			t,
			activitiestest.NewSecretMetadata("a"),
			activitiestest.NewSecretMetadata("b"),
			activitiestest.NewSecretMetadata("c"),
		)
		stale := activitiestest.NewSecretTarget("a", ours)
		stale.Version = "899"
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).FinalizeSecrets,
			newSecretChanges(stale, replaced, activitiestest.NewSecretTarget("c", ours)),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.Empty(t, w.SecretMetadata("a").Finalizers)
		assert.Empty(t, w.SecretMetadata("b").Finalizers)
		assert.Equal(t, []string{ours}, w.SecretMetadata("c").Finalizers)
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
		"refused": {apierrors.NewForbidden(gr, "a", errors.New(activitiestest.SecretMarker)), kube.FailureTypeRefused, false, "change finalizers of Secret shop/a: the API server answered 403 Forbidden"},
		"away":    {apierrors.NewServiceUnavailable(activitiestest.SecretMarker), "", true, "change finalizers of Secret shop/a: the API server answered 503 ServiceUnavailable"},
		"odd":     {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 418, Message: activitiestest.SecretMarker}}, kube.FailureTypeRefused, false, "change finalizers of Secret shop/a: the API server answered 418 "},
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, activitiestest.NewSecretMetadata("a"))
			activitiestest.FailRequests(w.MetadataClient, "patch", "secrets", 1, row.err, nil)
			_, err := activitiestest.RunActivity[kube.MinVersions](
				w,
				newActivities(w.Kube).FinalizeSecrets,
				newSecretChanges(activitiestest.NewSecretTarget("a", v1alpha1.FinalizerSecret)),
			)
			kind, retryable := activitiestest.FailureTypeOf(t, err)
			assert.Equal(t, row.retryable, retryable)
			if row.kind != "" {
				assert.Equal(t, row.kind, kind)
			}
			require.ErrorContains(t, err, row.message)
			assert.NotContains(t, err.Error(), activitiestest.SecretMarker)
		})
	}
}
