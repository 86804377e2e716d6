//go:build integration

package sets

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

// The autoscaler first marks machines. Then one update sets the new replicas and the time of the change. Exactly the
// marked machines are deleted.
func TestScaleDownDeletesExactlyTheMarkedMachines(t *testing.T) {
	t.Parallel()
	testRig.CreateNamespace(t, "marked", "")
	s := createSet(t, "marked", "marked", 8)
	s.awaitRunningMachines(t, 8)
	now := time.Now().UTC().Truncate(time.Second)
	var chosen, others []string
	for i, m := range s.readMachines(t) {
		if i%3 != 0 {
			others = append(others, m.Name)
			continue
		}
		chosen = append(chosen, m.Name)
		patchMachine(t, "marked", m.Name, fmt.Sprintf(`{"metadata":{"annotations":{%q:"1",%q:%q}}}`,
			v1alpha1.AnnotationMachinePriority, v1alpha1.AnnotationMarkedForDeletionTime, now.Format(time.RFC3339)))
	}
	s.patch(t, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"replicas":%d}}`,
		v1alpha1.AnnotationLastScalerChange, now.Format(time.RFC3339), 8-len(chosen)))
	s.awaitRunningMachines(t, len(others))
	var left []string
	for _, m := range s.readMachines(t) {
		left = append(left, m.Name)
	}
	slices.Sort(left)
	slices.Sort(others)
	require.Equal(t, others, left)
	s.deleteSet(t)
}

// A machine is available only after it has been ready for the set's minReadySeconds.
func TestMachineIsAvailableAfterMinReadySeconds(t *testing.T) {
	t.Parallel()
	testRig.CreateNamespace(t, "minready", "")
	const wait = 8 * time.Second
	s := createSet(
		t,
		"minready",
		"minready",
		3,
		func(s *v1alpha1.MachineSet) { s.Spec.MinReadySeconds = int32(wait.Seconds()) },
	)
	// time when the node of each machine became Ready for the first time, in whole seconds as in the status
	readyFrom := map[string]time.Time{}
	rig.Eventually(t, "three are available", func() (bool, any) {
		status := s.readSet(t).Status
		for _, m := range s.readMachines(t) {
			i := slices.IndexFunc(m.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			})
			if i < 0 {
				continue
			}
			ready := m.Status.Conditions[i].LastTransitionTime.Time
			if first, seen := readyFrom[m.Name]; !seen || ready.Before(first) {
				readyFrom[m.Name] = ready
			}
		}
		long := 0 // number of machines that have been ready for minReadySeconds
		for _, since := range readyFrom {
			if time.Since(since) >= wait {
				long++
			}
		}
		require.LessOrEqual(t, int(status.AvailableReplicas), long, "ready from: %v", readyFrom)
		return status.AvailableReplicas == 3, status
	})
	s.deleteSet(t)
}

// A paused set neither creates nor deletes machines. If a user has marked a machine for deletion, the set deletes this
// machine first. If a template change needs no new machines, the set applies the change to its existing machines.
func TestPausedSetKeepsMachinesAndDeletesTheMarkedOneFirst(t *testing.T) {
	t.Parallel()
	testRig.CreateNamespace(t, "paused", "")
	s := createSet(t, "paused", "paused", 3)
	s.awaitRunningMachines(t, 3)
	s.patch(t, `{"metadata":{"annotations":{"cluster.x-k8s.io/paused":""}}}`)
	s.awaitCondition(t, v1alpha1.MachineSetPaused, v1alpha1.ConditionTrue, "Paused")
	chosen := s.readMachines(t)[1].Name
	patchMachine(t, "paused", chosen, `{"metadata":{"annotations":{"cluster.x-k8s.io/delete-machine":""}}}`)
	s.patch(t, `{"spec":{"replicas":2,"template":{"spec":{"nodeTemplate":{"metadata":{"labels":{"team":"b"}}}}}}}`)
	before := machinesWithOwners(t, "paused")
	s.forceReconcile(t)
	require.Equal(t, before, machinesWithOwners(t, "paused"))
	s.patch(t, `{"metadata":{"annotations":{"cluster.x-k8s.io/paused":null}}}`)
	s.awaitRunningMachines(t, 2)
	for _, m := range s.readMachines(t) {
		require.NotEqual(t, chosen, m.Name)
	}
	rig.Eventually(t, "the node template reaches the machines", func() (bool, any) {
		for _, m := range s.readMachines(t) {
			if m.Spec.NodeTemplateSpec.Labels["team"] != "b" {
				return false, m.Spec.NodeTemplateSpec
			}
		}
		return true, nil
	})
	s.deleteSet(t)
}
