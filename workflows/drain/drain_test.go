package drain_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	activities "millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/vocabulary"
	"millwright/decide/drain"
	workflows "millwright/workflows/drain"
	"millwright/workflows/workflowstest"
)

func TestUnblockedDrainEndsAfterOneEviction(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	e.AddEvictionAnswers(activities.EvictionResult{Outcome: activities.OutcomeEmpty, Accepted: 7})
	result := e.RunDrain(t)
	require.Equal(
		t,
		workflows.Result{
			Outcome:  vocabulary.DrainResultDrained,
			Why:      "all pods are gone",
			Accepted: 7,
			Versions: kube.MinVersions{"machines": "9"},
		},
		result,
	)
	require.Equal(t, drain.MeansEvict, e.RequestedEvictions[0].Means)
	require.WithinDuration(t, e.Escalation.Started.Add(time.Hour), e.RequestedEvictions[0].Until, 0)
	conditions, events := e.ReportedReasons()
	require.Equal(t, []string{"Draining", "Drained"}, conditions)
	require.Equal(t, []string{"Drained"}, events)
	require.Equal(t, "Drained", e.Reports[1].Deletion.Result)
}

func TestRemovalMeansChangeAtTheirDeadlines(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	left := activities.EvictionResult{Outcome: activities.OutcomeDeadline, Grace: time.Minute, Left: []string{"shop/web"}}
	e.AddEvictionAnswers(left, left, left)
	result := e.RunDrain(t)
	require.Equal(t, vocabulary.DrainResultForced, result.Outcome)
	require.Equal(t, []string{"shop/web"}, result.LeftBehind, "what still runs is not taken for drained")
	start := e.Escalation.Started
	var means []drain.RemovalMeans
	for i, until := range []time.Duration{time.Hour, time.Hour + 90*time.Second, time.Hour + 2*time.Minute} {
		require.WithinDuration(t, start.Add(until), e.RequestedEvictions[i].Until, 0)
		means = append(means, e.RequestedEvictions[i].Means)
	}
	require.Equal(t, []drain.RemovalMeans{drain.MeansEvict, drain.MeansDelete, drain.MeansKill}, means)
	conditions, events := e.ReportedReasons()
	require.Equal(t, []string{"Draining", "Forcing", "Forcing", "Forced"}, conditions)
	require.Equal(t, []string{"DrainForced", "DrainForced", "DrainForced"}, events)
}

// If the cluster cannot evict, the drain reports that once. If pods are deleted in order, the drain is forced only
// after its deadline. While the drain waits for a pod, lastOperation is not Failed.
func TestDrainThatCannotEvictDeletesPodsInOrder(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	e.Escalation.NoEviction = "the API server does not serve policy/v1"
	work := []drain.Blocker{{Kind: drain.BlockedByCompletion, Pods: 1, Why: "waits for shop/job to complete", Bad: true}}
	e.AddEvictionAnswers(
		activities.EvictionResult{
			Outcome:  activities.OutcomeChanged,
			Blockers: work,
			Picture:  drain.Overview{Why: "waits for shop/job to complete"},
		},
		activities.EvictionResult{Outcome: activities.OutcomeChanged, Picture: drain.Overview{Why: "1 pod left"}},
		activities.EvictionResult{Outcome: activities.OutcomeDeadline, Left: []string{"shop/web"}},
		activities.EvictionResult{Outcome: activities.OutcomeEmpty},
	)
	result := e.RunDrain(t)
	require.Equal(t, vocabulary.DrainResultDrained, result.Outcome)
	var means []drain.RemovalMeans
	for _, asked := range e.RequestedEvictions {
		means = append(means, asked.Means)
	}
	require.Equal(
		t,
		[]drain.RemovalMeans{drain.MeansDeleteInOrder, drain.MeansDeleteInOrder, drain.MeansDeleteInOrder, drain.MeansDelete},
		means,
	)
	conditions, events := e.ReportedReasons()
	require.Equal(t, []string{"Draining", "Blocked", "Draining", "Forcing", "Drained"}, conditions)
	require.Equal(t, []string{"CannotEvict", "DrainBlocked", "DrainMoves", "DrainForced", "Drained"}, events)
	begun := e.Reports[0]
	require.Equal(t, "DeleteInOrder", begun.Deletion.Means)
	var steps []string
	for _, report := range e.Reports {
		steps = append(steps, report.Step.Name)
	}
	require.Equal(t, []string{"delete-in-order", "delete-in-order", "delete-in-order", "delete-pods", "drained"}, steps)
	require.True(t, begun.Event.Warning)
	require.Contains(t, begun.Event.Message, "it cannot evict: the API server does not serve policy/v1")
	require.Contains(t, begun.Conditions[0].Message, "it cannot evict: the API server does not serve policy/v1")
	require.Equal(t, vocabulary.StateProcessing, begun.Operation.State)
}

