package watch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/workflows/orphan"
	"millwright/workflows/run"
)

// timetable is a fake of Temporal's schedules.
type timetable struct {
	mu     sync.Mutex
	there  map[string]client.Schedule
	asked  []string // changing requests: verb and ID
	looks  int
	answer error // error of every request
}

// entry is a handle of one schedule. Methods that the bridge does not use are missing.
type entry struct {
	client.ScheduleHandle
	of *timetable
	id string
}

func newTimetable() *timetable { return &timetable{there: map[string]client.Schedule{}} }

// enter records a request and returns the error that the test wants.
func (f *timetable) enter(verb, id string, needed bool) error {
	f.asked = append(f.asked, verb+" "+id)
	if _, found := f.there[id]; f.answer == nil && needed && !found {
		return serviceerror.NewNotFound("no such schedule")
	}
	return f.answer
}

// encoded returns an action as a server does: with an encoded input.
func encoded(t client.ScheduleOptions) client.Schedule {
	action := *t.Action.(*client.ScheduleWorkflowAction)
	payload, err := converter.GetDefaultDataConverter().ToPayload(action.Args[0])
	if err != nil {
		panic(err)
	}
	action.Args = []any{payload}
	spec := t.Spec
	return client.Schedule{Spec: &spec, Action: &action, State: &client.ScheduleState{}}
}

func (f *timetable) Create(_ context.Context, options client.ScheduleOptions) (client.ScheduleHandle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.enter("create", options.ID, false); err != nil {
		return nil, err
	}
	f.there[options.ID] = encoded(options)
	return nil, nil
}

func (f *timetable) GetHandle(_ context.Context, id string) client.ScheduleHandle {
	return &entry{of: f, id: id}
}

func (f *timetable) List(context.Context, client.ScheduleListOptions) (client.ScheduleListIterator, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &listing{slices.Collect(func(yield func(string) bool) {
		for id := range f.there {
			if !yield(id) {
				return
			}
		}
	})}, f.answer
}

type listing struct{ ids []string }

func (l *listing) HasNext() bool { return len(l.ids) > 0 }

func (l *listing) Next() (*client.ScheduleListEntry, error) {
	id := l.ids[0]
	l.ids = l.ids[1:]
	return &client.ScheduleListEntry{ID: id}, nil
}

func (e *entry) Delete(context.Context) error {
	e.of.mu.Lock()
	defer e.of.mu.Unlock()
	if _, found := e.of.there[e.id]; !found && e.of.answer == nil {
		return serviceerror.NewNotFound("no such schedule") // describing it changes nothing
	}
	err := e.of.enter("delete", e.id, true)
	delete(e.of.there, e.id)
	return err
}

func (e *entry) Describe(context.Context) (*client.ScheduleDescription, error) {
	e.of.mu.Lock()
	defer e.of.mu.Unlock()
	e.of.looks++
	schedule, found := e.of.there[e.id]
	if e.of.answer == nil && !found {
		return nil, serviceerror.NewNotFound("no such schedule")
	}
	return &client.ScheduleDescription{Schedule: schedule}, e.of.answer
}

func (e *entry) Update(_ context.Context, options client.ScheduleUpdateOptions) error {
	e.of.mu.Lock()
	defer e.of.mu.Unlock()
	if err := e.of.enter("update", e.id, true); err != nil {
		return err
	}
	update, err := options.DoUpdate(
		client.ScheduleUpdateInput{Description: client.ScheduleDescription{Schedule: e.of.there[e.id]}},
	)
	if err != nil {
		return err
	}
	now := encoded(client.ScheduleOptions{Spec: *update.Schedule.Spec, Action: update.Schedule.Action})
	now.State = update.Schedule.State
	e.of.there[e.id] = now
	return nil
}

func (e *entry) Trigger(_ context.Context, options client.ScheduleTriggerOptions) error {
	e.of.mu.Lock()
	defer e.of.mu.Unlock()
	if options.Overlap != enumspb.SCHEDULE_OVERLAP_POLICY_SKIP {
		return errors.New("two sweeps at once")
	}
	return e.of.enter("trigger", e.id, true)
}

// did returns the requests since the last call.
func (f *timetable) did() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}

func (f *timetable) reply(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = err
}

// change makes a change by another client.
func (f *timetable) change(by func(map[string]client.Schedule)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	by(f.there)
}

func (f *timetable) schedule(t *testing.T, id string) (client.Schedule, orphan.Input) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	schedule := f.there[id]
	var input orphan.Input
	require.NoError(
		t,
		converter.GetDefaultDataConverter().
			FromPayload(schedule.Action.(*client.ScheduleWorkflowAction).Args[0].(*commonpb.Payload), &input),
	)
	return schedule, input
}

