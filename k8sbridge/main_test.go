package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/fake"

	"millwright/process"
)

// election is one of several bridges, which records what they do.
type election struct {
	client *fake.Clientset
	mu     sync.Mutex
	terms  []string
}

func (e *election) note(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.terms = append(e.terms, what)
}

// story returns what has happened so far.
func (e *election) story() []string {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.terms)
}

// join makes a candidate for the leadership until ctx ends; its bridge ends with the error that fail delivers.
func (e *election) join(ctx context.Context, name string, registry *prometheus.Registry, fail <-chan error) <-chan error {
	done := make(chan error, 1)
	o := options{Flags: process.Flags{LeaseNamespace: "default"}, identity: name}
	go func() {
		done <- lead(ctx, o, e.client, slog.New(slog.DiscardHandler), registry, func(ctx context.Context) error {
			e.note(name + " begins")
			defer e.note(name + " ends")
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

func TestAnotherLeadsWhenTheLeaderEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &election{client: fake.NewClientset()}
		ctx, stop := context.WithCancel(t.Context())
		registry := prometheus.NewRegistry()
		first := e.join(ctx, "first", registry, nil)
		time.Sleep(2 * time.Second)
		leading := func() float64 {
			families, err := registry.Gather()
			require.NoError(t, err)
			require.Len(t, families, 1)
			return families[0].GetMetric()[0].GetGauge().GetValue()
		}
		assert.InDelta(t, 1, leading(), 0)

		ctx2, stop2 := context.WithCancel(t.Context())
		second := e.join(ctx2, "second", prometheus.NewRegistry(), nil)
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"first begins"}, e.story(), "one at a time")

		stop()
		require.NoError(t, <-first, "an orderly stop is no failure")
		assert.InDelta(t, 0, leading(), 0)
		time.Sleep(5 * time.Second)
		assert.Equal(t, []string{"first begins", "first ends", "second begins"}, e.story(), "the lease was given back, not waited for")
		stop2()
		require.NoError(t, <-second)
	})
}

// A leader without a running bridge must release the lease.
func TestALeaderWhoseBridgeFailsGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &election{client: fake.NewClientset()}
		fail := make(chan error, 1)
		done := e.join(t.Context(), "first", prometheus.NewRegistry(), fail)
		time.Sleep(2 * time.Second)
		fail <- errors.New("broken")
		require.EqualError(t, <-done, "run bridge: broken")
		ctx, stop := context.WithCancel(t.Context())
		second := e.join(ctx, "second", prometheus.NewRegistry(), nil)
		time.Sleep(5 * time.Second)
		assert.Equal(t, []string{"first begins", "first ends", "second begins"}, e.story())
		stop()
		require.NoError(t, <-second)
	})
}
