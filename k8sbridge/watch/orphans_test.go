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
	"millwright/observe/observetest"
	"millwright/workflows/orphan"
	"millwright/workflows/run"
)

// fakeScheduleClient is a fake of Temporal's schedules.
type fakeScheduleClient struct {
	mu                sync.Mutex
	schedules         map[string]client.Schedule
	requests          []string // requests that change a schedule: verb and ID
	describeCallCount int
	replyError        error // error that every request returns
}

// fakeScheduleHandle is a handle of one schedule. fakeScheduleHandle implements only the methods that the bridge uses.
type fakeScheduleHandle struct {
	client.ScheduleHandle
	scheduleClient *fakeScheduleClient
	id             string
}

func newFakeScheduleClient() *fakeScheduleClient {
	return &fakeScheduleClient{schedules: map[string]client.Schedule{}}
}

// recordRequest records a request and returns the error that the test has set.
func (f *fakeScheduleClient) recordRequest(verb, id string, needed bool) error {
	f.requests = append(f.requests, verb+" "+id)
	if _, found := f.schedules[id]; f.replyError == nil && needed && !found {
		return serviceerror.NewNotFound("no such schedule")
	}
	return f.replyError
}

// scheduleWithEncodedInput returns a schedule with an encoded input, as from a server.
func scheduleWithEncodedInput(t client.ScheduleOptions) client.Schedule {
	action := *t.Action.(*client.ScheduleWorkflowAction)
	payload, err := converter.GetDefaultDataConverter().ToPayload(action.Args[0])
	if err != nil {
		panic(err)
	}
	action.Args = []any{payload}
	spec := t.Spec
	return client.Schedule{Spec: &spec, Action: &action, State: &client.ScheduleState{}}
}

func (f *fakeScheduleClient) Create(_ context.Context, options client.ScheduleOptions) (client.ScheduleHandle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.recordRequest("create", options.ID, false); err != nil {
		return nil, err
	}
	f.schedules[options.ID] = scheduleWithEncodedInput(options)
	return nil, nil
}

func (f *fakeScheduleClient) GetHandle(_ context.Context, id string) client.ScheduleHandle {
	return &fakeScheduleHandle{scheduleClient: f, id: id}
}

func (f *fakeScheduleClient) List(context.Context, client.ScheduleListOptions) (client.ScheduleListIterator, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &fakeScheduleIterator{slices.Collect(func(yield func(string) bool) {
		for id := range f.schedules {
			if !yield(id) {
				return
			}
		}
	})}, f.replyError
}

type fakeScheduleIterator struct{ ids []string }

func (l *fakeScheduleIterator) HasNext() bool { return len(l.ids) > 0 }

func (l *fakeScheduleIterator) Next() (*client.ScheduleListEntry, error) {
	id := l.ids[0]
	l.ids = l.ids[1:]
	return &client.ScheduleListEntry{ID: id}, nil
}

func (e *fakeScheduleHandle) Delete(context.Context) error {
	e.scheduleClient.mu.Lock()
	defer e.scheduleClient.mu.Unlock()
	if _, found := e.scheduleClient.schedules[e.id]; !found && e.scheduleClient.replyError == nil {
		// the deletion of a missing schedule changes nothing, so the request is not recorded
		return serviceerror.NewNotFound("no such schedule")
	}
	err := e.scheduleClient.recordRequest("delete", e.id, true)
	delete(e.scheduleClient.schedules, e.id)
	return err
}

func (e *fakeScheduleHandle) Describe(context.Context) (*client.ScheduleDescription, error) {
	e.scheduleClient.mu.Lock()
	defer e.scheduleClient.mu.Unlock()
	e.scheduleClient.describeCallCount++
	schedule, found := e.scheduleClient.schedules[e.id]
	if e.scheduleClient.replyError == nil && !found {
		return nil, serviceerror.NewNotFound("no such schedule")
	}
	return &client.ScheduleDescription{Schedule: schedule}, e.scheduleClient.replyError
}

func (e *fakeScheduleHandle) Update(_ context.Context, options client.ScheduleUpdateOptions) error {
	e.scheduleClient.mu.Lock()
	defer e.scheduleClient.mu.Unlock()
	if err := e.scheduleClient.recordRequest("update", e.id, true); err != nil {
		return err
	}
	update, err := options.DoUpdate(
		client.ScheduleUpdateInput{Description: client.ScheduleDescription{Schedule: e.scheduleClient.schedules[e.id]}},
	)
	if err != nil {
		return err
	}
	now := scheduleWithEncodedInput(client.ScheduleOptions{Spec: *update.Schedule.Spec, Action: update.Schedule.Action})
	now.State = update.Schedule.State
	e.scheduleClient.schedules[e.id] = now
	return nil
}

