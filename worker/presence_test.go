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
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/process/problems"
	"millwright/worker/serve"
	"millwright/workflows/run"
)

// leaseServer is an API server with one Lease. The server's clock is ahead of the workers' clocks by skew.
type leaseServer struct {
	client     *fake.Clientset
	clockSkew  time.Duration
	lease      *coordinationv1.Lease
	writeError error // error that all further writes return
	writeCount int   // number of writes
}

func newLeaseServer(skew time.Duration) *leaseServer {
	s := &leaseServer{client: fake.NewClientset(), clockSkew: skew}
	write := func(action clienttesting.Action) (bool, runtime.Object, error) {
		if s.writeError != nil {
			return true, nil, s.writeError
		}
		at := metav1.NewTime(s.currentTime())
		lease := action.(interface{ GetObject() runtime.Object }).GetObject().(*coordinationv1.Lease).DeepCopy()
		if s.lease != nil && lease.ResourceVersion != s.lease.ResourceVersion {
			return true, nil, apierrors.NewConflict(
				schema.GroupResource{Resource: "leases"},
				lease.Name,
				errors.New("it has another version"),
			)
		}
		s.writeCount++
		lease.ResourceVersion = strconv.Itoa(s.writeCount)
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

// currentTime returns the API server's time.
func (s *leaseServer) currentTime() time.Time {
	return time.Now().Add(s.clockSkew).Truncate(time.Second)
}

// testWorker is a worker that starts now.
type testWorker struct {
	*workersLeaseRenewer
	absences      cache.WorkerAbsences
	registry      *prometheus.Registry // registry of the worker's metrics
	temporalError error                // error of Temporal
}

func (s *leaseServer) newWorker() *testWorker {
	c := &testWorker{registry: prometheus.NewRegistry()}
	c.workersLeaseRenewer = &workersLeaseRenewer{
		leases: s.client.CoordinationV1().
			Leases("millwright"),
		installation:     "prod",
		scope:            cache.NamespaceScope{OnlyNamespaces: []string{"shop"}},
		identity:         "w",
		heartbeat:        serve.NewHeartbeatGauge(c.registry),
		recorder:         problems.New("prod"),
		log:              slog.New(slog.DiscardHandler),
		checkTemporal:    func(context.Context) error { return c.temporalError },
		onWorkerAbsences: func(a cache.WorkerAbsences) { c.absences = a },
	}
	return c
}

// lastHeartbeat returns the value of the worker's heartbeat metric.
func (c *testWorker) lastHeartbeat(t *testing.T) time.Time {
	t.Helper()
	families, err := c.registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 1)
	return time.Unix(int64(families[0].GetMetric()[0].GetGauge().GetValue()), 0)
}

// startAndRenewLease starts the Lease renewer and renews the Lease for the duration d.
func (c *testWorker) startAndRenewLease(t *testing.T, d time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	require.NoError(t, c.renewForTheFirstTime(ctx))
	require.NoError(t, c.keepRenewingLease(ctx))
}

func TestWorkerAbsencesAreRecorded(t *testing.T) {
	t.Run("none runs for ten minutes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newLeaseServer(8 * time.Minute)
			first := s.newWorker()
			first.startAndRenewLease(t, 61*time.Second)
			require.Empty(t, first.absences)
			require.Equal(t, "prod", s.lease.Annotations[v1alpha1.AnnotationInstallation])
			require.Equal(t, "namespaces shop", cache.ScopeOfLease(s.lease).String())
			from := s.currentTime().Add(-time.Second) // time of the last renewal
			time.Sleep(10 * time.Minute)
			second := s.newWorker()
			require.NoError(t, second.renewForTheFirstTime(t.Context()))
			require.Equal(t, cache.WorkerAbsences{{From: from.UTC(), To: s.currentTime().UTC()}}, second.absences)
			third := s.newWorker()
			require.NoError(t, third.renewForTheFirstTime(t.Context()))
			require.Equal(t, second.absences, third.absences, "an absence is recorded once")
		})
	})
	t.Run("a restart, or one of two workers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newLeaseServer(0)
			one, two := s.newWorker(), s.newWorker()
			one.startAndRenewLease(t, 45*time.Second)
			time.Sleep(50 * time.Second)
			two.startAndRenewLease(t, 5*time.Minute)
			require.NoError(t, one.renewForTheFirstTime(t.Context()), "it was stopped for five minutes, while the other worked")
			require.Empty(t, one.absences)
			require.Empty(t, two.absences)
		})
	})
	t.Run("Temporal or the API server does not answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newLeaseServer(0)
			w := s.newWorker()
			require.NoError(t, w.renewForTheFirstTime(t.Context()))
			w.keepRenewingForDuration(t, time.Minute)
			w.temporalError = errors.New("unavailable")
			silent := time.Now()
			w.keepRenewingForDuration(t, 3*time.Minute)
			assert.WithinDuration(t, silent, w.lastHeartbeat(t), renewInterval+time.Second)
			w.temporalError = nil
			w.keepRenewingForDuration(t, 2*time.Minute)
			s.writeError = errors.New("connection refused")
			w.keepRenewingForDuration(t, 2*time.Minute)
			s.writeError = nil
			w.keepRenewingForDuration(t, 2*time.Minute)
			assert.WithinDuration(t, time.Now(), w.lastHeartbeat(t), renewInterval+time.Second)
			require.Len(t, w.absences, 2)
			assert.InDelta(t, 3, w.absences[0].To.Sub(w.absences[0].From).Minutes(), 0.4)
			assert.InDelta(t, 2, w.absences[1].To.Sub(w.absences[1].From).Minutes(), 0.4)
		})
	})
	t.Run("Temporal refuses the worker, and the Lease says so", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newLeaseServer(0)
			w := s.newWorker()
			w.leases = w.recorder.WrapLeaseClient(w.leases, w.identity)
			require.NoError(t, w.renewForTheFirstTime(t.Context()))
			w.keepRenewingForDuration(t, time.Minute)
			renewed := s.lease.Spec.RenewTime
			w.temporalError = errors.New("denied")
			refuse := func(err error) {
				_ = w.recorder.InterceptTemporal(t.Context(), "/service/DescribeNamespace", nil, nil, nil,
					func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return err })
			}
			denied := status.Error(codes.PermissionDenied, "Request unauthorized.")
			refuse(denied)
			time.Sleep(3 * time.Second)
			refuse(denied)
			w.keepRenewingForDuration(t, 3*time.Minute)
			require.Equal(t, renewed, s.lease.Spec.RenewTime, "the worker is not at work")
			require.Len(t, problems.ReadReports(s.lease, time.Now()), 1)
			require.Equal(t, "Request unauthorized.", problems.ReadReports(s.lease, time.Now())[0].Problems[0].Message)
			w.temporalError = nil
			refuse(nil)
			w.keepRenewingForDuration(t, time.Minute)
			require.Empty(t, problems.ReadReports(s.lease, time.Now()))
			require.Len(t, w.absences, 1, "the reports hide no absence")
			assert.InDelta(t, 3, w.absences[0].To.Sub(w.absences[0].From).Minutes(), 0.4)
		})
	})
	t.Run("a worker that dies between the two writes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newLeaseServer(0)
			s.newWorker().startAndRenewLease(t, time.Second)
			from := s.currentTime()
			time.Sleep(10 * time.Minute)
			writes := 0
			s.client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
				if writes++; writes == 2 {
					return true, nil, errors.New("killed")
				}
				return false, nil, nil
			})
			require.Error(t, s.newWorker().readAndRenewLease(t.Context()))
			time.Sleep(30 * time.Second)
			next := s.newWorker()
			require.NoError(t, next.renewForTheFirstTime(t.Context()))
			require.Len(t, next.absences, 1)
			assert.Equal(t, 10*time.Minute+30*time.Second, next.absences[0].To.Sub(next.absences[0].From).Round(10*time.Second))
			assert.WithinDuration(t, from, next.absences[0].From, 2*time.Second)
		})
	})
	t.Run("a single worker makes one request for each renewal", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newLeaseServer(0)
			w := s.newWorker()
			require.NoError(t, w.renewForTheFirstTime(t.Context()))
			s.client.ClearActions()
			w.keepRenewingForDuration(t, 10*time.Minute)
			assert.InDelta(t, 40, len(s.client.Actions()), 1)
			s.newWorker().startAndRenewLease(t, time.Second)
			s.client.ClearActions()
			w.keepRenewingForDuration(t, 16*time.Second)
			assert.Len(t, s.client.Actions(), 3, "a conflict with another worker, a read, a write")
			assert.WithinDuration(t, time.Now(), w.lastHeartbeat(t), 2*time.Second)
		})
	})
	t.Run("another worker is faster", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newLeaseServer(0)
			w := s.newWorker()
			require.NoError(t, w.renewForTheFirstTime(t.Context()))
			s.writeError = apierrors.NewConflict(
				schema.GroupResource{Resource: "leases"},
				v1alpha1.LeaseWorkers,
				errors.New("changed"),
			)
			w.keepRenewingForDuration(t, 30*time.Second)
			require.False(t, w.isFailing)
		})
	})
}

