//go:build integration

package sets

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/virtualcloud/admin"
	"millwright/test/integration/rig"
)

// maxEtcdRequestBytes is the maximum size in bytes of a request to etcd in this package. With etcd's default, which is
// six times as large, the test would need minutes to create enough failing machines. All objects that the stack
// installs are smaller.
const maxEtcdRequestBytes = 256 << 10

// refuseInstanceCreations makes the cloud refuse to create instances of a namespace. The error message has the maximum
// length that a Machine's status stores.
func refuseInstanceCreations(t *testing.T, namespace string) {
	t.Helper()
	require.NoError(t, testRig.Cloud.AddFault(t.Context(), admin.Fault{
		Operation: admin.OperationCreate,
		Code:      "PermissionDenied",
		Message:   strings.Repeat("not allowed ", 100),
		Class:     namespace + "/small",
	}))
}

// The status of a set names at most 50 of the set's failed machines, and truncates their messages. The set's condition
// contains the number of failed machines.
func TestStatusNamesAtMostFiftyFailedMachines(t *testing.T) {
	t.Parallel()
	const name, size = "bounded", 55
	refuseInstanceCreations(t, name)
	testRig.CreateNamespace(t, name, "")
	s := createSet(t, name, name, size)
	rig.Eventually(t, "the set says that all of its machines failed", func() (bool, any) {
		c := s.readCondition(t, v1alpha1.MachineSetMachinesReady)
		// check the number together with text, because machine names also contain numbers
		return strings.Contains(c.Message, fmt.Sprintf("%d machines whose last operation failed", size)), c
	})
	var first []string
	for _, m := range s.readMachines(t) {
		require.Greater(t, len(m.Status.LastOperation.Description), 900, "the machine has the whole message")
		first = append(first, m.Name)
	}
	slices.Sort(first)
	var named []string
	for _, m := range s.readSet(t).Status.FailedMachines {
		require.LessOrEqual(t, len(m.LastOperation.Description), 210, "200 bytes, and a mark that some are missing")
		named = append(named, m.Name)
	}
	require.Equal(t, first[:50], named)
	s.deleteSet(t)
}

// etcd refuses the status of a set because the object would be too large. The set still creates and deletes machines.
// When the object is small enough again, the status is correct.
func TestSetWithATooLargeStatusStillScales(t *testing.T) {
	t.Parallel()
	const name, size = "bulky", 35
	refuseInstanceCreations(t, name)
	testRig.CreateNamespace(t, name, "")
	s := createSet(t, name, name, size, func(s *v1alpha1.MachineSet) {
		s.Annotations = map[string]string{"bulk": strings.Repeat("b", maxEtcdRequestBytes-8<<10)}
	})
	rig.Eventually(t, "a status is refused for its size", func() (bool, any) {
		var saw []any
		for _, line := range testRig.AuditedRequests(t, func(line rig.AuditedRequest) bool {
			o := line.ObjectRef
			return o.Resource == "machinesets" && o.Subresource == "status" && o.Namespace == name && line.User.Username == component.WorkerIdentity
		}) {
			saw = append(saw, line.ResponseStatus)
			if line.ResponseStatus.Code == 500 && strings.Contains(line.ResponseStatus.Message, "too large") {
				return true, nil
			}
		}
		return false, fmt.Sprint(saw, s.describeMachines(t), s.readSet(t).Status)
	})
	awaitMachines := func(n int) {
		t.Helper()
		rig.Eventually(
			t,
			fmt.Sprintf("%d machines", n),
			func() (bool, any) { return len(s.readMachines(t)) == n, s.describeMachines(t) },
		)
	}
	awaitMachines(size)
	s.scale(t, size+5)
	awaitMachines(size + 5)
	require.Less(t, len(s.readSet(t).Status.FailedMachines), size, "the whole status fits: this test shows nothing")
	s.scale(t, 3)
	awaitMachines(3)
	rig.Eventually(t, "the status is right", func() (bool, any) {
		set := s.readSet(t)
		return set.Status.Replicas == 3 && len(set.Status.FailedMachines) == 3 &&
				set.Status.ObservedGeneration == set.Generation, s.describeMachines(
				t,
			)
	})
	s.deleteSet(t)
}

// describeMachines returns the state of each machine of a set, and the machines that the set's status names.
func (s testMachineSet) describeMachines(t *testing.T) (states []string) {
	t.Helper()
	for _, m := range s.readSet(t).Status.FailedMachines {
		states = append(states, "named: "+m.Name)
	}
	for _, m := range s.readMachines(t) {
		last := m.Status.LastOperation
		states = append(
			states,
			fmt.Sprintf("%s: deleted %v, %s %s at %s", m.Name, m.DeletionTimestamp, last.Type, last.State, last.LastUpdateTime),
		)
	}
	return states
}
