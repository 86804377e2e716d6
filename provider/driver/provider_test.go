package driver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/provider"
	"millwright/provider/driver"
)

// cloudWithInstances returns a simulated cloud with the given instances, which all reads show.
func cloudWithInstances(instances ...provider.Instance) *simulatedCloud {
	cloud := newSimulatedCloud(provider.Traits{})
	for _, i := range instances {
		cloud.instances = append(cloud.instances, simulatedInstance{Instance: i, cluster: "c", class: "small"})
	}
	return cloud
}

func TestInstanceStatusFindsTheMachinesInstance(t *testing.T) {
	tagged := provider.Instance{ProviderID: "sim:///tagged", MachineName: "m", MachineUID: "uid-m"}
	again := provider.Instance{ProviderID: "sim:///again", MachineName: "m", MachineUID: "uid-m"}
	known := provider.Instance{ProviderID: "sim:///known", MachineName: "m", MachineUID: "uid-before"}
	named := provider.Instance{ProviderID: "sim:///named", MachineName: "m"}
	other := provider.Instance{ProviderID: "sim:///other", MachineName: "x", MachineUID: "uid-x"}
	ended := provider.Instance{
		ProviderID:  "sim:///ended",
		MachineName: "m",
		MachineUID:  "uid-m",
		State:       provider.Terminated,
	}
	for name, row := range map[string]struct {
		there []provider.Instance
		id    string // recorded provider ID of the machine
		want  string
		code  provider.Code
	}{
		"its UID":                              {there: []provider.Instance{other, known, named, tagged}, want: tagged.ProviderID},
		"its UID, before its provider ID":      {there: []provider.Instance{known, tagged}, id: known.ProviderID, want: tagged.ProviderID},
		"its provider ID, if none has its UID": {there: []provider.Instance{other, known}, id: known.ProviderID, want: known.ProviderID},
		"its name, if it has no UID":           {there: []provider.Instance{other, known, named}, want: named.ProviderID},
		"not its name, if its ID is known":     {there: []provider.Instance{named}, id: known.ProviderID, code: provider.NotFound},
		"not its name with another UID":        {there: []provider.Instance{known}, code: provider.NotFound},
		"not one that has ended":               {there: []provider.Instance{ended}, code: provider.NotFound},
		"two":                                  {there: []provider.Instance{tagged, again}, code: provider.OutOfRange},
		"two of its name":                      {there: []provider.Instance{named, {ProviderID: "sim:///n", MachineName: "m"}}, code: provider.OutOfRange},
	} {
		t.Run(name, func(t *testing.T) {
			m := testMachine()
			m.ProviderID = row.id
			seen, err := driver.New(cloudWithInstances(row.there...)).InstanceStatus(t.Context(), testClass(), m)
			require.Equal(t, row.code, provider.CodeOfError(err))
			assert.Equal(t, row.want, seen.ProviderID)
		})
	}
}

func TestListIsSortedAndOmitsTerminatedInstances(t *testing.T) {
	listed, err := driver.New(cloudWithInstances(provider.Instance{ProviderID: "b"}, provider.Instance{ProviderID: "a"},
		provider.Instance{ProviderID: "c", State: provider.Terminated})).ListInstances(t.Context(), testClass(), "c")
	require.NoError(t, err)
	assert.Equal(t, []provider.Instance{{ProviderID: "a"}, {ProviderID: "b"}}, listed)
}

func TestATerminatingInstanceIsNotAdopted(t *testing.T) {
	for _, state := range []provider.State{provider.Terminating, provider.Terminated} {
		// With a window of an hour, no read shows the instance.
		cloud := newSimulatedCloud(provider.Traits{Idempotency: provider.ByToken, Window: time.Hour})
		made := createUntilSuccess(t, cloud)
		cloud.instances[0].State = state
		_, err := driver.New(cloud).CreateInstance(t.Context(), testClass(), testMachine())
		assert.Equal(t, provider.Aborted, provider.CodeOfError(err))
		assert.ErrorContains(t, err, made.ProviderID)
	}
}

