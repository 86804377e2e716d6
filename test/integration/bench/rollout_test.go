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

// fleet is a pool whose rollout is measured.
type fleet struct {
	namespace                    string
	size, surge                  int
	providerSpec                 string        // provider spec of the class; if it is empty, the cloud has no latencies
	createLatency, deleteLatency time.Duration // mean latencies in the provider spec
	// maximum deviation of a creation from its mean latency; uniformly distributed
	maxCreateDeviation time.Duration
}

func TestRolloutOf100Machines(t *testing.T) {
	measureRollout(
		t,
		fleet{namespace: "rolled", size: 100, surge: 10},
		bench.Target{Figure: bench.FigureSeconds, Value: 14},
		bench.Target{Figure: bench.FigureRequestsPerMachine, Value: 20},
	)
}

func TestRolloutOf500Machines(t *testing.T) {
	measureRollout(
		t,
		fleet{namespace: "rolled-500", size: 500, surge: 50},
		bench.Target{Figure: bench.FigureSeconds, Value: 60},
		bench.Target{Figure: bench.FigureRequestsPerMachine, Value: 20},
	)
}

func TestRolloutWithShortLatencies(t *testing.T) {
	measureRollout(t, fleet{
		namespace: "brief", size: 100, surge: 10, createLatency: 2 * time.Second, deleteLatency: time.Second,
		providerSpec: `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"2s","deleteLatency":"1s"}`,
	})
}

func TestRolloutWithLatenciesOfACloud(t *testing.T) {
	measureRollout(t, fleet{
		namespace:          "cloudy",
		size:               100,
		surge:              10,
		createLatency:      20 * time.Second,
		maxCreateDeviation: 5 * time.Second,
		deleteLatency:      10 * time.Second,
		providerSpec:       `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"20s","createSpread":"5s","deleteLatency":"10s"}`,
	}, bench.Target{Figure: bench.FigureRatioToIdeal, Value: 1.08})
}