// After renewForTheFirstTime, keepRenewingForDuration renews the Lease for the duration d.
func (c *testWorker) keepRenewingForDuration(t *testing.T, d time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	require.NoError(t, c.keepRenewingLease(ctx))
}

// newWorkerWithInstallation returns a worker with this --cluster-name and --accept-new-cluster-name.
func (s *leaseServer) newWorkerWithInstallation(of, before run.Installation) *testWorker {
	c := s.newWorker()
	c.installation, c.formerInstallation = of, before
	return c
}

// Instances have a tag with the installation name. With another name, Millwright would find no instances and would
// regard all of them as gone.
func TestChangedInstallationNameIsRefused(t *testing.T) {
	for name, row := range map[string]struct {
		lease      string // installation name in the Lease; may be empty
		of, before run.Installation
		refused    string // part of the expected error; empty if renewForTheFirstTime succeeds
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
				s := newLeaseServer(0)
				require.NoError(t, s.newWorkerWithInstallation(run.Installation(row.lease), "").renewForTheFirstTime(t.Context()))
				before := s.writeCount
				w := s.newWorkerWithInstallation(row.of, row.before)
				checked, begun := w.checkInstallation(t.Context()), w.renewForTheFirstTime(t.Context())
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
				require.Equal(t, before, s.writeCount, "nothing is overwritten")
			})
		})
	}
}

