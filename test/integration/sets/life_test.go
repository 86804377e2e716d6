//go:build integration

package sets

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

// The test covers the whole life of a set without a deployment. The set is created, replaces a machine that a user has
// deleted, applies labels of the template in place, and reports its number of labelled machines. At the end, its
// machines are deleted with the set.
func TestSetWorksFromCreationToDeletion(t *testing.T) {
	t.Parallel()
	testRig.CreateNamespace(t, "life", "")
	s := createSet(t, "life", "life", 2)
	s.awaitRunningMachines(t, 2)
	first := s.readMachines(t)

	victim, stays := first[0], first[1]
	require.NoError(
		t,
		testRig.MachineClient.MachineV1alpha1().Machines("life").Delete(t.Context(), victim.Name, metav1.DeleteOptions{}),
	)
	has := func(name string) bool {
		return slices.ContainsFunc(s.readMachines(t), func(m v1alpha1.Machine) bool { return m.Name == name })
	}
	rig.Eventually(t, "it is gone", func() (bool, any) { return !has(victim.Name), machinesWithOwners(t, "life") })
	s.awaitRunningMachines(t, 2)
	require.True(t, has(stays.Name), "the other one stays")

	second := machinesWithOwners(t, "life")
	s.patch(t, `{"spec":{"template":{"metadata":{"labels":{"team":"a"}}}}}`)
	rig.Eventually(t, "both carry the label", func() (bool, any) {
		n := 0
		for _, m := range s.readMachines(t) {
			if m.Labels["team"] == "a" {
				n++
			}
		}
		return n == 2, n
	})
	require.Equal(t, second, machinesWithOwners(t, "life"), "the same machines")
	rig.Eventually(t, "both are counted as fully labelled", func() (bool, any) {
		status := s.readSet(t).Status
		return status.FullyLabeledReplicas == 2 && status.ObservedGeneration == s.readSet(t).Generation, status
	})
	created, _ := countMachineCreateRequests(t, "life")
	require.Equal(t, 3, created)
	s.deleteSet(t)
	require.Empty(t, providerIDs(t, "life"))
}
