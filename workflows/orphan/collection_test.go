package orphan_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"millwright/activities/cloud"
	"millwright/activities/kube"
	activities "millwright/activities/orphan"
	"millwright/decide/orphan"
	workflows "millwright/workflows/orphan"
	"millwright/workflows/run"
	"millwright/workflows/workflowstest"
)

// sweepTestEnv is a class with instances; some of the instances have no machine.
type sweepTestEnv struct {
	t           *testing.T
	mu          sync.Mutex // activities run concurrently
	env         *testsuite.TestWorkflowEnvironment
	decision    cloud.OrphanDecision
	searchError error // error of the search
	// result by machine: an OrphanCallResult or an error; without an entry, the instance is deleted
	deletionResults      map[string]any
	searchInput          cloud.OrphanSearch
	deletedMachines      []string
	runningDeletionCount int
	maxRunningDeletions  int // maximum number of deletions that ran at the same time
	reports              []activities.Report
	failsReports         bool  // true: ReportOrphans fails
	markNodesError       error // error of MarkNodes
	markNodesCallCount   int   // number of MarkNodes calls
}

var sweepInput = workflows.Input{
	Class:    workflowstest.ObjectRef,
	Provider: "fake",
	Settings: orphan.Settings{Confirm: time.Minute, MinAge: time.Second, MaxPerSweep: 7},
}

func newSweepTestEnv(t *testing.T) *sweepTestEnv {
	w := &sweepTestEnv{t: t, env: workflowstest.NewEnvironment(t), deletionResults: map[string]any{}}
	w.env.RegisterActivity(&cloud.Activities{})
	w.env.OnActivity("FindOrphans", mock.Anything, mock.Anything).
		Return(func(_ context.Context, in cloud.OrphanSearch) (cloud.OrphanDecision, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.searchInput = in
			return w.decision, w.searchError
		})
	w.env.OnActivity("CollectOrphan", mock.Anything, mock.Anything).
		Return(func(_ context.Context, in cloud.OrphanCall) (cloud.OrphanCallResult, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			require.Equal(t, workflowstest.ObjectRef, in.Class)
			switch end := w.deletionResults[in.Target.Machine].(type) {
			case cloud.OrphanCallResult:
				return end, nil
			case error:
				return cloud.OrphanCallResult{}, end
			default:
				w.deletedMachines = append(w.deletedMachines, in.Target.Machine)
				return cloud.OrphanCallResult{}, nil
			}
		})
	w.env.OnActivity("MarkNodes", mock.Anything, mock.Anything).
		Return(func(_ context.Context, in activities.NodeSweep) (int, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			require.Equal(t, workflowstest.ObjectRef.Namespace, in.Namespace)
			w.markNodesCallCount++
			return 2, w.markNodesError
		})
	w.env.OnActivity("ReportOrphans", mock.Anything, mock.Anything).
		Return(func(_ context.Context, in activities.Report) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.failsReports {
				return errors.New("nobody listens")
			}
			w.reports = append(w.reports, in)
			return nil
		})
	return w
}

// setMissingMachines deletes these machines from the world. An earlier sweep has already seen their instances as
// orphans.
func (w *sweepTestEnv) setMissingMachines(machines ...string) {
	w.decision.Instances, w.decision.Machines, w.decision.Orphans = 40, 30, len(machines)
	for _, name := range machines {
		w.decision.Collect = append(
			w.decision.Collect,
			orphan.DeletionTarget{Machine: name, UID: "uid-" + name, ProviderIDs: []string{"i-" + name}},
		)
		w.decision.Sightings = append(
			w.decision.Sightings,
			orphan.Sighting{ProviderID: "i-" + name, UID: "uid-" + name, Since: sightingTime},
		)
	}
}

var sightingTime = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func (w *sweepTestEnv) runSweep() workflows.Result {
	w.t.Helper()
	w.env.ExecuteWorkflow(workflows.Collection, sweepInput)
	require.NoError(w.t, w.env.GetWorkflowError())
	var result workflows.Result
	require.NoError(w.t, w.env.GetWorkflowResult(&result))
	return result
}

func newSightings(names ...string) (all []orphan.Sighting) {
	for _, name := range names {
		all = append(all, orphan.Sighting{ProviderID: "i-" + name, UID: "uid-" + name, Since: sightingTime})
	}
	return all
}

