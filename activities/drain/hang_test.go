package drain_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"millwright/activities/activitiestest"
	"millwright/activities/drain"
)

// heartbeatTimeout is the heartbeat timeout after which Temporal starts another attempt. Source: the function draining
// in workflows/run/policies.go.
const heartbeatTimeout = 10 * time.Second

// heartbeatRecorder records when an activity sends heartbeats, including heartbeats that the SDK delays.
type heartbeatRecorder struct {
	interceptor.WorkerInterceptorBase
	mu             sync.Mutex
	heartbeatTimes []time.Time
}

func (p *heartbeatRecorder) InterceptActivity(
	_ context.Context,
	next interceptor.ActivityInboundInterceptor,
) interceptor.ActivityInboundInterceptor {
	return &activityInboundInterceptor{interceptor.ActivityInboundInterceptorBase{Next: next}, p}
}

type activityInboundInterceptor struct {
	interceptor.ActivityInboundInterceptorBase
	recorder *heartbeatRecorder
}

func (i *activityInboundInterceptor) Init(next interceptor.ActivityOutboundInterceptor) error {
	return i.Next.Init(&activityOutboundInterceptor{interceptor.ActivityOutboundInterceptorBase{Next: next}, i.recorder})
}

type activityOutboundInterceptor struct {
	interceptor.ActivityOutboundInterceptorBase
	recorder *heartbeatRecorder
}

func (o *activityOutboundInterceptor) RecordHeartbeat(ctx context.Context, details ...any) {
	o.recorder.mu.Lock()
	o.recorder.heartbeatTimes = append(o.recorder.heartbeatTimes, time.Now())
	o.recorder.mu.Unlock()
	o.Next.RecordHeartbeat(ctx, details...)
}

// sortedHeartbeatIntervals returns the times between the heartbeats of an activity that has run since begun, longest
// first.
func (p *heartbeatRecorder) sortedHeartbeatIntervals(begun time.Time) []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []time.Duration
	last := begun
	for _, at := range append(p.heartbeatTimes, time.Now()) {
		list, last = append(list, at.Sub(last)), at
	}
	slices.SortFunc(list, func(a, b time.Duration) int { return int(b - a) })
	return list
}

func TestHangingRequestsDelayNoHeartbeat(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 25 { // more pods than maxConcurrentRequests
		names = append(names, fmt.Sprintf("p%02d", i))
	}
	runEvictionTest(t, podsToRemove(names...), func(t *testing.T, d *activitiestest.EvictionWorld, in drain.Eviction) {
		d.RunBeforeEvictions(t, func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return errors.New("no answer")
		})
		p, begun := &heartbeatRecorder{}, time.Now()
		in.Until = begun
		e := activitiestest.StartActivity[drain.EvictionResult](
			d.World,
			newActivities(d.Kube).EvictPods,
			in,
			func(env *testsuite.TestActivityEnvironment) {
				env.SetWorkerOptions(
					worker.Options{BackgroundActivityContext: t.Context(), Interceptors: []interceptor.WorkerInterceptor{p}},
				)
			},
		)
		seen, _ := e.AwaitResult(t)
		assert.Equal(t, drain.OutcomeDeadline, seen.Outcome)
		require.NotEmpty(t, p.heartbeatTimes)
		assert.Less(
			t,
			p.sortedHeartbeatIntervals(begun)[0],
			heartbeatTimeout,
			"a drain whose attempts are given up never comes to its deadline",
		)
	})
}

// Concurrent evictions of one budget conflict on the API server. Evictions of pods without this budget do not wait.
func TestEvictionsOfOneBudgetAreSequential(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ took, until, all time.Duration }{
		"each has its turn":               {time.Second, time.Hour, 4 * time.Second},
		"they take longer than any waits": {15 * time.Second, time.Hour, time.Minute},
		"at the deadline nobody waits":    {15 * time.Second, 5 * time.Second, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			ofWeb := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }
			all := newBudget(
				4,
				func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector.MatchLabels = map[string]string{"app": "web"} },
			)
			objects := append(
				readyPods("free"),
				all,
				activitiestest.NewPod("a", setPodReady, ofWeb),
				activitiestest.NewPod("b", setPodReady, ofWeb),
				activitiestest.NewPod("c", setPodReady, ofWeb),
				activitiestest.NewPod("d", setPodReady, ofWeb),
			)
			runEvictionTest(t, objects, func(t *testing.T, d *activitiestest.EvictionWorld, in drain.Eviction) {
				var mu sync.Mutex
				now, most, begun, sent := map[bool]int{}, map[bool]int{}, time.Now(), map[string]time.Duration{}
				d.RunBeforeEvictions(t, func(_ context.Context, pod string) error {
					free := pod == "free"
					mu.Lock()
					now[free]++
					most[free] = max(most[free], now[free])
					mu.Unlock()
					time.Sleep(row.took)
					mu.Lock()
					defer mu.Unlock()
					now[free]--
					sent[pod] = time.Since(begun)
					return nil
				})
				in.Until = begun.Add(row.until)
				e := d.StartEviction(in)
				time.Sleep(row.all + time.Second)
				assert.Len(t, d.TakeNewRequests(), 5, "%v", sent)
				assert.Equal(t, row.took, sent["free"])
				if row.until > row.all {
					assert.Equal(t, 1, most[false])
					d.RemovePods("a", "b", "c", "d", "free")
				}
				e.AwaitResult(t)
			})
		})
	}
}
