package run

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/request"
	"millwright/api/vocabulary"
)

// course is a kind of object whose first step takes a minute and then ends as a test wants. The second one ends calm.
type course struct {
	*Object
	first   func() (*Result, error)
	seen    []string // minimum versions of the machines in each decision
	decided []time.Time
	settled []bool
}

func (c *course) Decide(ctx workflow.Context) (int, error) {
	c.decided = append(c.decided, workflow.Now(ctx))
	c.seen = append(c.seen, c.Versions[kube.MachinesResource])
	return len(c.seen), nil
}

func (c *course) Step(ctx workflow.Context, n int) (*Result, error) {
	if n > 1 {
		return &Result{OutcomeCalm, "the second step"}, ctx.Err()
	}
	if err := workflow.Sleep(ctx, time.Minute); err != nil {
		return nil, err
	}
	return c.first()
}

func (c *course) Settle(_ workflow.Context, again bool) { c.settled = append(c.settled, again) }

// courseWorld runs a course, and counts the requests that were written.
type courseWorld struct {
	env     *testsuite.TestWorkflowEnvironment
	course  *course
	first   func() (*Result, error)
	endless bool
	rests   bool
	fails   int // number of attempts to write a request that fail first
	written int
	answers []any
}

func newCourse(t *testing.T, first func() (*Result, error)) *courseWorld {
	w := &courseWorld{env: activitiestest.WorkflowEnvironment(), first: first}
	for _, a := range activities.OnClusters(nil) {
		w.env.RegisterActivity(a)
	}
	w.env.RegisterWorkflowWithOptions(w.run, workflow.RegisterOptions{Name: string(KindMachine)})
	w.env.OnActivity("ApplyRequest", mock.Anything, mock.Anything).
		Return(func(context.Context, request.Request) (request.Answer, error) {
			if w.fails--; w.fails >= 0 {
				return request.Answer{}, errors.New("the API server is away")
			}
			w.written++
			return request.Answer{Applied: true, Message: "written", Version: fmt.Sprint(10 + w.written)}, nil
		}).
		Maybe()
	t.Cleanup(func() { require.True(t, w.env.IsWorkflowCompleted()) })
	return w
}

func (w *courseWorld) run(ctx workflow.Context, in Input) (Result, error) {
	w.course = &course{Object: NewObject(ctx, KindMachine, kube.MachinesResource, in), first: w.first}
	w.course.ContinuesAsNew, w.course.IdleBeforeEnd = w.endless, w.rests
	return Loop(ctx, w.course)
}

// execute sends something just before the first step ends, and returns how the run ended.
func (w *courseWorld) execute(t *testing.T, lastMoment func()) (Result, error) {
	w.env.RegisterDelayedCallback(lastMoment, time.Minute-1)
	w.env.ExecuteWorkflow(string(KindMachine), Input{Ref: kube.Ref{Namespace: "shop", Name: "m", UID: "u"}})
	var result Result
	if err := w.env.GetWorkflowError(); err != nil {
		return result, err
	}
	require.NoError(t, w.env.GetWorkflowResult(&result))
	return result, nil
}

// handedOn returns the input of the next run.
func handedOn(t *testing.T, err error) Input {
	t.Helper()
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, err, &next)
	require.Equal(t, string(KindMachine), next.WorkflowType.Name)
	var in Input
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))
	return in
}

// change sends a signal that starts no workflow task: the workflow receives it with the next task.
func (w *courseWorld) change(version string) {
	w.env.SignalWorkflowSkippingWorkflowTask(
		SignalChanged,
		Changed{Versions: kube.MinVersions{kube.MachinesResource: version}},
	)
}

func (w *courseWorld) request() {
	w.env.SignalWorkflowSkippingWorkflowTask(MessageRequest, RequestInput{Command: "retry", Actor: "ann"})
}

func (w *courseWorld) ask() {
	w.env.UpdateWorkflow(MessageRequest, "", &testsuite.TestUpdateCallback{
		OnAccept: func() {}, OnReject: func(err error) { w.answers = append(w.answers, err) },
		OnComplete: func(answer any, _ error) { w.answers = append(w.answers, answer) },
	}, RequestInput{Command: "retry", Actor: "ann"})
}