func TestSweepDeletesOrphansAndReportsThem(t *testing.T) {
	w := newSweepTestEnv(t)
	w.setMissingMachines("a", "b")
	w.decision.Sightings = append(w.decision.Sightings, newSightings("waiting")...)
	w.decision.Notes, w.decision.Unclear = []string{"i-waiting stays for now"}, []string{"i-x carries no UID"}
	begun := w.env.Now()
	result := w.runSweep()
	assert.Equal(t, workflows.Result{
		Outcome:   workflows.OutcomeSwept,
		Why:       "2 of 40 instances had no Machine, 2 were deleted",
		Instances: 40,
		Machines:  30,
		Orphans:   2,
		Collected: []string{
			"i-a",
			"i-b",
		},
		Kept:      []string{"i-waiting stays for now"},
		Unclear:   []string{"i-x carries no UID"},
		Sightings: newSightings("waiting"),
		Nodes:     2,
	}, result)
	assert.Equal(t, orphan.Settings{Confirm: time.Minute, MinAge: time.Second, MaxPerSweep: 7}, w.searchInput.Settings)
	assert.Equal(t, begun.UTC(), w.searchInput.At.UTC(), "the workflow's time")
	assert.Empty(t, w.searchInput.Sightings, "the first sweep knows of none")
	assert.Equal(
		t,
		[]activities.Report{
			{Class: workflowstest.ObjectRef, Collected: []string{"i-a", "i-b"}, Unclear: []string{"i-x carries no UID"}},
		},
		w.reports,
	)
}

func TestASweepGetsTheSightingsOfThePreviousSweep(t *testing.T) {
	w := newSweepTestEnv(t)
	w.env.SetLastCompletionResult(workflows.Result{Outcome: workflows.OutcomeSwept, Sightings: newSightings("a", "b")})
	w.decision.Sightings = newSightings("a")
	result := w.runSweep()
	assert.Equal(t, newSightings("a", "b"), w.searchInput.Sightings)
	assert.Equal(t, newSightings("a"), result.Sightings, "and hands on what it has seen itself")
	assert.Equal(t, "each of 0 instances has its Machine, or is none of ours", result.Why)
}

func TestAnUnreadableResultResetsAllSightings(t *testing.T) {
	w := newSweepTestEnv(t)
	w.env.SetLastCompletionResult("nothing of ours")
	w.runSweep()
	assert.Empty(t, w.searchInput.Sightings)
}

func TestAHeldSweepDeletesNothingAndReportsTheHold(t *testing.T) {
	w := newSweepTestEnv(t)
	w.decision.Decision = orphan.Decision{Held: "3 instances and no machine at all", Instances: 3, Orphans: 3}
	result := w.runSweep()
	assert.Equal(
		t,
		workflows.Result{
			Outcome:   workflows.OutcomeHeld,
			Why:       "3 instances and no machine at all",
			Instances: 3,
			Orphans:   3,
			Nodes:     2,
		},
		result,
	)
	assert.Empty(t, w.deletedMachines)
	assert.Equal(
		t,
		[]activities.Report{{Class: workflowstest.ObjectRef, Held: "3 instances and no machine at all"}},
		w.reports,
	)
	assert.Contains(t, workflowstest.CurrentDetails(t, w.env), "held")
}

// The schedule passes the last available result to the next sweep. A failed sweep must therefore have no result.
func TestASweepThatGetsNoAnswerFailsAndDeletesNothing(t *testing.T) {
	for says, err := range map[string]error{
		// the activity fails at once, because this error is not retryable
		"may not list (Refused)": temporal.NewNonRetryableApplicationError("may not list", kube.FailureTypeRefused, nil),
		// other errors are retried
		"connection refused": errors.New("connection refused"),
	} {
		t.Run(says, func(t *testing.T) {
			w := newSweepTestEnv(t)
			w.searchError = err
			w.env.SetLastCompletionResult(workflows.Result{Sightings: newSightings("a")})
			begun := w.env.Now()
			w.env.ExecuteWorkflow(workflows.Collection, sweepInput)
			require.Error(t, w.env.GetWorkflowError())
			assert.LessOrEqual(t, w.env.Now().Sub(begun), 6*time.Minute, "the next sweep has to have its time")
			assert.Empty(t, w.deletedMachines)
			require.Len(t, w.reports, 1)
			assert.Contains(t, w.reports[0].Failed, says)
		})
	}
}

func TestSweepOfADeletedClassEndsAsGone(t *testing.T) {
	w := newSweepTestEnv(t)
	w.decision.Gone = true
	assert.Equal(t, workflows.Result{Outcome: run.OutcomeGone, Why: "the class is gone"}, w.runSweep())
	assert.Empty(t, w.reports)
	assert.Zero(t, w.markNodesCallCount)
}

