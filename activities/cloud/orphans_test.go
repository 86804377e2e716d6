package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"millwright/activities/activitiestest"
	"millwright/activities/cloud"
	"millwright/activities/kube"
	activitiesorphan "millwright/activities/orphan"
	machinefake "millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
	"millwright/decide/orphan"
	"millwright/provider"
	"millwright/provider/fake"
)

// sweepWorker is a provider's worker whose cloud has instances. The sweeper's API server has a class and machines.
type sweepWorker struct {
	t         *testing.T
	cloud     *fake.Provider
	apiServer *machinefake.Clientset
	*cloud.Activities
}

var smallClassRef = kube.Ref{Namespace: activitiestest.TestNamespace, Name: "small", UID: "uid-small"}

func newSweepWorker(t *testing.T, objects ...runtime.Object) *sweepWorker {
	t.Helper()
	return newSweepWorkerWithCloud(t, fake.New(), objects...)
}

func newSweepWorkerWithCloud(t *testing.T, of *fake.Provider, objects ...runtime.Object) *sweepWorker {
	t.Helper()
	s := &sweepWorker{t: t, cloud: of, apiServer: machinefake.NewSimpleClientset(objects...)}
	s.Activities = &cloud.Activities{
		Cloud:   s.cloud,
		Classes: s.apiServer,
		Secrets: kubefake.NewClientset(),
		Cluster: "prod",
	}
	return s
}

// createInstances creates instances that carry the tags of these machines.
func (s *sweepWorker) createInstances(machines ...string) (ids []string) {
	for _, name := range machines {
		i := s.cloud.CreateInstanceByHand(
			provider.Class{Namespace: activitiestest.TestNamespace, Name: "small"},
			provider.Machine{Cluster: "prod", Namespace: activitiestest.TestNamespace, Name: name, UID: "uid-" + name},
		)
		ids = append(ids, i.ProviderID)
	}
	return ids
}

// findOrphans searches for orphans as if the search ran one hour from now. All instances are old enough for a sweep at
// that time.
func (s *sweepWorker) findOrphans(sightings ...orphan.Sighting) (cloud.OrphanDecision, error) {
	s.t.Helper()
	in := cloud.OrphanSearch{Class: smallClassRef, At: time.Now().Add(time.Hour), Sightings: sightings}
	return activitiestest.ExecuteActivity[cloud.OrphanDecision](
		s.t,
		s.FindOrphans,
		in,
		(*testsuite.TestActivityEnvironment).ExecuteActivity,
	)
}

func (s *sweepWorker) collectOrphan(target orphan.DeletionTarget) (cloud.OrphanCallResult, error) {
	s.t.Helper()
	in := cloud.OrphanCall{Class: smallClassRef, Target: target}
	return activitiestest.ExecuteActivity[cloud.OrphanCallResult](
		s.t,
		s.CollectOrphan,
		in,
		(*testsuite.TestActivityEnvironment).ExecuteActivity,
	)
}

func newDeletionTarget(name string, ids ...string) orphan.DeletionTarget {
	return orphan.DeletionTarget{Machine: name, UID: "uid-" + name, ProviderIDs: ids}
}

func (s *sweepWorker) remainingInstanceIDs() (ids []string) {
	for _, i := range s.cloud.Instances() {
		ids = append(ids, i.ProviderID)
	}
	return ids
}

func oldSighting(name, id string) orphan.Sighting {
	return orphan.Sighting{ProviderID: id, UID: "uid-" + name, Since: time.Now().Add(-time.Hour)}
}

func machinesResource() schema.GroupResource {
	return v1alpha1.SchemeGroupVersion.WithResource("machines").GroupResource()
}

func TestFindOrphans(t *testing.T) {
	t.Parallel()
	s := newSweepWorker(
		t,
		activitiestest.NewClass(),
		activitiestest.NewMachine("a"),
		activitiestest.NewMachine("b"),
		activitiestest.NewMachine("c"),
	)
	ids := s.createInstances("a", "b", "c", "gone", "fresh")
	s.cloud.CreateInstanceByHand(
		provider.Class{Namespace: activitiestest.TestNamespace, Name: "large"},
		provider.Machine{Cluster: "prod", Namespace: activitiestest.TestNamespace, Name: "other-class", UID: "x"},
	)
	s.cloud.CreateInstanceByHand(
		provider.Class{Namespace: activitiestest.TestNamespace, Name: "small"},
		provider.Machine{Cluster: "test", Namespace: activitiestest.TestNamespace, Name: "other-cluster", UID: "y"},
	)
	for range 2 { // running FindOrphans twice is harmless
		d, err := s.findOrphans(oldSighting("gone", ids[3]))
		require.NoError(t, err)
		assert.Equal(t, []orphan.DeletionTarget{newDeletionTarget("gone", ids[3])}, d.Collect)
		assert.Equal(t, []int{5, 3, 2}, []int{d.Instances, d.Machines, d.Orphans})
		assert.Len(t, d.Sightings, 2)
		assert.Len(t, s.remainingInstanceIDs(), 7, "it deletes nothing")
	}
}