// sweeping is inWorld with a bridge that keeps schedules.
func sweeping(t *testing.T, f *timetable, objects []runtime.Object, test func(w *world)) {
	t.Helper()
	inWorld(t, objects, func(w *world) {
		w.sweep(f, DefaultOrphanPeriod)
		test(w)
	})
}

// sweep makes another bridge the leader, which keeps schedules.
func (w *world) sweep(f *timetable, every time.Duration) {
	w.prepare = func(b *Bridge) { b.SweepOrphans(f, every) }
	w.lead()
	w.pass(3 * time.Second)
	w.took()
}

const smallSweeps = "garden/orphans/ns/small/uid-small"

func TestAClassGetsASchedule(t *testing.T) {
	f := newTimetable()
	sweeping(t, f, calmStack(), func(w *world) {
		assert.Equal(t, []string{"create " + smallSweeps}, f.did())
		schedule, input := f.schedule(t, smallSweeps)
		assert.Equal(
			t,
			orphan.Input{Class: cache.Ref{Namespace: "ns", Name: "small", UID: "uid-small"}, Provider: "virtual"},
			input,
		)
		action := schedule.Action.(*client.ScheduleWorkflowAction)
		assert.Equal(
			t,
			[]any{"OrphanCollection", "garden/machines", smallSweeps},
			[]any{action.Workflow, action.TaskQueue, action.ID},
		)
		assert.Equal(t, run.StartAttributes("ns", run.Owner{Provider: "virtual"}), action.TypedSearchAttributes)
		assert.Equal(t, []client.ScheduleIntervalSpec{{Every: 15 * time.Minute}}, schedule.Spec.Intervals)
		assert.Equal(t, time.Minute, schedule.Spec.Jitter)

		w.put(changed(aClass(), func(c *v1alpha1.MachineClass) { c.Generation++ }))
		w.pass(time.Hour)
		w.sweep(f, DefaultOrphanPeriod)
		assert.Empty(t, f.did(), "it is there")
		f.change(func(map[string]client.Schedule) { assert.Positive(t, f.looks) })
	})
}

func TestAScheduleFollowsTheFlagAndTheClass(t *testing.T) {
	f := newTimetable()
	sweeping(t, f, calmStack(), func(w *world) {
		f.did()
		f.change(func(there map[string]client.Schedule) {
			there[smallSweeps].State.Paused, there[smallSweeps].State.Note = true, "ann: on holiday"
		})
		w.sweep(f, time.Hour)
		assert.Equal(t, []string{"update " + smallSweeps}, f.did())
		schedule, _ := f.schedule(t, smallSweeps)
		assert.Equal(t, time.Hour, schedule.Spec.Intervals[0].Every)
		assert.True(t, schedule.State.Paused, "what a person wants of it stays")

		w.put(changed(aClass(), func(c *v1alpha1.MachineClass) { c.Generation, c.Provider = 2, "metal" }))
		w.pass(time.Second)
		assert.Equal(t, []string{"update " + smallSweeps}, f.did())
		_, input := f.schedule(t, smallSweeps)
		assert.Equal(t, "metal", input.Provider)

		w.sweep(f, 0)
		assert.Equal(t, []string{"delete " + smallSweeps}, f.did(), "0 means none")
		w.pass(time.Hour)
		assert.Empty(t, f.did())
	})
}

func TestAScheduleGoesWithItsClass(t *testing.T) {
	f := newTimetable()
	sweeping(t, f, calmStack(), func(w *world) {
		f.did()
		w.put(goingClass())
		w.pass(time.Second)
		assert.Empty(t, f.did(), "it still has a machine")
		w.remove(aMachine())
		w.remove(aClass())
		w.pass(time.Second)
		assert.Equal(t, []string{"delete " + smallSweeps}, f.did())

		again := changed(aClass(), func(c *v1alpha1.MachineClass) { c.UID = "uid-again" })
		w.put(again)
		w.pass(time.Second)
		assert.Equal(t, []string{"create garden/orphans/ns/small/uid-again"}, f.did())
		w.put(changed(again, toBeDeleted[*v1alpha1.MachineClass]))
		w.pass(time.Second)
		assert.Equal(t, []string{"delete garden/orphans/ns/small/uid-again"}, f.did(), "it has no machine")
	})
}

