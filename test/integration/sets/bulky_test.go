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

// etcdLimit is the longest request that etcd takes here, in bytes. By default it is six times as much, and a set with
// that many failing machines takes minutes. No object that the stack installs is longer.
const etcdLimit = 256 << 10

// refuse makes the cloud refuse all machines of a namespace, with a message as long as the machine keeps it.
func refuse(t *testing.T, namespace string) {
	t.Helper()
	require.NoError(t, r.Cloud.AddFault(t.Context(), admin.Fault{
		Operation: admin.Create,
		Code:      "PermissionDenied",
		Message:   strings.Repeat("not allowed ", 100),
		Class:     namespace + "/small",
	}))
}

// A set names at most 50 of its machines that failed, and cuts their messages. Its condition says how many they are.
func TestAStatusNamesOnlySomeOfManyFailedMachines(t *testing.T) {
	t.Parallel()
	const name, size = "bounded", 55
	refuse(t, name)
	r.Namespace(t, name, "")
	s := newSet(t, name, name, size)
	rig.Eventually(t, "the set says that all of its machines failed", func() (bool, any) {
		c := s.condition(t, v1alpha1.MachineSetMachinesReady)
		// the number alone is in names, too
		return strings.Contains(c.Message, fmt.Sprintf("%d machines whose last operation failed", size)), c
	})
	var first []string
	for _, m := range s.machines(t) {
		require.Greater(t, len(m.Status.LastOperation.Description), 900, "the machine has the whole message")
		first = append(first, m.Name)
	}
	slices.Sort(first)
	var named []string
	for _, m := range s.read(t).Status.FailedMachines {
		require.LessOrEqual(t, len(m.LastOperation.Description), 210, "200 bytes, and a mark that some are missing")
		named = append(named, m.Name)
	}
	require.Equal(t, first[:50], named)
	s.remove(t)
}

// etcd refuses the status of a set because the set would be too large. The set goes on making and deleting machines,
// and its status is right as soon as it fits.
func TestAStatusThatIsTooLargeStopsNothing(t *testing.T) {
	t.Parallel()
	const name, size = "bulky", 35
	refuse(t, name)
	r.Namespace(t, name, "")
	s := newSet(t, name, name, size, func(s *v1alpha1.MachineSet) {
		s.Annotations = map[string]string{"bulk": strings.Repeat("b", etcdLimit-8<<10)}
	})
	rig.Eventually(t, "a status is refused for its size", func() (bool, any) {
		var saw []any
		for _, line := range r.Audit(t, func(line rig.Audited) bool {
			o := line.ObjectRef
			return o.Resource == "machinesets" && o.Subresource == "status" && o.Namespace == name && line.User.Username == component.WorkerIdentity
		}) {
			saw = append(saw, line.ResponseStatus)
			if line.ResponseStatus.Code == 500 && strings.Contains(line.ResponseStatus.Message, "too large") {
				return true, nil
			}
		}
		return false, fmt.Sprint(saw, s.states(t), s.read(t).Status)
	})
	awaitMachines := func(n int) {
		t.Helper()
		rig.Eventually(t, fmt.Sprintf("%d machines", n), func() (bool, any) { return len(s.machines(t)) == n, s.states(t) })
	}
	awaitMachines(size)
	s.scale(t, size+5)
	awaitMachines(size + 5)
	require.Less(t, len(s.read(t).Status.FailedMachines), size, "the whole status fits: this test shows nothing")
	s.scale(t, 3)
	awaitMachines(3)
	rig.Eventually(t, "the status is right", func() (bool, any) {
		set := s.read(t)
		return set.Status.Replicas == 3 && len(set.Status.FailedMachines) == 3 &&
				set.Status.ObservedGeneration == set.Generation, s.states(
				t,
			)
	})
	s.remove(t)
}

// states says how far the machines of a set are, and whom its status names.
func (s aSet) states(t *testing.T) (states []string) {
	t.Helper()
	for _, m := range s.read(t).Status.FailedMachines {
		states = append(states, "named: "+m.Name)
	}
	for _, m := range s.machines(t) {
		last := m.Status.LastOperation
		states = append(
			states,
			fmt.Sprintf("%s: deleted %v, %s %s at %s", m.Name, m.DeletionTimestamp, last.Type, last.State, last.LastUpdateTime),
		)
	}
	return states
}