func TestMachineInAnyPhaseKeepsItsInstance(t *testing.T) {
	t.Parallel()
	expiry := metav1.NewTime(time.Now().Add(time.Hour))
	machines := []runtime.Object{activitiestest.NewClass()}
	var names []string
	for _, p := range []v1alpha1.MachinePhase{
		"", v1alpha1.MachinePending, v1alpha1.MachineAvailable, v1alpha1.MachineRunning, v1alpha1.MachineTerminating, v1alpha1.MachineUnknown,
		v1alpha1.MachineFailed, v1alpha1.MachineCrashLoopBackOff, v1alpha1.MachineInPlaceUpdating,
	} {
		names = append(
			names,
			fmt.Sprintf("m%d", len(names)),
			fmt.Sprintf("m%d", len(names)+1),
			fmt.Sprintf("m%d", len(names)+2),
		)
		machines = append(
			machines,
			activitiestest.NewMachine(names[len(names)-3], activitiestest.WithPhase(p)),
			activitiestest.NewMachine(
				names[len(names)-2],
				activitiestest.WithPhase(p),
				func(m *v1alpha1.Machine) { m.DeletionTimestamp = &expiry },
			),
			activitiestest.NewMachine(names[len(names)-1], activitiestest.WithPhase(p), func(m *v1alpha1.Machine) {
				m.Status.CurrentStatus.PreserveExpiryTime = &expiry
				m.Spec.Class.Name, m.OwnerReferences = "large", nil // the machine now has another class, and no set
			}),
		)
	}
	s := newSweepWorker(t, machines...)
	var sightings []orphan.Sighting
	for i, id := range s.createInstances(names...) {
		sightings = append(sightings, oldSighting(names[i], id))
	}
	d, err := s.findOrphans(sightings...)
	require.NoError(t, err)
	assert.Equal(t, len(names), d.Instances)
	assert.Zero(t, d.Orphans)
	assert.Empty(t, d.Sightings)
}

// The cloud is read before the machines, so the list of machines includes a machine that is created in between.
func TestMachineCreatedDuringSearchIsSeen(t *testing.T) {
	t.Parallel()
	s := newSweepWorker(t, activitiestest.NewClass(), activitiestest.NewMachine("a"))
	id := s.createInstances("late")[0]
	s.apiServer.PrependReactor("list", "machines", func(clienttesting.Action) (bool, runtime.Object, error) {
		assert.Equal(t, 1, s.cloud.CallCount(provider.MethodListInstances), "the cloud was asked before")
		return true, &v1alpha1.MachineList{
			Items: []v1alpha1.Machine{*activitiestest.NewMachine("a"), *activitiestest.NewMachine("late")},
		}, nil
	})
	d, err := s.findOrphans(oldSighting("late", id))
	require.NoError(t, err)
	assert.Zero(t, d.Orphans)
}

func TestMachinesAreListedInPagesWithoutCaches(t *testing.T) {
	t.Parallel()
	s := newSweepWorker(t, activitiestest.NewClass())
	id := s.createInstances("second")[0]
	pages := 0
	fails := false
	s.apiServer.PrependReactor("list", "machines", func(action clienttesting.Action) (bool, runtime.Object, error) {
		options := action.(clienttesting.ListActionImpl).ListOptions
		assert.Equal(t, int64(500), options.Limit)
		assert.Empty(t, options.ResourceVersion, "what the API server has agreed upon")
		pages++
		if options.Continue == "" {
			return true, &v1alpha1.MachineList{
				ListMeta: metav1.ListMeta{Continue: "more"},
				Items:    []v1alpha1.Machine{*activitiestest.NewMachine("first")},
			}, nil
		}
		assert.Equal(t, "more", options.Continue)
		if fails {
			return true, nil, apierrors.NewResourceExpired("too old")
		}
		return true, &v1alpha1.MachineList{Items: []v1alpha1.Machine{*activitiestest.NewMachine("second")}}, nil
	})
	d, err := s.findOrphans(oldSighting("second", id))
	require.NoError(t, err)
	assert.Equal(t, []int{2, 2, 0}, []int{pages, d.Machines, d.Orphans})
	fails = true
	_, err = s.findOrphans(oldSighting("second", id))
	require.Error(t, err, "half of the machines are none")
}