func calmly() (*Result, error) { return &Result{OutcomeCalm, "the first step"}, nil }

func TestLoopTakesAChangeThatComesAsTheRunEnds(t *testing.T) {
	t.Run("a calm run goes on", func(t *testing.T) {
		w := newCourse(t, calmly)
		result, err := w.execute(t, func() { w.change("7"); w.change("9") })
		require.NoError(t, err)
		require.Equal(t, "the second step", result.Why)
		require.Equal(t, []string{"", "9"}, w.course.seen)
	})
	t.Run("so does one that would continue as new when calm", func(t *testing.T) {
		w := newCourse(t, calmly)
		w.endless = true
		_, err := w.execute(t, func() { w.change("9") })
		require.Equal(t, "9", handedOn(t, err).Versions[kube.MachinesResource])
		require.Equal(t, []string{"", "9"}, w.course.seen)
	})
	t.Run("the next run sees it", func(t *testing.T) {
		w := newCourse(t, func() (*Result, error) { return nil, nil })
		_, err := w.execute(t, func() { w.env.SetContinueAsNewSuggested(true); w.change("9") })
		in := handedOn(t, err)
		require.Equal(t, "9", in.Versions[kube.MachinesResource])
		require.True(t, in.Continued)
		require.Equal(t, []bool{true}, w.course.settled)
	})
}

func TestLoopLetsACalmRunRestThatHasDoneSomething(t *testing.T) {
	rests := true
	elapsed := func(first func() (*Result, error), after func(*courseWorld)) (time.Duration, *courseWorld) {
		w := newCourse(t, first)
		w.rests = rests
		start := w.env.Now()
		after(w)
		_, err := w.execute(t, func() {})
		require.NoError(t, err)
		return w.env.Now().Sub(start) - time.Minute, w
	}
	silence := func(*courseWorld) {}
	acts := func() (*Result, error) { return nil, nil }
	took, _ := elapsed(calmly, silence)
	require.Zero(t, took, "a run that found nothing to do ends at once")
	took, w := elapsed(acts, silence)
	require.Equal(t, calmAfter, took)
	require.Len(t, w.course.seen, 2)
	took, w = elapsed(acts, func(w *courseWorld) {
		w.env.RegisterDelayedCallback(func() { w.env.SignalWorkflow(SignalChanged, Changed{}) }, time.Minute+calmAfter/2)
	})
	require.Equal(t, calmAfter/2, took, "a change that wakes it brings another decision, and that one finds nothing to do")
	require.Len(t, w.course.seen, 3)
	rests = false
	took, w = elapsed(acts, silence)
	require.Zero(t, took, "a kind whose changes do not come in bursts ends at once")
	require.Len(t, w.course.seen, 2)
}

func TestLoopCarriesOutARequestThatComesAsTheRunEnds(t *testing.T) {
	ends := map[string]func() (*Result, error){
		"calm":             calmly,
		"gone":             func() (*Result, error) { return Gone("gone") },
		"failed":           func() (*Result, error) { return nil, errors.New("broken") },
		"continues as new": func() (*Result, error) { return nil, nil },
	}
	moments := map[string]func(w *courseWorld){
		"signal":                     func(w *courseWorld) { w.request() },
		"two of them":                func(w *courseWorld) { w.request(); w.request() },
		"signal that takes a while":  func(w *courseWorld) { w.fails = 4; w.request() },
		"update that takes a while":  func(w *courseWorld) { w.fails = 4; w.ask() },
		"behind a broken one":        func(w *courseWorld) { w.env.SignalWorkflowSkippingWorkflowTask(MessageRequest, 1); w.request() },
		"signal and a change":        func(w *courseWorld) { w.request(); w.change("9") },
		"after the run is cancelled": func(w *courseWorld) { w.env.CancelWorkflow(); w.request() },
	}
	for end, first := range ends {
		for moment, send := range moments {
			t.Run(end+"/"+moment, func(t *testing.T) {
				w := newCourse(t, first)
				w.endless = end == "continues as new"
				result, err := w.execute(t, func() {
					w.env.SetContinueAsNewSuggested(w.endless)
					send(w)
				})
				require.GreaterOrEqual(t, w.written, 1)
				switch {
				case moment == "after the run is cancelled":
					require.True(t, temporal.IsCanceledError(err))
				case end == "gone":
					require.Equal(t, OutcomeGone, result.Outcome)
				case end == "failed":
					require.ErrorContains(t, err, "broken")
				case end == "calm":
					require.Equal(t, "the second step", result.Why, "what the request brought about is decided upon")
				default:
					require.NotEmpty(t, handedOn(t, err).Versions[kube.MachinesResource], "the next run sees what was written")
				}
				if moment == "update that takes a while" {
					require.Equal(t, []any{"written"}, w.answers)
				}
			})
		}
	}
}

