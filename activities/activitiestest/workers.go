package activitiestest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
)

// Worker is a worker whose clock may be wrong. The clock of the test is the worker's.
type Worker struct {
	Ahead time.Duration // of the clocks of Temporal's server and of the API servers; negative: behind
	Local bool          // it runs activities as local ones: then nothing but the input says the time of the server
	Tried time.Duration // time from the activity's schedule to the begin of the attempt; zero: the first attempt
}

// Bubble is the time at which the clock of a bubble begins. Source: testing/synctest.
var Bubble = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Rounding is by how much a time that is stored in whole seconds may differ from the time that a test of a bubble
// expects.
const Rounding = time.Second

// OnWrongClocks runs a test on workers whose clocks are wrong by ten minutes, with local and with regular activities,
// each in a bubble.
func OnWrongClocks(t *testing.T, test func(t *testing.T, k Worker)) {
	t.Helper()
	for way, local := range map[string]bool{"local": true, "regular": false} {
		for name, ahead := range map[string]time.Duration{"ahead": 10 * time.Minute, "right": 0, "behind": -10 * time.Minute} {
			t.Run(way+", "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { test(t, Worker{Ahead: ahead, Local: local}) })
			})
		}
	}
}

// Server is the time now, by the clock of the servers.
func (k Worker) Server() time.Time { return time.Now().Add(-k.Ahead) }

// Stamp is a time by the clock of the servers, as an API server writes it.
func (k Worker) Stamp(ago time.Duration) metav1.Time {
	return metav1.NewTime(k.Server().Add(-ago)).Rfc3339Copy()
}

// Read reads an object at the present time of the servers, which a workflow gives to its activities.
func (k Worker) Read(o metav1.Object) kube.Read { return kube.Read{Ref: Ref(o), At: k.Server()} }

// RunOn runs an activity on a worker.
func RunOn[T any](w *World, k Worker, activity, in any) (T, error) {
	w.T.Helper()
	w.Settle()
	if k.Local {
		return Local[T](w, activity, in)
	}
	return Execute[T](w.T, activity, in, k.Execute)
}

// Execute runs an activity as a regular one of this worker, in an environment that is used for nothing else.
func (k Worker) Execute(
	env *testsuite.TestActivityEnvironment,
	activity any,
	in ...any,
) (converter.EncodedValue, error) {
	env.SetWorkerOptions(worker.Options{Interceptors: k.interceptors()})
	return env.ExecuteActivity(activity, in...)
}

func (k Worker) interceptors() []interceptor.WorkerInterceptor {
	return []interceptor.WorkerInterceptor{&serverTimes{of: k}}
}

// serverTimes makes the times of a regular activity those of the server: the test environment takes them from the
// worker's clock.
type serverTimes struct {
	interceptor.WorkerInterceptorBase
	of Worker
}

func (s *serverTimes) InterceptActivity(
	_ context.Context,
	next interceptor.ActivityInboundInterceptor,
) interceptor.ActivityInboundInterceptor {
	in := &inbound{of: s.of}
	in.Next = next
	return in
}

type inbound struct {
	interceptor.ActivityInboundInterceptorBase
	of Worker
}

func (i *inbound) Init(next interceptor.ActivityOutboundInterceptor) error {
	out := &outbound{of: i.of}
	out.Next = next
	return i.Next.Init(out)
}

type outbound struct {
	interceptor.ActivityOutboundInterceptorBase
	of Worker
}

func (o *outbound) GetInfo(ctx context.Context) activity.Info {
	info := o.Next.GetInfo(ctx)
	info.StartedTime = info.StartedTime.Add(-o.of.Ahead)
	info.ScheduledTime = info.ScheduledTime.Add(-o.of.Ahead - o.of.Tried)
	return info
}
