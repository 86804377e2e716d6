//go:build integration && bench

package bench

import (
	"context"
	"fmt"
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
	"millwright/test/integration/rig"
	"millwright/workflows/deployment"
	"millwright/workflows/run"
)

const (
	fleet = 100
	surge = 10
)

func rolling(d *v1alpha1.MachineDeployment) {
	d.Spec.Strategy.RollingUpdate = &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: v1alpha1.UpdateConfiguration{
		MaxSurge: new(intstr.FromInt32(surge)), MaxUnavailable: new(intstr.FromInt32(0)),
	}}
}

// roll gives a pool that is calm another template and waits until all its machines have it. It returns how long that took.
func roll(t *testing.T, pool *rig.Pool) time.Duration {
	t.Helper()
	start := time.Now()
	pool.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"edition":"2"}}}}}`)
	awaitRolled(t, pool)
	took := time.Since(start)
	machines := pool.Machines(t)
	require.Len(t, machines, fleet)
	for _, m := range machines {
		require.Equal(t, "2", m.Labels["edition"])
		require.Equal(t, v1alpha1.MachineRunning, m.Status.CurrentStatus.Phase)
	}
	rig.Eventually(t, time.Minute, "the rollout has ended", func() (bool, any) { open := r.OpenWorkflows(t, pool.Namespace); return open["Rollout"] == 0, open })
	return took
}

// awaitRolled waits until the status says that all machines are of the new template. It watches: to ask again and again would be a load
// of its own.
func awaitRolled(t *testing.T, pool *rig.Pool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	d := pool.Deployment(t)
	deployments := must(r.Machines.MachineV1alpha1().MachineDeployments(d.Namespace).Watch(ctx, metav1.SingleObject(metav1.ObjectMeta{Name: d.Name, ResourceVersion: d.ResourceVersion})))
	defer deployments.Stop()
	for e := range deployments.ResultChan() {
		d, ok := e.Object.(*v1alpha1.MachineDeployment)
		require.True(t, ok, "%s: %v", e.Type, e.Object)
		s := d.Status
		if s.ObservedGeneration == d.Generation && s.UpdatedReplicas == fleet && s.AvailableReplicas == fleet && s.Replicas == fleet {
			return
		}
	}
	require.Fail(t, "all machines are of the new template", "the watch ended before, with %v", pool.Deployment(t).Status)
}

func TestRolloutOf100InstantMachines(t *testing.T) {
	r.Namespace(t, "rolled", "")
	pool := r.Pool(t, "rolled", "rolled", fleet, rolling)
	pool.AwaitRunning(t, fleet, 3*time.Minute)
	awaitCalm(t, pool)
	mark := auditSize(t)
	took := roll(t, pool)
	counts := requests(t, mark)
	total := 0
	for _, n := range counts {
		total += n
	}
	t.Logf("rollout of %d machines, surge %d, no latencies: %.1f s; %.1f requests to the API server a machine (%d in all)", fleet, surge, took.Seconds(), float64(total)/fleet, total)
	for _, what := range sorted(counts)[:15] {
		t.Logf("  %5d %s", counts[what], what)
	}
	reportRollout(t, "rolled")
	pool.Delete(t)
	pool.AwaitGone(t, 2*time.Minute)
}

func TestRolloutOf100MachinesWithLatencies(t *testing.T) {
	const create, remove = 2 * time.Second, time.Second
	r.Namespace(t, "slow", `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"2s","deleteLatency":"1s"}`)
	pool := r.Pool(t, "slow", "slow", fleet, rolling)
	pool.AwaitRunning(t, fleet, 5*time.Minute)
	awaitCalm(t, pool)
	hops := record(t, "slow")
	took := roll(t, pool)
	ideal, complete := simulate.Ideal(before(), create, remove)
	require.True(t, complete)
	t.Logf("rollout of %d machines, surge %d, %s to create and %s to delete: %.1f s; critical path %.1f s; ratio %.2f", fleet, surge, create, remove,
		took.Seconds(), ideal.Seconds(), took.Seconds()/ideal.Seconds())
	hops.report(t, create, remove)
	reportRollout(t, "slow")
	pool.Delete(t)
	pool.AwaitGone(t, 2*time.Minute)
}

// before is the fleet as it stands when its template changes.
func before() rollout.Observed {
	o := rollout.Observed{Replicas: fleet, Strategy: rollout.RollingUpdate, Surge: rollout.Bound{Value: surge}, Now: time.Now()}
	old := rollout.Set{Name: "old", UID: "old", Replicas: fleet, Counted: fleet, Seen: fleet, Revision: 1, Desired: fleet, Max: fleet + surge}
	for i := range fleet {
		name := fmt.Sprintf("m-%03d", i)
		old.Machines = append(old.Machines, rollout.Member{Name: name, UID: name, Node: name, Ready: true, Available: true, Priority: 3})
	}
	o.Sets = []rollout.Set{old}
	return o
}

// reportRollout tells how the last rollout of a namespace ended.
func reportRollout(t *testing.T, namespace string) {
	t.Helper()
	runs := r.Workflows(t, fmt.Sprintf("WorkflowType = %q AND MachineNamespace = %q", run.KindRollout, namespace))
	require.Len(t, runs, 1)
	var result deployment.RolloutResult
	require.NoError(t, r.Temporal.GetWorkflow(t.Context(), runs[0].Execution.WorkflowId, "").Get(t.Context(), &result))
	require.Equal(t, deployment.OutcomeCompleted, result.Outcome)
	require.Equal(t, fleet, result.Replaced)
	t.Logf("its workflow: %s, %d events; slowest step %s: %s; waited %v", result.Took, runs[0].HistoryLength, result.SlowTook, result.Slowest, result.Waited)
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

// since measures from when something happened last.
func (h *hops) since(hop, what string, now time.Time) {
	if at, happened := h.last[what]; happened {
		h.add(hop, now.Sub(at))
	}
}

func (h *hops) add(hop string, took time.Duration) { h.measured[hop] = append(h.measured[hop], took) }

// report tells the median and the slowest of each hop, without what the cloud took.
func (h *hops) report(t *testing.T, create, remove time.Duration) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []string
	for name := range h.measured {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		list := slices.Sorted(slices.Values(h.measured[name]))
		less := time.Duration(0)
		switch {
		case strings.HasPrefix(name, "2"):
			less = create
		case strings.HasPrefix(name, "4b"):
			less = remove
		}
		t.Logf("  %-40s median %5.2f s, 90 %% %5.2f s, slowest %5.2f s (%d times; without the %s of the cloud)", name,
			(list[len(list)/2] - less).Seconds(), (list[len(list)*9/10] - less).Seconds(), (list[len(list)-1] - less).Seconds(), len(list), less)
	}
}
