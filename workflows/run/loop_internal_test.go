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

// The first step of testProcedure takes a minute, and then ends as the test has set. The second step ends the run,
// because nothing is left to do.
type testProcedure struct {
	*WorkflowState
	firstStep           func() (*Result, error)
	decisionVersions    []string // minimum versions of the machines in each decision
	decisionTimes       []time.Time
	finishOpenWorkCalls []bool
}

func (c *testProcedure) Decide(ctx workflow.Context) (int, error) {
	c.decisionTimes = append(c.decisionTimes, workflow.Now(ctx))
	c.decisionVersions = append(c.decisionVersions, c.Versions[kube.MachinesResource])
	return len(c.decisionVersions), nil
}

func (c *testProcedure) ExecuteStep(ctx workflow.Context, n int) (*Result, error) {
	if n > 1 {
		return &Result{OutcomeCalm, "the second step"}, ctx.Err()
	}
	if err := workflow.Sleep(ctx, time.Minute); err != nil {
		return nil, err
	}
	return c.firstStep()
}

func (c *testProcedure) FinishOpenWork(_ workflow.Context, again bool) {
	c.finishOpenWorkCalls = append(c.finishOpenWorkCalls, again)
}

// loopTestEnv runs a testProcedure, and counts the written requests.
type loopTestEnv struct {
	env                 *testsuite.TestWorkflowEnvironment
	procedure           *testProcedure
	firstStep           func() (*Result, error)
	continuesAsNew      bool
	idlesBeforeEnd      bool
	failingWriteCount   int // number of attempts to write a request that fail before the first success
	writtenRequestCount int
	updateAnswers       []any
}

func newLoopTestEnv(t *testing.T, first func() (*Result, error)) *loopTestEnv {
	w := &loopTestEnv{env: activitiestest.NewWorkflowEnvironment(), firstStep: first}
	for _, a := range activities.ClusterActivities(nil) {
		w.env.RegisterActivity(a)
	}
	w.env.RegisterWorkflowWithOptions(w.runWorkflow, workflow.RegisterOptions{Name: string(KindMachine)})
	w.env.OnActivity("ApplyRequest", mock.Anything, mock.Anything).
		Return(func(context.Context, request.Request) (request.Answer, error) {
			if w.failingWriteCount--; w.failingWriteCount >= 0 {
				return request.Answer{}, errors.New("the API server is away")
			}
			w.writtenRequestCount++
			return request.Answer{Applied: true, Message: "written", Version: fmt.Sprint(10 + w.writtenRequestCount)}, nil
		}).
		Maybe()
	t.Cleanup(func() { require.True(t, w.env.IsWorkflowCompleted()) })
	return w
}

func (w *loopTestEnv) runWorkflow(ctx workflow.Context, in Input) (Result, error) {
	w.procedure = &testProcedure{
		WorkflowState: NewWorkflowState(ctx, KindMachine, kube.MachinesResource, in),
		firstStep:     w.firstStep,
	}
	w.procedure.ContinuesAsNew, w.procedure.IdleBeforeEnd = w.continuesAsNew, w.idlesBeforeEnd
	return ExecuteLoop(ctx, w.procedure)
}

// executeRun calls lastMoment just before the first step ends, and returns the result of the run.
func (w *loopTestEnv) executeRun(t *testing.T, lastMoment func()) (Result, error) {
	w.env.RegisterDelayedCallback(lastMoment, time.Minute-1)
	w.env.ExecuteWorkflow(string(KindMachine), Input{Ref: kube.Ref{Namespace: "shop", Name: "m", UID: "u"}})
	var result Result
	if err := w.env.GetWorkflowError(); err != nil {
		return result, err
	}
	require.NoError(t, w.env.GetWorkflowResult(&result))
	return result, nil
}

// nextInput returns the input of the run that continues as new.
func nextInput(t *testing.T, err error) Input {
	t.Helper()
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, err, &next)
	require.Equal(t, string(KindMachine), next.WorkflowType.Name)
	var in Input
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))
	return in
}

// signalChange sends a signal without a workflow task: the workflow receives the signal with the next task.
func (w *loopTestEnv) signalChange(version string) {
	w.env.SignalWorkflowSkippingWorkflowTask(
		SignalChanged,
		ChangeSignal{Versions: kube.MinVersions{kube.MachinesResource: version}},
	)
}

func (w *loopTestEnv) signalRequest() {
	w.env.SignalWorkflowSkippingWorkflowTask(RequestMessageName, RequestInput{Command: "retry", Actor: "ann"})
}