func (e *fakeScheduleHandle) Trigger(_ context.Context, options client.ScheduleTriggerOptions) error {
	e.scheduleClient.mu.Lock()
	defer e.scheduleClient.mu.Unlock()
	if options.Overlap != enumspb.SCHEDULE_OVERLAP_POLICY_SKIP {
		return errors.New("two sweeps at once")
	}
	return e.scheduleClient.recordRequest("trigger", e.id, true)
}

// takeRequests returns the requests since the last call.
func (f *fakeScheduleClient) takeRequests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.requests
	f.requests = nil
	return asked
}

func (f *fakeScheduleClient) setReplyError(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replyError = err
}

// changeSchedules changes the schedules, as another client would do.
func (f *fakeScheduleClient) changeSchedules(by func(map[string]client.Schedule)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	by(f.schedules)
}

func (f *fakeScheduleClient) storedSchedule(t *testing.T, id string) (client.Schedule, orphan.Input) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	schedule := f.schedules[id]
	var input orphan.Input
	require.NoError(
		t,
		converter.GetDefaultDataConverter().
			FromPayload(schedule.Action.(*client.ScheduleWorkflowAction).Args[0].(*commonpb.Payload), &input),
	)
	return schedule, input
}

// runSweepScheduleTest is runBridgeTest with a bridge that maintains schedules.
func runSweepScheduleTest(t *testing.T, f *fakeScheduleClient, objects []runtime.Object, test func(w *bridgeTestEnv)) {
	t.Helper()
	runBridgeTest(t, objects, func(w *bridgeTestEnv) {
		w.startLeaderWithSweeps(f, DefaultOrphanSweepPeriod)
		test(w)
	})
}

// startLeaderWithSweeps makes another bridge the leader. The new leader maintains schedules.
func (w *bridgeTestEnv) startLeaderWithSweeps(f *fakeScheduleClient, every time.Duration) {
	w.prepareBridge = func(b *Bridge) { b.EnableOrphanSweeps(f, every) }
	w.startLeader()
	w.advanceClock(3 * time.Second)
	w.takeCalls()
}

const smallClassScheduleID = "garden/orphans/ns/small/uid-small"

func TestANewClassGetsASchedule(t *testing.T) {
	f := newFakeScheduleClient()
	runSweepScheduleTest(t, f, objectsWithoutPendingWork(), func(w *bridgeTestEnv) {
		assert.Equal(t, []string{"create " + smallClassScheduleID}, f.takeRequests())
		schedule, input := f.storedSchedule(t, smallClassScheduleID)
		assert.Equal(
			t,
			orphan.Input{Class: cache.ObjectRef{Namespace: "ns", Name: "small", UID: "uid-small"}, Provider: "virtual"},
			input,
		)
		action := schedule.Action.(*client.ScheduleWorkflowAction)
		assert.Equal(
			t,
			[]any{"OrphanCollection", "garden/machines", smallClassScheduleID},
			[]any{action.Workflow, action.TaskQueue, action.ID},
		)
		assert.Equal(t, run.StartSearchAttributes("ns", run.ParentNames{Provider: "virtual"}), action.TypedSearchAttributes)
		assert.Equal(t, []client.ScheduleIntervalSpec{{Every: 15 * time.Minute}}, schedule.Spec.Intervals)
		assert.Equal(t, time.Minute, schedule.Spec.Jitter)

		w.putObject(changedCopy(testClass(), func(c *v1alpha1.MachineClass) { c.Generation++ }))
		w.advanceClock(time.Hour)
		w.startLeaderWithSweeps(f, DefaultOrphanSweepPeriod)
		assert.Empty(t, f.takeRequests(), "it is there")
		f.changeSchedules(func(map[string]client.Schedule) { assert.Positive(t, f.describeCallCount) })
	})
}

func TestSweepsHaveTheClusterOfTheirNamespace(t *testing.T) {
	f := newFakeScheduleClient()
	runSweepScheduleTest(t, f, objectsWithoutPendingWork(), func(w *bridgeTestEnv) {
		w.cluster.SetTargetSource(observetest.Targets{})
		w.putObject(changedCopy(testClass(), func(c *v1alpha1.MachineClass) { c.Name, c.UID = "second", "uid-second" }))
		w.advanceClock(time.Hour)
		schedule, _ := f.storedSchedule(t, "garden/orphans/ns/second/uid-second")
		assert.Equal(
			t,
			run.StartSearchAttributes("ns", run.ParentNames{Cluster: "ns", Provider: "virtual"}),
			schedule.Action.(*client.ScheduleWorkflowAction).TypedSearchAttributes,
		)
	})
}

