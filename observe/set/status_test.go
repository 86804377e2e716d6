package set_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/scale"
	"millwright/observe/observetest"
	"millwright/observe/set"
)

// conditionOfType returns the condition of this type in a status; zero if there is none.
func conditionOfType(s v1alpha1.MachineSetStatus, kind v1alpha1.MachineSetConditionType) v1alpha1.MachineSetCondition {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return v1alpha1.MachineSetCondition{}
}

func TestApplyStatus(t *testing.T) {
	var s v1alpha1.MachineSetStatus
	s.Selector = "app=web"
	s.ObservedGeneration = 4
	s.Conditions = []v1alpha1.MachineSetCondition{{Type: "Stale", Status: "True"}}
	at := metav1.NewTime(observetest.Noon)
	set.ApplyStatus(&s, scale.Status{
		Counts: &scale.MachineCounts{
			Replicas:        1,
			Labelled:        2,
			Ready:           3,
			Available:       4,
			UpToDate:        5,
			PreservedFailed: 6,
			AutoPreserved:   7,
		},
		PeakReplicas:     8,
		Overshoot:        9,
		ObservedReplicas: 10,
		Conditions: []scale.Condition{
			{Type: "ScalingUp", Status: scale.ConditionTrue, Reason: "Because", Message: "so"},
			{Type: "Deleting", Status: scale.ConditionUnknown, Reason: "X"},
		},
	}, at)
	assert.Equal(t, v1alpha1.MachineSetStatus{
		Replicas: 1, FullyLabeledReplicas: 2, ReadyReplicas: 3, AvailableReplicas: 4, UpToDateReplicas: 5,
		PreservedFailedReplicas: 6, AutoPreserveFailedMachineCount: 7, PeakReplicas: 8, Overshoot: 9, ObservedReplicas: 10,
		Conditions: []v1alpha1.MachineSetCondition{
			{Type: v1alpha1.MachineSetScalingUp, Status: "True", Reason: "Because", Message: "so", LastTransitionTime: at},
			{Type: v1alpha1.MachineSetDeleting, Status: "Unknown", Reason: "X", LastTransitionTime: at},
		},
		Selector: "app=web", ObservedGeneration: 4, // ApplyStatus does not change these values
	}, s, "in the order of the report; what it does not tell of any more is gone")

	set.ApplyStatus(&s, scale.Status{PeakReplicas: 1}, at)
	assert.Equal(t, []int32{1, 2, 3, 4, 5, 6, 7}, []int32{
		s.Replicas,
		s.FullyLabeledReplicas,
		s.ReadyReplicas,
		s.AvailableReplicas,
		s.UpToDateReplicas,
		s.PreservedFailedReplicas,
		s.AutoPreserveFailedMachineCount,
	}, "what could not be counted stays")
	assert.Equal(t, []int32{1, 0}, []int32{s.PeakReplicas, s.Overshoot})
	assert.Empty(t, s.Conditions)
}