func TestFindOrphansFailsWithoutAnswer(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		breaks    func(*sweepWorker)
		kind      string // expected error type; empty: the error is the API server's text
		retryable bool
	}{
		"the API server is away": {func(s *sweepWorker) {
			activitiestest.FailRequests(s.apiServer, "list", "machines", -1, errors.New("connection refused"), nil)
		}, "", true},
		"the resource is gone": {func(s *sweepWorker) {
			activitiestest.FailRequests(s.apiServer, "list", "machines", -1, apierrors.NewNotFound(machinesResource(), ""), nil)
		}, kube.FailureTypeRefused, false},
		"we may not list": {func(s *sweepWorker) {
			activitiestest.FailRequests(s.apiServer, "list", "machines", -1, apierrors.NewForbidden(machinesResource(), "", errors.New("no")), nil)
		}, "", true},
		"we may not read the class": {func(s *sweepWorker) {
			activitiestest.FailRequests(s.apiServer, "get", "machineclasses", -1, apierrors.NewForbidden(machinesResource(), "", errors.New("no")), nil)
		}, "", true},
		"the cloud is away": {func(s *sweepWorker) {
			s.cloud.FailCalls(provider.MethodListInstances, 0, provider.Errorf(provider.Unavailable, "away"))
		}, "Unavailable", true},
		"the cloud does not let us in": {func(s *sweepWorker) {
			s.cloud.FailCalls(provider.MethodListInstances, 0, provider.Errorf(provider.Unauthenticated, "who are you"))
		}, "Unauthenticated", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSweepWorker(t, activitiestest.NewClass(), activitiestest.NewMachine("a"))
			s.createInstances("gone")
			row.breaks(s)
			d, err := s.findOrphans()
			require.Error(t, err)
			assert.Equal(t, cloud.OrphanDecision{}, d)
			if row.kind != "" {
				activitiestest.AssertFailure(t, err, row.kind, row.retryable)
			} else {
				_, retryable := activitiestest.FailureTypeOf(t, err)
				assert.True(t, retryable)
			}
		})
	}
	t.Run("the Secret is missing", func(t *testing.T) {
		s := newSweepWorker(
			t,
			activitiestest.NewClass(
				func(c *v1alpha1.MachineClass) {
					c.SecretRef = activitiestest.NewSecretRef(activitiestest.TestNamespace, "missing")
				},
			),
		)
		_, err := s.findOrphans()
		activitiestest.AssertFailure(t, err, v1alpha1.ReasonSecretNotFound, false)
		assert.Zero(t, s.cloud.CallCount(provider.MethodListInstances))
	})
	t.Run("no machine at all: moved control plane", func(t *testing.T) {
		s := newSweepWorker(t, activitiestest.NewClass())
		d, err := s.findOrphans(oldSighting("gone", s.createInstances("gone")[0]))
		require.NoError(t, err)
		assert.Empty(t, d.Collect)
		assert.Contains(t, d.Held, "moved or restored control plane")
	})
	t.Run("and a person who lets one go", func(t *testing.T) {
		s := newSweepWorker(t, activitiestest.NewClass(func(c *v1alpha1.MachineClass) {
			c.Annotations = map[string]string{
				v1alpha1.AnnotationCollectOrphans: "1 until " + time.Now().Add(2*time.Hour).UTC().Format(time.RFC3339),
			}
		}))
		d, err := s.findOrphans(oldSighting("gone", s.createInstances("gone")[0]))
		require.NoError(t, err)
		assert.Len(t, d.Collect, 1)
	})
}

func TestSweepEndsIfClassIsGone(t *testing.T) {
	t.Parallel()
	for name, objects := range map[string][]runtime.Object{
		"gone":                     nil,
		"another one has its name": {activitiestest.NewClass(func(c *v1alpha1.MachineClass) { c.UID = "other" })},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSweepWorker(t, objects...)
			ids := s.createInstances("gone")
			d, err := s.findOrphans()
			require.NoError(t, err)
			assert.Equal(t, cloud.OrphanDecision{Gone: true}, d)
			assert.Zero(t, s.cloud.CallCount(provider.MethodListInstances))
			end, err := s.collectOrphan(newDeletionTarget("gone", ids...))
			require.NoError(t, err)
			assert.Equal(t, "MachineClass shop/small is gone", end.Kept)
			assert.Equal(t, ids, s.remainingInstanceIDs())
		})
	}
}

