package request_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities/activitiestest"
	activities "millwright/activities/request"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/drain"
	"millwright/decide/request"
)

func withMachineAnnotation(key, value string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		if m.Annotations == nil {
			m.Annotations = map[string]string{}
		}
		m.Annotations[key] = value
	}
}

func TestRequestForAMachineIsWrittenAndRecordedOnce(t *testing.T) {
	t.Parallel()
	old := withMachineAnnotation(v1alpha1.AnnotationHold, "bob: wait")
	for _, c := range []struct {
		name  string
		as    func(*v1alpha1.Machine)
		order request.CommandOrder
		key   string
		value string // empty: the annotation is missing
		told  string
	}{
		{
			"force", activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
			request.CommandOrder{Command: request.Force, Actor: "ann", Reason: "it\n burns "},
			v1alpha1.AnnotationForce, "ann: it burns",
			`ann requested force: it burns; wrote drain.machine.sapcloud.io/force: "ann: it burns"`,
		},
		{
			"hold in advance", nil,
			request.CommandOrder{Command: request.Hold, Actor: "ann", Reason: "look", ValidInAdvance: true},
			v1alpha1.AnnotationHold, "ann: look",
			`ann requested hold: look; wrote drain.machine.sapcloud.io/hold: "ann: look"`,
		},
		{
			"resume", old,
			request.CommandOrder{Command: request.Resume, Actor: "ann"},
			v1alpha1.AnnotationHold, "",
			`ann requested resume; removed drain.machine.sapcloud.io/hold: "bob: wait"`,
		},
		{
			"retry, at the time of the order", activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
			request.CommandOrder{Command: request.Retry, Actor: "ann"},
			v1alpha1.AnnotationRetry, "2100-03-01T12:00:00Z ann",
			`ann requested retry; wrote drain.machine.sapcloud.io/retry: "2100-03-01T12:00:00Z ann"`,
		},
		{
			"extend until", activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
			request.CommandOrder{Command: request.Extend, Actor: "ann", ExtendUntil: "2100-03-01T15:00:00+01:00"},
			v1alpha1.AnnotationExtend, "2100-03-01T14:00:00Z ann",
			`ann requested extend; wrote drain.machine.sapcloud.io/extend-until: "2100-03-01T14:00:00Z ann"`,
		},
		{
			"extend by, which a second time must not add to", activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
			request.CommandOrder{Command: request.Extend, Actor: "ann", Reason: "backup", ExtendFor: "1h"},
			v1alpha1.AnnotationExtend, "2100-03-01T13:00:00Z ann (at 2100-03-01T12:00:00.5Z): backup",
			`ann requested extend: backup; wrote drain.machine.sapcloud.io/extend-until: "2100-03-01T13:00:00Z ann (at 2100-03-01T12:00:00.5Z): backup"`,
		},
		{
			"preserve", activitiestest.WithPhase(v1alpha1.MachineFailed),
			request.CommandOrder{Command: request.Preserve, Actor: "ann", Reason: "look"},
			v1alpha1.AnnotationPreserve, "now",
			`ann requested preserve: look; wrote node.machine.sapcloud.io/preserve: "now"`,
		},
		{
			"unpreserve", withMachineAnnotation(v1alpha1.AnnotationPreserve, "now"),
			request.CommandOrder{Command: request.Unpreserve, Actor: "ann"},
			v1alpha1.AnnotationPreserve, "false",
			`ann requested unpreserve; wrote node.machine.sapcloud.io/preserve: "false"; before: "now"`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := activitiestest.NewMachine("m")
			if c.as != nil {
				c.as(m)
			}
			w := activitiestest.NewWorld(t, m)
			w.AwaitCaches()
			w.ForgetRequests()
			answer := activitiestest.RunActivityTwice[activities.Answer](
				w,
				newActivities(w.Kube).ApplyRequest,
				activitiestest.NewMachineRequest(m, c.order),
			)
			value, there := w.Machine("m").Annotations[c.key]
			assert.Equal(t, c.value, value)
			assert.Equal(t, c.value != "", there)
			assert.Equal(t, []string{"Normal RequestApplied " + c.told}, w.TakeNewEvents())
			assert.Equal(t, []string{"patch machines"}, w.MutatingRequests())
			assert.True(t, answer.Applied)
			assert.Contains(t, c.told, answer.Message)
			assert.Equal(t, w.Machine("m").ResourceVersion, answer.Version)
		})
	}
}

// The effect of the first run must not make the second run refuse the request.
func TestARepeatedRequestIsNotRefusedAfterTheMachineHasActed(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine(
		"m",
		activitiestest.WithNode,
		activitiestest.WithDrain(time.Hour, drain.MeansEvict),
		withMachineAnnotation(v1alpha1.AnnotationSkipDrain, "ann: empty"),
	)
	m.Status.Deletion.Drain.Result = vocabulary.DrainResultSkipped
	w := activitiestest.NewWorld(t, m)
	answer, err := activitiestest.RunActivity[activities.Answer](
		w,
		newActivities(w.Kube).ApplyRequest,
		activitiestest.NewMachineRequest(m, request.CommandOrder{Command: request.Skip, Actor: "ann", Reason: "empty"}),
	)
	require.NoError(t, err)
	assert.True(t, answer.Applied)
	assert.Empty(t, w.TakeNewEvents())
}

func TestWhichMachineRequestsAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		order   request.CommandOrder
		unheard bool
		message string
		told    []string
	}{
		"and the answer says so": {
			request.CommandOrder{Command: request.Retry}, false, "machine shop/m is not being deleted: its phase is Running", []string{},
		},
		"and an event says so": {
			request.CommandOrder{Command: request.Force, Actor: "ann", Reason: "it burns"},
			true,
			"machine shop/m is not being deleted: its phase is Running; with inAdvance, force waits for its deletion",
			[]string{"Warning RequestRefused ann requested force: it burns; refused: machine shop/m is not being deleted: its phase is Running; with inAdvance, force waits for its deletion"},
		},
		"as it makes no sense": {
			request.CommandOrder{Command: "burn"},
			true, `there is no command "burn": the commands are extend, retry, hold, resume, force, skip, abandon-instance, preserve, unpreserve`,
			[]string{`Warning RequestRefused somebody requested burn; refused: there is no command "burn": the commands are extend, retry, hold, resume, force, skip, abandon-instance, preserve, unpreserve`},
		},
		"as it is for another machine": {
			request.CommandOrder{Command: request.Preserve, UID: "uid-other"}, false, "the request is for a machine with UID uid-other, and this one has UID uid-m", []string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := activitiestest.NewMachine("m", activitiestest.WithPhase(v1alpha1.MachineRunning))
			w := activitiestest.NewWorld(t, m)
			in := activitiestest.NewMachineRequest(m, c.order)
			in.Unheard = c.unheard
			answer, err := activitiestest.RunActivity[activities.Answer](w, newActivities(w.Kube).ApplyRequest, in)
			require.NoError(t, err)
			assert.Equal(t, activities.Answer{Message: c.message}, answer)
			assert.Empty(t, w.MutatingRequests())
			assert.Equal(t, c.told, w.TakeNewEvents())
		})
	}
}

func TestRequestForGoneMachineIsRefused(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m")
	w := activitiestest.NewWorld(t, m)
	in := activitiestest.NewMachineRequest(m, request.CommandOrder{Command: request.Preserve})
	in.Object, in.Unheard = activitiestest.NewFormerObjectRef(m), true
	answer, err := activitiestest.RunActivity[activities.Answer](w, newActivities(w.Kube).ApplyRequest, in)
	require.NoError(t, err)
	assert.Equal(t, activities.Answer{Message: "object shop/m is gone"}, answer)
	assert.Empty(t, w.MutatingRequests())
	assert.Empty(t, w.TakeNewEvents())
}

// Each write requires the resource version that was read. If the machine has changed since the read, the request is
// decided again.
func TestRequestForAMachineIsDecidedAgainAfterAConflict(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])
	w := activitiestest.NewWorld(t, m)
	activitiestest.FailRequests(
		w.MachineClient,
		"patch",
		"machines",
		1,
		apierrors.NewConflict(schema.GroupResource{Resource: "machines"}, "m", errors.New("changed")),
		func() {
			changed := w.Machine("m")
			changed.Status.Deletion = &v1alpha1.MachineDeletion{Stage: v1alpha1.MachineDeletionNode}
			require.NoError(
				t,
				w.MachineClient.Tracker().
					Update(v1alpha1.SchemeGroupVersion.WithResource("machines"), changed, activitiestest.TestNamespace),
			)
		},
	)
	answer, err := activitiestest.RunActivity[activities.Answer](
		w,
		newActivities(w.Kube).ApplyRequest,
		activitiestest.NewMachineRequest(m, request.CommandOrder{Command: request.Skip, Reason: "gone"}),
	)
	require.NoError(t, err)
	assert.Equal(
		t,
		"the drain of machine shop/m is over, and its deletion is in stage Node: skip would change nothing",
		answer.Message,
	)
	assert.NotContains(t, w.Machine("m").Annotations, v1alpha1.AnnotationSkipDrain)
}

func TestAnswerIfTheAPIServerRejectsAMachineRequest(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "m", errors.New("no"))
	for name, c := range map[string]struct {
		fails  error
		answer string // empty: the activity fails and is retried
	}{
		"it is away":     {apierrors.NewServiceUnavailable("away"), ""},
		"it will not do": {forbidden, forbidden.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := activitiestest.NewMachine("m")
			w := activitiestest.NewWorld(t, m)
			activitiestest.FailRequests(w.MachineClient, "patch", "machines", 1, c.fails, nil)
			in := activitiestest.NewMachineRequest(m, request.CommandOrder{Command: request.Preserve, Actor: "ann"})
			in.Unheard = true
			answer, err := activitiestest.RunActivity[activities.Answer](w, newActivities(w.Kube).ApplyRequest, in)
			if c.answer == "" {
				require.Error(t, err)
				assert.Empty(t, w.TakeNewEvents())
				return
			}
			require.NoError(t, err)
			assert.Equal(t, activities.Answer{Message: c.answer}, answer)
			assert.Equal(t, []string{"Warning RequestRefused ann requested preserve; refused: " + c.answer}, w.TakeNewEvents())
		})
	}
}

// The machine is read live, because a stale cache could cause a wrong refusal.
func TestRequestForAMachineIsDecidedFromTheAPIServer(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])
	w := activitiestest.NewWorld(t, m)
	w.HoldEvents()
	_, err := activitiestest.RunActivity[activities.Answer](
		w,
		newActivities(w.Kube).ApplyRequest,
		activitiestest.NewMachineRequest(m, request.CommandOrder{Command: request.Hold, Reason: "wait"}),
	)
	require.NoError(t, err)
	require.Contains(t, w.Machine("m").Annotations, v1alpha1.AnnotationHold)
	_, err = activitiestest.RunActivity[activities.Answer](
		w,
		newActivities(w.Kube).ApplyRequest,
		activitiestest.NewMachineRequest(m, request.CommandOrder{Command: request.Resume}),
	)
	require.NoError(t, err)
	assert.NotContains(t, w.Machine("m").Annotations, v1alpha1.AnnotationHold)
}
