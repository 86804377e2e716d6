package watch

import (
	"context"
	"errors"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdk "go.temporal.io/sdk/temporal"

	"millwright/api/v1alpha1"
	"millwright/workflows/orphan"
	"millwright/workflows/run"
)

// skipOverlapPolicy is the overlap policy of the schedules: a sweep of a class does not start while another sweep of
// that class runs.
const skipOverlapPolicy = enumspb.SCHEDULE_OVERLAP_POLICY_SKIP

func (s *sweepScheduler) desiredSchedule(class *v1alpha1.MachineClass) client.ScheduleOptions {
	ref := objectRef(class)
	id := s.shard.Installation.ID(run.KindOrphanCollection, ref)
	owner := run.ParentNames{
		Cluster: s.cluster.ClusterNameOfNamespace(class.Namespace), Provider: class.ProviderName(),
	}
	return client.ScheduleOptions{
		ID: id,
		Spec: client.ScheduleSpec{
			Intervals: []client.ScheduleIntervalSpec{{Every: s.interval}},
			Jitter:    min(s.interval/jitterDivisor, maxJitter),
		},
		Overlap:       skipOverlapPolicy,
		CatchupWindow: catchUpWindow,
		Action: &client.ScheduleWorkflowAction{
			ID:                    id,
			Workflow:              string(run.KindOrphanCollection),
			Args:                  []any{orphan.Input{Class: ref, Provider: class.ProviderName()}},
			TaskQueue:             s.shard.TaskQueue(run.QueueMachines),
			TypedSearchAttributes: run.StartSearchAttributes(class.Namespace, owner),
			Priority:              run.TaskPriority(run.KindOrphanCollection, class.Namespace, owner),
			StaticSummary:         fmt.Sprintf("Sweep over the instances of MachineClass %s", ref.Key()),
			StaticDetails:         "Deletes instances that had no Machine in two sweeps.",
		},
	}
}

// ensureSchedule creates a schedule, or updates the interval and the action of an existing schedule. ensureSchedule
// keeps all other fields, because a user may have paused the schedule.
func (s *sweepScheduler) ensureSchedule(ctx context.Context, wanted client.ScheduleOptions) error {
	handle := s.scheduleClient.GetHandle(ctx, wanted.ID)
	there, err := handle.Describe(ctx)
	if _, absent := errors.AsType[*serviceerror.NotFound](err); absent {
		if _, err = s.scheduleClient.Create(ctx, wanted); errors.Is(err, sdk.ErrScheduleAlreadyRunning) {
			return nil // another bridge created the schedule first: the next check compares the schedule
		}
		return err
	}
	if err != nil || scheduleMatches(there.Schedule, wanted) {
		return err
	}
	return handle.Update(
		ctx,
		client.ScheduleUpdateOptions{DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
			schedule := in.Description.Schedule
			schedule.Spec, schedule.Action = &wanted.Spec, wanted.Action
			return &client.ScheduleUpdate{Schedule: &schedule}, nil
		}},
	)
}

// scheduleMatches reports whether a schedule has the desired interval, task queue and input.
func scheduleMatches(there client.Schedule, wanted client.ScheduleOptions) bool {
	action, ok := there.Action.(*client.ScheduleWorkflowAction)
	if !ok || there.Spec == nil || len(there.Spec.Intervals) != 1 || len(action.Args) != 1 {
		return false
	}
	payload, ok := action.Args[0].(*commonpb.Payload)
	var input orphan.Input
	if !ok || converter.GetDefaultDataConverter().FromPayload(payload, &input) != nil {
		return false
	}
	wantedAction := wanted.Action.(*client.ScheduleWorkflowAction)
	return action.TaskQueue == wantedAction.TaskQueue && input == wantedAction.Args[0] &&
		there.Spec.Intervals[0].Every == wanted.Spec.Intervals[0].Every
}
