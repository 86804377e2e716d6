//go:build integration

package rig

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// LargestPayloadSizes reads the histories of all runs. For each kind of payload list, LargestPayloadSizes returns the
// size of the largest list in bytes. A kind consists of the event type and the name of the event's workflow, activity,
// signal, update or marker. Histories contain no query results and no heartbeats.
func (r *Rig) LargestPayloadSizes(t *testing.T) map[string]int {
	t.Helper()
	runs, err := r.listWorkflowRuns(t.Context(), "")
	require.NoError(t, err)
	largest := map[string]int{}
	var mu sync.Mutex
	var readers sync.WaitGroup
	next := make(chan int)
	for range 8 { // read in parallel, because a fleet has tens of thousands of histories
		readers.Go(func() {
			for i := range next {
				run := runs[i]
				sizes, err := r.payloadSizesOfRun(t, run.Type.Name, run.Execution)
				if err != nil {
					t.Errorf("read the history of %s: %v", run.Execution.WorkflowId, err)
				}
				mu.Lock()
				for kind, size := range sizes {
					largest[kind] = max(largest[kind], size)
				}
				mu.Unlock()
			}
		})
	}
	for i := range runs {
		next <- i
	}
	close(next)
	readers.Wait()
	return largest
}

// payloadSizesOfRun returns the sizes of the largest payload lists of one run, by kind as in LargestPayloadSizes.
func (r *Rig) payloadSizesOfRun(
	t *testing.T,
	workflow string,
	run *commonpb.WorkflowExecution,
) (map[string]int, error) {
	// names of activities, by the ID of the event that scheduled the activity
	sizes, names := map[string]int{}, map[int64]string{}
	events := r.Temporal.GetWorkflowHistory(
		t.Context(),
		run.WorkflowId,
		run.RunId,
		false,
		enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT,
	)
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return nil, err
		}
		name := eventName(event, names)
		if name == "" {
			name = workflow
		}
		forEachPayloadList(event.ProtoReflect(), func(p *commonpb.Payloads) {
			kind := event.EventType.String() + " " + name
			sizes[kind] = max(sizes[kind], proto.Size(p))
		})
	}
	return sizes, nil
}

// eventName returns the name of the activity, signal, update or marker to which an event belongs. eventName returns ""
// if the event has no such name.
func eventName(event *historypb.HistoryEvent, activities map[int64]string) string {
	if scheduled := event.GetActivityTaskScheduledEventAttributes(); scheduled != nil {
		activities[event.EventId] = scheduled.ActivityType.GetName()
		return activities[event.EventId]
	}
	for _, id := range []int64{
		event.GetActivityTaskCompletedEventAttributes().GetScheduledEventId(), event.GetActivityTaskFailedEventAttributes().GetScheduledEventId(),
		event.GetActivityTaskTimedOutEventAttributes().GetScheduledEventId(), event.GetActivityTaskCanceledEventAttributes().GetScheduledEventId(),
	} {
		if id != 0 {
			return activities[id]
		}
	}
	for _, name := range []string{
		event.GetWorkflowExecutionSignaledEventAttributes().GetSignalName(), event.GetMarkerRecordedEventAttributes().GetMarkerName(),
		event.GetWorkflowExecutionUpdateAcceptedEventAttributes().GetAcceptedRequest().GetInput().GetName(),
		event.GetStartChildWorkflowExecutionInitiatedEventAttributes().GetWorkflowType().GetName(),
		event.GetChildWorkflowExecutionCompletedEventAttributes().GetWorkflowType().GetName(),
	} {
		if name != "" {
			return name
		}
	}
	return ""
}

// forEachPayloadList calls visit with each list of payloads in a message.
func forEachPayloadList(m protoreflect.Message, visit func(*commonpb.Payloads)) {
	if p, ok := m.Interface().(*commonpb.Payloads); ok {
		visit(p)
		return
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap() && field.MapValue().Message() != nil:
			value.Map().
				Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					forEachPayloadList(v.Message(), visit)
					return true
				})
		case field.IsList() && field.Message() != nil:
			for i := range value.List().Len() {
				forEachPayloadList(value.List().Get(i).Message(), visit)
			}
		case !field.IsMap() && !field.IsList() && field.Message() != nil:
			forEachPayloadList(value.Message(), visit)
		}
		return true
	})
}