func TestAScheduleIsUpdatedWhenTheFlagOrTheClassChanges(t *testing.T) {
	f := newFakeScheduleClient()
	runSweepScheduleTest(t, f, objectsWithoutPendingWork(), func(w *bridgeTestEnv) {
		f.takeRequests()
		f.changeSchedules(func(there map[string]client.Schedule) {
			there[smallClassScheduleID].State.Paused, there[smallClassScheduleID].State.Note = true, "ann: on holiday"
		})
		w.startLeaderWithSweeps(f, time.Hour)
		assert.Equal(t, []string{"update " + smallClassScheduleID}, f.takeRequests())
		schedule, _ := f.storedSchedule(t, smallClassScheduleID)
		assert.Equal(t, time.Hour, schedule.Spec.Intervals[0].Every)
		assert.True(t, schedule.State.Paused, "what a person wants of it stays")

		w.putObject(changedCopy(testClass(), func(c *v1alpha1.MachineClass) { c.Generation, c.Provider = 2, "metal" }))
		w.advanceClock(time.Second)
		assert.Equal(t, []string{"update " + smallClassScheduleID}, f.takeRequests())
		_, input := f.storedSchedule(t, smallClassScheduleID)
		assert.Equal(t, "metal", input.Provider)

		w.startLeaderWithSweeps(f, 0)
		assert.Equal(t, []string{"delete " + smallClassScheduleID}, f.takeRequests(), "0 means none")
		w.advanceClock(time.Hour)
		assert.Empty(t, f.takeRequests())
	})
}

func TestAScheduleIsDeletedWithItsClass(t *testing.T) {
	f := newFakeScheduleClient()
	runSweepScheduleTest(t, f, objectsWithoutPendingWork(), func(w *bridgeTestEnv) {
		f.takeRequests()
		w.putObject(classBeingDeleted())
		w.advanceClock(time.Second)
		assert.Empty(t, f.takeRequests(), "it still has a machine")
		w.deleteObject(testMachine())
		w.deleteObject(testClass())
		w.advanceClock(time.Second)
		assert.Equal(t, []string{"delete " + smallClassScheduleID}, f.takeRequests())

		again := changedCopy(testClass(), func(c *v1alpha1.MachineClass) { c.UID = "uid-again" })
		w.putObject(again)
		w.advanceClock(time.Second)
		assert.Equal(t, []string{"create garden/orphans/ns/small/uid-again"}, f.takeRequests())
		w.putObject(changedCopy(again, setDeleting[*v1alpha1.MachineClass]))
		w.advanceClock(time.Second)
		assert.Equal(t, []string{"delete garden/orphans/ns/small/uid-again"}, f.takeRequests(), "it has no machine")
	})
}

func TestANewLeaderDeletesSchedulesWithoutAClass(t *testing.T) {
	f := newFakeScheduleClient()
	f.schedules["garden/orphans/ns/small/uid-former"] = client.Schedule{}
	f.schedules["somebody-elses"] = client.Schedule{}
	f.schedules["shoot/orphans/ns/small/uid-theirs"] = client.Schedule{}
	runSweepScheduleTest(t, f, objectsWithoutPendingWork(), func(*bridgeTestEnv) {
		asked := f.takeRequests()
		slices.Sort(asked)
		assert.Equal(t, []string{"create " + smallClassScheduleID, "delete garden/orphans/ns/small/uid-former"}, asked)
	})
}

func TestFailedScheduleRequestsAreRetried(t *testing.T) {
	f := newFakeScheduleClient()
	f.setReplyError(serviceerror.NewUnavailable("away"))
	runSweepScheduleTest(t, f, objectsWithoutPendingWork(), func(w *bridgeTestEnv) {
		w.putObject(changedCopy(testMachine(), setDeleting[*v1alpha1.Machine]))
		w.advanceClock(time.Second)
		assert.NotEmpty(t, w.takeRequests(), "signals do not wait for it")
		f.setReplyError(nil)
		assert.Empty(t, f.takeRequests())
		w.advanceClock(scheduleRetryInterval)
		assert.Equal(t, []string{"create " + smallClassScheduleID}, f.takeRequests())
		f.changeSchedules(
			func(there map[string]client.Schedule) { delete(there, smallClassScheduleID) },
		) // Temporal has lost its data
		w.advanceClock(scheduleListInterval + time.Second)
		assert.Equal(t, []string{"create " + smallClassScheduleID}, f.takeRequests())
	})
}

