//go:build integration

package sets

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

// A frozen set creates no machine, not even to replace a lost machine. It still deletes surplus machines. A user ends a
// freeze by removing the freeze label or with the annotation unfreeze. Millwright records an event when a freeze begins
// and when it ends.
func TestASetIsFrozenAndUnfrozen(t *testing.T) {
	t.Parallel()
	testRig.CreateNamespace(t, "frozen", "")
	s := createSet(t, "frozen", "frozen", 3)
	s.awaitRunningMachines(t, 3)
	told := func(reason string, times int) {
		t.Helper()
		rig.Eventually(t, "event "+reason, func() (bool, any) {
			events, err := testRig.Kube.CoreV1().
				Events("frozen").
				List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=MachineSet,reason=" + reason})
			require.NoError(t, err)
			seen := 0
			for _, e := range events.Items {
				seen += max(int(e.Count), 1)
			}
			return seen == times, seen
		})
	}
	s.patch(t, `{"metadata":{"labels":{"freeze":"True"}}}`)
	s.awaitCondition(t, v1alpha1.MachineSetFrozen, v1alpha1.ConditionTrue, "FreezeLabel")
	told("FrozeMachineSet", 1)
	s.scale(t, 5)
	lost := s.readMachines(t)[0]
	require.NoError(
		t,
		testRig.MachineClient.MachineV1alpha1().Machines("frozen").Delete(t.Context(), lost.Name, metav1.DeleteOptions{}),
	)
	rig.Eventually(t, "the machine is gone, and the set has decided about its new size", func() (bool, any) {
		status := s.readSet(t).Status
		return len(s.readMachines(t)) == 2 && status.Replicas == 2 &&
			status.ObservedGeneration == s.readSet(t).Generation, status
	})
	s.forceReconcile(t)
	require.Len(t, s.readMachines(t), 2, "a frozen set creates no machine")
	s.scale(t, 1)
	s.awaitRunningMachines(t, 1)

	s.patch(t, `{"metadata":{"labels":{"freeze":null}}}`)
	told("UnfrozeMachineSet", 1)
	s.scale(t, 2)
	s.awaitRunningMachines(t, 2)

	s.patch(t, `{"metadata":{"labels":{"freeze":"True"}}}`)
	told("FrozeMachineSet", 2)
	s.scale(t, 3)
	s.forceReconcile(t)
	require.Len(t, s.readMachines(t), 2)
	s.patch(t, `{"metadata":{"annotations":{"safety.machine.sapcloud.io/unfreeze":""}}}`)
	s.awaitRunningMachines(t, 3)
	told("UnfrozeMachineSet", 2)
	s.deleteSet(t)
}
