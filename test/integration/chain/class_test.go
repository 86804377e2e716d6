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

// classFixture has the MachineClass and the Secrets of a namespace, as rig.Namespace creates them.
type classFixture struct{ namespace string }

// readClass reads the class. readClass returns nil if the class is gone.
func (c classFixture) readClass(t *testing.T) *v1alpha1.MachineClass {
	t.Helper()
	class, err := testRig.MachineClient.MachineV1alpha1().
		MachineClasses(c.namespace).
		Get(t.Context(), "small", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return class
}

// readSecret reads a Secret. readSecret returns nil if the Secret is gone.
func (c classFixture) readSecret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	secret, err := testRig.Kube.CoreV1().Secrets(c.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return secret
}

func (c classFixture) awaitClassAndSecretFinalizers(t *testing.T, secret string) {
	t.Helper()
	rig.Eventually(t, "finalizers on the class and on Secret "+secret, func() (bool, any) {
		class, s := c.readClass(t), c.readSecret(t, secret)
		require.NotNil(t, class)
		require.NotNil(t, s)
		done := slices.Contains(class.Finalizers, v1alpha1.FinalizerMachine) &&
			slices.Contains(s.Finalizers, v1alpha1.FinalizerSecret)
		return done, fmt.Sprint(class.Finalizers, s.Finalizers)
	})
}

func (c classFixture) awaitClassAndSecretGone(t *testing.T) {
	t.Helper()
	rig.Eventually(t, "class and Secret are gone", func() (bool, any) {
		class, secret := c.readClass(t), c.readSecret(t, "small")
		return class == nil && secret == nil, fmt.Sprintf("class: %v, secret: %v", class != nil, secret != nil)
	})
}

func (c classFixture) deleteSecret(t *testing.T) {
	t.Helper()
	require.NoError(t, testRig.Kube.CoreV1().Secrets(c.namespace).Delete(t.Context(), "small", metav1.DeleteOptions{}))
}

func (c classFixture) deleteClass(t *testing.T) {
	t.Helper()
	require.NoError(
		t,
		testRig.MachineClient.MachineV1alpha1().
			MachineClasses(c.namespace).
			Delete(t.Context(), "small", metav1.DeleteOptions{}),
	)
}

// requireNoInstance requires that the cloud has no instance of a class of this namespace.
func (c classFixture) requireNoInstance(t *testing.T) {
	t.Helper()
	instances, err := testRig.Cloud.Instances(t.Context())
	require.NoError(t, err)
	for _, i := range instances {
		require.NotContains(t, i.Tags.Class, c.namespace+"/")
	}
}

// The Secret, the class and the deployment are deleted at once, in this order, as kubectl deletes the objects of a
// file. Millwright removes all finalizers without any action by a person.
func TestSecretClassAndDeploymentAreDeletedTogether(t *testing.T) {
	c := classFixture{"at-once"}
	testRig.CreateNamespace(t, c.namespace, `{"region":"eu","zone":"eu-1","instanceType":"small","deleteLatency":"1s"}`)
	pool := testRig.CreatePool(t, c.namespace, "at-once", 3)
	pool.AwaitRunningMachines(t, 3)
	c.awaitClassAndSecretFinalizers(t, "small")
	c.deleteSecret(t)
	c.deleteClass(t)
	pool.Delete(t)
	pool.AwaitPoolGone(t)
	c.awaitClassAndSecretGone(t)
	c.requireNoInstance(t)
}

// A class that is being deleted keeps its finalizer while machines use the class. Millwright can still replace and
// delete these machines.
func TestClassDeletionWaitsForItsMachines(t *testing.T) {
	c := classFixture{"waits"}
	testRig.CreateNamespace(t, c.namespace, "")
	pool := testRig.CreatePool(t, c.namespace, "waits", 2)
	pool.AwaitRunningMachines(t, 2)
	c.awaitClassAndSecretFinalizers(t, "small")
	c.deleteSecret(t)
	c.deleteClass(t)
	rig.Eventually(t, "the class's workflow waits for machines", func() (bool, any) {
		open := testRig.WorkflowRuns(
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
	pool.AwaitRunningMachines(t, 1)
	class, secret := c.readClass(t), c.readSecret(t, "small")
	require.NotNil(t, class)
	require.NotNil(t, class.DeletionTimestamp)
	require.NotNil(t, secret)
	require.NotNil(t, secret.DeletionTimestamp)

	pool.Delete(t)
	pool.AwaitPoolGone(t)
	c.awaitClassAndSecretGone(t)
	c.requireNoInstance(t)
}

// A Secret has the finalizer only while the class refers to the Secret. A reference in secretRef or in
// credentialsSecretRef is enough.
func TestSecretFinalizerFollowsTheClassReference(t *testing.T) {
	c := classFixture{"follows"}
	testRig.CreateNamespace(t, c.namespace, "") // no machine refers to the class
	c.awaitClassAndSecretFinalizers(t, "small")
	_, err := testRig.MachineClient.MachineV1alpha1().
		MachineClasses(c.namespace).
		Patch(t.Context(), "small", types.MergePatchType,
			[]byte(`{"secretRef":null,"credentialsSecretRef":{"name":"other"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	rig.Eventually(t, "the former Secret is released, although the new one is missing", func() (bool, any) {
		secret := c.readSecret(t, "small")
		require.NotNil(t, secret)
		return len(secret.Finalizers) == 0, secret.Finalizers
	})
	other := rig.NewClassSecret(c.namespace)
	other.Name = "other"
	_, err = testRig.Kube.CoreV1().Secrets(c.namespace).Create(t.Context(), other, metav1.CreateOptions{})
	require.NoError(t, err)
	c.awaitClassAndSecretFinalizers(t, "other")
	c.deleteSecret(t)
	c.deleteClass(t)
	c.awaitClassAndSecretGone(t)
	kept := c.readSecret(t, "other")
	require.NotNil(t, kept, "nobody deleted it")
	require.Empty(t, kept.Finalizers)
}
