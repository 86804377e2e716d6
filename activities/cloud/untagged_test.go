package cloud_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/provider"
)

// newWorldWithForeignInstance returns a provider's worker after another controller has created an instance for machine
// m. The instance has the machine's name, but not its UID.
func newWorldWithForeignInstance(t *testing.T, machines ...runtime.Object) (o *activitiestest.CloudWorld, id string) {
	t.Helper()
	o = activitiestest.NewCloudWorld(t, activitiestest.NewClass())
	for _, m := range machines {
		require.NoError(t, o.Classes.(activitiestest.FakeClient).Tracker().Add(m))
	}
	class := provider.Class{Namespace: activitiestest.TestNamespace, Name: "small"}
	return o, o.Cloud.CreateInstanceByHand(
		class,
		provider.Machine{Cluster: "prod", Namespace: activitiestest.TestNamespace, Name: "m"},
	).ProviderID
}

func machineWithProviderID(id string) *v1alpha1.Machine {
	return activitiestest.NewMachine("other", withOtherNamespace("uid-other", id))
}

func TestAnInstanceOfAnotherControllerIsAdoptedByItsName(t *testing.T) {
	t.Parallel()
	o, id := newWorldWithForeignInstance(t, activitiestest.NewMachine("m"), machineWithProviderID("fake:///of-its-own"))
	for range 2 {
		answer, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
		require.NoError(t, err)
		assert.Equal(t, id, answer.ProviderID)
	}
	assert.Equal(t, 1, o.Cloud.CreatedInstanceCount())
}

func TestAnInstanceClaimedByAnotherMachineIsNotAdopted(t *testing.T) {
	t.Parallel()
	o, _ := newWorldWithForeignInstance(t, activitiestest.NewMachine("m"), machineWithProviderID("fake:///i-1"))
	answer, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
	require.NoError(t, err)
	require.NotNil(t, answer.Problem)
	assert.Equal(t, kube.Problem{
		Reason:   "AlreadyExists",
		Message:  "instance fake:///i-1 has no UID, and Machine moved/other names it, too: clear spec.providerID of the copy",
		React:    kube.ReactionUntilSpecChange,
		Failures: 1,
	}, *answer.Problem)
	assert.Equal(t, 1, o.Cloud.CreatedInstanceCount(), "nor is a second one made")

	_, err = o.RunActivity(o.DeleteInstance, activitiestest.DefaultInstanceCall)
	require.NoError(t, err)
	assert.Len(t, o.Cloud.Instances(), 1, "it is not this machine's")
}

func TestDeletionIncludesInstanceOfOtherController(t *testing.T) {
	t.Parallel()
	o, _ := newWorldWithForeignInstance(t, activitiestest.NewMachine("m"))
	for range 2 {
		_, err := o.RunActivity(o.DeleteInstance, activitiestest.DefaultInstanceCall)
		require.NoError(t, err)
	}
	assert.Empty(t, o.Cloud.Instances())
}