func (w *loopTestEnv) updateRequest() {
	w.env.UpdateWorkflow(RequestMessageName, "", &testsuite.TestUpdateCallback{
		OnAccept: func() {}, OnReject: func(err error) { w.updateAnswers = append(w.updateAnswers, err) },
		OnComplete: func(answer any, _ error) { w.updateAnswers = append(w.updateAnswers, answer) },
	}, RequestInput{Command: "retry", Actor: "ann"})
}

func calmStep() (*Result, error) { return &Result{OutcomeCalm, "the first step"}, nil }

func TestLoopReceivesASignalThatArrivesAsTheRunEnds(t *testing.T) {
	t.Run("a calm run goes on", func(t *testing.T) {
		w := newLoopTestEnv(t, calmStep)
		result, err := w.executeRun(t, func() { w.signalChange("7"); w.signalChange("9") })
		require.NoError(t, err)
		require.Equal(t, "the second step", result.Why)
		require.Equal(t, []string{"", "9"}, w.procedure.decisionVersions)
	})
	t.Run("so does one that would continue as new when calm", func(t *testing.T) {
		w := newLoopTestEnv(t, calmStep)
		w.continuesAsNew = true
		_, err := w.executeRun(t, func() { w.signalChange("9") })
		require.Equal(t, "9", nextInput(t, err).Versions[kube.MachinesResource])
		require.Equal(t, []string{"", "9"}, w.procedure.decisionVersions)
	})
	t.Run("the next run sees it", func(t *testing.T) {
		w := newLoopTestEnv(t, func() (*Result, error) { return nil, nil })
		_, err := w.executeRun(t, func() { w.env.SetContinueAsNewSuggested(true); w.signalChange("9") })
		in := nextInput(t, err)
		require.Equal(t, "9", in.Versions[kube.MachinesResource])
		require.True(t, in.Continued)
		require.Equal(t, []bool{true}, w.procedure.finishOpenWorkCalls)
	})
}

func TestRunThatHasDoneSomethingIdlesBeforeItEnds(t *testing.T) {
	rests := true
	elapsed := func(first func() (*Result, error), after func(*loopTestEnv)) (time.Duration, *loopTestEnv) {
		w := newLoopTestEnv(t, first)
		w.idlesBeforeEnd = rests
		start := w.env.Now()
		after(w)
		_, err := w.executeRun(t, func() {})
		require.NoError(t, err)
		return w.env.Now().Sub(start) - time.Minute, w
	}
	silence := func(*loopTestEnv) {}
	acts := func() (*Result, error) { return nil, nil }
	took, _ := elapsed(calmStep, silence)
	require.Zero(t, took, "a run that found nothing to do ends at once")
	took, w := elapsed(acts, silence)
	require.Equal(t, idleTimeBeforeEnd, took)
	require.Len(t, w.procedure.decisionVersions, 2)
	took, w = elapsed(acts, func(w *loopTestEnv) {
		w.env.RegisterDelayedCallback(
			func() { w.env.SignalWorkflow(SignalChanged, ChangeSignal{}) },
			time.Minute+idleTimeBeforeEnd/2,
		)
	})
	require.Equal(
		t,
		idleTimeBeforeEnd/2,
		took,
		"a change that wakes it brings another decision, and that one finds nothing to do",
	)
	require.Len(t, w.procedure.decisionVersions, 3)
	rests = false
	took, w = elapsed(acts, silence)
	require.Zero(t, took, "a kind whose changes do not come in bursts ends at once")
	require.Len(t, w.procedure.decisionVersions, 2)
}

func TestLoopCarriesOutARequestThatComesAsTheRunEnds(t *testing.T) {
	ends := map[string]func() (*Result, error){
		"calm":             calmStep,
		"gone":             func() (*Result, error) { return GoneResult("gone") },
		"failed":           func() (*Result, error) { return nil, errors.New("broken") },
		"continues as new": func() (*Result, error) { return nil, nil },
	}
	moments := map[string]func(w *loopTestEnv){
		"signal":                    func(w *loopTestEnv) { w.signalRequest() },
		"two of them":               func(w *loopTestEnv) { w.signalRequest(); w.signalRequest() },
		"signal that takes a while": func(w *loopTestEnv) { w.failingWriteCount = 4; w.signalRequest() },
		"update that takes a while": func(w *loopTestEnv) { w.failingWriteCount = 4; w.updateRequest() },
		"behind a broken one": func(w *loopTestEnv) {
			w.env.SignalWorkflowSkippingWorkflowTask(RequestMessageName, 1)
			w.signalRequest()
		},
		"signal and a change":        func(w *loopTestEnv) { w.signalRequest(); w.signalChange("9") },
		"after the run is cancelled": func(w *loopTestEnv) { w.env.CancelWorkflow(); w.signalRequest() },
	}
	for end, first := range ends {
		for moment, send := range moments {
			t.Run(end+"/"+moment, func(t *testing.T) {
				w := newLoopTestEnv(t, first)
				w.continuesAsNew = end == "continues as new"
				result, err := w.executeRun(t, func() {
					w.env.SetContinueAsNewSuggested(w.continuesAsNew)
					send(w)
				})
				require.GreaterOrEqual(t, w.writtenRequestCount, 1)
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
					require.NotEmpty(t, nextInput(t, err).Versions[kube.MachinesResource], "the next run sees what was written")
				}
				if moment == "update that takes a while" {
					require.Equal(t, []any{"written"}, w.updateAnswers)
				}
			})
		}
	}
}

