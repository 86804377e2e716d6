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

func aClass() provider.Class { return provider.Class{Namespace: "shop", Name: "small"} }

func aMachine() provider.Machine {
	return provider.Machine{Cluster: "c", Namespace: "shop", Name: "m", UID: "uid-m"}
}

// everyCloud runs a test in a bubble for each combination of traits.
func everyCloud(t *testing.T, test func(t *testing.T, traits provider.Traits, cloud *sim)) {
	t.Helper()
	for _, idempotency := range []provider.Idempotency{provider.NotIdempotent, provider.ByToken, provider.ByName} {
		for _, named := range []bool{false, true} {
			for _, window := range []time.Duration{0, 10 * time.Second} {
				for _, expires := range []bool{false, true} {
					traits := provider.Traits{Idempotency: idempotency, Named: named, Window: window, Expires: expires}
					t.Run(fmt.Sprintf("%+v", traits), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { test(t, traits, newSim(traits)) })
					})
				}
			}
		}
	}
}

// die makes a process send its create request, and die before the request arrives.
func die(t *testing.T, cloud *sim, arrives time.Duration) {
	t.Helper()
	cloud.underWay = arrives
	m := aMachine()
	m.NeverTried = true
	ctx, kill := context.WithTimeout(t.Context(), time.Millisecond)
	defer kill()
	_, err := driver.New(cloud).CreateInstance(ctx, aClass(), m)
	require.Equal(t, provider.DeadlineExceeded, provider.CodeOf(err))
	cloud.underWay = 0
}

// create creates the machine's instance as the activity does: it repeats the call after a refusal.
func create(t *testing.T, cloud *sim) provider.Instance {
	t.Helper()
	for {
		made, err := driver.New(cloud).CreateInstance(t.Context(), aClass(), aMachine())
		if err == nil {
			return made
		}
		t.Log(err)
		time.Sleep(2 * time.Second)
	}
}

// remove deletes the machine's instances as the activity does: an instance that has only the name is deleted by its
// provider ID.
func remove(t *testing.T, cloud *sim, m provider.Machine) {
	t.Helper()
	p := driver.New(cloud)
	for m.Name != "" {
		if m.ProviderID == "" {
			if found, err := p.InstanceStatus(t.Context(), aClass(), m); err == nil && found.MachineUID == "" {
				m.ProviderID = found.ProviderID
			}
		}
		err := p.DeleteInstance(t.Context(), aClass(), m)
		if err == nil {
			return
		}
		require.Equal(t, provider.Aborted, provider.CodeOf(err))
	}
}

func TestACreatorThatDiesLeavesOneInstance(t *testing.T) {
	everyCloud(t, func(t *testing.T, _ provider.Traits, cloud *sim) {
		die(t, cloud, time.Second)
		made := create(t, cloud)
		time.Sleep(time.Hour)
		assert.Equal(t, 1, cloud.live())
		assert.Equal(t, cloud.all()[0].ProviderID, made.ProviderID)
	})
}

// The name is taken by the machine's own instance, which no read shows yet: one call finds it.
func TestANameThatTheMachinesOwnInstanceHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newSim(provider.Traits{Idempotency: provider.ByName, Window: 10 * time.Second})
		die(t, cloud, time.Second)
		time.Sleep(2 * time.Second)
		made, err := driver.New(cloud).CreateInstance(t.Context(), aClass(), aMachine())
		require.NoError(t, err)
		assert.Equal(t, cloud.all()[0].ProviderID, made.ProviderID)
	})
}

func TestADeletionAfterACreatorThatDiedLeavesNone(t *testing.T) {
	everyCloud(t, func(t *testing.T, _ provider.Traits, cloud *sim) {
		die(t, cloud, time.Second)
		remove(t, cloud, aMachine())
		time.Sleep(time.Hour)
		assert.Len(t, cloud.all(), 1, "the request took effect")
		assert.Zero(t, cloud.live())
	})
}

