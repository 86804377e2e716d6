//go:build integration

package sets

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

// createMachineWithoutController creates a machine that has no controller.
func createMachineWithoutController(t *testing.T, namespace, name string, labels map[string]string) {
	t.Helper()
	_, err := testRig.MachineClient.MachineV1alpha1().Machines(namespace).Create(t.Context(), &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels}, Spec: rig.NewMachineSpec(),
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func patchMachine(t *testing.T, namespace, name, patch string) {
	t.Helper()
	_, err := testRig.MachineClient.MachineV1alpha1().
		Machines(namespace).
		Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

// A set adopts fifty existing machines and creates no other machine. When the labels of a machine change, the set
// releases the machine and creates another machine. When the machine gets its old labels back, the set adopts the
// machine again and deletes a surplus machine.
func TestFiftyMachinesWithoutControllerAreAdopted(t *testing.T) {
	t.Parallel()
	const wanted = 50
	testRig.CreateNamespace(t, "orphans", "")
	before := readCloudStats(t)
	for i := range wanted {
		createMachineWithoutController(t, "orphans", fmt.Sprintf("orphan-%02d", i), map[string]string{"pool": "orphans"})
	}
	s := createSet(t, "orphans", "orphans", wanted)
	s.awaitRunningMachines(t, wanted)
	created, _ := countMachineCreateRequests(t, "orphans")
	require.Equal(t, wanted, created, "the set made none")
	require.Len(t, providerIDs(t, "orphans"), wanted)

	patchMachine(t, "orphans", "orphan-07", `{"metadata":{"labels":{"pool":"elsewhere"}}}`)
	rig.Eventually(t, "it is let go", func() (bool, any) {
		m, err := testRig.MachineClient.MachineV1alpha1().
			Machines("orphans").
			Get(t.Context(), "orphan-07", metav1.GetOptions{})
		require.NoError(t, err)
		return metav1.GetControllerOf(m) == nil && m.DeletionTimestamp == nil, m.OwnerReferences
	})
	s.awaitRunningMachines(t, wanted)
	created, _ = countMachineCreateRequests(t, "orphans")
	require.Equal(t, wanted+1, created)
	patchMachine(t, "orphans", "orphan-07", `{"metadata":{"labels":{"pool":"orphans"}}}`)
	rig.Eventually(t, "one more or less is deleted", func() (bool, any) {
		list, err := testRig.MachineClient.MachineV1alpha1().Machines("orphans").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		return len(list.Items) == wanted, len(list.Items)
	})
	s.awaitRunningMachines(t, wanted)
	created, _ = countMachineCreateRequests(t, "orphans")
	require.Equal(t, wanted+1, created)
	require.Equal(t, before.DuplicateInstances, readCloudStats(t).DuplicateInstances)
	s.deleteSet(t)
}

// The selectors of two sets overlap. Each set keeps its own machines, one set adopts the orphan, and no machine moves
// between the sets.
func TestSetsWithOverlappingSelectorsKeepTheirMachines(t *testing.T) {
	t.Parallel()
	testRig.CreateNamespace(t, "overlap", "")
	both := func(s *v1alpha1.MachineSet) {
		s.Spec.Selector.MatchLabels = map[string]string{"app": "web"}
		s.Spec.Template.Labels = map[string]string{"app": "web"}
	}
	a, b := createSet(t, "overlap", "a", 4, both), createSet(t, "overlap", "b", 4, both)
	a.awaitRunningMachines(t, 4)
	b.awaitRunningMachines(t, 4)
	created, _ := countMachineCreateRequests(t, "overlap")
	require.Equal(t, 8, created)
	createMachineWithoutController(t, "overlap", "stray", map[string]string{"app": "web"})
	rig.Eventually(t, "somebody has taken it, and has one less of the others", func() (bool, any) {
		x, y := a.readMachines(t), b.readMachines(t)
		return len(x) == 4 && len(y) == 4 && len(machinesWithOwners(t, "overlap")) == 8, []int{len(x), len(y)}
	})
	look := func() []string {
		a.forceReconcile(t)
		b.forceReconcile(t)
		return machinesWithOwners(t, "overlap")
	}
	names := look()
	require.Equal(t, names, look(), "nothing flaps")
	created, _ = countMachineCreateRequests(t, "overlap")
	require.Equal(t, 9, created, "with the stray itself")
	a.deleteSet(t)
	b.deleteSet(t)
}

// machinesWithOwners returns the names of a namespace's machines, each with the set that owns the machine.
func machinesWithOwners(t *testing.T, namespace string) []string {
	t.Helper()
	list, err := testRig.MachineClient.MachineV1alpha1().Machines(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var names []string
	for _, m := range list.Items {
		owner := ""
		if ref := metav1.GetControllerOf(&m); ref != nil {
			owner = ref.Name
		}
		names = append(names, owner+"/"+m.Name)
	}
	slices.Sort(names)
	return names
}