func TestLoopReadsLiveAfterAConflictOrAGoneObject(t *testing.T) {
	for _, kind := range []string{kube.FailureTypeConflict, kube.FailureTypeObjectGone} {
		w := newLoopTestEnv(
			t,
			func() (*Result, error) { return nil, temporal.NewNonRetryableApplicationError("no", kind, nil) },
		)
		result, err := w.executeRun(t, func() {})
		require.NoError(t, err)
		require.Equal(t, "the second step", result.Why)
		require.True(t, w.procedure.Live)
	}
}

// A cancelled run does not continue as new: the next run would not be cancelled.
func TestLoopDoesNotContinueARunThatWasCancelled(t *testing.T) {
	w := newLoopTestEnv(t, func() (*Result, error) { return nil, nil })
	w.continuesAsNew = true
	_, err := w.executeRun(t, func() { w.env.SetContinueAsNewSuggested(true); w.env.CancelWorkflow() })
	require.True(t, temporal.IsCanceledError(err))
}

// refusedStep returns the failure of a write that the API server refuses.
func refusedStep() (*Result, error) {
	return nil, kube.RefusedError("machines \"m\" is forbidden: the worker may not patch it")
}

func TestARefusedWriteDoesNotFailARun(t *testing.T) {
	t.Run("it is tried again later", func(t *testing.T) {
		w := newLoopTestEnv(t, refusedStep)
		var during Step
		w.env.RegisterDelayedCallback(func() { during = w.procedure.Shown }, time.Minute+FirstRefusalWait-1)
		result, err := w.executeRun(t, func() {})
		require.NoError(t, err)
		require.Equal(t, "the second step", result.Why)
		require.Equal(t, vocabulary.StepWriteRefused, during.Name)
		require.Equal(t, []string{vocabulary.BlockedByRefusedWrite}, during.BlockedBy)
		require.Contains(t, during.Why, "is forbidden")
		require.True(t, during.Stuck)
		require.True(t, w.procedure.Live, "what was decided from the caches was refused")
		require.Equal(t, FirstRefusalWait, w.procedure.decisionTimes[1].Sub(w.procedure.decisionTimes[0])-time.Minute)
	})
	t.Run("a change ends the wait", func(t *testing.T) {
		w := newLoopTestEnv(t, refusedStep)
		w.env.RegisterDelayedCallback(func() { w.env.SignalWorkflow(SignalChanged, ChangeSignal{}) }, time.Minute+time.Second)
		_, err := w.executeRun(t, func() {})
		require.NoError(t, err)
		require.Equal(t, time.Second, w.procedure.decisionTimes[1].Sub(w.procedure.decisionTimes[0])-time.Minute)
	})
}

func TestTheWaitAfterARefusalGrows(t *testing.T) {
	waits := make([]time.Duration, 8)
	for i := range waits {
		waits[i] = WaitAfterRefusal(i + 1)
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

// After a restore of the API server, no cache reaches the resource versions from before the restore. The run must
// therefore reset its minimum versions.
func TestARunForgetsTheVersionsOfAnAPIServerThatWasRestored(t *testing.T) {
	w := newLoopTestEnv(t, func() (*Result, error) {
		return nil, temporal.NewNonRetryableApplicationError("restored", kube.FailureTypeRewound, nil)
	})
	_, err := w.executeRun(t, func() { w.signalChange("9") })
	require.NoError(t, err)
	require.Equal(
		t,
		[]string{"", "9"},
		w.procedure.decisionVersions,
		"a signal that comes later has versions of the restored state",
	)
	require.True(t, w.procedure.Live)
}
