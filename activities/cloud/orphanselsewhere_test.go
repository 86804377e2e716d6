package cloud_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"millwright/activities/activitiestest"
	"millwright/api/v1alpha1"
	"millwright/provider"
)

// elsewhere makes a machine of another namespace.
func elsewhere(uid, providerID string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Namespace, m.UID, m.Spec.ProviderID = "moved", types.UID(uid), providerID
	}
}

// Machines were restored into another namespace: new UIDs, the provider IDs of before. The class with its instances
// stayed.
func TestAMachineOfAnotherNamespaceKeepsItsInstance(t *testing.T) {
	t.Parallel()
	for name, machine := range map[string]func(id string) *v1alpha1.Machine{
		"it names the instance": func(id string) *v1alpha1.Machine {
			return activitiestest.Machine("lost", elsewhere("uid-restored", id))
		},
		"it names the instance, and has another name": func(id string) *v1alpha1.Machine {
			return activitiestest.Machine("renamed", elsewhere("uid-restored", id))
		},
		"it has the UID of the tag": func(string) *v1alpha1.Machine {
			return activitiestest.Machine("lost", elsewhere("uid-lost", ""))
		},
		"it has the name of the tag, and no instance yet": func(string) *v1alpha1.Machine {
			return activitiestest.Machine("lost", elsewhere("uid-restored", ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSweeper(t, activitiestest.Class(), activitiestest.Machine("a"), activitiestest.Machine("b"))
			ids := s.plant("a", "b", "lost")
			require.NoError(t, s.server.Tracker().Add(machine(ids[2])))
			d, err := s.find(seenLongAgo("lost", ids[2]))
			require.NoError(t, err)
			assert.Zero(t, d.Orphans)
			assert.Empty(t, d.Collect)
			assert.Equal(t, 2, d.Machines, "of the class's namespace")

			end, err := s.collect(targetOf("lost", ids[2]))
			require.NoError(t, err)
			assert.Contains(t, end.Kept, "Machine moved/")
			assert.Equal(t, ids, s.left())
			assert.Zero(t, s.cloud.Calls(provider.MethodDeleteInstance))
		})
	}
}

func TestAMachineOfAnotherNamespaceThatNamesAnotherInstanceKeepsNothing(t *testing.T) {
	t.Parallel()
	s := newSweeper(
		t,
		activitiestest.Class(),
		activitiestest.Machine("a"),
		activitiestest.Machine("lost", elsewhere("uid-other", "fake:///of-its-own")),
	)
	ids := s.plant("a", "lost")
	d, err := s.find(seenLongAgo("lost", ids[1]))
	require.NoError(t, err)
	require.Len(t, d.Collect, 1)
	end, err := s.collect(d.Collect[0])
	require.NoError(t, err)
	assert.Empty(t, end.Kept)
	assert.Equal(t, ids[:1], s.left())
}

// The machines of other namespaces are no sign that those of this namespace have been restored.
func TestMachinesOfOtherNamespacesDoNotCloseTheBreaker(t *testing.T) {
	t.Parallel()
	s := newSweeper(
		t,
		activitiestest.Class(),
		activitiestest.Machine("other", elsewhere("uid-other", "fake:///of-its-own")),
	)
	d, err := s.find(seenLongAgo("lost", s.plant("lost")[0]))
	require.NoError(t, err)
	assert.Contains(t, d.Held, "no machine at all")
	assert.Empty(t, d.Collect)
}
