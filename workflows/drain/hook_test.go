package drain_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	activities "millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/api/vocabulary"
	"millwright/decide/drain"
	workflows "millwright/workflows/drain"
	"millwright/workflows/workflowstest"
)

func TestADrainForClusterAPIRemovesItsHookAtTheEnd(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	e.HookDecision = activities.Decision{ClusterAPI: activities.ClusterAPIFacts{Step: drain.HookDrain, Cordon: true}}
	budget := []drain.Blocker{{Kind: drain.BlockedByBudget, Name: "shop/web", Pods: 1, Why: "needs 3"}}
	e.AddEvictionAnswers(
		activities.EvictionResult{
			Outcome:  activities.OutcomeChanged,
			Blockers: budget,
			Picture:  drain.Overview{Why: "shop/web needs 3"},
		},
		activities.EvictionResult{Outcome: activities.OutcomeEmpty, Accepted: 1},
	)
	require.Equal(
		t,
		workflows.Result{
			Outcome:  vocabulary.DrainResultDrained,
			Why:      "all pods are gone",
			Accepted: 1,
			Versions: kube.MinVersions{"machines.cluster.x-k8s.io": "9"},
		},
		e.RunClusterAPIDrain(t),
	)
	require.Equal(t, 1, e.CordonCount, "before the first pod")
	conditions, events := e.ReportedReasons()
	require.Equal(t, []string{"Draining", "Blocked", "Drained"}, conditions)
	require.Equal(t, []string{"DrainBlocked", "Drained"}, events)
	require.Equal(t, "n", e.RequestedEvictions[0].NodeName)
	require.Len(t, e.HookReleases, 1)
	require.True(t, e.HookReleases[0].Drained)
}

func TestTheHookIsRemovedAtOnceIfClusterAPIWouldNotDrain(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	e.HookDecision = activities.Decision{
		ClusterAPI: activities.ClusterAPIFacts{Step: drain.HookNotNeeded},
		Why:        "the machine has no node",
	}
	require.Equal(
		t,
		workflows.Result{Outcome: activities.ResultCancelled, Why: "the machine has no node"},
		e.RunClusterAPIDrain(t),
	)
	require.Empty(t, e.RequestedEvictions)
	require.Empty(t, e.Reports)
	require.Len(t, e.HookReleases, 1)
	require.False(t, e.HookReleases[0].Drained, "Cluster API does as it would without Millwright")
}

func TestSkippedClusterAPIDrainEndsAsSkipped(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	e.HookDecision, e.Result = activities.Decision{
		ClusterAPI: activities.ClusterAPIFacts{Step: drain.HookDrainEnded},
		Why:        "ann: test",
	}, vocabulary.DrainResultSkipped
	require.Equal(t, vocabulary.DrainResultSkipped, e.RunClusterAPIDrain(t).Outcome)
	conditions, events := e.ReportedReasons()
	require.Equal(t, []string{"Skipped"}, conditions)
	require.Equal(t, []string{"DrainSkipped"}, events)
	require.True(t, e.HookReleases[0].Drained, "nor does Cluster API drain")
}

func TestAMachineThatNeedsNoDrainKeepsItsHook(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	e.HookDecision, e.Result = activities.Decision{
		ClusterAPI: activities.ClusterAPIFacts{Step: drain.HookNothing},
	}, activities.ResultCancelled
	require.Equal(t, activities.ResultCancelled, e.RunClusterAPIDrain(t).Outcome)
	require.Empty(t, e.HookReleases)
}

// Before the drain removes pods, it waits until Cluster API has reached the hook, the node's cluster answers, and its
// turn has come.
func TestDrainForClusterAPIWaitsBeforeItEvicts(t *testing.T) {
	for name, row := range map[string]struct {
		wait    activities.Decision
		signal  bool // a signal ends the wait; otherwise a timer ends it
		steps   []string
		blocked []string
	}{
		"Cluster API":          {activities.Decision{ClusterAPI: activities.ClusterAPIFacts{Step: drain.HookNotReached}, Why: "not yet"}, true, nil, nil},
		"its turn":             {activities.Decision{ClusterAPI: activities.ClusterAPIFacts{Step: drain.HookDrain, Queue: "queued: place 1 of 1"}}, true, []string{vocabulary.StepQueuedForDrain}, nil},
		"the end of a pause":   {activities.Decision{ClusterAPI: activities.ClusterAPIFacts{Step: drain.HookPaused}, Why: "Cluster c is paused"}, true, []string{vocabulary.StepDrain}, []string{vocabulary.BlockedByPause}},
		"the cluster of nodes": {activities.Decision{ClusterAPI: activities.ClusterAPIFacts{Step: drain.HookNodeUnknown}, Why: "no answer"}, false, []string{vocabulary.StepDrain}, []string{vocabulary.BlockedByUnavailableTarget}},
	} {
		t.Run(name, func(t *testing.T) {
			e := workflowstest.NewDrainTestEnv(t)
			e.HookDecision = row.wait
			e.AddEvictionAnswers(activities.EvictionResult{Outcome: activities.OutcomeEmpty})
			e.Env.RegisterDelayedCallback(func() {
				unlock := e.Lock()
				require.Empty(t, e.RequestedEvictions, "no pod is touched")
				require.Zero(t, e.CordonCount)
				e.HookDecision = activities.Decision{ClusterAPI: activities.ClusterAPIFacts{Step: drain.HookDrain}}
				unlock()
				if row.signal {
					workflowstest.SignalChange(e.Env)
				}
			}, time.Hour)
			require.Equal(t, vocabulary.DrainResultDrained, e.RunClusterAPIDrain(t).Outcome)
			var steps []string
			for _, r := range e.Reports[:len(row.steps)] {
				steps = append(steps, r.Step.Name)
				require.Equal(t, row.blocked, r.Step.BlockedBy)
			}
			require.Equal(t, row.steps, steps, "said once")
			require.Len(t, e.Reports, len(row.steps)+2, "then as every drain")
			require.Len(t, e.HookReleases, 1)
		})
	}
}