func TestNewAndRemovedBlockersAreReported(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	budget := []drain.Blocker{{Kind: drain.BlockedByBudget, Name: "shop/web", Pods: 1, Why: "needs 3"}}
	picture := func(why string) drain.Overview { return drain.Overview{Why: why} }
	e.AddEvictionAnswers(
		activities.EvictionResult{Outcome: activities.OutcomeChanged, Blockers: budget, Picture: picture("shop/web needs 3")},
		activities.EvictionResult{Outcome: activities.OutcomeChanged, Picture: picture("2 pods left")},
		activities.EvictionResult{Outcome: activities.OutcomeEmpty},
	)
	require.Equal(t, vocabulary.DrainResultDrained, e.RunDrain(t).Outcome)
	require.Equal(t, budget, e.RequestedEvictions[1].Shown, "the blockers that were reported")
	require.Empty(t, e.RequestedEvictions[2].Shown)
	conditions, events := e.ReportedReasons()
	require.Equal(t, []string{"Draining", "Blocked", "Draining", "Drained"}, conditions)
	require.Equal(t, []string{"DrainBlocked", "DrainMoves", "Drained"}, events)
	require.Equal(t, []string{"PodDisruptionBudget shop/web"}, e.Reports[1].Step.BlockedBy)
}

// A wait for a volume ends long before the deadline of the evictions. If there is another blocker, the status shows the
// deadline of evictions.
func TestDrainBlockedByVolumesContinuesWhenTheirWaitEnds(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	until := e.Env.Now().Add(2 * time.Minute)
	volume := drain.Blocker{Kind: drain.BlockedByVolume, Name: "pv-1", Pods: 1, Until: until}
	later := drain.Blocker{Kind: drain.BlockedByVolume, Name: "pv-2", Pods: 1, Until: until.Add(time.Minute)}
	budget := drain.Blocker{Kind: drain.BlockedByBudget, Name: "shop/web", Pods: 1}
	e.AddEvictionAnswers(
		activities.EvictionResult{Outcome: activities.OutcomeChanged, Blockers: []drain.Blocker{later, volume}},
		activities.EvictionResult{Outcome: activities.OutcomeChanged, Blockers: []drain.Blocker{budget, volume}},
		activities.EvictionResult{Outcome: activities.OutcomeEmpty},
	)
	require.Equal(t, vocabulary.DrainResultDrained, e.RunDrain(t).Outcome)
	require.WithinDuration(t, until, e.Reports[1].Step.Deadline, 0)
	require.Greater(t, e.Reports[2].Step.Deadline.Sub(until), 10*time.Minute)
}

// If the status reports that the drain is blocked, the search attribute Stuck is true, even if only a volume blocks the
// drain.
func TestDrainBlockedByAVolumeIsStuck(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	var stuck []bool
	e.Env.OnUpsertTypedSearchAttributes(mock.MatchedBy(func(attributes temporal.SearchAttributes) bool {
		if is, changed := attributes.GetBool(temporal.NewSearchAttributeKeyBool("Stuck")); changed {
			stuck = append(stuck, is)
		}
		return true
	})).Return(nil)
	volume := drain.Blocker{Kind: drain.BlockedByVolume, Name: "pv-1", Pods: 1, Until: e.Env.Now().Add(2 * time.Minute)}
	e.AddEvictionAnswers(
		activities.EvictionResult{Outcome: activities.OutcomeChanged, Blockers: []drain.Blocker{volume}},
		activities.EvictionResult{Outcome: activities.OutcomeEmpty},
	)
	require.Equal(t, vocabulary.DrainResultDrained, e.RunDrain(t).Outcome)
	require.Equal(t, []bool{true, false}, slices.Compact(stuck))
}