// The transition time of a condition changes only with its status.
func TestTransitionTimesOfConditions(t *testing.T) {
	first, later := metav1.NewTime(observetest.Noon), metav1.NewTime(observetest.Noon.Add(time.Hour))
	was := scale.Condition{Type: "ScalingUp", Status: scale.ConditionTrue, Reason: "ScalingUp", Message: "from 1 to 3"}
	for _, row := range []struct {
		name string
		now  scale.Condition
		want metav1.Time
	}{
		{"the same", was, first},
		{"another message", scale.Condition{Type: "ScalingUp", Status: scale.ConditionTrue, Reason: "ScalingUp", Message: "from 2 to 3"}, first},
		{"another reason", scale.Condition{Type: "ScalingUp", Status: scale.ConditionTrue, Reason: "Other", Message: "from 1 to 3"}, first},
		{"another status", scale.Condition{Type: "ScalingUp", Status: scale.ConditionFalse, Reason: "ScalingUp", Message: "from 1 to 3"}, later},
		{"unknown", scale.Condition{Type: "ScalingUp", Status: scale.ConditionUnknown, Reason: "ScalingUp", Message: "from 1 to 3"}, later},
		{"another one", scale.Condition{Type: "Deleting", Status: scale.ConditionTrue, Reason: "ScalingUp", Message: "from 1 to 3"}, later},
	} {
		t.Run(row.name, func(t *testing.T) {
			var s v1alpha1.MachineSetStatus
			set.ApplyStatus(&s, scale.Status{Conditions: []scale.Condition{was}}, first)
			set.ApplyStatus(&s, scale.Status{Conditions: []scale.Condition{row.now}}, later)
			assert.Equal(t, []v1alpha1.MachineSetCondition{{
				Type: v1alpha1.MachineSetConditionType(row.now.Type), Status: v1alpha1.ConditionStatus(row.now.Status),
				Reason: row.now.Reason, Message: row.now.Message, LastTransitionTime: row.want,
			}}, s.Conditions)
		})
	}
	t.Run("one that comes again", func(t *testing.T) {
		var s v1alpha1.MachineSetStatus
		for _, c := range [][]scale.Condition{{was}, nil} {
			set.ApplyStatus(&s, scale.Status{Conditions: c}, first)
		}
		set.ApplyStatus(&s, scale.Status{Conditions: []scale.Condition{was}}, later)
		assert.Equal(t, later, s.Conditions[0].LastTransitionTime)
	})
}

// statusRow changes one field of a complete status.
type statusRow struct {
	fieldName string
	change    func(*v1alpha1.MachineSetStatus)
	isIgnored bool // true if the field is not one of the counts
}

