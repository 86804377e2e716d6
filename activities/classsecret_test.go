package activities_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/observe"
)

func finalizing(secrets ...activities.SecretTarget) activities.SecretChanges {
	return activities.SecretChanges{Class: ref(class()), Secrets: secrets}
}

func TestFinalizeSecrets(t *testing.T) {
	t.Parallel()
	const ours = v1alpha1.FinalizerSecret
	t.Run("U170: writes finalizers and nothing else, by metadata", func(t *testing.T) {
		w := newWorld(t, keys("a", backup), keys("b", ours), keys("c", ours))
		w.forget()
		gate, err := run[activities.Gate](w, w.FinalizeSecrets, finalizing(target("a", backup, ours), target("b")))
		require.NoError(t, err)
		assert.Equal(t, activities.Gate{observe.Secrets: "1002"}, gate, "the version to wait for")
		assert.Equal(t, []string{backup, ours}, w.keys("a").Finalizers)
		assert.Empty(t, w.keys("b").Finalizers)
		assert.Equal(t, []string{ours}, w.keys("c").Finalizers)
		assert.Equal(t, []string{"patch secrets", "patch secrets"}, w.requests())
		assert.Len(t, w.meta.Actions(), 2, "never by a client that is answered with data")
		for _, action := range w.meta.Actions() {
			assert.Regexp(t, `^\{"metadata":\{"finalizers":\[[^]]*\],"resourceVersion":"900","uid":"uid-[ab]"\}\}$`, string(action.(clienttesting.PatchAction).GetPatch()))
		}
	})
	t.Run("a Secret that waited for that is gone then", func(t *testing.T) {
		w := newWorld(t, with(keys("a", ours), []func(*metav1.PartialObjectMetadata){going[*metav1.PartialObjectMetadata]}))
		_, err := run[activities.Gate](w, w.FinalizeSecrets, finalizing(target("a")))
		require.NoError(t, err)
		assert.Nil(t, w.keys("a"))
	})
	t.Run("run again it meets the version that it made itself, and changes nothing", func(t *testing.T) {
		w := newWorld(t, keys("a"))
		_, err := run[activities.Gate](w, w.FinalizeSecrets, finalizing(target("a", ours)))
		require.NoError(t, err)
		before := w.snapshot()
		_, err = run[activities.Gate](w, w.FinalizeSecrets, finalizing(target("a", ours)))
		assertFailure(t, err, activities.TypeConflict, false)
		assert.Equal(t, before, w.snapshot())
	})
	t.Run("one that is gone needs nothing", func(t *testing.T) {
		w := newWorld(t)
		assert.Empty(t, twice[activities.Gate](w, w.FinalizeSecrets, finalizing(target("a", ours))))
	})
	t.Run("one that changed is left alone, and said so when the others are done", func(t *testing.T) {
		replaced := target("b", ours)
		replaced.UID = "uid-of-a-former-one"
		w := newWorld(t, keys("a"), keys("b"), keys("c"))
		stale := target("a", ours)
		stale.Version = "899"
		_, err := run[activities.Gate](w, w.FinalizeSecrets, finalizing(stale, replaced, target("c", ours)))
		assertFailure(t, err, activities.TypeConflict, false)
		assert.Empty(t, w.keys("a").Finalizers)
		assert.Empty(t, w.keys("b").Finalizers)
		assert.Equal(t, []string{ours}, w.keys("c").Finalizers)
	})
}

// What refuses a Secret has seen what is in it.
func TestWhatIsSaidOfASecretIsNotToldOn(t *testing.T) {
	t.Parallel()
	gr := corev1.Resource("secrets")
	for name, row := range map[string]struct {
		err       error
		kind      string
		retryable bool
		message   string
	}{
		"refused": {apierrors.NewForbidden(gr, "a", errors.New(canary)), activities.TypeRefused, false, "change finalizers of Secret shop/a: the API server answers 403 Forbidden"},
		"away":    {apierrors.NewServiceUnavailable(canary), "", true, "change finalizers of Secret shop/a: the API server answers 503 ServiceUnavailable"},
		"odd":     {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 418, Message: canary}}, "", true, "change finalizers of Secret shop/a: the API server answers 418 "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, keys("a"))
			failing(w.meta, "patch", "secrets", 1, row.err, nil)
			_, err := run[activities.Gate](w, w.FinalizeSecrets, finalizing(target("a", v1alpha1.FinalizerSecret)))
			kind, retryable := failure(t, err)
			assert.Equal(t, row.retryable, retryable)
			if row.kind != "" {
				assert.Equal(t, row.kind, kind)
			}
			require.ErrorContains(t, err, row.message)
			assert.NotContains(t, err.Error(), canary)
		})
	}
}
