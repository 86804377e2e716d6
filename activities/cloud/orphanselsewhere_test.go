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

// withOtherNamespace makes a machine of another namespace.
func withOtherNamespace(uid, providerID string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Namespace, m.UID, m.Spec.ProviderID = "moved", types.UID(uid), providerID
	}
}

// The Machines were restored into another namespace, with new UIDs and the old provider IDs. The class and its
// instances stayed.
func TestAMachineOfAnotherNamespaceKeepsItsInstance(t *testing.T) {
	t.Parallel()
	for name, machine := range map[string]func(id string) *v1alpha1.Machine{
		"it names the instance": func(id string) *v1alpha1.Machine {
			return activitiestest.NewMachine("lost", withOtherNamespace("uid-restored", id))
		},
		"it names the instance, and has another name": func(id string) *v1alpha1.Machine {
			return activitiestest.NewMachine("renamed", withOtherNamespace("uid-restored", id))
		},
		"it has the UID of the tag": func(string) *v1alpha1.Machine {
			return activitiestest.NewMachine("lost", withOtherNamespace("uid-lost", ""))
		},
		"it has the name of the tag, and no instance yet": func(string) *v1alpha1.Machine {
			return activitiestest.NewMachine("lost", withOtherNamespace("uid-restored", ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSweepWorker(t, activitiestest.NewClass(), activitiestest.NewMachine("a"), activitiestest.NewMachine("b"))
			ids := s.createInstances("a", "b", "lost")
			require.NoError(t, s.apiServer.Tracker().Add(machine(ids[2])))
			d, err := s.findOrphans(oldSighting("lost", ids[2]))
			require.NoError(t, err)
			assert.Zero(t, d.Orphans)
			assert.Empty(t, d.Collect)
			assert.Equal(t, 2, d.Machines, "of the class's namespace")

			end, err := s.collectOrphan(newDeletionTarget("lost", ids[2]))
			require.NoError(t, err)
			assert.Contains(t, end.Kept, "Machine moved/")
			assert.Equal(t, ids, s.remainingInstanceIDs())
			assert.Zero(t, s.cloud.CallCount(provider.MethodDeleteInstance))
		})
	}
}

func TestMachineOfOtherNamespaceKeepsOnlyTheInstanceThatItNames(t *testing.T) {
	t.Parallel()
	s := newSweepWorker(
		t,
		activitiestest.NewClass(),
		activitiestest.NewMachine("a"),
		activitiestest.NewMachine("lost", withOtherNamespace("uid-other", "fake:///of-its-own")),
	)
	ids := s.createInstances("a", "lost")
	d, err := s.findOrphans(oldSighting("lost", ids[1]))
	require.NoError(t, err)
	require.Len(t, d.Collect, 1)
	end, err := s.collectOrphan(d.Collect[0])
	require.NoError(t, err)
	assert.Empty(t, end.Kept)
	assert.Equal(t, ids[:1], s.remainingInstanceIDs())
}

// Machines of other namespaces do not prove that the machines of this namespace have been restored.
func TestNoOrphanIsDeletedIfOnlyOtherNamespacesHaveMachines(t *testing.T) {
	t.Parallel()
	s := newSweepWorker(
		t,
		activitiestest.NewClass(),
		activitiestest.NewMachine("other", withOtherNamespace("uid-other", "fake:///of-its-own")),
	)
	d, err := s.findOrphans(oldSighting("lost", s.createInstances("lost")[0]))
	require.NoError(t, err)
	assert.Contains(t, d.Held, "no machine at all")
	assert.Empty(t, d.Collect)
}
