//go:build integration && (bench || endurance)

package bench

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/decide/rollout/simulate"
	"millwright/test/bench"
	"millwright/test/integration/rig"
	"millwright/workflows/deployment"
	"millwright/workflows/run"
)

// A fleet is a pool that is rolled.
type fleet struct {
	namespace    string
	size, surge  int
	spec         string        // of the class; empty: instances without latencies
	create, gone time.Duration // mean latencies of the spec
	spread       time.Duration // by how much a creation takes more or less, evenly
}

func TestRolloutOf100(t *testing.T) {
	roll(
		t,
		fleet{namespace: "rolled", size: 100, surge: 10},
		bench.Bar{Of: bench.Seconds, Aim: 14},
		bench.Bar{Of: bench.Requests, Aim: 20},
	)
}

func TestRolloutOf500(t *testing.T) {
	roll(
		t,
		fleet{namespace: "rolled-500", size: 500, surge: 50},
		bench.Bar{Of: bench.Seconds, Aim: 60},
		bench.Bar{Of: bench.Requests, Aim: 20},
	)
}

func TestRolloutWithShortLatencies(t *testing.T) {
	roll(t, fleet{
		namespace: "brief", size: 100, surge: 10, create: 2 * time.Second, gone: time.Second,
		spec: `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"2s","deleteLatency":"1s"}`,
	})
}

func TestRolloutWithLatenciesOfACloud(t *testing.T) {
	roll(t, fleet{
		namespace: "cloudy",
		size:      100,
		surge:     10,
		create:    20 * time.Second,
		spread:    5 * time.Second,
		gone:      10 * time.Second,
		spec:      `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"20s","createSpread":"5s","deleteLatency":"10s"}`,
	}, bench.Bar{Of: bench.Ratio, Aim: 1.08})
}

