//go:build integration

package sets

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// A set is scaled from 0 to 150 while the API server is killed twice. There are never more than 150 machines, exactly
// 150 machines are ever created, and no instance is made twice.
func TestScaleUpContinuesAfterTheAPIServerIsKilled(t *testing.T) {
	const wanted = 150
	testRig.CreateNamespace(t, "many", "")
	before := readCloudStats(t)
	s := createSet(t, "many", "many", wanted)
	var most atomic.Int64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				most.Store(max(most.Load(), int64(len(s.readMachines(t)))))
			}
		}
	}()
	for _, when := range []int{30, 90} {
		rig.Eventually(t, "machines are being made", func() (bool, any) { n := len(s.readMachines(t)); return n >= when, n })
		require.NoError(t, testRig.Stack.KillComponent(t.Context(), component.APIServer))
		require.NoError(t, testRig.Stack.StartComponent(t.Context(), component.APIServer))
	}
	s.awaitRunningMachines(t, wanted)
	close(stop)
	<-done
	require.LessOrEqual(t, most.Load(), int64(wanted), "machines at a time")
	after := readCloudStats(t)
	require.Equal(t, wanted, after.CreatedInstances-before.CreatedInstances, "instances")
	require.Equal(t, before.DuplicateInstances, after.DuplicateInstances)
	created, _ := countMachineCreateRequests(t, "many")
	// If the API server is killed before it answers a create request, the audit log lacks this request. The API server
	// itself ensures that each name is created only once.
	require.LessOrEqual(t, created, wanted)
	require.Zero(t, s.readSet(t).Status.Overshoot)
	s.awaitCondition(t, v1alpha1.MachineSetMachinesReady, v1alpha1.ConditionTrue, "Ready")
	s.deleteSet(t)
}

// The API server refuses about every second machine name. The set reports the errors, tries other names, and reaches
// its number of machines. No machine is made twice.
func TestSetTriesOtherMachineNamesIfSomeAreRefused(t *testing.T) {
	t.Parallel()
	const wanted = 8
	testRig.CreateNamespace(t, "refused", "")
	testRig.RefuseMachines(
		t,
		"refused",
		`object.metadata.namespace != "refused" || !object.metadata.name.matches("[bcdfghjklmn24]$")`,
		"not this one",
	)
	t.Cleanup(func() { testRig.AllowMachines(t, "refused") })
	s := createSet(t, "refused", "refused", wanted)
	s.awaitCondition(t, v1alpha1.MachineSetReplicaFailure, v1alpha1.ConditionTrue, v1alpha1.ReasonFailedCreate)
	require.Contains(
		t,
		s.readCondition(
			t,
			v1alpha1.MachineSetMachinesCreated,
		).Message+s.readCondition(
			t,
			v1alpha1.MachineSetReplicaFailure,
		).Message,
		"not this one",
	)
	s.awaitRunningMachines(t, wanted)
	rig.Eventually(t, "the failure is told no more", func() (bool, any) {
		c := s.readCondition(t, v1alpha1.MachineSetReplicaFailure)
		return c.Type == "", c
	})
	created, denied := countMachineCreateRequests(t, "refused")
	require.Equal(t, wanted, created)
	require.Positive(t, denied)
	t.Logf("%d creates were refused on the way to %d machines", denied, wanted)
	s.deleteSet(t)
}
