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

// heartbeatTimeout is the time without a heartbeat after which another attempt begins. Source: draining in
// workflows/run/policies.go.
const heartbeatTimeout = 10 * time.Second

// pulse records when an activity sends heartbeats, also those that the SDK delays.
type pulse struct {
	interceptor.WorkerInterceptorBase
	mu    sync.Mutex
	beats []time.Time
}

func (p *pulse) InterceptActivity(
	_ context.Context,
	next interceptor.ActivityInboundInterceptor,
) interceptor.ActivityInboundInterceptor {
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

// pauses returns the times between heartbeats of an activity that has run since begun, longest first.
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
	evicting(t, pods(names...), func(t *testing.T, d *activitiestest.Desk, in drain.Eviction) {
		d.EvictAt(t, func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return errors.New("no answer")
		})
		p, begun := &pulse{}, time.Now()
		in.Until = begun
		e := activitiestest.AttemptTo[drain.Evicted](
			d.World,
			acts(d.Kube).EvictPods,
			in,
			func(env *testsuite.TestActivityEnvironment) {
				env.SetWorkerOptions(
					worker.Options{BackgroundActivityContext: t.Context(), Interceptors: []interceptor.WorkerInterceptor{p}},
				)
			},
		)
		seen, _ := e.Ends(t)
		assert.Equal(t, drain.OutcomeDeadline, seen.Outcome)
		require.NotEmpty(t, p.beats)
		assert.Less(
			t,
			p.pauses(begun)[0],
			heartbeatTimeout,
			"a drain whose attempts are given up never comes to its deadline",
		)
	})
}

// The API server makes evictions of one budget collide. Evictions of other pods do not wait for them.
func TestEvictionsOfOneBudgetGoOneAfterTheOther(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ took, until, all time.Duration }{
		"each has its turn":               {time.Second, time.Hour, 4 * time.Second},
		"they take longer than any waits": {15 * time.Second, time.Hour, time.Minute},
		"at the deadline nobody waits":    {15 * time.Second, 5 * time.Second, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			ofWeb := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }
			all := budget(
				4,
				func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector.MatchLabels = map[string]string{"app": "web"} },
			)
			objects := append(
				healthy("free"),
				all,
				activitiestest.Pod("a", isReady, ofWeb),
				activitiestest.Pod("b", isReady, ofWeb),
				activitiestest.Pod("c", isReady, ofWeb),
				activitiestest.Pod("d", isReady, ofWeb),
			)
			evicting(t, objects, func(t *testing.T, d *activitiestest.Desk, in drain.Eviction) {
				var mu sync.Mutex
				now, most, begun, sent := map[bool]int{}, map[bool]int{}, time.Now(), map[string]time.Duration{}
				d.EvictAt(t, func(_ context.Context, pod string) error {
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
				e := d.Empty(in)
				time.Sleep(row.all + time.Second)
				assert.Len(t, d.Since(), 5, "%v", sent)
				assert.Equal(t, row.took, sent["free"])
				if row.until > row.all {
					assert.Equal(t, 1, most[false])
					d.End("a", "b", "c", "d", "free")
				}
				e.Ends(t)
			})
		})
	}
}