func TestUndeletedOrphansKeepTheirSightings(t *testing.T) {
	w := newSweepTestEnv(t)
	w.setMissingMachines("a", "back", "refused", "away")
	w.deletionResults["back"] = cloud.OrphanCallResult{Kept: "Machine back exists"}
	w.deletionResults["refused"] = temporal.NewNonRetryableApplicationError("no", "PermissionDenied", nil)
	w.deletionResults["away"] = errors.New("connection refused")
	result := w.runSweep()
	assert.Equal(t, []string{"i-a"}, result.Collected)
	assert.Equal(t, newSightings("refused", "away"), result.Sightings, "what has its machine back is forgotten")
	require.Len(t, result.Kept, 3)
	assert.Equal(
		t,
		[]string{"i-back stays: Machine back exists", "i-refused stays: no (PermissionDenied)"},
		result.Kept[:2],
	)
	assert.Contains(t, result.Kept[2], "i-away stays: connection refused")
	assert.Equal(t, "4 of 40 instances had no Machine, 1 were deleted", result.Why)
}

func TestASweepDeletesAtMostFiveOrphansInParallel(t *testing.T) {
	w := newSweepTestEnv(t)
	var names []string
	for i := range orphan.MaxDeletionsPerSweep {
		names = append(names, fmt.Sprintf("lost-%d", i))
	}
	w.setMissingMachines(names...)
	for _, name := range names[:20] {
		w.deletionResults[name] = temporal.NewNonRetryableApplicationError(strings.Repeat("x", 5000), "Internal", nil)
	}
	w.env.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, _ converter.EncodedValues) {
		if info.ActivityType.Name == "CollectOrphan" {
			w.runningDeletionCount++
			w.maxRunningDeletions = max(w.maxRunningDeletions, w.runningDeletionCount)
		}
	})
	w.env.SetOnActivityCompletedListener(func(info *activity.Info, _ converter.EncodedValue, _ error) {
		if info.ActivityType.Name == "CollectOrphan" {
			w.runningDeletionCount--
		}
	})
	result := w.runSweep()
	assert.Equal(t, names[20:], w.deletedMachinesInOrder(names))
	assert.LessOrEqual(t, w.maxRunningDeletions, 5)
	assert.Len(t, result.Kept, 15)
	text, err := json.Marshal(result)
	require.NoError(t, err)
	assert.Less(t, len(text), 16<<10)
}

// deletedMachinesInOrder returns the deleted machines in the order of names, because the deletions of a batch end in
// random order.
func (w *sweepTestEnv) deletedMachinesInOrder(names []string) (deleted []string) {
	for _, name := range names {
		for _, d := range w.deletedMachines {
			if d == name {
				deleted = append(deleted, d)
			}
		}
	}
	return deleted
}

func TestASweepThatIsCancelledEnds(t *testing.T) {
	w := newSweepTestEnv(t)
	w.setMissingMachines("a")
	w.deletionResults["a"] = errors.New("connection refused")
	w.env.RegisterDelayedCallback(w.env.CancelWorkflow, 10*time.Second)
	w.env.ExecuteWorkflow(workflows.Collection, sweepInput)
	require.True(t, temporal.IsCanceledError(w.env.GetWorkflowError()))
	assert.Empty(t, w.deletedMachines)
}

func TestSweepCompletesIfItsReportFails(t *testing.T) {
	w := newSweepTestEnv(t)
	w.setMissingMachines("a")
	w.failsReports = true
	assert.Equal(t, []string{"i-a"}, w.runSweep().Collected)
}

func TestSweepCompletesIfNodesCannotBeMarked(t *testing.T) {
	w := newSweepTestEnv(t)
	w.setMissingMachines("a")
	w.markNodesError = errors.New("the target is away")
	result := w.runSweep()
	assert.Equal(t, []string{"i-a"}, result.Collected)
	assert.Zero(t, result.Nodes)
	assert.Positive(t, w.markNodesCallCount)
	assert.Len(t, w.reports, 1)
}

func TestSweepWorkflowID(t *testing.T) {
	assert.Equal(
		t,
		"garden/orphans/shoot--a/small/uid",
		run.Installation("garden").ID(run.KindOrphanCollection, kube.Ref{Namespace: "shoot--a", Name: "small", UID: "uid"}),
	)
}