func TestLoopReadsLiveAfterAFailureThatAnotherDecisionMends(t *testing.T) {
	for _, kind := range []string{kube.TypeConflict, kube.TypeObjectGone} {
		w := newCourse(t, func() (*Result, error) { return nil, temporal.NewNonRetryableApplicationError("no", kind, nil) })
		result, err := w.execute(t, func() {})
		require.NoError(t, err)
		require.Equal(t, "the second step", result.Why)
		require.True(t, w.course.Live)
	}
}

// A run that was cancelled does not continue as new: the next run would not be cancelled.
func TestLoopDoesNotContinueARunThatWasCancelled(t *testing.T) {
	w := newCourse(t, func() (*Result, error) { return nil, nil })
	w.endless = true
	_, err := w.execute(t, func() { w.env.SetContinueAsNewSuggested(true); w.env.CancelWorkflow() })
	require.True(t, temporal.IsCanceledError(err))
}

// refusing returns the failure of a write that the API server refuses.
func refusing() (*Result, error) {
	return nil, kube.Refused("machines \"m\" is forbidden: the worker may not patch it")
}

func TestARefusedWriteDoesNotFailARun(t *testing.T) {
	t.Run("it is tried again later", func(t *testing.T) {
		w := newCourse(t, refusing)
		var during Step
		w.env.RegisterDelayedCallback(func() { during = w.course.Shown }, time.Minute+RefusedAgain-1)
		result, err := w.execute(t, func() {})
		require.NoError(t, err)
		require.Equal(t, "the second step", result.Why)
		require.Equal(t, vocabulary.StepRefused, during.Name)
		require.Equal(t, []string{vocabulary.BlockedRefused}, during.BlockedBy)
		require.Contains(t, during.Why, "is forbidden")
		require.True(t, during.Stuck)
		require.True(t, w.course.Live, "what was decided from the caches was refused")
		require.Equal(t, RefusedAgain, w.course.decided[1].Sub(w.course.decided[0])-time.Minute)
	})
	t.Run("a change ends the wait", func(t *testing.T) {
		w := newCourse(t, refusing)
		w.env.RegisterDelayedCallback(func() { w.env.SignalWorkflow(SignalChanged, Changed{}) }, time.Minute+time.Second)
		_, err := w.execute(t, func() {})
		require.NoError(t, err)
		require.Equal(t, time.Second, w.course.decided[1].Sub(w.course.decided[0])-time.Minute)
	})
}

func TestTheWaitAfterARefusalGrows(t *testing.T) {
	waits := make([]time.Duration, 8)
	for i := range waits {
		waits[i] = Again(i + 1)
	}
	require.Equal(t, []time.Duration{
		10 * time.Second,
		20 * time.Second,
		40 * time.Second,
		80 * time.Second,
		160 * time.Second,
		5 * time.Minute,
		5 * time.Minute,
		5 * time.Minute,
	}, waits)
}

// No cache reaches the versions of a state that was lost: a run forgets them.
func TestARunForgetsTheVersionsOfAnAPIServerThatWasRestored(t *testing.T) {
	w := newCourse(t, func() (*Result, error) {
		return nil, temporal.NewNonRetryableApplicationError("restored", kube.TypeRewound, nil)
	})
	_, err := w.execute(t, func() { w.change("9") })
	require.NoError(t, err)
	require.Equal(t, []string{"", "9"}, w.course.seen, "a signal that comes later has versions of the restored state")
	require.True(t, w.course.Live)
}
