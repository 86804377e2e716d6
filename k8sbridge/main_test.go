package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"millwright/process"
	"millwright/process/problems"
)

// election is a leader election among several bridges. election records the actions of the bridges.
type election struct {
	client           *fake.Clientset
	mu               sync.Mutex
	leadershipEvents []string
}

func (e *election) recordLeadershipEvent(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leadershipEvents = append(e.leadershipEvents, what)
}

func (e *election) recordedEvents() []string {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.leadershipEvents)
}

// addCandidate adds a candidate for the leadership until ctx ends. The candidate's bridge ends with the error that fail
// delivers.
func (e *election) addCandidate(
	ctx context.Context,
	name string,
	registry *prometheus.Registry,
	fail <-chan error,
) <-chan error {
	done := make(chan error, 1)
	o := options{Flags: process.Flags{LeaseNamespace: "default", ProblemRecorder: problems.New("prod")}, identity: name}
	go func() {
		done <- runElection(ctx, o, e.client, slog.New(slog.DiscardHandler), registry, func(ctx context.Context) error {
			e.recordLeadershipEvent(name + " begins")
			defer e.recordLeadershipEvent(name + " ends")
			select {
			case <-ctx.Done():
				return nil
			case err := <-fail:
				return err
			}
		})
	}()
	return done
}

// newUpdateRefusalSwitch returns a switch. While the switch is true, the API server refuses each update of the Lease by
// a holder for which refused returns true.
func (e *election) newUpdateRefusalSwitch(refused func(holder string) bool) *atomic.Bool {
	var on atomic.Bool
	e.client.PrependReactor("update", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		lease := action.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
		return on.Load() && refused(*lease.Spec.HolderIdentity), nil, errors.New("no route to host")
	})
	return &on
}

func TestAnotherBridgeLeadsAfterTheLeaderEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &election{client: fake.NewClientset()}
		ctx, stop := context.WithCancel(t.Context())
		registry := prometheus.NewRegistry()
		first := e.addCandidate(ctx, "first", registry, nil)
		time.Sleep(2 * time.Second)
		leading := func() float64 {
			families, err := registry.Gather()
			require.NoError(t, err)
			require.Len(t, families, 1)
			return families[0].GetMetric()[0].GetGauge().GetValue()
		}
		assert.InDelta(t, 1, leading(), 0)

		ctx2, stop2 := context.WithCancel(t.Context())
		second := e.addCandidate(ctx2, "second", prometheus.NewRegistry(), nil)
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"first begins"}, e.recordedEvents(), "one at a time")

		stop()
		require.NoError(t, <-first, "an orderly stop is no failure")
		assert.InDelta(t, 0, leading(), 0)
		time.Sleep(5 * time.Second)
		assert.Equal(
			t,
			[]string{"first begins", "first ends", "second begins"},
			e.recordedEvents(),
			"the lease was given back, not waited for",
		)
		stop2()
		require.NoError(t, <-second)
	})
}

func TestALeaderWritesItsLeaseFourTimesAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &election{client: fake.NewClientset()}
		ctx, stop := context.WithCancel(t.Context())
		done := e.addCandidate(ctx, "first", prometheus.NewRegistry(), nil)
		time.Sleep(2 * time.Second)
		e.client.ClearActions()
		time.Sleep(10 * time.Minute)
		assert.InDelta(t, 38, len(e.client.Actions()), 3, "requests of any kind")
		stop()
		require.NoError(t, <-done)
	})
}

// A new leader's bridge starts only after the bridge of the former leader, which cannot renew the Lease, has ended.
func TestAnotherBridgeLeadsIfTheLeaderCannotRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &election{client: fake.NewClientset()}
		cut := e.newUpdateRefusalSwitch(func(holder string) bool { return holder != "second" })
		ctx, stop := context.WithCancel(t.Context())
		first := e.addCandidate(ctx, "first", prometheus.NewRegistry(), nil)
		time.Sleep(2 * time.Second)
		second := e.addCandidate(ctx, "second", prometheus.NewRegistry(), nil)
		cut.Store(true)
		time.Sleep(29 * time.Second)
		require.Equal(t, []string{"first begins", "first ends"}, e.recordedEvents())
		time.Sleep(6 * time.Second)
		assert.Equal(t, []string{"first begins", "first ends", "second begins"}, e.recordedEvents())
		stop()
		require.NoError(t, <-first)
		require.NoError(t, <-second)
	})
}

// A bridge that was killed and restarts in its pod has the same identity.
func TestARestartedLeaderLeadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &election{client: fake.NewClientset()}
		e.newUpdateRefusalSwitch(func(holder string) bool { return holder == "" }).
			Store(true)
			// a killed bridge does not release the Lease
		killed, kill := context.WithCancel(t.Context())
		first := e.addCandidate(killed, "pod-1", prometheus.NewRegistry(), nil)
		time.Sleep(2 * time.Second)
		kill()
		require.NoError(t, <-first)
		ctx, stop := context.WithCancel(t.Context())
		second := e.addCandidate(ctx, "pod-1", prometheus.NewRegistry(), nil)
		time.Sleep(time.Second)
		assert.Equal(t, []string{"pod-1 begins", "pod-1 ends", "pod-1 begins"}, e.recordedEvents())
		stop()
		require.NoError(t, <-second)
	})
}

// A leader without a running bridge must release the Lease.
func TestALeaderWhoseBridgeFailsReleasesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &election{client: fake.NewClientset()}
		fail := make(chan error, 1)
		done := e.addCandidate(t.Context(), "first", prometheus.NewRegistry(), fail)
		time.Sleep(2 * time.Second)
		fail <- errors.New("broken")
		require.EqualError(t, <-done, "run bridge: broken")
		ctx, stop := context.WithCancel(t.Context())
		second := e.addCandidate(ctx, "second", prometheus.NewRegistry(), nil)
		time.Sleep(5 * time.Second)
		assert.Equal(t, []string{"first begins", "first ends", "second begins"}, e.recordedEvents())
		stop()
		require.NoError(t, <-second)
	})
}