// A worker was not heard of again, and its create call may still run: the next one waits for the instance so long, where
// nothing else bounds the call.
func TestACallThatMayStillRun(t *testing.T) {
	const may = 10 * time.Minute
	waits := func(traits provider.Traits) bool {
		return traits.Idempotency == provider.NotIdempotent && !traits.Expires
	}
	everyCloud(t, func(t *testing.T, traits provider.Traits, cloud *sim) {
		die(t, cloud, time.Minute)
		begun, m := time.Now(), aMachine()
		m.MayRunUntil = begun.Add(may)
		_, err := driver.New(cloud).CreateInstance(t.Context(), aClass(), m)
		require.NoError(t, err)
		if waits(traits) {
			assert.InDelta(t, (time.Minute + traits.Window).Seconds(), time.Since(begun).Seconds(), 1)
		}
		time.Sleep(time.Hour)
		assert.Equal(t, 1, cloud.live())
	})
	everyCloud(t, func(t *testing.T, traits provider.Traits, cloud *sim) {
		begun, m := time.Now(), aMachine()
		m.MayRunUntil = begun.Add(may)
		_, err := driver.New(cloud).CreateInstance(t.Context(), aClass(), m)
		if waits(traits) {
			require.Equal(t, provider.Aborted, provider.CodeOf(err))
			require.ErrorContains(t, err, "a worker that was not heard of again")
			assert.Equal(t, may+traits.Window, time.Since(begun))
			assert.Zero(t, cloud.calls["Create"])
			m.MayRunUntil = time.Time{}
			_, err = driver.New(cloud).CreateInstance(t.Context(), aClass(), m)
		}
		require.NoError(t, err)
		assert.Equal(t, 1, cloud.live())
	})
	synctest.Test(t, func(t *testing.T) {
		cloud := newSim(provider.Traits{Idempotency: provider.NotIdempotent})
		begun, m := time.Now(), aMachine()
		m.MayRunUntil = begun.Add(may)
		_, err := driver.New(cloud, driver.WithRequestLife(time.Second)).CreateInstance(t.Context(), aClass(), m)
		require.NoError(t, err)
		assert.Equal(t, time.Second, time.Since(begun), "somebody has said how long a request lives")
	})
}

// The worst case of each combination: a process freezes between its search and its request, and goes on a minute later,
// after another process has taken over. docs/provider.md has the results.
func TestARequestThatArrivesAMinuteLate(t *testing.T) {
	everyCloud(t, func(t *testing.T, traits provider.Traits, cloud *sim) {
		die(t, cloud, time.Minute)
		made := create(t, cloud)
		time.Sleep(time.Hour)
		if traits.Idempotency != provider.NotIdempotent || traits.Expires {
			assert.Equal(t, 1, cloud.live())
			return
		}
		assert.Equal(t, 2, cloud.live(), "nothing can prevent it")
		m := aMachine()
		m.ProviderID = made.ProviderID
		seen, err := driver.New(cloud).InstanceStatus(t.Context(), aClass(), m)
		if traits.Named {
			require.NoError(t, err, "the other one is an orphan")
			assert.Equal(t, made.ProviderID, seen.ProviderID)
			return
		}
		assert.Equal(t, provider.OutOfRange, provider.CodeOf(err), "people see it")
		remove(t, cloud, m)
		assert.Zero(t, cloud.live())
	})
}

func TestARequestThatArrivesAMinuteLateAfterADeletion(t *testing.T) {
	everyCloud(t, func(t *testing.T, traits provider.Traits, cloud *sim) {
		die(t, cloud, time.Minute)
		remove(t, cloud, aMachine())
		time.Sleep(time.Hour)
		want := 1 // an orphan, which the sweep finds
		if traits.Expires {
			want = 0
		}
		assert.Equal(t, want, cloud.live())
	})
}

// What each combination costs.
func TestWaitsOfACreation(t *testing.T) {
	everyCloud(t, func(t *testing.T, traits provider.Traits, cloud *sim) {
		begun := time.Now()
		first := aMachine()
		first.NeverTried = true
		_, err := driver.New(cloud).CreateInstance(t.Context(), aClass(), first)
		require.NoError(t, err)
		assert.Zero(t, time.Since(begun), "the first creation never waits")
		assert.Equal(t, map[string]int{"Find": 1, "Create": 1}, cloud.calls)

		other := aMachine()
		other.Name, other.UID = "other", "uid-other"
		_, err = driver.New(cloud).CreateInstance(t.Context(), aClass(), other)
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