func TestCollectOrphan(t *testing.T) {
	t.Parallel()
	s := newSweepWorker(
		t,
		activitiestest.NewClass(),
		activitiestest.NewMachine("a"),
		activitiestest.NewMachine("new", func(m *v1alpha1.Machine) { m.UID = "uid-of-the-new-one" }),
	)
	ids := s.createInstances("a", "gone", "gone", "new")
	for _, target := range []orphan.DeletionTarget{newDeletionTarget("gone", ids[1], ids[2]), newDeletionTarget("new", ids[3])} {
		for range 2 { // running CollectOrphan twice is harmless
			end, err := s.collectOrphan(target)
			require.NoError(t, err)
			assert.Equal(t, cloud.OrphanCallResult{}, end)
		}
	}
	assert.Equal(t, ids[:1], s.remainingInstanceIDs())
}

// Instances of MCM's drivers carry names and no UID.
func TestSweepMatchesInstancesByNameIfCloudHasNoUIDs(t *testing.T) {
	t.Parallel()
	s := newSweepWorkerWithCloud(
		t,
		fake.New(fake.WithNamedInstances()),
		activitiestest.NewClass(),
		activitiestest.NewMachine("a"),
	)
	ids := s.createInstances("a", "gone", "a")
	found, err := s.findOrphans(orphan.Sighting{ProviderID: ids[1], Since: time.Now().Add(-time.Hour)})
	require.NoError(t, err)
	assert.Equal(t, []orphan.DeletionTarget{{Machine: "gone", ProviderIDs: ids[1:2]}}, found.Collect)

	end, err := s.collectOrphan(orphan.DeletionTarget{Machine: "a", ProviderIDs: ids[2:]})
	require.NoError(t, err)
	assert.Equal(t, "Machine a has the name of the instance", end.Kept)
	for range 2 { // running CollectOrphan twice is harmless
		end, err := s.collectOrphan(found.Collect[0])
		require.NoError(t, err)
		assert.Equal(t, cloud.OrphanCallResult{}, end)
	}
	assert.Equal(t, []string{ids[0], ids[2]}, s.remainingInstanceIDs(), "of one name, the one that is deleted has its ID")
}

func TestCollectOrphanKeepsClaimedInstances(t *testing.T) {
	t.Parallel()
	s := newSweepWorker(
		t,
		activitiestest.NewClass(),
		activitiestest.NewMachine("back"),
		activitiestest.NewMachine(
			"restored",
			func(m *v1alpha1.Machine) { m.UID, m.Spec.ProviderID = "other", "fake:///i-2" },
		),
		activitiestest.NewMachine("leaving", func(m *v1alpha1.Machine) { m.DeletionTimestamp = new(metav1.Now()) }),
	)
	ids := s.createInstances("back", "restored", "leaving")
	for _, row := range []struct {
		name, machine, id, want string
	}{
		{"exists again", "back", ids[0], "Machine back exists"},
		{"has another UID by now", "restored", ids[1], "Machine restored names instance fake:///i-2"},
		{"is being deleted", "leaving", ids[2], "Machine leaving exists"}, // the machine's pods may still run
	} {
		t.Run(row.name, func(t *testing.T) {
			end, err := s.collectOrphan(newDeletionTarget(row.machine, row.id))
			require.NoError(t, err)
			assert.Equal(t, row.want, end.Kept)
		})
	}
	assert.Equal(t, ids, s.remainingInstanceIDs())
	assert.Zero(t, s.cloud.CallCount(provider.MethodDeleteInstance))
}

func TestCollectOrphanFailsWithoutAnswer(t *testing.T) {
	t.Parallel()
	unserved := apierrors.NewGenericServerResponse(404, "GET", machinesResource(), "gone", "404 page not found", 0, true)
	require.True(t, apierrors.IsNotFound(unserved), "it looks like a machine that does not exist")
	for name, err := range map[string]error{
		"the API server is away":        errors.New("connection refused"),
		"it does not know the resource": unserved,
		"we may not look":               apierrors.NewForbidden(machinesResource(), "gone", errors.New("no")),
		"too many requests":             apierrors.NewTooManyRequests("later", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSweepWorker(t, activitiestest.NewClass())
			ids := s.createInstances("gone")
			activitiestest.FailRequests(s.apiServer, "list", "machines", -1, err, nil)
			_, got := s.collectOrphan(newDeletionTarget("gone", ids...))
			require.Error(t, got)
			assert.Equal(t, ids, s.remainingInstanceIDs())
		})
	}
}