// The drain writes its first report before it reads the pods. While the pods leave one after the other, the drain
// writes no further report.
func TestFirstReportDescribesTheRemovalMeans(t *testing.T) {
	for why, ladder := range map[string]drain.EscalationFacts{
		"evicts the pods of its node":           {Timeout: time.Hour},
		"deletes the pods of its node in order": {Timeout: time.Hour, NoEviction: "the API server does not serve policy/v1"},
		"kills the pods of its node":            {Timeout: time.Hour, Force: "label force-deletion is set"},
	} {
		e := workflowstest.NewDrainTestEnv(t)
		e.Escalation = ladder
		e.AddEvictionAnswers(activities.EvictionResult{Outcome: activities.OutcomeEmpty})
		e.RunDrain(t)
		require.Equal(t, why, e.Reports[0].Step.Cause)
	}
}

func TestForceDuringADrainTakesEffectAtOnce(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	e.AddLongEviction()
	e.AddEvictionAnswers(activities.EvictionResult{Outcome: activities.OutcomeEmpty})
	e.Env.RegisterDelayedCallback(func() {
		unlock := e.Lock()
		e.Escalation.Force = "label force-deletion asks for it"
		unlock()
		workflowstest.SignalChange(e.Env)
	}, time.Minute)
	result := e.RunDrain(t)
	require.Equal(t, vocabulary.DrainResultForced, result.Outcome)
	require.Len(t, e.RequestedEvictions, 2)
	require.Equal(t, drain.MeansKill, e.RequestedEvictions[1].Means)
}

// The machine changes between the decision and the record of the means. The next decision reads the changed machine,
// and the drain writes the means again.
func TestDrainRecordsItsRemovalMeansAgainAfterAConflict(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	e.ReportError = failFirstReports(2, kube.ConflictError(workflowstest.ObjectRef))
	e.AddEvictionAnswers(activities.EvictionResult{Outcome: activities.OutcomeEmpty})
	require.Equal(t, vocabulary.DrainResultDrained, e.RunDrain(t).Outcome)
}

// failFirstReports returns a function that fails the first n reports.
func failFirstReports(n int, err error) func(machine.Report) error {
	return func(machine.Report) error {
		if n--; n >= 0 {
			return err
		}
		return nil
	}
}

func TestRefusedReportsAreRepeated(t *testing.T) {
	refused := temporal.NewNonRetryableApplicationError("no", kube.FailureTypeRefused, nil)
	t.Run("a hold", func(t *testing.T) {
		e := workflowstest.NewDrainTestEnv(t)
		e.HoldReason, e.ReportError = "alice: look at it first", failFirstReports(1, refused)
		e.AddEvictionAnswers(activities.EvictionResult{Outcome: activities.OutcomeEmpty})
		e.Env.RegisterDelayedCallback(func() {
			unlock := e.Lock()
			e.HoldReason = ""
			unlock()
			workflowstest.SignalChange(e.Env)
		}, time.Hour)
		require.Equal(t, vocabulary.DrainResultDrained, e.RunDrain(t).Outcome)
		_, events := e.ReportedReasons()
		require.Contains(t, events, "DeletionHeld")
	})
	t.Run("what blocks", func(t *testing.T) {
		e := workflowstest.NewDrainTestEnv(t)
		blocked := activities.EvictionResult{
			Outcome:  activities.OutcomeChanged,
			Blockers: []drain.Blocker{{Kind: "PodDisruptionBudget", Name: "a/b"}},
		}
		e.AddEvictionAnswers(blocked)
		e.AddEvictionAnswers(blocked)
		e.AddEvictionAnswers(activities.EvictionResult{Outcome: activities.OutcomeEmpty})
		fail := failFirstReports(1, refused)
		e.ReportError = func(r machine.Report) error {
			if len(e.RequestedEvictions) == 0 {
				return nil
			}
			return fail(r)
		}
		require.Equal(t, vocabulary.DrainResultDrained, e.RunDrain(t).Outcome)
		require.Empty(t, e.RequestedEvictions[1].Shown, "the status does not show it")
		require.NotEmpty(t, e.RequestedEvictions[2].Shown)
	})
}

func TestDrainCancelledByADecisionReportsNothing(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	e.Result = activities.ResultCancelled
	require.Equal(t, activities.ResultCancelled, e.RunDrain(t).Outcome)
	require.Empty(t, e.Reports)
	require.Empty(t, e.RequestedEvictions)
}

