package driver_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/provider"
	"millwright/provider/driver"
)

func testClass() provider.Class { return provider.Class{Namespace: "shop", Name: "small"} }

func testMachine() provider.Machine {
	return provider.Machine{Cluster: "c", Namespace: "shop", Name: "m", UID: "uid-m"}
}

// runWithEachTraits runs a test in a synctest bubble for each combination of Traits.
func runWithEachTraits(t *testing.T, test func(t *testing.T, traits provider.Traits, cloud *simulatedCloud)) {
	t.Helper()
	for _, idempotency := range []provider.Idempotency{provider.NotIdempotent, provider.ByToken, provider.ByName} {
		for _, named := range []bool{false, true} {
			for _, window := range []time.Duration{0, 10 * time.Second} {
				for _, expires := range []bool{false, true} {
					traits := provider.Traits{Idempotency: idempotency, Named: named, Window: window, Expires: expires}
					t.Run(fmt.Sprintf("%+v", traits), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { test(t, traits, newSimulatedCloud(traits)) })
					})
				}
			}
		}
	}
}

// crashDuringCreate simulates a process that sends its create request and crashes before the request arrives at the
// cloud.
func crashDuringCreate(t *testing.T, cloud *simulatedCloud, arrives time.Duration) {
	t.Helper()
	cloud.createDelay = arrives
	m := testMachine()
	m.NeverTried = true
	ctx, kill := context.WithTimeout(t.Context(), time.Millisecond)
	defer kill()
	_, err := driver.New(cloud).CreateInstance(ctx, testClass(), m)
	require.Equal(t, provider.DeadlineExceeded, provider.CodeOfError(err))
	cloud.createDelay = 0
}

// createUntilSuccess creates the machine's instance like the activity CreateInstance, which repeats the call after an
// error.
func createUntilSuccess(t *testing.T, cloud *simulatedCloud) provider.Instance {
	t.Helper()
	for {
		made, err := driver.New(cloud).CreateInstance(t.Context(), testClass(), testMachine())
		if err == nil {
			return made
		}
		t.Log(err)
		time.Sleep(2 * time.Second)
	}
}

// deleteUntilSuccess deletes the machine's instances like the activity DeleteInstance, which deletes an instance
// without a UID by its provider ID.
func deleteUntilSuccess(t *testing.T, cloud *simulatedCloud, m provider.Machine) {
	t.Helper()
	p := driver.New(cloud)
	for m.Name != "" {
		if m.ProviderID == "" {
			if found, err := p.InstanceStatus(t.Context(), testClass(), m); err == nil && found.MachineUID == "" {
				m.ProviderID = found.ProviderID
			}
		}
		err := p.DeleteInstance(t.Context(), testClass(), m)
		if err == nil {
			return
		}
		require.Equal(t, provider.Aborted, provider.CodeOfError(err))
	}
}

func TestCrashedCreatorLeavesOneInstance(t *testing.T) {
	runWithEachTraits(t, func(t *testing.T, _ provider.Traits, cloud *simulatedCloud) {
		crashDuringCreate(t, cloud, time.Second)
		made := createUntilSuccess(t, cloud)
		time.Sleep(time.Hour)
		assert.Equal(t, 1, cloud.countLiveInstances())
		assert.Equal(t, cloud.allInstances()[0].ProviderID, made.ProviderID)
	})
}

// Stale reads hide the machine's own instance, and the cloud allows only one instance with its name. One call of
// CreateInstance is enough to find the instance.
func TestCreateFindsTheMachinesHiddenInstanceByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newSimulatedCloud(provider.Traits{Idempotency: provider.ByName, Window: 10 * time.Second})
		crashDuringCreate(t, cloud, time.Second)
		time.Sleep(2 * time.Second)
		made, err := driver.New(cloud).CreateInstance(t.Context(), testClass(), testMachine())
		require.NoError(t, err)
		assert.Equal(t, cloud.allInstances()[0].ProviderID, made.ProviderID)
	})
}

func TestDeletionAfterACrashedCreatorLeavesNoInstance(t *testing.T) {
	runWithEachTraits(t, func(t *testing.T, _ provider.Traits, cloud *simulatedCloud) {
		crashDuringCreate(t, cloud, time.Second)
		deleteUntilSuccess(t, cloud, testMachine())
		time.Sleep(time.Hour)
		assert.Len(t, cloud.allInstances(), 1, "the request took effect")
		assert.Zero(t, cloud.countLiveInstances())
	})
}