// roll measures a rollout of a fleet whose machines are calm before.
func roll(t *testing.T, f fleet, bars ...bench.Bar) {
	r.Namespace(t, f.namespace, f.spec)
	pool := r.Pool(t, f.namespace, "pool", int32(f.size), func(d *v1alpha1.MachineDeployment) {
		d.Spec.Strategy.RollingUpdate = &v1alpha1.RollingUpdateMachineDeployment{
			UpdateConfiguration: v1alpha1.UpdateConfiguration{
				MaxSurge: new(intstr.FromInt(f.surge)), MaxUnavailable: new(intstr.FromInt32(0)),
			},
		}
	})
	pool.AwaitRunning(t, f.size)
	awaitCalm(t, pool)
	hops := record(t, f.namespace)
	load := bench.Load{Name: fmt.Sprintf("rolling %d, surge %d", f.size, f.surge), Machines: f.size, Bars: bars}
	if f.create > 0 {
		load.Name += fmt.Sprintf(", %s to create, %s to delete", f.create, f.gone)
		load.Ideal = f.ideal(t).Seconds()
	}
	l := measure(t, load, func() {
		pool.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"edition":"2"}}}}}`)
		f.awaitRolled(t, pool)
	})
	machines := pool.Machines(t)
	require.Len(t, machines, f.size)
	for _, m := range machines {
		require.Equal(t, "2", m.Labels["edition"])
		require.Equal(t, v1alpha1.MachineRunning, m.Status.CurrentStatus.Phase)
	}
	rig.Eventually(
		t,
		"the rollout has ended",
		func() (bool, any) { open := r.OpenWorkflows(t, pool.Namespace); return open["Rollout"] == 0, open },
	)
	l.Hops = hops.report(f.create, f.gone)
	f.reportRollout(t)
	pool.Delete(t)
	pool.AwaitGone(t)
}

// awaitRolled waits until the status says that all machines are of the new template.
func (f fleet) awaitRolled(t *testing.T, pool *rig.Pool) {
	t.Helper()
	awaitCounts(t, pool, int32(f.size), func(d *v1alpha1.MachineDeployment) bool {
		return d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == int32(f.size)
	})
}

// awaitCounts waits until the status of a deployment counts n machines, all available, and as says so. It watches: to
// ask again and again would be a load of its own.
func awaitCounts(t *testing.T, pool *rig.Pool, n int32, as func(*v1alpha1.MachineDeployment) bool) {
	t.Helper()
	d := pool.Deployment(t)
	reached := func() bool { return d.Status.AvailableReplicas == n && d.Status.Replicas == n && as(d) }
	deployments := must(
		r.Machines.MachineV1alpha1().
			MachineDeployments(d.Namespace).
			Watch(bounded(t, 15*time.Minute), metav1.SingleObject(metav1.ObjectMeta{Name: d.Name, ResourceVersion: d.ResourceVersion})),
	)
	defer deployments.Stop()
	for !reached() {
		e, open := <-deployments.ResultChan()
		require.True(t, open, "the watch ended before %d machines were counted: %v", n, d.Status)
		var is bool
		d, is = e.Object.(*v1alpha1.MachineDeployment)
		require.True(t, is, "%s: %v", e.Type, e.Object)
	}
}

// grow gives a deployment another size, and waits until that many machines run.
func grow(t *testing.T, pool *rig.Pool, n int) {
	t.Helper()
	pool.Scale(t, n)
	awaitCounts(t, pool, int32(n), func(d *v1alpha1.MachineDeployment) bool {
		return d.Status.ReadyReplicas == int32(n) && d.Status.UpdatedReplicas == int32(n)
	})
	pool.AwaitRunning(t, n)
}

// ideal returns how long the rollout would take if decisions cost no time. Latencies with a spread are drawn at random,
// and the median of 101 draws counts: machines that wait for a slow one make a rollout longer than the mean latency
// says.
func (f fleet) ideal(t *testing.T) time.Duration {
	t.Helper()
	dice := rand.New(rand.NewPCG(1, 2))
	draws := 1
	if f.spread > 0 {
		draws = 101
	}
	var all []time.Duration
	for range draws {
		took, complete := simulate.IdealOf(f.before(), func() time.Duration {
			return f.create + time.Duration((dice.Float64()*2-1)*float64(f.spread))
		}, f.gone)
		require.True(t, complete)
		all = append(all, took)
	}
	slices.Sort(all)
	return all[draws/2]
}

// before returns the facts of the fleet at the moment at which its template changes.
func (f fleet) before() rollout.Observed {
	o := rollout.Observed{
		Settings: rollout.Settings{
			Replicas: f.size,
			Strategy: rollout.RollingUpdate,
			Surge:    rollout.Bound{Value: f.surge},
		},
		Now: time.Now(),
	}
	old := rollout.Set{
		Name:     "old",
		UID:      "old",
		Replicas: f.size,
		Counted:  f.size,
		ActedOn:  f.size,
		Revision: 1,
		Desired:  f.size,
		Max:      f.size + f.surge,
	}
	for i := range f.size {
		name := fmt.Sprintf("m-%03d", i)
		old.Machines = append(
			old.Machines,
			rollout.Member{Name: name, UID: name, MCM: rollout.MCMMember{Node: name}, Ready: true, Available: true, Priority: 3},
		)
	}
	o.Sets = []rollout.Set{old}
	return o
}

// reportRollout tells how the rollout ended.
func (f fleet) reportRollout(t *testing.T) {
	t.Helper()
	runs := r.Workflows(t, fmt.Sprintf("WorkflowType = %q AND MachineNamespace = %q", run.KindRollout, f.namespace))
	require.Len(t, runs, 1)
	var result deployment.RolloutResult
	require.NoError(t, r.Temporal.GetWorkflow(t.Context(), runs[0].Execution.WorkflowId, "").Get(t.Context(), &result))
	require.Equal(t, deployment.OutcomeCompleted, result.Outcome)
	require.Equal(t, f.size, result.Replaced)
	t.Logf(
		"its workflow: %s, %d events; slowest step %s: %s; waited %v",
		result.Took,
		runs[0].HistoryLength,
		result.SlowTook,
		result.Slowest,
		result.Waited,
	)
}

// hops are the times between one thing and the next in a rollout, as a watcher of the API server sees them.
type hops struct {
	mu       sync.Mutex
	created  map[types.UID]time.Time
	ran      map[types.UID]time.Time
	doomed   map[types.UID]time.Time
	sizes    map[string]int32
	last     map[string]time.Time // by what happened: when it did last
	measured map[string][]time.Duration
}

// record watches machines and sets of a namespace until the test ends.
func record(t *testing.T, namespace string) *hops {
	t.Helper()
	h := &hops{
		created: map[types.UID]time.Time{}, ran: map[types.UID]time.Time{}, doomed: map[types.UID]time.Time{},
		sizes: map[string]int32{}, last: map[string]time.Time{}, measured: map[string][]time.Duration{},
	}
	api := r.Machines.MachineV1alpha1()
	for _, m := range must(api.Machines(namespace).List(t.Context(), metav1.ListOptions{})).Items {
		h.created[m.UID], h.ran[m.UID] = time.Time{}, time.Time{}
	}
	for _, s := range must(api.MachineSets(namespace).List(t.Context(), metav1.ListOptions{})).Items {
		h.sizes[s.Name] = s.Spec.Replicas
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	for _, w := range []watch.Interface{
		must(api.Machines(namespace).Watch(ctx, metav1.ListOptions{})), must(api.MachineSets(namespace).Watch(ctx, metav1.ListOptions{})),
	} {
		go func() {
			for e := range w.ResultChan() {
				h.take(e)
			}
		}()
	}
	return h
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (h *hops) take(e watch.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	switch o := e.Object.(type) {
	case *v1alpha1.Machine:
		h.machine(now, e.Type, o)
	case *v1alpha1.MachineSet:
		was, known := h.sizes[o.Name]
		h.sizes[o.Name] = o.Spec.Replicas
		switch {
		case !known || o.Spec.Replicas > was:
			h.since("5 gone -> new set larger", "gone", now)
			h.last["larger"] = now
		case o.Spec.Replicas < was:
			h.since("3 Running -> old set smaller", "ran", now)
			h.last["smaller"] = now
		}
	}
}

func (h *hops) machine(now time.Time, kind watch.EventType, m *v1alpha1.Machine) {
	_, known := h.created[m.UID]
	_, ran := h.ran[m.UID]
	_, doomed := h.doomed[m.UID]
	switch {
	case kind == watch.Deleted:
		h.add("4b deleted -> gone", now.Sub(h.doomed[m.UID]))
		h.last["gone"] = now
		return
	case !known:
		h.created[m.UID] = now
		h.since("1 new set larger -> machine made", "larger", now)
	}
	if !ran && m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning {
		h.ran[m.UID] = now
		h.add("2 made -> Running", now.Sub(h.created[m.UID]))
		h.last["ran"] = now
	}
	if !doomed && m.DeletionTimestamp != nil {
		h.doomed[m.UID] = now
		h.since("4a old set smaller -> machine deleted", "smaller", now)
	}
}

// since adds the time that has passed since an earlier event happened last to the durations of a hop.
func (h *hops) since(hop, what string, now time.Time) {
	if at, happened := h.last[what]; happened {
		h.add(hop, now.Sub(at))
	}
}

func (h *hops) add(hop string, took time.Duration) { h.measured[hop] = append(h.measured[hop], took) }

// report returns the median and the ninth decile of each hop, without what the cloud took.
func (h *hops) report(create, remove time.Duration) (list []bench.Hop) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(h.measured)) {
		less := time.Duration(0)
		switch {
		case strings.HasPrefix(name, "2"):
			less = create
		case strings.HasPrefix(name, "4b"):
			less = remove
		}
		list = append(list, bench.HopOf(name, h.measured[name], less))
	}
	return list
}