func TestCancelledDrainEvictsNoFurtherPods(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	e.AddLongEviction()
	e.Env.RegisterDelayedCallback(e.Env.CancelWorkflow, time.Minute)
	e.Env.ExecuteWorkflow(workflows.Drain, workflows.Input{Ref: workflowstest.ObjectRef, NodeName: "n"})
	require.Error(t, e.Env.GetWorkflowError())
	require.Len(t, e.RequestedEvictions, 1)
	require.Len(t, e.Reports, 1, "it has begun, and says nothing of an end")
}

func TestHeldDrainEvictsNoPodsUntilItIsResumed(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	e.AddLongEviction()
	e.AddEvictionAnswers(activities.EvictionResult{Outcome: activities.OutcomeEmpty})
	after := func(d time.Duration, change func()) {
		e.Env.RegisterDelayedCallback(func() {
			unlock := e.Lock()
			change()
			unlock()
			workflowstest.SignalChange(e.Env)
		}, d)
	}
	after(time.Minute, func() { e.HoldReason = "alice: look at it first" })
	after(30*time.Minute, func() {
		require.Len(t, e.RequestedEvictions, 1)
		e.HoldReason = ""
	})
	require.Equal(t, vocabulary.DrainResultDrained, e.RunDrain(t).Outcome)
	require.Len(t, e.RequestedEvictions, 2)
	conditions, events := e.ReportedReasons()
	require.Equal(t, []string{"Draining", "Blocked", "Draining", "Drained"}, conditions)
	require.Equal(t, []string{"DeletionHeld", "DeletionResumed", "Drained"}, events)
}

// The last status reports that the drain was resumed. The next eviction must report all blockers again, including those
// reported before the hold.
func TestResumedDrainReportsItsBlockersAgain(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	budget := activities.EvictionResult{
		Outcome: activities.OutcomeChanged, Picture: drain.Overview{Why: "shop/web needs 3"},
		Blockers: []drain.Blocker{{Kind: drain.BlockedByBudget, Name: "shop/web", Pods: 1, Why: "needs 3"}},
	}
	e.AddEvictionAnswers(budget)
	e.AddLongEviction()
	e.AddEvictionAnswers(budget)
	e.AddEvictionAnswers(activities.EvictionResult{Outcome: activities.OutcomeEmpty})
	for at, hold := range map[time.Duration]string{time.Minute: "alice: look at it first", 30 * time.Minute: ""} {
		e.Env.RegisterDelayedCallback(func() {
			unlock := e.Lock()
			e.HoldReason = hold
			unlock()
			workflowstest.SignalChange(e.Env)
		}, at)
	}
	require.Equal(t, vocabulary.DrainResultDrained, e.RunDrain(t).Outcome)
	require.Len(t, e.RequestedEvictions, 4)
	require.Equal(t, budget.Blockers, e.RequestedEvictions[1].Shown, "the blockers were reported")
	require.Empty(t, e.RequestedEvictions[2].Shown, "the blockers must be reported again")
	conditions, events := e.ReportedReasons()
	require.Equal(t, []string{"Draining", "Blocked", "Blocked", "Draining", "Blocked", "Drained"}, conditions)
	require.Equal(t, []string{"DrainBlocked", "DeletionHeld", "DeletionResumed", "DrainBlocked", "Drained"}, events)
}

func TestRetryRepeatsAllEvictions(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	e.AddEvictionAnswers(activities.EvictionResult{Outcome: activities.OutcomeChanged})
	e.AddLongEviction()
	e.AddEvictionAnswers(activities.EvictionResult{Outcome: activities.OutcomeEmpty})
	e.Env.RegisterDelayedCallback(func() {
		unlock := e.Lock()
		e.RetryRequest = "2026-11-21T12:00:00Z alice"
		unlock()
		workflowstest.SignalChange(e.Env)
	}, time.Minute)
	require.Equal(t, vocabulary.DrainResultDrained, e.RunDrain(t).Outcome)
	require.Equal(
		t,
		[]bool{false, false, true},
		[]bool{e.RequestedEvictions[0].Hurry, e.RequestedEvictions[1].Hurry, e.RequestedEvictions[2].Hurry},
	)
}

