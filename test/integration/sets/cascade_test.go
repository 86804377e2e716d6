//go:build integration

package sets

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// describeMachinesWithUIDs returns the machines of a namespace, each with its UID, instance and phase.
func describeMachinesWithUIDs(t *testing.T, namespace string) []string {
	t.Helper()
	list, err := testRig.MachineClient.MachineV1alpha1().Machines(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var all []string
	for _, m := range list.Items {
		require.Nil(t, m.DeletionTimestamp, "machine %s is being deleted", m.Name)
		all = append(all, m.Name+" "+string(m.UID)+" "+m.Spec.ProviderID+" "+string(m.Status.CurrentStatus.Phase))
	}
	slices.Sort(all)
	return all
}

// kubectl delete --cascade=orphan keeps every machine, even while no garbage collector runs. A set or deployment that
// is created again with the same name adopts its old machines and sets. It creates no other machines or sets.
func TestCascadeOrphanKeepsMachines(t *testing.T) {
	t.Parallel()
	const wanted = 25
	testRig.CreateNamespace(t, "cascade-set", "")
	testRig.CreateNamespace(t, "cascade-deployment", "")
	s := createSet(t, "cascade-set", "plain", wanted)
	pool := testRig.CreatePool(t, "cascade-deployment", "pool", wanted)
	s.awaitRunningMachines(t, wanted)
	pool.AwaitRunningMachines(t, wanted)
	ofSet, ofPool, sets := describeMachinesWithUIDs(
		t,
		"cascade-set",
	), describeMachinesWithUIDs(
		t,
		"cascade-deployment",
	), pool.Sets(
		t,
	)
	require.Len(t, sets, 1)
	api := testRig.MachineClient.MachineV1alpha1()

	require.NoError(t, testRig.Stack.StopComponent(t.Context(), component.ControllerManager))
	orphan := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)}
	require.NoError(t, api.MachineSets(s.namespace).Delete(t.Context(), s.name, orphan))
	require.NoError(t, api.MachineDeployments(pool.Namespace).Delete(t.Context(), pool.Name, orphan))
	s.awaitCondition(t, v1alpha1.MachineSetDeleting, v1alpha1.ConditionTrue, string(v1alpha1.MachineSetDeleting))
	s.forceReconcile(t)
	pool.ForceReconcile(t)
	require.Equal(t, ofSet, describeMachinesWithUIDs(t, "cascade-set"), "without a garbage collector all wait")
	require.Equal(t, ofPool, describeMachinesWithUIDs(t, "cascade-deployment"), "without a garbage collector all wait")
	require.Contains(t, s.readCondition(t, v1alpha1.MachineSetDeleting).Message, "--cascade=orphan")

	require.NoError(t, testRig.Stack.StartComponent(t.Context(), component.ControllerManager))
	rig.Eventually(t, "set and deployment are gone", func() (bool, any) {
		_, noSet := api.MachineSets(s.namespace).Get(t.Context(), s.name, metav1.GetOptions{})
		_, noDeployment := api.MachineDeployments(pool.Namespace).Get(t.Context(), pool.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(noSet) && apierrors.IsNotFound(noDeployment), []error{noSet, noDeployment}
	})
	require.Equal(t, ofSet, describeMachinesWithUIDs(t, "cascade-set"))
	require.Equal(t, ofPool, describeMachinesWithUIDs(t, "cascade-deployment"))

	createSet(t, "cascade-set", "plain", wanted)
	testRig.CreatePool(t, "cascade-deployment", "pool", wanted)
	s.awaitRunningMachines(t, wanted)
	pool.AwaitRunningMachines(t, wanted)
	require.Equal(t, ofSet, describeMachinesWithUIDs(t, "cascade-set"), "the same machines")
	require.Equal(t, ofPool, describeMachinesWithUIDs(t, "cascade-deployment"), "the same machines")
	require.Len(t, pool.Sets(t), 1)
	require.Equal(t, sets[0].UID, pool.Sets(t)[0].UID, "the same set")

	t.Run("a set below a deployment: another one takes its machines", func(t *testing.T) {
		require.NoError(t, api.MachineSets(pool.Namespace).Delete(t.Context(), sets[0].Name, orphan))
		rig.Eventually(t, "another set has its name", func() (bool, any) {
			now := pool.Sets(t)
			return len(now) == 1 && now[0].UID != sets[0].UID && now[0].DeletionTimestamp == nil, len(now)
		})
		pool.AwaitRunningMachines(t, wanted)
		require.Equal(t, ofPool, describeMachinesWithUIDs(t, "cascade-deployment"))
		created, _ := countMachineCreateRequests(t, "cascade-deployment")
		require.Equal(t, wanted, created, "no machine was made beside them")
	})
	t.Run("a set without its owner reference is taken again", func(t *testing.T) {
		set := testMachineSet{pool.Namespace, pool.Sets(t)[0].Name}
		set.patch(t, `{"metadata":{"ownerReferences":null}}`)
		rig.Eventually(t, "it has its controller again", func() (bool, any) {
			owner := metav1.GetControllerOf(set.readSet(t))
			return owner != nil && owner.Name == pool.Name, owner
		})
		require.Equal(t, ofPool, describeMachinesWithUIDs(t, "cascade-deployment"))
		require.Len(t, pool.Sets(t), 1)
	})
	t.Run("a machine goes as always", func(t *testing.T) {
		name := s.readMachines(t)[0].Name
		require.NoError(t, api.Machines(s.namespace).Delete(t.Context(), name, orphan))
		rig.Eventually(t, "it is gone", func() (bool, any) {
			_, err := api.Machines(s.namespace).Get(t.Context(), name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), err
		})
		s.awaitRunningMachines(t, wanted)
	})
	s.deleteSet(t)
	pool.Delete(t)
	pool.AwaitPoolGone(t)
}