func TestCheckInstallationWithoutALease(t *testing.T) {
	require.NoError(t, newLeaseServer(0).newWorkerWithInstallation("prod", "").checkInstallation(t.Context()))
}

// While the API server starts, the first reads of the Lease fail.
func TestInstallationNameIsCheckedWhenTheAPIServerAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLeaseServer(0)
		require.NoError(t, s.newWorker().renewForTheFirstTime(t.Context()))
		asked := 0
		s.client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			asked++
			return asked < 5, nil, errors.New("connection refused")
		})
		require.ErrorContains(
			t,
			s.newWorkerWithInstallation("Prod", "").checkInstallation(t.Context()),
			"--accept-new-cluster-name=prod",
		)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		asked = 0
		require.ErrorIs(t, s.newWorkerWithInstallation("Prod", "").checkInstallation(ctx), context.Canceled)
	})
}

// If a worker with a new installation name has renewed the Lease, a worker with the old name stops. Otherwise both
// workers would create machines for the same objects.
func TestWorkerWithFormerInstallationNameStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLeaseServer(0)
		old := s.newWorker()
		require.NoError(t, old.renewForTheFirstTime(t.Context()))
		require.NoError(t, s.newWorkerWithInstallation("Prod", "prod").renewForTheFirstTime(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		require.ErrorContains(t, old.keepRenewingLease(ctx), "--cluster-name is prod, ")
		require.Equal(t, "Prod", s.lease.Annotations[v1alpha1.AnnotationInstallation])
	})
}

// Without some of its shards, an installation would not serve the namespaces of these shards.
func TestAWorkerWithFewerShardsThanTheInstallationIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLeaseServer(0)
		workerWith := func(shards int) *testWorker {
			w := s.newWorkerWithInstallation("prod", "")
			w.shardCount = shards
			return w
		}
		require.NoError(t, workerWith(1).renewForTheFirstTime(t.Context()))
		require.NotContains(t, s.lease.Annotations, v1alpha1.AnnotationShards)
		require.NoError(t, workerWith(4).renewForTheFirstTime(t.Context()))
		require.Equal(t, "4", s.lease.Annotations[v1alpha1.AnnotationShards])
		require.EqualError(
			t,
			workerWith(2).checkInstallation(t.Context()),
			"--shards=2: the workers of this installation have served 4 shards, and the number cannot decrease, because nobody would serve the namespaces of the other shards",
		)
		require.NoError(t, workerWith(4).checkInstallation(t.Context()))
		require.NoError(t, workerWith(2).renewForTheFirstTime(t.Context()), "a worker that runs while the number grows")
		require.Equal(t, "4", s.lease.Annotations[v1alpha1.AnnotationShards])
	})
}
