package machine_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
	"millwright/decide/health"
)

func TestReportRecordsHealthTimes(t *testing.T) {
	t.Parallel()
	hour := func(n int) time.Time { return activitiestest.OldTime.Add(time.Duration(n) * time.Hour) }
	old := v1alpha1.MachineHealth{
		UnhealthySince: metav1.NewTime(hour(1)),
		RecoveredAt:    new(metav1.NewTime(hour(2))),
		InstanceGoneAt: new(metav1.NewTime(hour(3))),
	}
	for name, row := range map[string]struct {
		was    *v1alpha1.MachineHealth
		report machine.Report
		want   *v1alpha1.MachineHealth
	}{
		"a report of something else leaves it": {&old, machine.Report{Phase: "Unknown", LastKnownState: "x"}, &old},
		"and starts none":                      {nil, machine.Report{Phase: "Unknown"}, nil},
		"an illness": {
			nil,
			machine.Report{Clock: &health.UnhealthyTimes{UnhealthySince: hour(5)}},
			&v1alpha1.MachineHealth{UnhealthySince: metav1.NewTime(hour(5))},
		},
		"a new illness forgets the earlier one": {
			&old,
			machine.Report{Clock: &health.UnhealthyTimes{UnhealthySince: hour(5)}},
			&v1alpha1.MachineHealth{UnhealthySince: metav1.NewTime(hour(5))},
		},
		"a recovery keeps when it began": {
			nil,
			machine.Report{Clock: &health.UnhealthyTimes{UnhealthySince: hour(5), RecoveredAt: hour(6)}},
			&v1alpha1.MachineHealth{UnhealthySince: metav1.NewTime(hour(5)), RecoveredAt: new(metav1.NewTime(hour(6)))},
		},
		"times are stored in whole seconds, and said again they are no news": {
			&v1alpha1.MachineHealth{UnhealthySince: metav1.NewTime(hour(5))},
			machine.Report{Clock: &health.UnhealthyTimes{UnhealthySince: hour(5).Add(time.Millisecond)}},
			&v1alpha1.MachineHealth{UnhealthySince: metav1.NewTime(hour(5))},
		},
		"that the instance is gone is said once": {&old, machine.Report{InstanceGone: true}, &old},
	} {
		t.Run(name, func(t *testing.T) {
			m := runningMachine()
			m.Status.Health = row.was
			row.report.Read = activitiestest.NewReadInput(m)
			got := reportMachine(activitiestest.NewWorld(t, m), row.report).Health
			if row.want == nil {
				assert.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			assert.True(t, row.want.UnhealthySince.Equal(&got.UnhealthySince), "%v", got.UnhealthySince)
			assert.True(t, row.want.RecoveredAt.Equal(got.RecoveredAt), "%v", got.RecoveredAt)
			assert.True(t, row.want.InstanceGoneAt.Equal(got.InstanceGoneAt), "%v", got.InstanceGoneAt)
		})
	}
	t.Run("that the instance is gone leaves the clock as it is", func(t *testing.T) {
		m := runningMachine()
		m.Status.Health = &v1alpha1.MachineHealth{UnhealthySince: activitiestest.OldTime}
		got := reportMachine(
			activitiestest.NewWorld(t, m),
			machine.Report{Read: activitiestest.NewReadInput(m), InstanceGone: true},
		).Health
		assert.True(t, got.UnhealthySince.Equal(&activitiestest.OldTime))
		require.NotNil(t, got.InstanceGoneAt)
		assert.True(t, got.InstanceGoneAt.After(activitiestest.OldTime.Time))
	})
}

func TestReportRecordsStoppedCreation(t *testing.T) {
	t.Parallel()
	since := metav1.NewTime(activitiestest.SynctestStartTime.Add(-time.Hour))
	ahead := metav1.NewTime(activitiestest.SynctestStartTime.Add(time.Hour))
	stopped := func(since *metav1.Time, total time.Duration) *v1alpha1.CreationStopped {
		return &v1alpha1.CreationStopped{Since: since, Total: *activitiestest.NewDuration(total)}
	}
	for name, row := range map[string]struct {
		was     *v1alpha1.CreationStopped
		stop    bool
		running bool // after the report, the creation is stopped
		total   time.Duration
	}{
		"it never did":               {nil, false, false, 0},
		"it begins to":               {nil, true, true, 0},
		"it does":                    {stopped(&since, time.Minute), true, true, time.Minute},
		"it goes on":                 {stopped(&since, 0), false, false, time.Hour},
		"it goes on, and did before": {stopped(&since, 2*time.Hour), false, false, 3 * time.Hour},
		"it did once":                {stopped(nil, 2*time.Hour), false, false, 2 * time.Hour},
		"it begins to, again":        {stopped(nil, 2*time.Hour), true, true, 2 * time.Hour},
		"by a clock that is ahead":   {stopped(&ahead, 2*time.Hour), false, false, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := runningMachine()
				m.Status.CreationStopped = row.was
				got := reportMachine(
					activitiestest.NewWorld(t, m),
					machine.Report{Read: activitiestest.NewReadInput(m), Stopped: row.stop},
				).CreationStopped
				if row.was == nil && !row.stop {
					assert.Nil(t, got)
					return
				}
				require.NotNil(t, got)
				assert.Equal(t, row.running, got.Since != nil)
				assert.InDelta(t, row.total, got.Total.Duration, float64(activitiestest.TimestampTolerance))
				if row.running && row.was != nil && row.was.Since != nil {
					assert.True(t, got.Since.Equal(row.was.Since), "it does not begin anew")
				}
			})
		})
	}
	t.Run("whatever the cache says, no time is counted twice", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := runningMachine()
			m.Status.CreationStopped = stopped(&since, 0)
			w := activitiestest.NewWorld(t, m)
			w.HoldEvents()
			for range 2 {
				_, err := activitiestest.RunActivity[kube.ReportResult](
					w,
					newActivities(w.Kube).ReportMachine,
					machine.Report{Read: activitiestest.NewReadInput(m)},
				)
				require.NoError(t, err)
				assert.Less(t, w.Machine("m").Status.CreationStopped.Total.Duration, time.Hour+2*activitiestest.TimestampTolerance)
			}
		})
	})
	t.Run("the beginning of a creation is the end of the wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := activitiestest.NewMachine("m")
			m.Status.CreationStopped = stopped(&since, 0)
			w := activitiestest.NewWorld(t, m)
			_, err := activitiestest.RunActivity[machine.CreateIntentResult](
				w,
				newActivities(w.Kube).RecordCreateIntent,
				newCreationReport(m),
			)
			require.NoError(t, err)
			got := w.Machine("m").Status.CreationStopped
			assert.Nil(t, got.Since)
			assert.GreaterOrEqual(t, got.Total.Duration, time.Hour)
		})
	})
}