// measureRollout measures a rollout of a fleet. No machine has an open run when the rollout begins.
func measureRollout(t *testing.T, f fleet, bars ...bench.Target) {
	testRig.CreateNamespace(t, f.namespace, f.providerSpec)
	pool := testRig.CreatePool(t, f.namespace, "pool", int32(f.size), func(d *v1alpha1.MachineDeployment) {
		d.Spec.Strategy.RollingUpdate = &v1alpha1.RollingUpdateMachineDeployment{
			UpdateConfiguration: v1alpha1.UpdateConfiguration{
				MaxSurge: new(intstr.FromInt(f.surge)), MaxUnavailable: new(intstr.FromInt32(0)),
			},
		}
	})
	pool.AwaitRunningMachines(t, f.size)
	awaitSettledPool(t, pool)
	hops := recordStepIntervals(t, f.namespace)
	load := bench.LoadResult{
		Name:         fmt.Sprintf("rolling %d, surge %d", f.size, f.surge),
		MachineCount: f.size,
		Targets:      bars,
	}
	if f.createLatency > 0 {
		load.Name += fmt.Sprintf(", %s to create, %s to delete", f.createLatency, f.deleteLatency)
		load.IdealSeconds = f.idealDuration(t).Seconds()
	}
	l := measureLoad(t, load, func() {
		pool.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"edition":"2"}}}}}`)
		f.awaitRolloutEnd(t, pool)
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
		func() (bool, any) {
			open := testRig.CountOpenRuns(t, pool.Namespace)
			return open["Rollout"] == 0, open
		},
	)
	l.Intervals = hops.summarizeIntervals(f.createLatency, f.deleteLatency)
	f.logRolloutResult(t)
	pool.Delete(t)
	pool.AwaitPoolGone(t)
}

// awaitRolloutEnd waits until the deployment's status counts all machines as updated.
func (f fleet) awaitRolloutEnd(t *testing.T, pool *rig.Pool) {
	t.Helper()
	awaitMachineCount(t, pool, int32(f.size), func(d *v1alpha1.MachineDeployment) bool {
		return d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == int32(f.size)
	})
}

// awaitMachineCount waits until the status of a deployment counts n machines, all of them available, and the function
// as returns true. awaitMachineCount uses a watch, because polling would add requests to the measurement.
func awaitMachineCount(t *testing.T, pool *rig.Pool, n int32, as func(*v1alpha1.MachineDeployment) bool) {
	t.Helper()
	d := pool.Deployment(t)
	reached := func() bool { return d.Status.AvailableReplicas == n && d.Status.Replicas == n && as(d) }
	deployments := must(
		testRig.MachineClient.MachineV1alpha1().
			MachineDeployments(d.Namespace).
			Watch(contextWithTimeout(t, 15*time.Minute), metav1.SingleObject(metav1.ObjectMeta{Name: d.Name, ResourceVersion: d.ResourceVersion})),
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

// scalePoolAndAwait sets the replicas of a deployment, and waits until this number of machines runs.
func scalePoolAndAwait(t *testing.T, pool *rig.Pool, n int) {
	t.Helper()
	pool.Scale(t, n)
	awaitMachineCount(t, pool, int32(n), func(d *v1alpha1.MachineDeployment) bool {
		return d.Status.ReadyReplicas == int32(n) && d.Status.UpdatedReplicas == int32(n)
	})
	pool.AwaitRunningMachines(t, n)
}

// idealDuration returns the duration of the rollout if decisions took no time. If creations have a spread,
// idealDuration returns the median of 101 simulations with random latencies, because a rollout that waits for slow
// machines takes longer than with mean latencies.
func (f fleet) idealDuration(t *testing.T) time.Duration {
	t.Helper()
	dice := rand.New(rand.NewPCG(1, 2))
	draws := 1
	if f.maxCreateDeviation > 0 {
		draws = 101
	}
	var all []time.Duration
	for range draws {
		took, complete := simulate.IdealDurationOfMachines(f.rolloutFactsAtStart(), func() time.Duration {
			return f.createLatency + time.Duration((dice.Float64()*2-1)*float64(f.maxCreateDeviation))
		}, f.deleteLatency)
		require.True(t, complete)
		all = append(all, took)
	}
	slices.Sort(all)
	return all[draws/2]
}

// rolloutFactsAtStart returns the facts about the fleet just after its template has changed.
func (f fleet) rolloutFactsAtStart() rollout.Facts {
	o := rollout.Facts{
		Settings: rollout.Settings{
			Replicas: f.size,
			Strategy: rollout.RollingUpdate,
			MaxSurge: rollout.IntOrPercent{Value: f.surge},
		},
		Now: time.Now(),
	}
	old := rollout.MachineSet{
		Name:               "old",
		UID:                "old",
		Replicas:           f.size,
		StatusMachineCount: f.size,
		ObservedReplicas:   f.size,
		Revision:           1,
		DesiredReplicas:    f.size,
		MaxReplicas:        f.size + f.surge,
	}
	for i := range f.size {
		name := fmt.Sprintf("m-%03d", i)
		old.Machines = append(
			old.Machines,
			rollout.Member{
				Name:      name,
				UID:       name,
				MCM:       rollout.MCMMember{NodeName: name},
				Ready:     true,
				Available: true,
				Priority:  3,
			},
		)
	}
	o.Sets = []rollout.MachineSet{old}
	return o
}

// logRolloutResult requires that the rollout has completed, and logs its result.
func (f fleet) logRolloutResult(t *testing.T) {
	t.Helper()
	runs := testRig.WorkflowRuns(
		t,
		fmt.Sprintf("WorkflowType = %q AND MachineNamespace = %q", run.KindRollout, f.namespace),
	)
	require.Len(t, runs, 1)
	var result deployment.RolloutResult
	require.NoError(
		t,
		testRig.Temporal.GetWorkflow(t.Context(), runs[0].Execution.WorkflowId, "").Get(t.Context(), &result),
	)
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

// stepIntervalRecorder records the durations between the steps of a rollout, from the events of a watch.
type stepIntervalRecorder struct {
	mu             sync.Mutex
	creationTimes  map[types.UID]time.Time
	runningTimes   map[types.UID]time.Time
	deletionTimes  map[types.UID]time.Time
	setSizes       map[string]int32
	lastEventTimes map[string]time.Time // time of the last event, by the name of the step
	durations      map[string][]time.Duration
}

// recordStepIntervals records the step intervals of the machines and sets of a namespace until the test ends.
func recordStepIntervals(t *testing.T, namespace string) *stepIntervalRecorder {
	t.Helper()
	h := &stepIntervalRecorder{
		creationTimes:  map[types.UID]time.Time{},
		runningTimes:   map[types.UID]time.Time{},
		deletionTimes:  map[types.UID]time.Time{},
		setSizes:       map[string]int32{},
		lastEventTimes: map[string]time.Time{},
		durations:      map[string][]time.Duration{},
	}
	api := testRig.MachineClient.MachineV1alpha1()
	for _, m := range must(api.Machines(namespace).List(t.Context(), metav1.ListOptions{})).Items {
		h.creationTimes[m.UID], h.runningTimes[m.UID] = time.Time{}, time.Time{}
	}
	for _, s := range must(api.MachineSets(namespace).List(t.Context(), metav1.ListOptions{})).Items {
		h.setSizes[s.Name] = s.Spec.Replicas
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	for _, w := range []watch.Interface{
		must(api.Machines(namespace).Watch(ctx, metav1.ListOptions{})), must(api.MachineSets(namespace).Watch(ctx, metav1.ListOptions{})),
	} {
		go func() {
			for e := range w.ResultChan() {
				h.handleEvent(e)
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

func (h *stepIntervalRecorder) handleEvent(e watch.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	switch o := e.Object.(type) {
	case *v1alpha1.Machine:
		h.handleMachine(now, e.Type, o)
	case *v1alpha1.MachineSet:
		was, known := h.setSizes[o.Name]
		h.setSizes[o.Name] = o.Spec.Replicas
		switch {
		case !known || o.Spec.Replicas > was:
			h.addTimeSinceEvent("5 gone -> new set larger", "gone", now)
			h.lastEventTimes["larger"] = now
		case o.Spec.Replicas < was:
			h.addTimeSinceEvent("3 Running -> old set smaller", "ran", now)
			h.lastEventTimes["smaller"] = now
		}
	}
}

func (h *stepIntervalRecorder) handleMachine(now time.Time, kind watch.EventType, m *v1alpha1.Machine) {
	_, known := h.creationTimes[m.UID]
	_, ran := h.runningTimes[m.UID]
	_, doomed := h.deletionTimes[m.UID]
	switch {
	case kind == watch.Deleted:
		h.addDuration("4b deleted -> gone", now.Sub(h.deletionTimes[m.UID]))
		h.lastEventTimes["gone"] = now
		return
	case !known:
		h.creationTimes[m.UID] = now
		h.addTimeSinceEvent("1 new set larger -> machine made", "larger", now)
	}
	if !ran && m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning {
		h.runningTimes[m.UID] = now
		h.addDuration("2 made -> Running", now.Sub(h.creationTimes[m.UID]))
		h.lastEventTimes["ran"] = now
	}
	if !doomed && m.DeletionTimestamp != nil {
		h.deletionTimes[m.UID] = now
		h.addTimeSinceEvent("4a old set smaller -> machine deleted", "smaller", now)
	}
}

// addTimeSinceEvent adds a duration to the interval named hop: the time since the last event named what.
func (h *stepIntervalRecorder) addTimeSinceEvent(hop, what string, now time.Time) {
	if at, happened := h.lastEventTimes[what]; happened {
		h.addDuration(hop, now.Sub(at))
	}
}

func (h *stepIntervalRecorder) addDuration(hop string, took time.Duration) {
	h.durations[hop] = append(h.durations[hop], took)
}

// summarizeIntervals returns the median and the ninth decile of each step interval. summarizeIntervals subtracts the
// cloud's latencies create and remove.
func (h *stepIntervalRecorder) summarizeIntervals(create, remove time.Duration) (list []bench.Interval) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(h.durations)) {
		less := time.Duration(0)
		switch {
		case strings.HasPrefix(name, "2"):
			less = create
		case strings.HasPrefix(name, "4b"):
			less = remove
		}
		list = append(list, bench.NewInterval(name, h.durations[name], less))
	}
	return list
}