func TestCollectOrphanWaitsUntilTheInstanceIsGone(t *testing.T) {
	t.Parallel()
	s := newSweepWorker(t, activitiestest.NewClass())
	ids := s.createInstances("gone")
	s.cloud.HoldDeletions()
	_, err := s.collectOrphan(newDeletionTarget("gone", ids...))
	activitiestest.AssertFailure(t, err, kube.FailureTypeTerminating, true)
	s.cloud.FinishDeletions()
	end, err := s.collectOrphan(newDeletionTarget("gone", ids...))
	require.NoError(t, err)
	assert.Empty(t, end.Kept)
}

func TestCollectOrphanReturnsCloudError(t *testing.T) {
	t.Parallel()
	s := newSweepWorker(
		t,
		activitiestest.NewClass(
			func(c *v1alpha1.MachineClass) {
				c.SecretRef = activitiestest.NewSecretRef(activitiestest.TestNamespace, "small")
			},
		),
	)
	s.Secrets = kubefake.NewClientset(activitiestest.NewSecret("small", map[string]string{"token": "canary-of-the-cloud"}))
	ids := s.createInstances("gone")
	for _, method := range []provider.Method{provider.MethodDeleteInstance, provider.MethodInstanceStatus} {
		s.cloud.FailCalls(method, 1, provider.Errorf(provider.PermissionDenied, "canary-of-the-cloud may not"))
		_, err := s.collectOrphan(newDeletionTarget("gone", ids...))
		activitiestest.AssertFailure(t, err, "PermissionDenied", false)
		assert.NotContains(t, err.Error(), "canary")
	}
}

func TestCancelledSweepHidesProviderError(t *testing.T) {
	t.Parallel()
	s := newSweepWorker(t, activitiestest.NewClass())
	s.cloud.FailCalls(
		provider.MethodListInstances,
		0,
		provider.Errorf(provider.Unauthenticated, "what was sent is canary"),
	)
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	ctx, cancel := context.WithCancel(t.Context())
	env.SetWorkerOptions(worker.Options{BackgroundActivityContext: ctx})
	env.RegisterActivity(s.Activities)
	s.apiServer.PrependReactor("get", "machineclasses", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel()
		return false, nil, nil
	})
	_, err := env.ExecuteActivity(s.FindOrphans, cloud.OrphanSearch{Class: smallClassRef})
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "canary")
}

func TestReportOrphans(t *testing.T) {
	for _, row := range []struct {
		name   string
		report activitiesorphan.Report
		told   []string
		result string
	}{
		{"nothing", activitiesorphan.Report{}, []string{}, "clean"},
		{"collected", activitiesorphan.Report{Collected: []string{"i-1", "i-2"}}, []string{"Normal OrphansCollected Deleted instances that no Machine claims (2): i-1, i-2"}, "collected"},
		{"held", activitiesorphan.Report{Held: "too many"}, []string{"Warning OrphansHeld too many"}, "held"},
		{"failed", activitiesorphan.Report{Failed: "away"}, []string{"Warning OrphanSweepFailed away"}, "failed"},
		{"unclear", activitiesorphan.Report{Unclear: []string{"one", "two"}}, []string{"Warning InstancesUnclear one; two"}, "clean"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, registry := activitiestest.NewWorld(t), prometheus.NewRegistry()
			w.Metrics = kube.NewMetrics(registry)
			row.report.Class = smallClassRef
			_, err := activitiestest.RunActivity[any](w, (&activitiesorphan.Activities{Kube: w.Kube}).ReportOrphans, row.report)
			require.NoError(t, err)
			assert.Equal(t, row.told, w.TakeNewEvents())
			assert.InDelta(t, 1, counterSum(t, registry, "millwright_orphan_sweeps_total", row.result), 0)
			assert.InDelta(t, len(row.report.Collected), counterSum(t, registry, "millwright_orphans_collected_total", ""), 0)
			assert.Empty(t, w.MutatingRequests())
		})
	}
	t.Run("a worker without metrics", func(t *testing.T) {
		w := activitiestest.NewWorld(t)
		_, err := activitiestest.RunActivity[any](
			w,
			(&activitiesorphan.Activities{Kube: w.Kube}).ReportOrphans,
			activitiesorphan.Report{Class: smallClassRef, Collected: slices.Repeat([]string{"i-1234567890"}, 200)},
		)
		require.NoError(t, err)
		assert.Less(t, len(w.TakeNewEvents()[0]), 1100, "events hold 1 KiB")
	})
}

// counterSum returns the sum of a counter's samples with this label value, or of all samples if label is empty.
func counterSum(t *testing.T, registry *prometheus.Registry, name, label string) (sum float64) {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if family.GetName() == name && (l.GetValue() == label || (label == "" && l.GetName() == "class")) {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}
