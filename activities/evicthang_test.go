package activities_test

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
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"millwright/activities"
	"millwright/observe"
)

// heartbeatTimeout is after how long without a heartbeat another attempt begins. Source: draining in workflows/policies.go.
const heartbeatTimeout = 10 * time.Second

// An evictingTarget is one whose evictions take their time, as with a webhook. Unlike a fake it knows when nobody waits any more.
type evictingTarget struct {
	kubernetes.Interface
	before func(ctx context.Context, pod string) error // an eviction; with an error it is not sent
}

// IsWatchListSemanticsUnSupported says what the fake below would say: its watches begin without a list.
func (evictingTarget) IsWatchListSemanticsUnSupported() bool { return true }

func (e evictingTarget) CoreV1() typedcorev1.CoreV1Interface {
	return evictingCore{e.Interface.CoreV1(), e}
}

type evictingCore struct {
	typedcorev1.CoreV1Interface
	target evictingTarget
}

func (e evictingCore) Pods(namespace string) typedcorev1.PodInterface {
	return evictingPods{e.CoreV1Interface.Pods(namespace), e.target}
}

type evictingPods struct {
	typedcorev1.PodInterface
	target evictingTarget
}

func (e evictingPods) EvictV1(ctx context.Context, eviction *policyv1.Eviction) error {
	if err := e.target.before(ctx, eviction.Name); err != nil {
		return err
	}
	return e.PodInterface.EvictV1(ctx, eviction)
}

// evictAt makes the desk's evictions go through a target that takes its time.
func (d *desk) evictAt(t *testing.T, before func(ctx context.Context, pod string) error) {
	t.Helper()
	cluster, err := observe.NewCluster(d.machines, evictingTarget{d.target, before}, nil)
	require.NoError(t, err)
	require.NoError(t, cluster.WatchDrains())
	require.NoError(t, cluster.Start(t.Context()))
	d.Cluster = cluster
}

// pulse notes when an activity records heartbeats, however many of them the SDK holds back.
type pulse struct {
	interceptor.WorkerInterceptorBase
	mu    sync.Mutex
	beats []time.Time
}

func (p *pulse) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &inbound{interceptor.ActivityInboundInterceptorBase{Next: next}, p}
}

type inbound struct {
	interceptor.ActivityInboundInterceptorBase
	pulse *pulse
}

func (i *inbound) Init(next interceptor.ActivityOutboundInterceptor) error {
	return i.Next.Init(&outbound{interceptor.ActivityOutboundInterceptorBase{Next: next}, i.pulse})
}

type outbound struct {
	interceptor.ActivityOutboundInterceptorBase
	pulse *pulse
}

func (o *outbound) RecordHeartbeat(ctx context.Context, details ...any) {
	o.pulse.mu.Lock()
	o.pulse.beats = append(o.pulse.beats, time.Now())
	o.pulse.mu.Unlock()
	o.Next.RecordHeartbeat(ctx, details...)
}

// pauses returns the times between two heartbeats of an activity that has run since begun, longest first.
func (p *pulse) pauses(begun time.Time) []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []time.Duration
	last := begun
	for _, at := range append(p.beats, time.Now()) {
		list, last = append(list, at.Sub(last)), at
	}
	slices.SortFunc(list, func(a, b time.Duration) int { return int(b - a) })
	return list
}

func TestRequestsThatHangHoldUpNoHeartbeat(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 25 { // more than are sent at a time
		names = append(names, fmt.Sprintf("p%02d", i))
	}
	emptying(t, pods(names...), func(t *testing.T, d *desk, in activities.Eviction) {
		d.evictAt(t, func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return errors.New("no answer")
		})
		p, begun := &pulse{}, time.Now()
		in.Until = begun
		e := attemptTo[activities.Evicted](d.world, d.EvictPods, in, func(env *testsuite.TestActivityEnvironment) {
			env.SetWorkerOptions(worker.Options{BackgroundActivityContext: t.Context(), Interceptors: []interceptor.WorkerInterceptor{p}})
		})
		seen, _ := e.ends(t)
		assert.Equal(t, activities.OutcomeDeadline, seen.Outcome)
		require.NotEmpty(t, p.beats)
		assert.Less(t, p.pauses(begun)[0], heartbeatTimeout, "a drain whose attempts are given up never comes to its deadline")
	})
}

// The API server makes evictions of one budget collide. Those of other pods wait for none of them.
func TestEvictionsOfOneBudgetGoOneAfterTheOther(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ took, until, all time.Duration }{
		"each has its turn":               {time.Second, time.Hour, 4 * time.Second},
		"they take longer than any waits": {15 * time.Second, time.Hour, time.Minute},
		"at the deadline nobody waits":    {15 * time.Second, 5 * time.Second, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			ofWeb := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }
			all := budget(4, func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector.MatchLabels = map[string]string{"app": "web"} })
			objects := append(healthy("free"), all, pod("a", isReady, ofWeb), pod("b", isReady, ofWeb), pod("c", isReady, ofWeb), pod("d", isReady, ofWeb))
			emptying(t, objects, func(t *testing.T, d *desk, in activities.Eviction) {
				var mu sync.Mutex
				now, most, begun, sent := map[bool]int{}, map[bool]int{}, time.Now(), map[string]time.Duration{}
				d.evictAt(t, func(_ context.Context, pod string) error {
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
				e := d.empty(in)
				time.Sleep(row.all + time.Second)
				assert.Len(t, d.since(), 5, "%v", sent)
				assert.Equal(t, row.took, sent["free"])
				if row.until > row.all {
					assert.Equal(t, 1, most[false])
					d.end("a", "b", "c", "d", "free")
				}
				e.ends(t)
			})
		})
	}
}
