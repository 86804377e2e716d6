package workflows_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"millwright/activities"
	"millwright/decide/drain"
	"millwright/workflows"
)

// emptying is a node that is drained: a real ladder decides, and each call of EvictPods takes the next answer.
type emptying struct {
	mu      sync.Mutex
	env     *testsuite.TestWorkflowEnvironment
	ladder  drain.Ladder
	hold    string
	retry   string
	result  string // that DecideDrain says, when it is not empty
	answers []func(context.Context, activities.Eviction) (activities.Evicted, error)
	asked   []activities.Eviction
	reports []activities.MachineReport
}

func newEmptying(t *testing.T) *emptying {
	e := &emptying{env: newEnvironment(t), ladder: drain.Ladder{Timeout: time.Hour}}
	e.env.OnActivity("DecideDrain", mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.DrainRead) (activities.DrainDecision, error) {
		defer e.lock()()
		l := e.ladder
		l.Now, l.Grace, l.Unasked = in.At, in.Grace, in.Unasked
		step := drain.Climb(l)
		d := activities.DrainDecision{Hold: e.hold, Retry: e.retry, Step: step, Recorded: string(l.Reached), Started: l.Started, Why: step.Why, Result: e.result}
		if step.Over {
			d.Result = activities.Forced
		}
		return d, nil
	})
	e.env.OnActivity("ReportMachine", mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.MachineReport) (string, error) {
		defer e.lock()()
		e.reports = append(e.reports, in)
		if d := in.Deletion; d != nil && d.Means != "" {
			if e.ladder.Started.IsZero() {
				e.ladder.Started = e.env.Now()
			}
			e.ladder.Reached, e.ladder.ReachedAt = drain.Means(d.Means), e.env.Now()
			if at := e.asked; len(at) > 0 && at[len(at)-1].Until.After(e.env.Now()) {
				e.ladder.ReachedAt = at[len(at)-1].Until // activities take no time in this world
			}
		}
		return "9", nil
	})
	e.env.OnActivity("EvictPods", mock.Anything, mock.Anything).Return(func(ctx context.Context, in activities.Eviction) (activities.Evicted, error) {
		unlock := e.lock()
		e.asked = append(e.asked, in)
		answer := e.answers[0]
		e.answers = e.answers[1:]
		unlock()
		return answer(ctx, in)
	})
	return e
}

func (e *emptying) lock() (unlock func()) {
	e.mu.Lock()
	return e.mu.Unlock
}

func (e *emptying) answer(outcomes ...activities.Evicted) {
	for _, o := range outcomes {
		e.answers = append(e.answers, func(context.Context, activities.Eviction) (activities.Evicted, error) { return o, nil })
	}
}

// busy makes the next call go on for an hour, as far as the workflow can see.
func (e *emptying) busy() {
	e.answers = append(e.answers, func(context.Context, activities.Eviction) (activities.Evicted, error) {
		return activities.Evicted{}, temporal.NewApplicationErrorWithOptions("goes on", "GoesOn", temporal.ApplicationErrorOptions{NextRetryDelay: time.Hour})
	})
}

func (e *emptying) run(t *testing.T) workflows.DrainResult {
	e.env.ExecuteWorkflow(workflows.Drain, workflows.DrainInput{Ref: ref, NodeName: "n"})
	require.NoError(t, e.env.GetWorkflowError())
	var result workflows.DrainResult
	require.NoError(t, e.env.GetWorkflowResult(&result))
	return result
}

// told returns what the machine's condition and event said, report by report.
func (e *emptying) told() (conditions, events []string) {
	for _, r := range e.reports {
		conditions = append(conditions, r.Conditions[0].Reason)
		if r.Event != nil {
			events = append(events, r.Event.Reason)
		}
	}
	return conditions, events
}

func TestU83_DrainThatNothingBlocks(t *testing.T) {
	e := newEmptying(t)
	e.answer(activities.Evicted{Outcome: activities.OutcomeEmpty, Accepted: 7})
	result := e.run(t)
	require.Equal(t, workflows.DrainResult{Outcome: activities.Drained, Why: "all pods are gone", Accepted: 7}, result)
	require.Equal(t, drain.Evict, e.asked[0].Means)
	require.WithinDuration(t, e.ladder.Started.Add(time.Hour), e.asked[0].Until, 0)
	conditions, events := e.told()
	require.Equal(t, []string{"Draining", "Drained"}, conditions)
	require.Equal(t, []string{"Drained"}, events)
	require.Equal(t, "Drained", e.reports[1].Deletion.Result)
}