func TestReportWritesAddresses(t *testing.T) {
	t.Parallel()
	host := corev1.NodeAddress{Type: "Hostname", Address: "m"}
	ip := func(a string) corev1.NodeAddress { return corev1.NodeAddress{Type: "InternalIP", Address: a} }
	for name, row := range map[string]struct {
		told []kube.Address
		want []corev1.NodeAddress
	}{
		"none are told: they stay": {nil, []corev1.NodeAddress{ip("10.0.0.9")}},
		"sorted, and each once": {
			[]kube.Address{{Type: "InternalIP", Address: "10.0.0.2"}, {Type: "Hostname", Address: "m"}, {Type: "InternalIP", Address: "10.0.0.1"}, {Type: "Hostname", Address: "m"}},
			[]corev1.NodeAddress{host, ip("10.0.0.1"), ip("10.0.0.2")},
		},
		"there are none any more": {[]kube.Address{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := runningMachine()
			m.Status.Addresses = []corev1.NodeAddress{ip("10.0.0.9")}
			status := reportMachine(
				activitiestest.NewWorld(t, m),
				machine.Report{Read: activitiestest.NewReadInput(m), Addresses: row.told},
			)
			assert.Equal(t, row.want, status.Addresses)
		})
	}
}

func TestReportWritesConditionReplacementDue(t *testing.T) {
	t.Parallel()
	m := runningMachine()
	w := activitiestest.NewWorld(t, m)
	due := machine.Condition{Type: "ReplacementDue", True: true, Reason: "HealthTimeout", Message: "waits for its budget"}
	status := reportMachine(w, machine.Report{Read: activitiestest.NewReadInput(m), Conditions: []machine.Condition{due}})
	require.Len(t, status.Conditions, 2)
	since := status.Conditions[1].LastTransitionTime
	assert.Equal(t, v1alpha1.MachineReplacementDue, status.Conditions[1].Type)
	assert.Equal(t, corev1.ConditionTrue, status.Conditions[1].Status)
	assert.Equal(
		t,
		[]string{"HealthTimeout", "waits for its budget"},
		[]string{status.Conditions[1].Reason, status.Conditions[1].Message},
	)

	t.Run("since when does not move with what it waits for", func(t *testing.T) {
		old := w.Machine("m")
		old.Status.Conditions[1].LastTransitionTime = activitiestest.OldTime
		w.WriteStatus(old)
		due.Message = "held: half of the nodes are dead"
		status := reportMachine(w, machine.Report{Read: activitiestest.NewReadInput(m), Conditions: []machine.Condition{due}})
		assert.Equal(t, due.Message, status.Conditions[1].Message)
		assert.True(t, status.Conditions[1].LastTransitionTime.Equal(&activitiestest.OldTime))
	})
	t.Run("it outlives the copying of the node's conditions, and reports that do not name it", func(t *testing.T) {
		w.CreateObjects(activitiestest.NewNode())
		w.AwaitCaches()
		status := reportMachine(w, machine.Report{Read: activitiestest.NewReadInput(m), Phase: "Unknown"})
		require.Len(t, status.Conditions, 3)
		assert.Equal(t, corev1.NodeConditionType("Ready"), status.Conditions[0].Type)
		assert.Equal(t, v1alpha1.MachineReplacementDue, status.Conditions[2].Type)
	})
	t.Run("until it recovers", func(t *testing.T) {
		status := reportMachine(w, machine.Report{
			Read:       activitiestest.NewReadInput(m),
			Conditions: []machine.Condition{{Type: "ReplacementDue", Reason: "Recovered", Message: "well again"}},
		})
		assert.Equal(t, corev1.ConditionFalse, status.Conditions[2].Status)
		assert.False(t, status.Conditions[2].LastTransitionTime.Time.Before(since.Time))
	})
}

// If a status write is refused, the status cannot contain the reason, so an event reports the reason.
func TestARefusedReportIsRecordedAsEvent(t *testing.T) {
	t.Parallel()
	m := runningMachine()
	w := activitiestest.NewWorld(t, m)
	down := apierrors.NewInternalError(errors.New("failed calling webhook dead.example.com"))
	activitiestest.FailRequests(w.MachineClient, "update", "machines", 1, down, nil)
	_, err := activitiestest.RunActivityOnWorker[kube.ReportResult](
		w,
		activitiestest.Worker{AttemptDelay: 5 * time.Second},
		newActivities(w.Kube).ReportMachine,
		machine.Report{Read: activitiestest.NewReadInput(m), Phase: "Failed"},
	)
	activitiestest.AssertFailure(t, err, kube.FailureTypeRefused, false)
	assert.Equal(
		t,
		[]string{"Warning Refused Internal error occurred: failed calling webhook dead.example.com"},
		w.TakeNewEvents(),
	)
}
