package cloud_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/activities/activitiestest"
	"millwright/activities/cloud"
	"millwright/activities/kube"
	machinefake "millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
	observeclass "millwright/observe/class"
	"millwright/provider"
)

// reader is an office whose API server counts what is read.
type reader struct {
	*activitiestest.Office
	t      *testing.T
	class  *v1alpha1.MachineClass
	secret *corev1.Secret
}

func newReader(t *testing.T) *reader {
	t.Helper()
	class, secret := activitiestest.WithSecrets("", "b"), activitiestest.Secret("b", map[string]string{"token": "old"})
	secret.UID, secret.ResourceVersion, class.ResourceVersion = "uid-b", "7", "5"
	return &reader{activitiestest.NewOffice(t, class, secret), t, class, secret}
}

// call creates an instance with the versions that a decision saw, and returns how many objects the call read.
func (r *reader) call(versions string) (answer cloud.InstanceAnswer, read int, err error) {
	r.t.Helper()
	classes, secrets := r.Classes.(*machinefake.Clientset), r.Secrets.(*kubefake.Clientset)
	classes.ClearActions()
	secrets.ClearActions()
	in := activitiestest.InstanceCall
	in.Versions = versions
	answer, err = r.Ask(r.CreateInstance, in)
	return answer, len(classes.Actions()) + len(secrets.Actions()), err
}

func (r *reader) versions() string {
	return observeclass.VersionOf(r.class) + observeclass.VersionOf(r.secret)
}

// rotate changes the Secret.
func (r *reader) rotate(value string) {
	r.t.Helper()
	r.secret = r.secret.DeepCopy()
	r.secret.ResourceVersion, r.secret.Data = r.secret.ResourceVersion+"1", map[string][]byte{"token": []byte(value)}
	_, err := r.Secrets.CoreV1().Secrets(r.secret.Namespace).Update(r.t.Context(), r.secret, metav1.UpdateOptions{})
	require.NoError(r.t, err)
}

func (r *reader) token() string {
	return string(r.Cloud.Classes[len(r.Cloud.Classes)-1].Secret["token"])
}

// onlyWith makes the cloud refuse every other token.
func (r *reader) onlyWith(token string) {
	r.Cloud.Create = func(context.Context) (provider.Instance, error) {
		if r.token() != token {
			return provider.Instance{}, provider.Errorf(provider.Unauthenticated, "wrong token")
		}
		return provider.Instance{ProviderID: "virtual:///1", NodeName: "n"}, nil
	}
}

func TestManyCallsReadAClassOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t)
		for i, want := range []int{2, 0, 0} {
			_, read, err := r.call(r.versions())
			require.NoError(t, err)
			assert.Equal(t, want, read, "call %d", i)
			assert.Equal(t, "old", r.token())
			r.Cloud.Classes[i].Secret["token"] = []byte("changed by the provider")
			r.Cloud.Classes[i].Spec = append(r.Cloud.Classes[i].Spec[:0], '!')
		}
		_, read, err := r.call("")
		require.NoError(t, err)
		assert.Equal(t, 2, read, "a decision that did not see the Secret")

		r.rotate("new")
		_, read, err = r.call(r.versions())
		require.NoError(t, err)
		assert.Equal(t, 2, read, "another version")
		assert.Equal(t, "new", r.token())

		time.Sleep(10 * time.Second)
		synctest.Wait()
		_, read, err = r.call(r.versions())
		require.NoError(t, err)
		assert.Equal(t, 2, read, "a Secret is not kept longer than calls need it")
	})
}

// rotated returns a reader that has read a class whose Secret has changed since, and the versions that it has read. The
// cloud takes the new token only.
func rotated(t *testing.T) (r *reader, before string) {
	t.Helper()
	r = newReader(t)
	before = r.versions()
	_, _, err := r.call(before)
	require.NoError(t, err)
	r.rotate("new")
	r.onlyWith("new")
	return r, before
}

func TestAFailedCallWithAClassThatHasChangedIsMadeAgain(t *testing.T) {
	t.Parallel()
	r, before := rotated(t)
	_, read, err := r.call(before)
	assert.Equal(t, 2, read, "after the failure")
	activitiestest.AssertFailure(t, err, kube.TypeCacheBehind, true)

	_, _, err = r.call(r.versions())
	require.NoError(t, err)
	r.onlyWith("newer")
	answer, read, err := r.call(r.versions())
	require.NoError(t, err)
	assert.Equal(t, 2, read, "it is as new as can be")
	assert.Equal(t, "Unauthenticated", answer.Problem.Reason)
}

func TestPollsOfADeletionReadTheClassOnce(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	_, read, err := r.call(r.versions())
	require.NoError(t, err)
	r.Cloud.HoldDeletions()
	in := activitiestest.InstanceCall
	in.Versions = r.versions()
	_, _, err = r.Patiently(r.DeleteInstance, in)
	activitiestest.AssertFailure(t, err, kube.TypeTerminating, true)
	assert.Greater(t, r.Cloud.Calls(provider.MethodInstanceStatus), 5)
	assert.Len(
		t,
		slices.Concat(r.Classes.(*machinefake.Clientset).Actions(), r.Secrets.(*kubefake.Clientset).Actions()),
		read,
		"all polls use what the creation has read",
	)
}

func TestACallThatFailedWithAKeptClassReadsItAgain(t *testing.T) {
	t.Parallel()
	r, before := rotated(t)
	in := activitiestest.InstanceCall
	in.Versions = before
	answer, _, err := r.Patiently(r.CreateInstance, in)
	require.NoError(t, err)
	assert.Nil(t, answer.Problem)
	assert.Equal(t, "new", r.token())
}