// As in machine-controller-manager, lastOperation is Failed while a person must remove a blocker, and while pods
// remain after the deadline. lastOperation is Processing again when the drain makes progress.
func TestLastOperationOfAStuckDrainIsFailed(t *testing.T) {
	blocked := func(bad bool) activities.EvictionResult {
		return activities.EvictionResult{
			Outcome: activities.OutcomeChanged, Picture: drain.Overview{Why: "1 pod is blocked"},
			Blockers: []drain.Blocker{{Kind: drain.BlockedByBudget, Name: "shop/web", Pods: 1, Bad: bad}},
		}
	}
	moves := activities.EvictionResult{Outcome: activities.OutcomeChanged, Picture: drain.Overview{Why: "moves"}}
	late := blocked(false)
	empty := activities.EvictionResult{Outcome: activities.OutcomeEmpty}
	late.Outcome = activities.OutcomeDeadline
	for name, row := range map[string]struct {
		seen []activities.EvictionResult
		want []string
	}{
		"a budget that allows nothing at present": {[]activities.EvictionResult{blocked(false), empty}, []string{"Processing", "Processing", "Processing"}},
		"a budget that somebody has to change":    {[]activities.EvictionResult{blocked(true), moves, empty}, []string{"Processing", "Failed", "Processing", "Processing"}},
		"its deadline has passed":                 {[]activities.EvictionResult{late, empty}, []string{"Processing", "Failed", "Processing"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := workflowstest.NewDrainTestEnv(t)
			e.AddEvictionAnswers(row.seen...)
			e.RunDrain(t)
			var states []string
			for _, r := range e.Reports {
				require.Equal(t, vocabulary.OperationDelete, r.Operation.Type)
				states = append(states, r.Operation.State)
				if r.Operation.State == vocabulary.StateFailed {
					require.Equal(t, r.Conditions[0].Message, r.Operation.Description)
				}
			}
			require.Equal(t, row.want, states)
		})
	}
}

func TestADrainReportsThatTheClusterDoesNotAnswer(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	left := []drain.PodRow{{Pod: "shop/web", Attempts: 3}}
	e.AddEvictionAnswers(
		activities.EvictionResult{
			Outcome: activities.OutcomeUnanswered,
			Why:     "the cluster does not answer: refused",
			Picture: drain.Overview{Rows: left},
		},
		activities.EvictionResult{Outcome: activities.OutcomeChanged, Picture: drain.Overview{Why: "1 pod left"}},
		activities.EvictionResult{Outcome: activities.OutcomeEmpty},
	)
	require.Equal(t, vocabulary.DrainResultDrained, e.RunDrain(t).Outcome)
	awaited := e.RequestedEvictions[1]
	require.True(t, awaited.Unanswered)
	require.Zero(t, awaited.Until, "no timeout ends while the cluster does not answer")
	require.Equal(t, left, awaited.Known)
	require.False(t, e.RequestedEvictions[2].Unanswered)
	conditions, _ := e.ReportedReasons()
	require.Equal(t, []string{"Draining", "Blocked", "Draining", "Drained"}, conditions)
	require.Equal(t, []string{"TargetUnavailable"}, e.Reports[1].Step.BlockedBy)
	require.Equal(t, vocabulary.StateFailed, e.Reports[1].Operation.State)
	require.Contains(t, e.Reports[1].Operation.Description, "the cluster does not answer: refused")
	require.Empty(t, e.Reports[2].Step.BlockedBy)
	require.Equal(t, vocabulary.StateProcessing, e.Reports[2].Operation.State)
}

func TestForceEndsADrainWhoseClusterDoesNotAnswer(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	e.AddEvictionAnswers(
		activities.EvictionResult{Outcome: activities.OutcomeUnanswered, Why: "the cluster does not answer"},
	)
	e.AddLongEviction()
	e.Env.RegisterDelayedCallback(func() {
		unlock := e.Lock()
		e.Escalation.Force = "label force-deletion asks for it"
		unlock()
		workflowstest.SignalChange(e.Env)
	}, 30*time.Minute)
	result := e.RunDrain(t)
	require.Equal(t, vocabulary.DrainResultForced, result.Outcome)
	require.Len(t, e.RequestedEvictions, 2, "nobody asks a cluster to kill pods that does not answer")
	require.Contains(t, result.Why, "the cluster does not answer")
}