func TestABridgeWithoutOrphanSweepsChangesNoSchedule(t *testing.T) {
	runBridgeTest(t, objectsWithoutPendingWork(), func(w *bridgeTestEnv) {
		w.putObject(changedCopy(testMachine(), withOutOfRangeError))
		w.putObject(changedCopy(testClass(), func(c *v1alpha1.MachineClass) { c.Generation++ }))
		w.advanceClock(time.Hour)
		assert.NotEmpty(t, w.takeRequests())
	})
}

func withOutOfRangeError(m *v1alpha1.Machine) {
	m.Status.LastOperation = v1alpha1.LastOperation{
		Type:      v1alpha1.MachineOperationCreate,
		State:     v1alpha1.MachineStateFailed,
		ErrorCode: "OutOfRange",
	}
}

func TestOutOfRangeStartsOneSweep(t *testing.T) {
	f := newFakeScheduleClient()
	known := changedCopy(machineWithName("known"), withOutOfRangeError)
	runSweepScheduleTest(
		t,
		f,
		append(objectsWithoutPendingWork(), machineWithName("second"), known),
		func(w *bridgeTestEnv) {
			assert.Equal(
				t,
				[]string{"create " + smallClassScheduleID},
				f.takeRequests(),
				"OutOfRange that a new leader finds triggers nothing",
			)
			w.putObject(changedCopy(testMachine(), withOutOfRangeError))
			w.putObject(changedCopy(machineWithName("second"), withOutOfRangeError))
			w.advanceClock(time.Second)
			assert.Equal(t, []string{"trigger " + smallClassScheduleID}, f.takeRequests(), "one for both")
			w.advanceClock(minTriggerInterval)
			w.putObject(
				changedCopy(
					testMachine(),
					withOutOfRangeError,
					func(m *v1alpha1.Machine) { m.Status.LastOperation.Description = "again" },
				),
			)
			w.advanceClock(time.Second)
			assert.Empty(t, f.takeRequests(), "it has said so before")
			w.putObject(testMachine())
			w.advanceClock(time.Second)
			w.putObject(changedCopy(testMachine(), withOutOfRangeError))
			w.advanceClock(time.Second)
			assert.Equal(t, []string{"trigger " + smallClassScheduleID}, f.takeRequests(), "it was well in between")
			w.putObject(changedCopy(machineWithName("new"), withOutOfRangeError))
			w.putObject(changedCopy(machineWithName("strange"), func(m *v1alpha1.Machine) { m.Spec.Class.Name = "missing" }))
			w.putObject(
				changedCopy(
					machineWithName("strange"),
					withOutOfRangeError,
					func(m *v1alpha1.Machine) { m.Spec.Class.Name = "missing" },
				),
			)
			w.advanceClock(2 * minTriggerInterval)
			assert.Empty(t, f.takeRequests())

			f.changeSchedules(func(there map[string]client.Schedule) { there[smallClassScheduleID].State.Paused = true })
			w.putObject(machineWithName("second"))
			w.putObject(changedCopy(machineWithName("second"), withOutOfRangeError))
			w.advanceClock(2 * minTriggerInterval)
			assert.Empty(t, f.takeRequests(), "people have paused it")

			f.setReplyError(serviceerror.NewUnavailable("away"))
			w.putObject(machineWithName("second"))
			w.putObject(changedCopy(machineWithName("second"), withOutOfRangeError))
			w.advanceClock(time.Second)
			f.setReplyError(nil)
			f.takeRequests()
			w.advanceClock(5 * time.Minute)
			assert.Empty(t, f.takeRequests(), "the next sweep comes by the clock")
			w.startLeaderWithSweeps(f, 0)
			f.takeRequests()
			w.putObject(testMachine())
			w.putObject(changedCopy(testMachine(), withOutOfRangeError))
			w.advanceClock(time.Second)
			assert.Empty(t, f.takeRequests(), "there is no schedule")
		},
	)
}

func TestScheduleIDEqualsItsWorkflowID(t *testing.T) {
	assert.True(t, strings.HasPrefix(smallClassScheduleID, testInstallation.OrphanCollectionIDPrefix()))
	assert.Equal(t, smallClassScheduleID, testInstallation.ID(run.KindOrphanCollection, objectRef(testClass())))
}
