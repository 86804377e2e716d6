//go:build integration

package chain

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

// classes are the MachineClass and the Secrets of a namespace, as rig.Namespace makes them.
type classes struct{ namespace string }

// class reads the class; nil when it is gone.
func (c classes) class(t *testing.T) *v1alpha1.MachineClass {
	t.Helper()
	class, err := r.Machines.MachineV1alpha1().MachineClasses(c.namespace).Get(t.Context(), "small", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return class
}

// secret reads a Secret; nil when it is gone.
func (c classes) secret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	secret, err := r.Kube.CoreV1().Secrets(c.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return secret
}

func (c classes) awaitGuarded(t *testing.T, secret string) {
	t.Helper()
	rig.Eventually(t, "finalizers on the class and on Secret "+secret, func() (bool, any) {
		class, s := c.class(t), c.secret(t, secret)
		require.NotNil(t, class)
		require.NotNil(t, s)
		done := slices.Contains(class.Finalizers, v1alpha1.FinalizerMachine) &&
			slices.Contains(s.Finalizers, v1alpha1.FinalizerSecret)
		return done, fmt.Sprint(class.Finalizers, s.Finalizers)
	})
}

func (c classes) awaitGone(t *testing.T) {
	t.Helper()
	rig.Eventually(t, "class and Secret are gone", func() (bool, any) {
		class, secret := c.class(t), c.secret(t, "small")
		return class == nil && secret == nil, fmt.Sprintf("class: %v, secret: %v", class != nil, secret != nil)
	})
}

func (c classes) deleteSecret(t *testing.T) {
	t.Helper()
	require.NoError(t, r.Kube.CoreV1().Secrets(c.namespace).Delete(t.Context(), "small", metav1.DeleteOptions{}))
}

func (c classes) deleteClass(t *testing.T) {
	t.Helper()
	require.NoError(
		t,
		r.Machines.MachineV1alpha1().MachineClasses(c.namespace).Delete(t.Context(), "small", metav1.DeleteOptions{}),
	)
}

// noInstance requires that the cloud has nothing of a class of this namespace.
func (c classes) noInstance(t *testing.T) {
	t.Helper()
	instances, err := r.Cloud.Instances(t.Context())
	require.NoError(t, err)
	for _, i := range instances {
		require.NotContains(t, i.Tags.Class, c.namespace+"/")
	}
}

// What was applied at once is deleted at once, its Secret first, as kubectl does with a file: it comes to an end by
// itself.
func TestEverythingIsDeletedAtOnce(t *testing.T) {
	c := classes{"at-once"}
	r.Namespace(t, c.namespace, `{"region":"eu","zone":"eu-1","instanceType":"small","deleteLatency":"1s"}`)
	pool := r.Pool(t, c.namespace, "at-once", 3)
	pool.AwaitRunning(t, 3)
	c.awaitGuarded(t, "small")
	c.deleteSecret(t)
	c.deleteClass(t)
	pool.Delete(t)
	pool.AwaitGone(t)
	c.awaitGone(t)
	c.noInstance(t)
}

// A class that is deleted while it has machines waits, and its machines can be replaced and deleted meanwhile.
func TestAClassWaitsForItsMachines(t *testing.T) {
	c := classes{"waits"}
	r.Namespace(t, c.namespace, "")
	pool := r.Pool(t, c.namespace, "waits", 2)
	pool.AwaitRunning(t, 2)
	c.awaitGuarded(t, "small")
	c.deleteSecret(t)
	c.deleteClass(t)
	rig.Eventually(t, "the class's workflow waits for machines", func() (bool, any) {
		open := r.Workflows(
			t,
			fmt.Sprintf(
				`WorkflowType = %q AND MachineNamespace = %q AND Step = "await-machines" AND ExecutionStatus = "Running"`,
				run.KindMachineClass,
				c.namespace,
			),
		)
		return len(open) == 1, len(open)
	})
	pool.Scale(t, 1)
	pool.AwaitRunning(t, 1)
	class, secret := c.class(t), c.secret(t, "small")
	require.NotNil(t, class)
	require.NotNil(t, class.DeletionTimestamp)
	require.NotNil(t, secret)
	require.NotNil(t, secret.DeletionTimestamp)

	pool.Delete(t)
	pool.AwaitGone(t)
	c.awaitGone(t)
	c.noInstance(t)
}

// The finalizer of Secrets follows the references of the class; either of the two suffices.
func TestTheFinalizerFollowsTheReference(t *testing.T) {
	c := classes{"follows"}
	r.Namespace(t, c.namespace, "") // no machine refers to the class
	c.awaitGuarded(t, "small")
	_, err := r.Machines.MachineV1alpha1().MachineClasses(c.namespace).Patch(t.Context(), "small", types.MergePatchType,
		[]byte(`{"secretRef":null,"credentialsSecretRef":{"name":"other"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	rig.Eventually(t, "the former Secret is released, although the new one is missing", func() (bool, any) {
		secret := c.secret(t, "small")
		require.NotNil(t, secret)
		return len(secret.Finalizers) == 0, secret.Finalizers
	})
	other := rig.Credentials(c.namespace)
	other.Name = "other"
	_, err = r.Kube.CoreV1().Secrets(c.namespace).Create(t.Context(), other, metav1.CreateOptions{})
	require.NoError(t, err)
	c.awaitGuarded(t, "other")
	c.deleteSecret(t)
	c.deleteClass(t)
	c.awaitGone(t)
	kept := c.secret(t, "other")
	require.NotNil(t, kept, "nobody deleted it")
	require.Empty(t, kept.Finalizers)
}