// An instance of another machine, or of a deleted machine with the same name, has the machine's name.
func TestCreateIsRefusedIfAnotherInstanceHasTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newSimulatedCloud(provider.Traits{Idempotency: provider.ByName, Window: 10 * time.Second})
		before := testMachine()
		before.UID = "uid-before"
		cloud.addInstance(testClass(), before)
		_, err := driver.New(cloud).CreateInstance(t.Context(), testClass(), testMachine())
		assert.Equal(t, provider.AlreadyExists, provider.CodeOfError(err))
		assert.ErrorContains(t, err, "the name m is taken")
		assert.Equal(t, 1, cloud.countLiveInstances())
	})
}

// InstanceStatus returns NotFound for a recorded instance only after the cloud's window.
func TestInstanceStatusWaitsForTheEndOfStaleReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newSimulatedCloud(provider.Traits{Window: 10 * time.Second})
		made := createUntilSuccess(t, cloud)
		m := testMachine()
		_, err := driver.New(cloud).InstanceStatus(t.Context(), testClass(), m)
		assert.Equal(t, provider.NotFound, provider.CodeOfError(err), "nothing is on record")
		m.ProviderID = made.ProviderID
		_, err = driver.New(cloud).InstanceStatus(t.Context(), testClass(), m)
		require.NoError(t, err)

		cloud.instances[0].isDeleted = true
		begun := time.Now()
		_, err = driver.New(cloud).InstanceStatus(t.Context(), testClass(), m)
		assert.Equal(t, provider.NotFound, provider.CodeOfError(err))
		assert.Equal(t, 10*time.Second, time.Since(begun), "the cloud has no clock: since now")
	})
}

func TestDeleteIsRequestedForAnInstanceThatNoReadShows(t *testing.T) {
	cloud := cloudWithInstances()
	m := testMachine()
	m.ProviderID = "sim:///gone"
	require.NoError(t, driver.New(cloud).DeleteInstance(t.Context(), testClass(), m))
	assert.Equal(t, 1, cloud.callCounts["Delete"], "what was made for it may remain")
}

func TestDriverErrorsAreConvertedAndRedacted(t *testing.T) {
	class := testClass()
	class.Secret = provider.Secret{"key": []byte("canary-of-a-driver")}
	raw := errors.New("POST https://u:canary-of-a-driver@cloud: refused")
	for name, row := range map[string]struct {
		fail error
		want provider.Error
	}{
		"typed": {
			&provider.Error{Code: provider.Unavailable, Message: "key canary-of-a-driver is tired", RetryAfter: time.Minute, Cause: raw},
			provider.Error{Code: provider.Unavailable, Message: "look for instance of machine m: key [redacted] is tired", RetryAfter: time.Minute},
		},
		"not typed": {raw, provider.Error{Code: provider.Unknown, Message: "look for instance of machine m: POST https://u:[redacted]@cloud: refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := cloudWithInstances()
			cloud.callError = row.fail
			_, err := driver.New(cloud).InstanceStatus(t.Context(), class, testMachine())
			assert.Equal(t, &row.want, err, "no cause: it may quote a Secret")
		})
	}
	t.Run("of a call that was cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cloud := cloudWithInstances()
		cloud.callError = raw
		cancel()
		_, err := driver.New(cloud).ListInstances(ctx, class, "c")
		assert.Equal(t, provider.Canceled, provider.CodeOfError(err))
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestOptionalDriverMethodsMayBeMissing(t *testing.T) {
	p := driver.New(cloudWithInstances())
	_, err := p.InitializeInstance(t.Context(), testClass(), testMachine())
	assert.Equal(t, provider.Unimplemented, provider.CodeOfError(err))
	ids, err := p.VolumeIDs(t.Context(), []provider.Volume{{CSIDriver: "x", Handle: "vol-1"}})
	require.NoError(t, err)
	assert.Empty(t, ids)
}
