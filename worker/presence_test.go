package main

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/worker/serve"
	"millwright/workflows/run"
)

// server is an API server with one Lease, whose clock is ahead of that of the workers.
type server struct {
	client *fake.Clientset
	skew   time.Duration
	lease  *coordinationv1.Lease
	fails  error // of the next writes
	writes int   // so far
}

func newServer(skew time.Duration) *server {
	s := &server{client: fake.NewClientset(), skew: skew}
	write := func(action clienttesting.Action) (bool, runtime.Object, error) {
		if s.fails != nil {
			return true, nil, s.fails
		}
		at := metav1.NewTime(s.now())
		lease := action.(interface{ GetObject() runtime.Object }).GetObject().(*coordinationv1.Lease).DeepCopy()
		if s.lease != nil && lease.ResourceVersion != s.lease.ResourceVersion {
			return true, nil, apierrors.NewConflict(
				schema.GroupResource{Resource: "leases"},
				lease.Name,
				errors.New("it has another version"),
			)
		}
		s.writes++
		lease.ResourceVersion = strconv.Itoa(s.writes)
		s.lease = lease
		s.lease.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "worker", Time: &at}}
		return true, s.lease.DeepCopy(), nil
	}
	s.client.PrependReactor("create", "leases", write)
	s.client.PrependReactor("update", "leases", write)
	s.client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		if s.lease == nil {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, v1alpha1.LeaseWorkers)
		}
		return true, s.lease.DeepCopy(), nil
	})
	return s
}

// now is the time of the API server.
func (s *server) now() time.Time { return time.Now().Add(s.skew).Truncate(time.Second) }

// colleague is a worker that starts now.
type colleague struct {
	*presence
	seen cache.Absences
	read *prometheus.Registry // of its metrics
	away error                // of Temporal
}

func (s *server) worker() *colleague {
	c := &colleague{read: prometheus.NewRegistry()}
	c.presence = &presence{
		leases: s.client.CoordinationV1().
			Leases("millwright"),
		of:        "prod",
		scope:     cache.Scope{Only: []string{"shop"}},
		identity:  "w",
		heartbeat: serve.NewHeartbeat(c.read),
		log:       slog.New(slog.DiscardHandler),
		answers:   func(context.Context) error { return c.away },
		known:     func(a cache.Absences) { c.seen = a },
	}
	return c
}

// lastBeat returns the value of the worker's metric.
func (c *colleague) lastBeat(t *testing.T) time.Time {
	t.Helper()
	families, err := c.read.Gather()
	require.NoError(t, err)
	require.Len(t, families, 1)
	return time.Unix(int64(families[0].GetMetric()[0].GetGauge().GetValue()), 0)
}

// works renews the Lease for the time d.
func (c *colleague) works(t *testing.T, d time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	require.NoError(t, c.begin(ctx))
	require.NoError(t, c.keep(ctx))
}

func TestAbsencesOfWorkers(t *testing.T) {
	t.Run("none runs for ten minutes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(8 * time.Minute)
			first := s.worker()
			first.works(t, 61*time.Second)
			require.Empty(t, first.seen)
			require.Equal(t, "prod", s.lease.Annotations[v1alpha1.AnnotationInstallation])
			require.Equal(t, "namespaces shop", cache.ScopeOf(s.lease).String())
			from := s.now().Add(-time.Second) // of the last renewal
			time.Sleep(10 * time.Minute)
			second := s.worker()
			require.NoError(t, second.begin(t.Context()))
			require.Equal(t, cache.Absences{{From: from.UTC(), To: s.now().UTC()}}, second.seen)
			third := s.worker()
			require.NoError(t, third.begin(t.Context()))
			require.Equal(t, second.seen, third.seen, "an absence is recorded once")
		})
	})
	t.Run("a restart, or one of two workers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(0)
			one, two := s.worker(), s.worker()
			one.works(t, 45*time.Second)
			time.Sleep(50 * time.Second)
			two.works(t, 5*time.Minute)
			require.NoError(t, one.begin(t.Context()), "it was stopped for five minutes, while the other worked")
			require.Empty(t, one.seen)
			require.Empty(t, two.seen)
		})
	})
	t.Run("Temporal or the API server does not answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(0)
			w := s.worker()
			require.NoError(t, w.begin(t.Context()))
			w.goesOn(t, time.Minute)
			w.away = errors.New("unavailable")
			silent := time.Now()
			w.goesOn(t, 3*time.Minute)
			assert.WithinDuration(t, silent, w.lastBeat(t), renewEach+time.Second)
			w.away = nil
			w.goesOn(t, 2*time.Minute)
			s.fails = errors.New("connection refused")
			w.goesOn(t, 2*time.Minute)
			s.fails = nil
			w.goesOn(t, 2*time.Minute)
			assert.WithinDuration(t, time.Now(), w.lastBeat(t), renewEach+time.Second)
			require.Len(t, w.seen, 2)
			assert.InDelta(t, 3, w.seen[0].To.Sub(w.seen[0].From).Minutes(), 0.4)
			assert.InDelta(t, 2, w.seen[1].To.Sub(w.seen[1].From).Minutes(), 0.4)
		})
	})
	t.Run("a worker that dies between the two writes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(0)
			s.worker().works(t, time.Second)
			from := s.now()
			time.Sleep(10 * time.Minute)
			writes := 0
			s.client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
				if writes++; writes == 2 {
					return true, nil, errors.New("killed")
				}
				return false, nil, nil
			})
			require.Error(t, s.worker().renew(t.Context()))
			time.Sleep(30 * time.Second)
			next := s.worker()
			require.NoError(t, next.begin(t.Context()))
			require.Len(t, next.seen, 1)
			assert.Equal(t, 10*time.Minute+30*time.Second, next.seen[0].To.Sub(next.seen[0].From).Round(10*time.Second))
			assert.WithinDuration(t, from, next.seen[0].From, 2*time.Second)
		})
	})
	t.Run("a single worker makes one request for each renewal", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(0)
			w := s.worker()
			require.NoError(t, w.begin(t.Context()))
			s.client.ClearActions()
			w.goesOn(t, 10*time.Minute)
			assert.InDelta(t, 40, len(s.client.Actions()), 1)
			s.worker().works(t, time.Second)
			s.client.ClearActions()
			w.goesOn(t, 16*time.Second)
			assert.Len(t, s.client.Actions(), 3, "a conflict with another worker, a read, a write")
			assert.WithinDuration(t, time.Now(), w.lastBeat(t), 2*time.Second)
		})
	})
	t.Run("another worker is faster", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(0)
			w := s.worker()
			require.NoError(t, w.begin(t.Context()))
			s.fails = apierrors.NewConflict(
				schema.GroupResource{Resource: "leases"},
				v1alpha1.LeaseWorkers,
				errors.New("changed"),
			)
			w.goesOn(t, 30*time.Second)
			require.False(t, w.failing)
		})
	})
}