func TestReportedStatusFieldsOfASet(t *testing.T) {
	first := func(change func(*v1alpha1.MachineSetCondition)) func(*v1alpha1.MachineSetStatus) {
		return func(s *v1alpha1.MachineSetStatus) { change(&s.Conditions[0]) }
	}
	rows := []statusRow{
		{"Replicas", func(s *v1alpha1.MachineSetStatus) { s.Replicas++ }, false},
		{"FullyLabeledReplicas", func(s *v1alpha1.MachineSetStatus) { s.FullyLabeledReplicas-- }, false},
		{"ReadyReplicas", func(s *v1alpha1.MachineSetStatus) { s.ReadyReplicas = 0 }, false},
		{"AvailableReplicas", func(s *v1alpha1.MachineSetStatus) { s.AvailableReplicas = 0 }, false},
		{"PreservedFailedReplicas", func(s *v1alpha1.MachineSetStatus) { s.PreservedFailedReplicas = 0 }, false},
		{"UpToDateReplicas", func(s *v1alpha1.MachineSetStatus) { s.UpToDateReplicas = 0 }, false},
		{"PeakReplicas", func(s *v1alpha1.MachineSetStatus) { s.PeakReplicas = 0 }, false},
		{"Overshoot", func(s *v1alpha1.MachineSetStatus) { s.Overshoot = 1 }, false},
		{"ObservedReplicas", func(s *v1alpha1.MachineSetStatus) { s.ObservedReplicas = 0 }, false},
		{
			"AutoPreserveFailedMachineCount",
			func(s *v1alpha1.MachineSetStatus) { s.AutoPreserveFailedMachineCount = 0 },
			false,
		},
		{"Conditions", func(s *v1alpha1.MachineSetStatus) { s.Conditions = nil }, false},
		{"Conditions", func(s *v1alpha1.MachineSetStatus) { s.Conditions = s.Conditions[1:] }, false},
		{"Conditions", func(s *v1alpha1.MachineSetStatus) {
			s.Conditions = append(s.Conditions, v1alpha1.MachineSetCondition{Type: v1alpha1.MachineSetFrozen, Status: "True"})
		}, false},
		{"Conditions", func(s *v1alpha1.MachineSetStatus) {
			s.Conditions[0], s.Conditions[1] = s.Conditions[1], s.Conditions[0]
		}, false},
		{"Conditions", first(func(c *v1alpha1.MachineSetCondition) { c.Status = "Unknown" }), false},
		{"Conditions", first(func(c *v1alpha1.MachineSetCondition) { c.Reason = "Odd" }), false},
		{"Conditions", first(func(c *v1alpha1.MachineSetCondition) { c.Message = "odd" }), false},
		{
			"Conditions",
			first(func(c *v1alpha1.MachineSetCondition) { c.LastTransitionTime = observetest.MinutesBeforeNoon(5) }),
			true,
		},
		{"FailedGenerations", func(s *v1alpha1.MachineSetStatus) {
			s.FailedGenerations = &v1alpha1.FailedGenerations{Count: 1, LastFailedAt: observetest.MinutesBeforeNoon(1)}
		}, true},
		{"ObservedGeneration", func(s *v1alpha1.MachineSetStatus) { s.ObservedGeneration = 7 }, false},
		{"ObservedMachines", func(s *v1alpha1.MachineSetStatus) { s.ObservedMachines = "7" }, true},
		{"LastOperation", func(s *v1alpha1.MachineSetStatus) { s.LastOperation.Description = "x" }, true},
		{
			"FailedMachines",
			func(s *v1alpha1.MachineSetStatus) { s.FailedMachines = []v1alpha1.MachineSummary{{Name: "x"}} },
			false,
		},
		{"Selector", func(s *v1alpha1.MachineSetStatus) { s.Selector = "x" }, true},
		{"CurrentOperation", func(s *v1alpha1.MachineSetStatus) { s.CurrentOperation = &v1alpha1.Operation{} }, true},
	}
	missing := map[string]bool{}
	for f := range reflect.TypeFor[v1alpha1.MachineSetStatus]().Fields() {
		missing[f.Name] = true
	}
	kept := runningMachine(
		"kept",
		observetest.WithPhase(v1alpha1.MachineFailed),
		observetest.AsPreservedMachine,
		observetest.WithAnnotation(v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveAuto),
	)
	related := observetest.RelatedObjectsWithMembers(runningMachine("a"), runningMachine("b"), kept)
	for _, row := range rows {
		delete(missing, row.fieldName)
		t.Run(row.fieldName, func(t *testing.T) {
			s := withPlannedStatus(newSetWithFinalizer(3), related)
			require.False(t, scale.PlanSet(set.ScaleFacts(s, related, observetest.Noon, 0)).NeedsStatusWrite)
			row.change(&s.Status)
			before := s.DeepCopy()
			assert.Equal(t, row.isIgnored, !scale.PlanSet(set.ScaleFacts(s, related, observetest.Noon, 0)).NeedsStatusWrite)
			assert.Equal(t, before, s, "a look changes nothing")
		})
	}
	assert.Empty(t, missing, "fields without a row")
}

func TestStatusCountsMachines(t *testing.T) {
	going := runningMachine("going", withDeletionTime(observetest.Noon))
	related := observetest.RelatedObjectsWithMembers(
		runningMachine("a"),
		runningMachine("b", observetest.WithAppLabel("api")),
		runningMachine("c", observetest.WithPhase(v1alpha1.MachineFailed), observetest.AsPreservedMachine),
		going,
		runningMachine(
			"d",
			observetest.WithPhase(v1alpha1.MachineAvailable),
		),
		runningMachine("e", observetest.WithPhase(v1alpha1.MachineInPlaceUpdating)),
	)
	s := withPlannedStatus(newSetWithFinalizer(5), related).Status
	assert.Equal(t, []int32{6, 5, 2, 3, 4, 1, 0}, []int32{
		s.Replicas,
		s.FullyLabeledReplicas,
		s.ReadyReplicas,
		s.AvailableReplicas,
		s.UpToDateReplicas,
		s.PreservedFailedReplicas,
		s.AutoPreserveFailedMachineCount,
	})
}