// A worker stopped sending heartbeats, and its create call may still run until MayRunUntil. If create requests neither
// are idempotent nor expire, the next create call waits until MayRunUntil for the instance of the earlier call.
func TestCreateWaitsForAnEarlierCallThatMayStillRun(t *testing.T) {
	const may = 10 * time.Minute
	waits := func(traits provider.Traits) bool {
		return traits.Idempotency == provider.NotIdempotent && !traits.Expires
	}
	runWithEachTraits(t, func(t *testing.T, traits provider.Traits, cloud *simulatedCloud) {
		crashDuringCreate(t, cloud, time.Minute)
		begun, m := time.Now(), testMachine()
		m.MayRunUntil = begun.Add(may)
		_, err := driver.New(cloud).CreateInstance(t.Context(), testClass(), m)
		require.NoError(t, err)
		if waits(traits) {
			assert.InDelta(t, (time.Minute + traits.Window).Seconds(), time.Since(begun).Seconds(), 1)
		}
		time.Sleep(time.Hour)
		assert.Equal(t, 1, cloud.countLiveInstances())
	})
	runWithEachTraits(t, func(t *testing.T, traits provider.Traits, cloud *simulatedCloud) {
		begun, m := time.Now(), testMachine()
		m.MayRunUntil = begun.Add(may)
		_, err := driver.New(cloud).CreateInstance(t.Context(), testClass(), m)
		if waits(traits) {
			require.Equal(t, provider.Aborted, provider.CodeOfError(err))
			require.ErrorContains(t, err, "a worker that was not heard of again")
			assert.Equal(t, may+traits.Window, time.Since(begun))
			assert.Zero(t, cloud.callCounts["Create"])
			m.MayRunUntil = time.Time{}
			_, err = driver.New(cloud).CreateInstance(t.Context(), testClass(), m)
		}
		require.NoError(t, err)
		assert.Equal(t, 1, cloud.countLiveInstances())
	})
	synctest.Test(t, func(t *testing.T) {
		cloud := newSimulatedCloud(provider.Traits{Idempotency: provider.NotIdempotent})
		begun, m := time.Now(), testMachine()
		m.MayRunUntil = begun.Add(may)
		_, err := driver.New(cloud, driver.WithRequestLifetime(time.Second)).CreateInstance(t.Context(), testClass(), m)
		require.NoError(t, err)
		assert.Equal(t, time.Second, time.Since(begun), "somebody has said how long a request lives")
	})
}

// The test runs the worst case for each combination of Traits: a process freezes between its search and its create
// request, and resumes a minute later, after another process has taken over. docs/provider.md lists the results.
func TestLateCreateRequestNeedsIdempotencyOrExpiry(t *testing.T) {
	runWithEachTraits(t, func(t *testing.T, traits provider.Traits, cloud *simulatedCloud) {
		crashDuringCreate(t, cloud, time.Minute)
		made := createUntilSuccess(t, cloud)
		time.Sleep(time.Hour)
		if traits.Idempotency != provider.NotIdempotent || traits.Expires {
			assert.Equal(t, 1, cloud.countLiveInstances())
			return
		}
		assert.Equal(t, 2, cloud.countLiveInstances(), "nothing can prevent it")
		m := testMachine()
		m.ProviderID = made.ProviderID
		seen, err := driver.New(cloud).InstanceStatus(t.Context(), testClass(), m)
		if traits.Named {
			require.NoError(t, err, "the other one is an orphan")
			assert.Equal(t, made.ProviderID, seen.ProviderID)
			return
		}
		assert.Equal(t, provider.OutOfRange, provider.CodeOfError(err), "people see it")
		deleteUntilSuccess(t, cloud, m)
		assert.Zero(t, cloud.countLiveInstances())
	})
}

func TestLateCreateRequestWithoutExpiryLeavesAnOrphan(t *testing.T) {
	runWithEachTraits(t, func(t *testing.T, traits provider.Traits, cloud *simulatedCloud) {
		crashDuringCreate(t, cloud, time.Minute)
		deleteUntilSuccess(t, cloud, testMachine())
		time.Sleep(time.Hour)
		want := 1 // one instance is an orphan, which the sweep of orphans would find
		if traits.Expires {
			want = 0
		}
		assert.Equal(t, want, cloud.countLiveInstances())
	})
}

// A creation waits as long as docs/provider.md says for each combination of Traits.
func TestCreateWaitsAsLongAsItsTraitsRequire(t *testing.T) {
	runWithEachTraits(t, func(t *testing.T, traits provider.Traits, cloud *simulatedCloud) {
		begun := time.Now()
		first := testMachine()
		first.NeverTried = true
		_, err := driver.New(cloud).CreateInstance(t.Context(), testClass(), first)
		require.NoError(t, err)
		assert.Zero(t, time.Since(begun), "the first creation never waits")
		assert.Equal(t, map[string]int{"Find": 1, "Create": 1}, cloud.callCounts)

		other := testMachine()
		other.Name, other.UID = "other", "uid-other"
		_, err = driver.New(cloud).CreateInstance(t.Context(), testClass(), other)
		require.NoError(t, err)
		want := time.Duration(0)
		if traits.Idempotency == provider.NotIdempotent {
			want = 15*time.Second + traits.Window
			if traits.Expires {
				want = 2*time.Second + traits.Window
			}
		}
		assert.Equal(t, want, time.Since(begun))
	})
}
