package watch

import (
	"context"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdk "go.temporal.io/sdk/temporal"

	"millwright/api/v1alpha1"
	"millwright/workflows"
)

// skip: while one sweep is under way, no other one of its class begins.
const skip = enumspb.SCHEDULE_OVERLAP_POLICY_SKIP

// How exactly sweeps keep to the clock.
const (
	catchUp     = time.Minute // a sweep that is later than this, because Temporal was away, is left out
	jitterShare = 10          // each begins up to a tenth of the period late, so that not all classes begin at once
	jitterMost  = time.Minute
)

// wantedSchedule returns the schedule that a class should have.
func wantedSchedule(class *v1alpha1.MachineClass, every time.Duration) client.ScheduleOptions {
	ref := refOf(class)
	id := workflows.ID(workflows.KindOrphanCollection, ref)
	owner := workflows.Owner{Provider: class.Provider}
	return client.ScheduleOptions{
		ID:            id,
		Spec:          client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: every}}, Jitter: min(every/jitterShare, jitterMost)},
		Overlap:       skip,
		CatchupWindow: catchUp,
		Action: &client.ScheduleWorkflowAction{
			ID:                    id,
			Workflow:              string(workflows.KindOrphanCollection),
			Args:                  []any{workflows.OrphanInput{Class: ref, Provider: class.Provider}},
			TaskQueue:             workflows.QueueMachines,
			TypedSearchAttributes: workflows.StartAttributes(class.Namespace, owner),
			Priority:              workflows.Priority(workflows.KindOrphanCollection, class.Namespace, owner),
			StaticSummary:         fmt.Sprintf("Sweep over the instances of MachineClass %s", ref.Key()),
			StaticDetails:         "Deletes instances that have no Machine, after two looks.",
		},
	}
}

// ensure makes a schedule, or makes the one that is there run as often and with the same input. All else of it is left as it is:
// people may have paused it.
func (s *sweeps) ensure(ctx context.Context, wanted client.ScheduleOptions) error {
	handle := s.schedules.GetHandle(ctx, wanted.ID)
	there, err := handle.Describe(ctx)
	if absent := new(serviceerror.NotFound); errors.As(err, &absent) {
		if _, err = s.schedules.Create(ctx, wanted); errors.Is(err, sdk.ErrScheduleAlreadyRunning) {
			return nil // another bridge was faster: the next look compares
		}
		return err
	}
	if err != nil || as(there.Schedule, wanted) {
		return err
	}
	return handle.Update(ctx, client.ScheduleUpdateOptions{DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
		schedule := in.Description.Schedule
		schedule.Spec, schedule.Action = &wanted.Spec, wanted.Action
		return &client.ScheduleUpdate{Schedule: &schedule}, nil
	}})
}

// as reports whether a schedule runs as often as wanted, and with the same input.
func as(there client.Schedule, wanted client.ScheduleOptions) bool {
	action, ok := there.Action.(*client.ScheduleWorkflowAction)
	if !ok || there.Spec == nil || len(there.Spec.Intervals) != 1 || len(action.Args) != 1 {
		return false
	}
	input, err := inputOf(action.Args[0])
	return err == nil && input == wanted.Action.(*client.ScheduleWorkflowAction).Args[0] && there.Spec.Intervals[0].Every == wanted.Spec.Intervals[0].Every
}

// inputOf reads the input of a schedule as the server tells it.
func inputOf(arg any) (input workflows.OrphanInput, err error) {
	payload, ok := arg.(*commonpb.Payload)
	if !ok {
		return input, fmt.Errorf("input of a schedule is %T", arg)
	}
	err = converter.GetDefaultDataConverter().FromPayload(payload, &input)
	return input, err
}
