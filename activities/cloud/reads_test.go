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

// readCountingWorker is a provider's worker whose API server counts the reads.
type readCountingWorker struct {
	*activitiestest.CloudWorld
	t      *testing.T
	class  *v1alpha1.MachineClass
	secret *corev1.Secret
}

func newReadCountingWorker(t *testing.T) *readCountingWorker {
	t.Helper()
	class, secret := activitiestest.NewClassWithSecrets(
		"",
		"b",
	), activitiestest.NewSecret(
		"b",
		map[string]string{"token": "old"},
	)
	secret.UID, secret.ResourceVersion, class.ResourceVersion = "uid-b", "7", "5"
	return &readCountingWorker{activitiestest.NewCloudWorld(t, class, secret), t, class, secret}
}

// createInstanceWithVersions creates an instance with the versions that a decision used, and returns how many objects
// the call read.
func (r *readCountingWorker) createInstanceWithVersions(
	versions string,
) (answer cloud.InstanceAnswer, read int, err error) {
	r.t.Helper()
	classes, secrets := r.Classes.(*machinefake.Clientset), r.Secrets.(*kubefake.Clientset)
	classes.ClearActions()
	secrets.ClearActions()
	in := activitiestest.DefaultInstanceCall
	in.Versions = versions
	answer, err = r.RunActivity(r.CreateInstance, in)
	return answer, len(classes.Actions()) + len(secrets.Actions()), err
}

func (r *readCountingWorker) currentVersions() string {
	return observeclass.VersionText(r.class) + observeclass.VersionText(r.secret)
}

// rotateSecret changes the value of the Secret.
func (r *readCountingWorker) rotateSecret(value string) {
	r.t.Helper()
	r.secret = r.secret.DeepCopy()
	r.secret.ResourceVersion, r.secret.Data = r.secret.ResourceVersion+"1", map[string][]byte{"token": []byte(value)}
	_, err := r.Secrets.CoreV1().Secrets(r.secret.Namespace).Update(r.t.Context(), r.secret, metav1.UpdateOptions{})
	require.NoError(r.t, err)
}

func (r *readCountingWorker) lastReceivedToken() string {
	return string(r.Cloud.Classes[len(r.Cloud.Classes)-1].Secret["token"])
}

// acceptOnlyToken makes the cloud refuse every other token.
func (r *readCountingWorker) acceptOnlyToken(token string) {
	r.Cloud.CreateFunc = func(context.Context) (provider.Instance, error) {
		if r.lastReceivedToken() != token {
			return provider.Instance{}, provider.Errorf(provider.Unauthenticated, "wrong token")
		}
		return provider.Instance{ProviderID: "virtual:///1", NodeName: "n"}, nil
	}
}

func TestManyCallsReadAClassOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReadCountingWorker(t)
		for i, want := range []int{2, 0, 0} {
			_, read, err := r.createInstanceWithVersions(r.currentVersions())
			require.NoError(t, err)
			assert.Equal(t, want, read, "call %d", i)
			assert.Equal(t, "old", r.lastReceivedToken())
			r.Cloud.Classes[i].Secret["token"] = []byte("changed by the provider")
			r.Cloud.Classes[i].Spec = append(r.Cloud.Classes[i].Spec[:0], '!')
		}
		_, read, err := r.createInstanceWithVersions("")
		require.NoError(t, err)
		assert.Equal(t, 2, read, "a decision that did not see the Secret")

		r.rotateSecret("new")
		_, read, err = r.createInstanceWithVersions(r.currentVersions())
		require.NoError(t, err)
		assert.Equal(t, 2, read, "another version")
		assert.Equal(t, "new", r.lastReceivedToken())

		time.Sleep(10 * time.Second)
		synctest.Wait()
		_, read, err = r.createInstanceWithVersions(r.currentVersions())
		require.NoError(t, err)
		assert.Equal(t, 2, read, "a Secret is not kept longer than calls need it")
	})
}

// newWorkerWithOutdatedClass returns a provider's worker that has read a class, and the versions that it read. The
// class's Secret has changed since this read. The cloud accepts only the new token.
func newWorkerWithOutdatedClass(t *testing.T) (r *readCountingWorker, before string) {
	t.Helper()
	r = newReadCountingWorker(t)
	before = r.currentVersions()
	_, _, err := r.createInstanceWithVersions(before)
	require.NoError(t, err)
	r.rotateSecret("new")
	r.acceptOnlyToken("new")
	return r, before
}

func TestFailedCallIsRetriedIfClassChanged(t *testing.T) {
	t.Parallel()
	r, before := newWorkerWithOutdatedClass(t)
	_, read, err := r.createInstanceWithVersions(before)
	assert.Equal(t, 2, read, "after the failure")
	activitiestest.AssertFailure(t, err, kube.FailureTypeCacheBehind, true)

	_, _, err = r.createInstanceWithVersions(r.currentVersions())
	require.NoError(t, err)
	r.acceptOnlyToken("newer")
	answer, read, err := r.createInstanceWithVersions(r.currentVersions())
	require.NoError(t, err)
	assert.Equal(t, 2, read, "it is as new as can be")
	assert.Equal(t, "Unauthenticated", answer.Problem.Reason)
}

func TestPollsOfADeletionReadTheClassOnce(t *testing.T) {
	t.Parallel()
	r := newReadCountingWorker(t)
	_, read, err := r.createInstanceWithVersions(r.currentVersions())
	require.NoError(t, err)
	r.Cloud.HoldDeletions()
	in := activitiestest.DefaultInstanceCall
	in.Versions = r.currentVersions()
	_, _, err = r.RunActivityWithRetries(r.DeleteInstance, in)
	activitiestest.AssertFailure(t, err, kube.FailureTypeTerminating, true)
	assert.Greater(t, r.Cloud.CallCount(provider.MethodInstanceStatus), 5)
	assert.Len(
		t,
		slices.Concat(r.Classes.(*machinefake.Clientset).Actions(), r.Secrets.(*kubefake.Clientset).Actions()),
		read,
		"all polls use what the creation has read",
	)
}

func TestFailedCallWithCachedClassReadsClassAgain(t *testing.T) {
	t.Parallel()
	r, before := newWorkerWithOutdatedClass(t)
	in := activitiestest.DefaultInstanceCall
	in.Versions = before
	answer, _, err := r.RunActivityWithRetries(r.CreateInstance, in)
	require.NoError(t, err)
	assert.Nil(t, answer.Problem)
	assert.Equal(t, "new", r.lastReceivedToken())
}