// goesOn renews the Lease for the time d, after begin.
func (c *colleague) goesOn(t *testing.T, d time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	require.NoError(t, c.keep(ctx))
}

// named is a worker with this --cluster-name and --accept-new-cluster-name.
func (s *server) named(of, before run.Installation) *colleague {
	c := s.worker()
	c.of, c.before = of, before
	return c
}

// Instances carry the name as a tag: under another name they look gone.
func TestAChangedNameIsRefused(t *testing.T) {
	for name, row := range map[string]struct {
		lease      string // what it says; empty: nothing
		of, before run.Installation
		refused    string // part of the error; empty: it begins
	}{
		"the same name":                               {"prod", "prod", "", ""},
		"another one":                                 {"prod", "Prod", "", "--accept-new-cluster-name=prod"},
		"on purpose":                                  {"prod", "Prod", "prod", ""},
		"the flag names another one":                  {"prod", "Prod", "test", "--accept-new-cluster-name=prod"},
		"the flag stayed after the change":            {"Prod", "Prod", "prod", ""},
		"the flag stayed, and the name changes again": {"Prod", "new", "prod", "--accept-new-cluster-name=Prod"},
		"a Lease of an earlier version":               {"", "Prod", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(0)
				require.NoError(t, s.named(run.Installation(row.lease), "").begin(t.Context()))
				before := s.writes
				w := s.named(row.of, row.before)
				checked, begun := w.check(t.Context()), w.begin(t.Context())
				require.Equal(t, checked, begun, "before and after the name is claimed in Temporal")
				if row.refused == "" {
					require.NoError(t, begun)
					require.Equal(t, string(row.of), s.lease.Annotations[v1alpha1.AnnotationInstallation])
					return
				}
				require.ErrorContains(t, begun, row.refused)
				require.ErrorContains(t, begun, "--cluster-name is "+string(row.of)+", ")
				require.ErrorContains(t, begun, "had the name "+row.lease+":")
				require.ErrorContains(t, begun, "take them for gone")
				require.Equal(t, before, s.writes, "nothing is overwritten")
			})
		})
	}
}

func TestTheNameOfAClusterWithoutALeaseIsNew(t *testing.T) {
	require.NoError(t, newServer(0).named("prod", "").check(t.Context()))
}

// The Lease cannot be read at once, as when the API server starts.
func TestTheNameIsCheckedWhenTheAPIServerAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(0)
		require.NoError(t, s.worker().begin(t.Context()))
		asked := 0
		s.client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			asked++
			return asked < 5, nil, errors.New("connection refused")
		})
		require.ErrorContains(t, s.named("Prod", "").check(t.Context()), "--accept-new-cluster-name=prod")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		asked = 0
		require.ErrorIs(t, s.named("Prod", "").check(ctx), context.Canceled)
	})
}

// A worker with the former name ends when one with the new name is at work: both would make machines for the same objects.
func TestAWorkerWithTheFormerNameEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(0)
		old := s.worker()
		require.NoError(t, old.begin(t.Context()))
		require.NoError(t, s.named("Prod", "prod").begin(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		require.ErrorContains(t, old.keep(ctx), "--cluster-name is prod, ")
		require.Equal(t, "Prod", s.lease.Annotations[v1alpha1.AnnotationInstallation])
	})
}