// While a cluster does not answer, the drain waits longer after each attempt. After an answer, the wait is short again.
func TestAClusterThatDoesNotAnswerIsAskedLessOften(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	e.HookDecision = activities.Decision{
		ClusterAPI: activities.ClusterAPIFacts{Step: drain.HookNodeUnknown},
		Why:        "no answer",
	}
	e.AddEvictionAnswers(activities.EvictionResult{Outcome: activities.OutcomeEmpty})
	next := func(after time.Duration, hook activities.Decision) {
		e.Env.RegisterDelayedCallback(func() {
			unlock := e.Lock()
			e.HookDecision = hook
			unlock()
			workflowstest.SignalChange(e.Env)
		}, after)
	}
	next(
		20*time.Minute,
		activities.Decision{ClusterAPI: activities.ClusterAPIFacts{Step: drain.HookPaused}, Why: "Cluster c is paused"},
	)
	next(
		21*time.Minute,
		activities.Decision{ClusterAPI: activities.ClusterAPIFacts{Step: drain.HookNodeUnknown}, Why: "no answer"},
	)
	next(22*time.Minute, activities.Decision{ClusterAPI: activities.ClusterAPIFacts{Step: drain.HookDrain}})
	require.Equal(t, vocabulary.DrainResultDrained, e.RunClusterAPIDrain(t).Outcome)
	var after []time.Duration
	for _, at := range e.DecisionTimes {
		if d := at.Sub(e.DecisionTimes[0]).Round(time.Second); !slices.Contains(after, d) {
			after = append(after, d)
		}
	}
	const s = time.Second
	require.Equal(
		t,
		[]time.Duration{
			0,
			10 * s,
			30 * s,
			70 * s,
			150 * s,
			310 * s,
			610 * s,
			910 * s,
			1200 * s,
			1260 * s,
			1270 * s,
			1290 * s,
			1320 * s,
		},
		after,
	)
}

// A held drain does not start and takes no place in the drain queue.
func TestHeldClusterAPIDrainDoesNotBegin(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	e.HookDecision, e.HoldReason = activities.Decision{
		ClusterAPI: activities.ClusterAPIFacts{Step: drain.HookDrain, Queue: "queued: place 1 of 1"},
	}, "ann: lunch"
	e.AddEvictionAnswers(activities.EvictionResult{Outcome: activities.OutcomeEmpty})
	e.Env.RegisterDelayedCallback(func() {
		unlock := e.Lock()
		e.HoldReason, e.HookDecision.ClusterAPI.Queue = "", ""
		unlock()
		workflowstest.SignalChange(e.Env)
	}, time.Hour)
	require.Equal(t, vocabulary.DrainResultDrained, e.RunClusterAPIDrain(t).Outcome)
	_, events := e.ReportedReasons()
	require.Equal(t, []string{"DeletionHeld", "DeletionResumed", "Drained"}, events)
}

// A drain that was cancelled in Temporal starts again only after a person resumes it.
func TestADrainForClusterAPIThatIsCancelledInTemporalIsHeld(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	e.HookDecision = activities.Decision{ClusterAPI: activities.ClusterAPIFacts{Step: drain.HookDrain}}
	e.AddLongEviction()
	e.Env.RegisterDelayedCallback(e.Env.CancelWorkflow, time.Minute)
	e.Env.ExecuteWorkflow(workflows.ClusterAPIDrain, workflows.Input{Ref: workflowstest.ObjectRef})
	require.Error(t, e.Env.GetWorkflowError())
	require.Len(t, e.HoldRecords, 1)
	require.Equal(t, "the drain was cancelled in Temporal", e.HoldRecords[0].Why)
	require.Empty(t, e.HookReleases)
}