// A set reports its size as observed when it has no more work for this size. The set writes its status even if nothing
// else changed, because the deployment waits for the observed size.
func TestObservedReplicas(t *testing.T) {
	two := observetest.RelatedObjectsWithMembers(runningMachine("a"), runningMachine("b"))
	s := withPlannedStatus(newSetWithFinalizer(2), two)
	require.Equal(t, int32(2), s.Status.ObservedReplicas)
	look := func(related set.RelatedObjects) (unreported bool, seen int32) {
		unreported = scale.PlanSet(set.ScaleFacts(s, related, observetest.Noon, 0)).NeedsStatusWrite
		return unreported, withPlannedStatus(s, related).Status.ObservedReplicas
	}

	s.Spec.Replicas = 1
	_, seen := look(two)
	assert.Equal(t, int32(2), seen, "one is yet to be deleted")
	_, seen = look(
		observetest.RelatedObjectsWithMembers(runningMachine("a"), runningMachine("b", withDeletionTime(observetest.Noon))),
	)
	assert.Equal(t, int32(1), seen, "it goes")
	s.Spec.Replicas = 3
	_, seen = look(two)
	assert.Equal(t, int32(1), seen)

	s = withPlannedStatus(
		newSetWithFinalizer(2, observetest.WithSetLabel(v1alpha1.LabelScaleUpDisabled, "")),
		observetest.RelatedObjectsWithMembers(),
	)
	s.Status.ObservedReplicas = 5
	unreported, seen := look(observetest.RelatedObjectsWithMembers())
	assert.True(t, unreported, "nothing else changed")
	assert.Equal(t, int32(2), seen, "more than that cannot be done now")
}

func TestAMachineIsAvailableWhenItWasReadyForLongEnough(t *testing.T) {
	s := newSetWithFinalizer(1, func(s *v1alpha1.MachineSet) { s.Spec.MinReadySeconds = 90 })
	related := observetest.RelatedObjectsWithMembers(
		runningMachine("a", observetest.WithReadyTime(metav1.NewTime(observetest.Noon))),
	)
	for after, want := range map[time.Duration]int32{0: 0, 89 * time.Second: 0, 90 * time.Second: 1, time.Hour: 1} {
		var status v1alpha1.MachineSetStatus
		set.ApplyStatus(
			&status,
			scale.PlanSet(set.ScaleFacts(s, related, observetest.Noon.Add(after), 0)).Status,
			*observetest.Now(),
		)
		assert.Equal(t, []int32{1, want}, []int32{status.ReadyReplicas, status.AvailableReplicas}, after)
	}
}

// A set reports the replacement of a failed machine until the Machine object is gone.
func TestASetReportsAReplacementUntilTheMachineIsGone(t *testing.T) {
	failed := func(change ...func(*v1alpha1.Machine)) set.RelatedObjects {
		return observetest.RelatedObjectsWithMembers(
			runningMachine(
				"a",
				append(
					[]func(*v1alpha1.Machine){observetest.WithPhase(v1alpha1.MachineFailed), observetest.WithReplacementDue},
					change...)...),
		)
	}
	gone := observetest.RelatedObjectsWithMembers(runningMachine("b"))
	for _, row := range []struct {
		name    string
		related set.RelatedObjects
		want    v1alpha1.ConditionStatus
	}{
		{"failed", failed(), "True"},
		{"asked to go", failed(withDeletionTime(observetest.Noon)), "True"},
		{"on its way", failed(withDeletionTime(observetest.Noon), observetest.WithPhase(v1alpha1.MachineTerminating)), "True"},
		{"gone", gone, "False"},
	} {
		s := withPlannedStatus(newSetWithFinalizer(1), row.related)
		assert.Equal(t, row.want, conditionOfType(s.Status, v1alpha1.MachineSetRemediating).Status, row.name)
	}
}
