//go:build integration

package rig

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
)

// Workflows returns the runs that a visibility query finds, newest first; an empty query finds all.
func (r *Rig) Workflows(t *testing.T, query string) []*workflowpb.WorkflowExecutionInfo {
	t.Helper()
	var all []*workflowpb.WorkflowExecutionInfo
	var page []byte
	for {
		answer, err := r.Temporal.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: query, PageSize: 1000, NextPageToken: page})
		require.NoError(t, err)
		all = append(all, answer.Executions...)
		if page = answer.NextPageToken; len(page) == 0 {
			return all
		}
	}
}

// OpenWorkflows counts the open runs for the objects of a namespace, by type.
func (r *Rig) OpenWorkflows(t *testing.T, namespace string) map[string]int {
	t.Helper()
	count := map[string]int{}
	for _, w := range r.Workflows(t, fmt.Sprintf(`ExecutionStatus = "Running" AND MachineNamespace = %q`, namespace)) {
		count[w.Type.Name]++
	}
	return count
}

// Details returns what an open run shows to people, as Temporal's UI has it; empty when it cannot tell yet.
func (r *Rig) Details(t *testing.T, id string) string {
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
