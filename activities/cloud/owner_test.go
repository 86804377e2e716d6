package cloud_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/activities/activitiestest"
	"millwright/activities/cloud"
	"millwright/api/v1alpha1"
	"millwright/provider"
	"millwright/provider/fake"
)

// A Machine names an instance that carries the UID of another Machine. Such a Machine is a copy, was made from a
// template with a provider ID, or belongs to another user. The call is for machine shop/m.
func TestInstanceIsUsedOnlyIfNoOtherMachineClaimsIt(t *testing.T) {
	t.Parallel()
	const victim = "uid-victim"
	class := provider.Class{Namespace: activitiestest.TestNamespace, Name: "small"}
	for name, row := range map[string]struct {
		options []fake.Option
		others  map[string]bool // UIDs of other Machines that exist; true: the Machine names the instance
		// text that Anothers of the deletion's answer must contain; empty: Anothers must be empty
		anothers string
		problem  string // expected part of the problem's message; empty: the instance is adopted and deleted
	}{
		"of a Machine that exists": {
			nil, map[string]bool{victim: true}, "has the UID of Machine production/", "has the UID of Machine production/",
		},
		"of a Machine that exists and does not know it yet": {
			nil, map[string]bool{victim: false}, "has the UID of Machine production/", "has the UID of Machine production/",
		},
		"of a Machine that is gone: a restore": {nil, nil, "", ""},
		"of a Machine that is gone, and a second copy names it": {
			nil, map[string]bool{"uid-copy": true}, "", "clear spec.providerID of the copy",
		},
		"without a UID": {[]fake.Option{fake.WithNamedInstances()}, map[string]bool{"uid-copy": false}, "", ""},
		"without a UID, and another one names it": {
			[]fake.Option{fake.WithNamedInstances()}, map[string]bool{"uid-copy": true}, "", "clear spec.providerID of the copy",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
			if row.options != nil {
				o.Cloud.Provider = fake.New(row.options...)
			}
			id := o.Cloud.CreateInstanceByHand(
				class, provider.Machine{Cluster: "prod", Namespace: "production", Name: "victim", UID: victim}).ProviderID
			for uid, names := range row.others {
				m := activitiestest.NewMachine(uid, withOtherNamespace(uid, ""))
				m.Namespace = "production"
				if names {
					m.Spec.ProviderID = id
				}
				require.NoError(t, o.Classes.(activitiestest.FakeClient).Tracker().Add(m))
			}
			in := activitiestest.DefaultInstanceCall
			in.ProviderID, in.NeverTried = id, false

			made, err := o.RunActivity(o.CreateInstance, in)
			require.NoError(t, err)
			assertProblem(t, row.problem, made)
			if row.problem == "" {
				assert.Equal(t, id, made.ProviderID)
			}
			if row.anothers != "" {
				row.problem = ""
			}
			gone, err := o.RunActivity(o.DeleteInstance, in)
			require.NoError(t, err)
			assertProblem(t, row.problem, gone)
			assert.Contains(t, gone.Anothers, row.anothers)
			assert.Equal(t, row.anothers == "", gone.Anothers == "")
			left := 1
			if row.anothers == "" && row.problem == "" {
				left = 0
			}
			assert.Len(t, o.Cloud.Instances(), left)
		})
	}
}

// A tenant may write a Machine with the provider ID of another tenant's instance. The Machine whose UID the instance
// carries keeps it. The tenant's Machine does not get it.
func TestForeignClaimDoesNotStopTheOwnerOfAnInstance(t *testing.T) {
	t.Parallel()
	o, in := activitiestest.NewCloudWorld(t, activitiestest.NewClass()), activitiestest.DefaultInstanceCall
	made, err := o.RunActivity(o.CreateInstance, in)
	require.NoError(t, err)
	stranger := activitiestest.NewMachine("m", withOtherNamespace("uid-stranger", made.ProviderID))
	stranger.Namespace = "hostile"
	for _, m := range []*v1alpha1.Machine{activitiestest.NewMachine("m"), stranger} {
		require.NoError(t, o.Classes.(activitiestest.FakeClient).Tracker().Add(m))
	}

	in.ProviderID, in.NeverTried = made.ProviderID, false
	of := in
	of.Machine.UID = "uid-stranger"
	kept, err := o.RunActivity(o.DeleteInstance, of)
	require.NoError(t, err)
	assert.Len(t, o.Cloud.Instances(), 1)
	assert.Equal(t, "instance "+made.ProviderID+" has the UID of Machine shop/m", kept.Anothers)

	gone, err := o.RunActivity(o.DeleteInstance, in)
	require.NoError(t, err)
	assertProblem(t, "", gone)
	assert.Empty(t, o.Cloud.Instances())
}

// assertProblem asserts that the message of the answer's problem contains part. If part is empty, the answer must have
// no problem.
func assertProblem(t *testing.T, part string, answer cloud.InstanceAnswer) {
	t.Helper()
	if part == "" {
		assert.Nil(t, answer.Problem)
		return
	}
	require.NotNil(t, answer.Problem)
	assert.Equal(t, "AlreadyExists", answer.Problem.Reason)
	assert.Contains(t, answer.Problem.Message, part)
}
