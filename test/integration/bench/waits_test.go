//go:build integration && bench

package bench

import (
	"maps"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"

	"millwright/provider"
	"millwright/test/bench"
	"millwright/test/integration/rig"
)

// countHistoryEvents counts the events in the histories of machines, by kind.
func countHistoryEvents(histories map[string]*historypb.History) map[string]int {
	names := map[enumspb.EventType]string{
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:               "runs",
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:              "signals",
		enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:                  "workflow tasks",
		enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED:                     "failed workflow tasks",
		enumspb.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:                  "failed workflow tasks",
		enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:                  "regular activities",
		enumspb.EVENT_TYPE_MARKER_RECORDED:                          "local activities",
		enumspb.EVENT_TYPE_TIMER_STARTED:                            "timers",
		enumspb.EVENT_TYPE_TIMER_FIRED:                              "timers that fired",
		enumspb.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES:        "upserts of search attributes",
		enumspb.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED: "child workflows",
	}
	counts := map[string]int{}
	for _, history := range histories {
		counts["events"] += len(history.Events)
		for _, e := range history.Events {
			if name := names[e.EventType]; name != "" {
				counts[name]++
			}
		}
	}
	return counts
}

// taskWaitTimes returns how long the tasks in the histories of machines waited for a worker: by type of cloud call, for
// all other activities, and for workflow tasks. taskWaitTimes ignores retried activities, because a history has only
// the first scheduled time and the start time of the last attempt.
func taskWaitTimes(histories map[string]*historypb.History) (list []bench.Interval) {
	measured := map[string][]time.Duration{}
	add := func(what string, from, to time.Time) {
		what += ": scheduled -> started"
		measured[what] = append(measured[what], to.Sub(from))
	}
	calls := rig.Installation.Shard(0).TaskQueue(provider.TaskQueue(""))
	for _, history := range histories {
		for _, a := range rig.EndedActivities(history) {
			switch {
			case a.Attempt > 1:
			case strings.HasPrefix(a.Queue, calls):
				add(a.Type, a.ScheduledAt, a.StartedAt)
			default:
				add("other activities", a.ScheduledAt, a.StartedAt)
			}
		}
		for _, e := range history.Events {
			if e.EventType == enumspb.EVENT_TYPE_WORKFLOW_TASK_STARTED {
				scheduled := history.Events[e.GetWorkflowTaskStartedEventAttributes().ScheduledEventId-1]
				add("workflow tasks", scheduled.EventTime.AsTime(), e.EventTime.AsTime())
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(measured)) {
		list = append(list, bench.NewInterval(name, measured[name], 0))
	}
	return list
}
