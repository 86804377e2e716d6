//go:build integration

package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"millwright/devstack/build"
	"millwright/workflows/run"
)

// checkStepNames returns 1 if a run has shown a step that docs/reference/words.md does not list; otherwise 0.
// Dashboards and alerts select steps by the names on this page.
func (r *Rig) checkStepNames(ctx context.Context) int {
	unknown, err := r.findUnknownSteps(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "look for the words of steps:", err)
		return 1
	}
	for step, id := range unknown {
		fmt.Fprintf(os.Stderr, "docs/reference/words.md lacks the step %q of workflow %s\n", step, id)
	}
	return min(len(unknown), 1)
}

// findUnknownSteps returns the steps that docs/reference/words.md does not list. findUnknownSteps maps each of these
// steps to the ID of a workflow that has shown the step.
func (r *Rig) findUnknownSteps(ctx context.Context) (map[string]string, error) {
	repo, err := build.FindRepo("")
	if err != nil {
		return nil, err
	}
	words, err := os.ReadFile(filepath.Join(repo, "docs", "reference", "words.md"))
	if err != nil {
		return nil, err
	}
	runs, err := r.listWorkflowRuns(ctx, "Step IS NOT NULL")
	if err != nil {
		return nil, err
	}
	unknown := map[string]string{}
	for _, w := range runs {
		var step string
		if err := converter.GetDefaultDataConverter().
			FromPayload(w.SearchAttributes.IndexedFields["Step"], &step); err != nil {
			return nil, fmt.Errorf("read the step of %s: %w", w.Execution.WorkflowId, err)
		}
		if step != "" && !bytes.Contains(words, []byte("| `"+step+"` |")) {
			unknown[step] = w.Execution.WorkflowId
		}
	}
	return unknown, nil
}

// WorkflowRuns returns the runs that match a visibility query, the newest run first. An empty query matches all runs.
func (r *Rig) WorkflowRuns(t *testing.T, query string) []*workflowpb.WorkflowExecutionInfo {
	t.Helper()
	all, err := r.listWorkflowRuns(t.Context(), query)
	require.NoError(t, err)
	return all
}

// listWorkflowRuns retries a request if Temporal does not answer within the SDK's timeout of 10 s, as on a slow
// computer.
func (r *Rig) listWorkflowRuns(ctx context.Context, query string) (all []*workflowpb.WorkflowExecutionInfo, err error) {
	var page []byte
	for {
		answer, err := r.Temporal.ListWorkflow(
			ctx,
			&workflowservice.ListWorkflowExecutionsRequest{Query: query, PageSize: 500, NextPageToken: page},
		)
		late := &serviceerror.DeadlineExceeded{}
		if ctx.Err() == nil && (errors.As(err, &late) || errors.Is(err, context.DeadlineExceeded)) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list workflows: %w", err)
		}
		all = append(all, answer.Executions...)
		if page = answer.NextPageToken; len(page) == 0 {
			return all, nil
		}
	}
}

// CountOpenRuns counts the open runs for the objects of a namespace, by workflow type.
func (r *Rig) CountOpenRuns(t *testing.T, namespace string) map[string]int {
	t.Helper()
	count := map[string]int{}
	for _, w := range r.WorkflowRuns(t, fmt.Sprintf(`ExecutionStatus = "Running" AND MachineNamespace = %q`, namespace)) {
		count[w.Type.Name]++
	}
	return count
}

// WorkflowDetails returns the current details of an open run, as Temporal's UI shows them. WorkflowDetails returns ""
// if the run cannot answer yet.
func (r *Rig) WorkflowDetails(t *testing.T, id string) string {
	t.Helper()
	answer, err := r.Temporal.QueryWorkflow(t.Context(), id, "", "__temporal_workflow_metadata")
	if err != nil {
		return ""
	}
	var shown sdkpb.WorkflowMetadata
	require.NoError(t, answer.Get(&shown))
	return shown.GetCurrentDetails()
}

// History returns the whole history of a run.
func (r *Rig) History(t *testing.T, id, run string) *historypb.History {
	t.Helper()
	history := &historypb.History{}
	for events := r.Temporal.GetWorkflowHistory(t.Context(), id, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
		event, err := events.Next()
		require.NoError(t, err)
		history.Events = append(history.Events, event)
	}
	return history
}

// MachineHistories returns the histories of the runs for the machines of a namespace, by run ID.
func (r *Rig) MachineHistories(t *testing.T, namespace string) map[string]*historypb.History {
	t.Helper()
	histories := map[string]*historypb.History{}
	for _, w := range r.WorkflowRuns(t, fmt.Sprintf("WorkflowType = %q AND MachineNamespace = %q", run.KindMachine, namespace)) {
		histories[w.Execution.RunId] = r.History(t, w.Execution.WorkflowId, w.Execution.RunId)
	}
	return histories
}

// AwaitDeploymentFollowsRollout waits until a new run of a deployment's workflow follows a rollout that an earlier run
// has started. AwaitDeploymentFollowsRollout looks for the signal of the new run in the rollout's history.
func (r *Rig) AwaitDeploymentFollowsRollout(t *testing.T, rollout, deployment string) {
	t.Helper()
	Eventually(t, deployment+" follows its rollout", func() (bool, any) {
		told := slices.ContainsFunc(r.History(t, rollout, "").Events, func(e *historypb.HistoryEvent) bool {
			signal := e.GetWorkflowExecutionSignaledEventAttributes()
			if signal.GetSignalName() != run.SignalChanged {
				return false
			}
			var changed run.ChangeSignal
			require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(signal.Input, &changed))
			return changed.Tell == deployment
		})
		return told, rollout
	})
}

// EndedActivity describes a regular (not local) activity that has ended, as the history records it. All times of an
// EndedActivity are by the clock of Temporal's server.
type EndedActivity struct {
	Type, Queue string
	Attempt     int32     // number of the last attempt; the first attempt is 1
	ScheduledAt time.Time // time at which the workflow scheduled the activity
	StartedAt   time.Time // time at which a worker began the last attempt
	EndedAt     time.Time
}

// EndedActivities returns the regular activities that have succeeded or failed. The history must be complete.
func EndedActivities(history *historypb.History) (list []EndedActivity) {
	for _, e := range history.Events {
		var scheduled, started int64
		switch e.EventType {
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
			of := e.GetActivityTaskCompletedEventAttributes()
			scheduled, started = of.ScheduledEventId, of.StartedEventId
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED:
			of := e.GetActivityTaskFailedEventAttributes()
			scheduled, started = of.ScheduledEventId, of.StartedEventId
		default:
			continue
		}
		asked, begun := history.Events[scheduled-1], history.Events[started-1] // event IDs begin with 1 and have no gaps
		of := asked.GetActivityTaskScheduledEventAttributes()
		list = append(list, EndedActivity{
			Type: of.ActivityType.Name, Queue: of.TaskQueue.Name, Attempt: begun.GetActivityTaskStartedEventAttributes().Attempt,
			ScheduledAt: asked.EventTime.AsTime(), StartedAt: begun.EventTime.AsTime(), EndedAt: e.EventTime.AsTime(),
		})
	}
	return list
}
