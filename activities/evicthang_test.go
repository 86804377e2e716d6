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
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"millwright/activities"
	"millwright/observe"
)

// heartbeatTimeout is after how long without a heartbeat another attempt begins. Source: draining in workflows/policies.go.
const heartbeatTimeout = 10 * time.Second

// A hangingTarget answers no eviction, as with a webhook that hangs. Unlike a fake it knows when nobody waits any more.
type hangingTarget struct{ kubernetes.Interface }

// IsWatchListSemanticsUnSupported says what the fake below would say: its watches begin without a list.
func (hangingTarget) IsWatchListSemanticsUnSupported() bool { return true }

func (h hangingTarget) CoreV1() typedcorev1.CoreV1Interface {
	return hangingCore{h.Interface.CoreV1()}
}

type hangingCore struct{ typedcorev1.CoreV1Interface }

func (h hangingCore) Pods(namespace string) typedcorev1.PodInterface {
	return hangingPods{h.CoreV1Interface.Pods(namespace)}
}

type hangingPods struct{ typedcorev1.PodInterface }

func (hangingPods) EvictV1(ctx context.Context, _ *policyv1.Eviction) error {
	<-ctx.Done()
	return errors.New("no answer")
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
	for i := range 5 {
		names = append(names, fmt.Sprintf("p%02d", i))
	}
	emptying(t, pods(names...), func(t *testing.T, d *desk, in activities.Eviction) {
		cluster, err := observe.NewCluster(d.machines, hangingTarget{d.target}, nil)
		require.NoError(t, err)
		require.NoError(t, cluster.WatchDrains())
		require.NoError(t, cluster.Start(t.Context()))
		d.Cluster = cluster
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