func TestD39_TheLadderIsClimbedByDeadlines(t *testing.T) {
	e := newEmptying(t)
	left := activities.Evicted{Outcome: activities.OutcomeDeadline, Grace: time.Minute, Left: []string{"shop/web"}}
	e.answer(left, left, left)
	result := e.run(t)
	require.Equal(t, activities.Forced, result.Outcome)
	require.Equal(t, []string{"shop/web"}, result.LeftBehind, "D3: what still runs is not taken for drained")
	start := e.ladder.Started
	var means []drain.Means
	for i, until := range []time.Duration{time.Hour, time.Hour + 90*time.Second, time.Hour + 2*time.Minute} {
		require.WithinDuration(t, start.Add(until), e.asked[i].Until, 0)
		means = append(means, e.asked[i].Means)
	}
	require.Equal(t, []drain.Means{drain.Evict, drain.Delete, drain.Kill}, means)
	conditions, events := e.told()
	require.Equal(t, []string{"Draining", "Forcing", "Forcing", "Forced"}, conditions)
	require.Equal(t, []string{"DrainForced", "DrainForced", "DrainForced"}, events)
}

func TestBlockersAreToldWhenTheyComeAndGo(t *testing.T) {
	e := newEmptying(t)
	budget := []drain.Blocker{{Kind: drain.BlockedByBudget, Name: "shop/web", Pods: 1, Why: "needs 3"}}
	picture := func(why string) drain.Picture { return drain.Picture{Why: why} }
	e.answer(
		activities.Evicted{Outcome: activities.OutcomeChanged, Blockers: budget, Picture: picture("shop/web needs 3")},
		activities.Evicted{Outcome: activities.OutcomeChanged, Picture: picture("2 pods left")},
		activities.Evicted{Outcome: activities.OutcomeEmpty},
	)
	require.Equal(t, activities.Drained, e.run(t).Outcome)
	require.Equal(t, budget, e.asked[1].Shown, "what people were told")
	require.Empty(t, e.asked[2].Shown)
	conditions, events := e.told()
	require.Equal(t, []string{"Draining", "Blocked", "Draining", "Drained"}, conditions)
	require.Equal(t, []string{"DrainBlocked", "DrainMoves", "Drained"}, events)
	require.Equal(t, "PodDisruptionBudget shop/web", e.reports[1].Step.LastError)
}

func TestU90_ForceThatIsAskedForMeanwhileCountsAtOnce(t *testing.T) {
	e := newEmptying(t)
	e.busy()
	e.answer(activities.Evicted{Outcome: activities.OutcomeEmpty})
	e.env.RegisterDelayedCallback(func() {
		unlock := e.lock()
		e.ladder.Force = "label force-deletion asks for it"
		unlock()
		changed(e.env)
	}, time.Minute)
	result := e.run(t)
	require.Equal(t, activities.Forced, result.Outcome)
	require.Len(t, e.asked, 2)
	require.Equal(t, drain.Kill, e.asked[1].Means)
}

func TestDrainOfWhatIsGoneLeavesNoRecord(t *testing.T) {
	e := newEmptying(t)
	e.result = activities.Cancelled
	require.Equal(t, activities.Cancelled, e.run(t).Outcome)
	require.Empty(t, e.reports)
	require.Empty(t, e.asked)
}

func TestCancelledDrainAsksNobodyAfterwards(t *testing.T) {
	e := newEmptying(t)
	e.busy()
	e.env.RegisterDelayedCallback(e.env.CancelWorkflow, time.Minute)
	e.env.ExecuteWorkflow(workflows.Drain, workflows.DrainInput{Ref: ref, NodeName: "n"})
	require.Error(t, e.env.GetWorkflowError())
	require.Len(t, e.asked, 1)
	require.Len(t, e.reports, 1, "it has begun, and says nothing of an end")
}

func TestHeldDrainAsksNobodyUntilItIsResumed(t *testing.T) {
	e := newEmptying(t)
	e.busy()
	e.answer(activities.Evicted{Outcome: activities.OutcomeEmpty})
	after := func(d time.Duration, change func()) {
		e.env.RegisterDelayedCallback(func() {
			unlock := e.lock()
			change()
			unlock()
			changed(e.env)
		}, d)
	}
	after(time.Minute, func() { e.hold = "alice: look at it first" })
	after(30*time.Minute, func() {
		require.Len(t, e.asked, 1)
		e.hold = ""
	})
	require.Equal(t, activities.Drained, e.run(t).Outcome)
	require.Len(t, e.asked, 2)
	conditions, events := e.told()
	require.Equal(t, []string{"Draining", "Blocked", "Draining", "Drained"}, conditions)
	require.Equal(t, []string{"DeletionHeld", "DeletionResumed", "Drained"}, events)
}

func TestRetryAsksEverybodyAgain(t *testing.T) {
	e := newEmptying(t)
	e.answer(activities.Evicted{Outcome: activities.OutcomeChanged})
	e.busy()
	e.answer(activities.Evicted{Outcome: activities.OutcomeEmpty})
	e.env.RegisterDelayedCallback(func() {
		unlock := e.lock()
		e.retry = "2026-11-21T12:00:00Z alice"
		unlock()
		changed(e.env)
	}, time.Minute)
	require.Equal(t, activities.Drained, e.run(t).Outcome)
	require.Equal(t, []bool{false, false, true}, []bool{e.asked[0].Hurry, e.asked[1].Hurry, e.asked[2].Hurry})
}
