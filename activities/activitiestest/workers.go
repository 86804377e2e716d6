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

// Worker is a worker whose clock may be wrong. The clock of the test is the worker's clock.
type Worker struct {
	ClockAhead time.Duration // how far the worker's clock is ahead of the servers' clocks; negative: behind
	// the worker runs local activities, which get the server's time only from their input
	RunsLocalActivities bool
	// time from the scheduling of the activity to the start of the attempt; zero for the first attempt
	AttemptDelay time.Duration
}

// SynctestStartTime is the time at which the clock of a bubble begins. Source: testing/synctest.
var SynctestStartTime = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// TimestampTolerance is the maximum difference between a time that is stored in whole seconds and the time that a test
// expects.
const TimestampTolerance = time.Second

// ForEachWorkerClock runs a test on workers whose clocks are ten minutes ahead, right, and ten minutes behind. Each
// worker runs local or regular activities, in its own bubble.
func ForEachWorkerClock(t *testing.T, test func(t *testing.T, k Worker)) {
	t.Helper()
	for way, local := range map[string]bool{"local": true, "regular": false} {
		for name, ahead := range map[string]time.Duration{"ahead": 10 * time.Minute, "right": 0, "behind": -10 * time.Minute} {
			t.Run(way+", "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { test(t, Worker{ClockAhead: ahead, RunsLocalActivities: local}) })
			})
		}
	}
}

// ServerTime is the current time by the servers' clock.
func (k Worker) ServerTime() time.Time { return time.Now().Add(-k.ClockAhead) }

// ServerTimestamp is a time by the servers' clock, in the form in which an API server writes times.
func (k Worker) ServerTimestamp(ago time.Duration) metav1.Time {
	return metav1.NewTime(k.ServerTime().Add(-ago)).Rfc3339Copy()
}

// NewReadInput is a ReadInput of an object at the servers' current time. A workflow passes the servers' current time to
// its activities.
func (k Worker) NewReadInput(o metav1.Object) kube.ReadInput {
	return kube.ReadInput{Ref: NewRef(o), At: k.ServerTime()}
}

// RunActivityOnWorker runs an activity on a worker.
func RunActivityOnWorker[T any](w *World, k Worker, activity, in any) (T, error) {
	w.T.Helper()
	w.AwaitCaches()
	if k.RunsLocalActivities {
		return RunLocalActivity[T](w, activity, in)
	}
	return ExecuteActivity[T](w.T, activity, in, k.ExecuteActivity)
}

// ExecuteActivity runs a regular activity on this worker, in a separate test environment.
func (k Worker) ExecuteActivity(
	env *testsuite.TestActivityEnvironment,
	activity any,
	in ...any,
) (converter.EncodedValue, error) {
	env.SetWorkerOptions(worker.Options{Interceptors: k.interceptors()})
	return env.ExecuteActivity(activity, in...)
}

func (k Worker) interceptors() []interceptor.WorkerInterceptor {
	return []interceptor.WorkerInterceptor{&serverTimeInterceptor{worker: k}}
}

// serverTimeInterceptor converts the times of a regular activity to the server's clock. The test environment takes
// these times from the worker's clock.
type serverTimeInterceptor struct {
	interceptor.WorkerInterceptorBase
	worker Worker
}

func (s *serverTimeInterceptor) InterceptActivity(
	_ context.Context,
	next interceptor.ActivityInboundInterceptor,
) interceptor.ActivityInboundInterceptor {
	in := &activityInboundInterceptor{worker: s.worker}
	in.Next = next
	return in
}

type activityInboundInterceptor struct {
	interceptor.ActivityInboundInterceptorBase
	worker Worker
}

func (i *activityInboundInterceptor) Init(next interceptor.ActivityOutboundInterceptor) error {
	out := &activityOutboundInterceptor{worker: i.worker}
	out.Next = next
	return i.Next.Init(out)
}

type activityOutboundInterceptor struct {
	interceptor.ActivityOutboundInterceptorBase
	worker Worker
}

func (o *activityOutboundInterceptor) GetInfo(ctx context.Context) activity.Info {
	info := o.Next.GetInfo(ctx)
	info.StartedTime = info.StartedTime.Add(-o.worker.ClockAhead)
	info.ScheduledTime = info.ScheduledTime.Add(-o.worker.ClockAhead - o.worker.AttemptDelay)
	return info
}