func TestANewLeaderDropsWhatIsLeft(t *testing.T) {
	f := newTimetable()
	f.there["garden/orphans/ns/small/uid-former"] = client.Schedule{}
	f.there["somebody-elses"] = client.Schedule{}
	f.there["shoot/orphans/ns/small/uid-theirs"] = client.Schedule{}
	sweeping(t, f, calmStack(), func(*world) {
		asked := f.did()
		slices.Sort(asked)
		assert.Equal(t, []string{"create " + smallSweeps, "delete garden/orphans/ns/small/uid-former"}, asked)
	})
}

func TestSchedulesThatTemporalDoesNotTake(t *testing.T) {
	f := newTimetable()
	f.reply(serviceerror.NewUnavailable("away"))
	sweeping(t, f, calmStack(), func(w *world) {
		w.put(changed(aMachine(), toBeDeleted[*v1alpha1.Machine]))
		w.pass(time.Second)
		assert.NotEmpty(t, w.asked(), "signals do not wait for it")
		f.reply(nil)
		assert.Empty(t, f.did())
		w.pass(scheduleRetry)
		assert.Equal(t, []string{"create " + smallSweeps}, f.did())
		f.change(func(there map[string]client.Schedule) { delete(there, smallSweeps) }) // Temporal has lost its data
		w.pass(listSchedules + time.Second)
		assert.Equal(t, []string{"create " + smallSweeps}, f.did())
	})
}

func TestABridgeThatIsNotAskedLeavesSchedulesAlone(t *testing.T) {
	inWorld(t, calmStack(), func(w *world) {
		w.put(changed(aMachine(), saysOutOfRange))
		w.put(changed(aClass(), func(c *v1alpha1.MachineClass) { c.Generation++ }))
		w.pass(time.Hour)
		assert.NotEmpty(t, w.asked())
	})
}

func saysOutOfRange(m *v1alpha1.Machine) {
	m.Status.LastOperation = v1alpha1.LastOperation{
		Type:      v1alpha1.MachineOperationCreate,
		State:     v1alpha1.MachineStateFailed,
		ErrorCode: "OutOfRange",
	}
}

func TestOutOfRangeStartsOneSweep(t *testing.T) {
	f := newTimetable()
	known := changed(machineNamed("known"), saysOutOfRange)
	sweeping(t, f, append(calmStack(), machineNamed("second"), known), func(w *world) {
		assert.Equal(t, []string{"create " + smallSweeps}, f.did(), "OutOfRange that a new leader finds triggers nothing")
		w.put(changed(aMachine(), saysOutOfRange))
		w.put(changed(machineNamed("second"), saysOutOfRange))
		w.pass(time.Second)
		assert.Equal(t, []string{"trigger " + smallSweeps}, f.did(), "one for both")
		w.pass(triggerInterval)
		w.put(changed(aMachine(), saysOutOfRange, func(m *v1alpha1.Machine) { m.Status.LastOperation.Description = "again" }))
		w.pass(time.Second)
		assert.Empty(t, f.did(), "it has said so before")
		w.put(aMachine())
		w.pass(time.Second)
		w.put(changed(aMachine(), saysOutOfRange))
		w.pass(time.Second)
		assert.Equal(t, []string{"trigger " + smallSweeps}, f.did(), "it was well in between")
		w.put(changed(machineNamed("new"), saysOutOfRange))
		w.put(changed(machineNamed("strange"), func(m *v1alpha1.Machine) { m.Spec.Class.Name = "missing" }))
		w.put(changed(machineNamed("strange"), saysOutOfRange, func(m *v1alpha1.Machine) { m.Spec.Class.Name = "missing" }))
		w.pass(2 * triggerInterval)
		assert.Empty(t, f.did())

		f.change(func(there map[string]client.Schedule) { there[smallSweeps].State.Paused = true })
		w.put(machineNamed("second"))
		w.put(changed(machineNamed("second"), saysOutOfRange))
		w.pass(2 * triggerInterval)
		assert.Empty(t, f.did(), "people have paused it")

		f.reply(serviceerror.NewUnavailable("away"))
		w.put(machineNamed("second"))
		w.put(changed(machineNamed("second"), saysOutOfRange))
		w.pass(time.Second)
		f.reply(nil)
		f.did()
		w.pass(5 * time.Minute)
		assert.Empty(t, f.did(), "the next sweep comes by the clock")
		w.sweep(f, 0)
		f.did()
		w.put(aMachine())
		w.put(changed(aMachine(), saysOutOfRange))
		w.pass(time.Second)
		assert.Empty(t, f.did(), "there is no schedule")
	})
}

func TestSchedulesAreNamedAsTheirWorkflows(t *testing.T) {
	assert.True(t, strings.HasPrefix(smallSweeps, garden.OrphanIDs()))
	assert.Equal(t, smallSweeps, garden.ID(run.KindOrphanCollection, refOf(aClass())))
}
