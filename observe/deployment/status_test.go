package deployment_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	"millwright/observe/deployment"
	"millwright/observe/observetest"
)

// treeWithFullStatus returns a deployment in a rollout with a complete status.
func treeWithFullStatus(change ...observetest.DeploymentChange) deployment.ObjectTree {
	tree := treeInRollout(change...)
	d := tree.Deployment
	d.Finalizers = []string{v1alpha1.FinalizerMachine}
	if d.Status.Rollout == nil {
		d.Status.Rollout = &v1alpha1.RolloutStatus{Steps: tree.Policy.Spec.Steps}
	}
	d.Status.Rollout.Revision, d.Status.Rollout.Set = 7, "d-4"
	d.Status.Rollout.ReachedAt = new(metav1.NewTime(observetest.Noon))
	d.Status.ObservedGeneration = d.Generation
	deployment.ApplyStatus(
		&d.Status,
		rollout.PlannedStatus(deployment.RolloutFacts(tree, observetest.Noon)),
		metav1.NewTime(observetest.Noon),
	)
	return tree
}

func TestPendingWorkOfADeployment(t *testing.T) {
	waits := attention.Decision{
		Need: attention.NeedRollout,
		Why:  "revision 7: step 1 of 2 done (1 of 4 machines), waits for approval",
	}
	scale := func(why string) attention.Decision { return attention.Decision{Need: attention.NeedScaling, Why: why} }
	after := func(change observetest.DeploymentChange) deployment.ObjectTree {
		f := treeWithFullStatus()
		change(f.Deployment)
		return f
	}
	for name, row := range map[string]struct {
		tree deployment.ObjectTree
		want attention.Decision
	}{
		"a rollout waits for people": {treeWithFullStatus(), waits},
		"it goes on by the clock": {treeWithFullStatus(func(d *v1alpha1.MachineDeployment) {
			an := v1alpha1.RolloutStep{Replicas: intstr.FromInt32(1), Wait: &metav1.Duration{Duration: time.Hour}}
			d.Status.Rollout = &v1alpha1.RolloutStatus{Steps: []v1alpha1.RolloutStep{an, an}}
		}), attention.Decision{Need: attention.NeedRollout, Why: "revision 7: step 1 of 2 done (1 of 4 machines), waits until 13:00:00 UTC"}},
		"somebody cancelled it: nothing waits": {
			treeWithFullStatus(withDeploymentAnnotation(v1alpha1.AnnotationRolloutHold, "7 ann: it burns")), attention.Decision{Why: "held by ann (it burns)"},
		},
		"paused: it goes on some day": {treeWithFullStatus(func(d *v1alpha1.MachineDeployment) { d.Spec.Paused = true }), attention.Decision{
			Need: attention.NeedRollout, Why: "paused",
		}},
		"a new generation": {
			after(func(d *v1alpha1.MachineDeployment) { d.Generation = 7 }), scale("generation 7 was not seen yet (last seen: 1)"),
		},
		"nobody cares for it yet": {after(func(d *v1alpha1.MachineDeployment) { d.Finalizers = nil }), scale("new: our finalizer is missing")},
		"it says something else":  {after(func(d *v1alpha1.MachineDeployment) { d.Status.ReadyReplicas = 1 }), scale("status is out of date")},
		"what is to be done next": {after(func(d *v1alpha1.MachineDeployment) { d.Status.Rollout.Steps = []v1alpha1.RolloutStep{} }), scale("resize set d-4 1→2: room for 1 machine, 4 wanted")},
		"it is being deleted":     {treeWithFullStatus(func(d *v1alpha1.MachineDeployment) { d.DeletionTimestamp = observetest.Now() }), attention.Decision{Need: attention.NeedDeletion, Why: "deletion was asked for; 4 machines left"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := row.tree.Deployment.DeepCopy()
			is := rollout.PlanDeployment(deployment.RolloutFacts(row.tree, observetest.Noon)).PendingWork
			assert.Equal(t, row.want, attention.Decision{Need: is.Need, Why: is.Why})
			assert.Equal(t, before, row.tree.Deployment, "what is looked at stays as it is")
		})
	}
}

// The status that was written is read back unchanged, and no other fields are compared.
func TestReportedStatusFieldsOfADeployment(t *testing.T) {
	told := map[string]bool{}
	condition := func(change func(*v1alpha1.MachineDeploymentCondition)) func(*v1alpha1.MachineDeploymentStatus) {
		return func(s *v1alpha1.MachineDeploymentStatus) { change(&s.Conditions[1]) }
	}
	for _, row := range []struct {
		field  string
		change func(*v1alpha1.MachineDeploymentStatus)
		same   bool // true if the field is not part of the report
	}{
		{"Replicas", func(s *v1alpha1.MachineDeploymentStatus) { s.Replicas++ }, false},
		{"UpdatedReplicas", func(s *v1alpha1.MachineDeploymentStatus) { s.UpdatedReplicas-- }, false},
		{"ReadyReplicas", func(s *v1alpha1.MachineDeploymentStatus) { s.ReadyReplicas = 0 }, false},
		{"AvailableReplicas", func(s *v1alpha1.MachineDeploymentStatus) { s.AvailableReplicas = 0 }, false},
		{"UnavailableReplicas", func(s *v1alpha1.MachineDeploymentStatus) { s.UnavailableReplicas++ }, false},
		{"PreservedFailedReplicas", func(s *v1alpha1.MachineDeploymentStatus) { s.PreservedFailedReplicas++ }, false},
		{"FailedMachines", func(s *v1alpha1.MachineDeploymentStatus) { s.FailedMachines = []v1alpha1.MachineSummary{{Name: "c"}} }, false},
		{"Conditions", condition(func(c *v1alpha1.MachineDeploymentCondition) { c.Status = "False" }), false},
		{"Conditions", condition(func(c *v1alpha1.MachineDeploymentCondition) { c.Reason = "Other" }), false},
		{"Conditions", condition(func(c *v1alpha1.MachineDeploymentCondition) { c.Message = "other" }), false},
		{"Conditions", condition(func(c *v1alpha1.MachineDeploymentCondition) {
			c.LastTransitionTime, c.LastUpdateTime = observetest.MinutesBeforeNoon(9), observetest.MinutesBeforeNoon(9)
		}), true},
		{"Conditions", func(s *v1alpha1.MachineDeploymentStatus) { s.Conditions = s.Conditions[:1] }, false},
		{"Conditions", func(s *v1alpha1.MachineDeploymentStatus) {
			s.Conditions = append(s.Conditions, v1alpha1.MachineDeploymentCondition{Type: v1alpha1.MachineDeploymentFrozen, Status: "True"})
		}, false},
		{"Conditions", func(s *v1alpha1.MachineDeploymentStatus) {
			s.Conditions = append(s.Conditions, v1alpha1.MachineDeploymentCondition{Type: v1alpha1.MachineDeploymentSelectorOverlap, Status: "True"})
		}, true},
		{"ObservedGeneration", func(s *v1alpha1.MachineDeploymentStatus) { s.ObservedGeneration = 9 }, false},
		{"Replacements", func(s *v1alpha1.MachineDeploymentStatus) { s.Replacements = []v1alpha1.MachineReplacement{{UID: "x"}} }, true},
		{"Rollout", func(s *v1alpha1.MachineDeploymentStatus) { s.Rollout = &v1alpha1.RolloutStatus{Revision: 9} }, true},
		{"CollisionCount", func(s *v1alpha1.MachineDeploymentStatus) { s.CollisionCount = new(int32(1)) }, true},
		{"Selector", func(s *v1alpha1.MachineDeploymentStatus) { s.Selector = "x" }, true},
		{"CurrentOperation", func(s *v1alpha1.MachineDeploymentStatus) { s.CurrentOperation = &v1alpha1.Operation{Step: "x"} }, true},
	} {
		tree := treeWithFullStatus()
		row.change(&tree.Deployment.Status)
		assert.Equal(
			t,
			row.same,
			!rollout.PlanDeployment(deployment.RolloutFacts(tree, observetest.Noon)).NeedsStatusWrite,
			"%s: %+v",
			row.field,
			tree.Deployment.Status,
		)
		told[row.field] = true
	}
	for f := range reflect.TypeFor[v1alpha1.MachineDeploymentStatus]().Fields() {
		assert.True(t, told[f.Name], "field %s has no row", f.Name)
	}
}

func TestApplyStatus(t *testing.T) {
	at, last := metav1.NewTime(observetest.Noon), observetest.Noon.Add(-time.Hour+time.Millisecond)
	mine := v1alpha1.MachineDeploymentCondition{
		Type:    v1alpha1.MachineDeploymentReplacementHeld,
		Status:  "True",
		Message: "m",
	}
	s := v1alpha1.MachineDeploymentStatus{
		ObservedGeneration: 4, Selector: "app=web", Conditions: []v1alpha1.MachineDeploymentCondition{
			{
				Type:   v1alpha1.MachineDeploymentFrozen,
				Status: "True",
			},
			mine,
			{Type: v1alpha1.MachineDeploymentReplicaFailure, Status: "True"},
		},
	}
	deployment.ApplyStatus(&s, rollout.Status{
		Counts: rollout.MachineCounts{Replicas: 1, Updated: 2, Ready: 3, Available: 4, Unavailable: 5, PreservedFailed: 6},
		Conditions: []rollout.Condition{
			{
				Type:    "Available",
				Status:  "False",
				Reason:  "A",
				Message: "a",
			},
			{Type: "Progressing", Status: "Unknown", Reason: "P", Message: "p", LastUpdateTime: last},
		},
		FailedNames: []string{"a"},
	}, at)
	assert.Equal(t, v1alpha1.MachineDeploymentStatus{
		Replicas:                1,
		UpdatedReplicas:         2,
		ReadyReplicas:           3,
		AvailableReplicas:       4,
		UnavailableReplicas:     5,
		PreservedFailedReplicas: 6,
		ObservedGeneration:      4,
		Selector:                "app=web", // ApplyStatus does not change this value
		Conditions: []v1alpha1.MachineDeploymentCondition{
			mine, // ApplyStatus does not change this value
			{
				Type:               v1alpha1.MachineDeploymentAvailable,
				Status:             "False",
				Reason:             "A",
				Message:            "a",
				LastUpdateTime:     at,
				LastTransitionTime: at,
			},
			{
				Type: v1alpha1.MachineDeploymentProgressing, Status: "Unknown", Reason: "P", Message: "p",
				LastUpdateTime: metav1.NewTime(last).Rfc3339Copy(), LastTransitionTime: at,
			},
		},
	}, s, "what is not so any more is gone")
}

// The transition time of a condition changes with its status. The update time changes with the status, reason or
// message. For Progressing, the update time is the time of the last progress, from which the progress deadline starts.
func TestTransitionTimesOfDeploymentConditions(t *testing.T) {
	type condition = v1alpha1.MachineDeploymentCondition
	first := metav1.NewTime(observetest.Noon)
	progress := metav1.NewTime(observetest.Noon.Add(time.Minute))
	later := metav1.NewTime(observetest.Noon.Add(time.Hour))
	is := func(kind v1alpha1.MachineDeploymentConditionType, status v1alpha1.ConditionStatus, reason, message string) condition {
		return condition{Type: kind, Status: status, Reason: reason, Message: message}
	}
	for name, row := range map[string]struct {
		was, is    condition
		brings     metav1.Time // update time of the new condition
		transition metav1.Time
		update     metav1.Time
	}{
		"the same":                   {is("Available", "True", "R", "m"), is("Available", "True", "R", "m"), metav1.Time{}, first, first},
		"another message":            {is("Available", "True", "R", "m"), is("Available", "True", "R", "n"), metav1.Time{}, first, later},
		"another reason":             {is("Available", "True", "R", "m"), is("Available", "True", "S", "m"), metav1.Time{}, first, later},
		"another status":             {is("Available", "True", "R", "m"), is("Available", "False", "R", "m"), metav1.Time{}, later, later},
		"progress, the same":         {is("Progressing", "True", "R", "m"), is("Progressing", "True", "R", "m"), progress, first, progress},
		"progress, more of it":       {is("Progressing", "True", "R", "m"), is("Progressing", "True", "R", "n"), progress, first, progress},
		"no progress, other words":   {is("Progressing", "True", "R", "m"), is("Progressing", "True", "R", "n"), first, first, first},
		"progress that nobody dates": {is("Progressing", "True", "R", "m"), is("Progressing", "True", "R", "m"), metav1.Time{}, first, later},
		"the deadline passed":        {is("Progressing", "True", "R", "m"), is("Progressing", "False", "ProgressDeadlineExceeded", "m"), progress, later, progress},
	} {
		t.Run(name, func(t *testing.T) {
			list := deployment.SetCondition(nil, row.was, first)
			row.is.LastUpdateTime = row.brings
			list = deployment.SetCondition(list, row.is, later)
			want := row.is
			want.LastTransitionTime, want.LastUpdateTime = row.transition, row.update
			assert.Equal(t, []condition{want}, list)
		})
	}
	t.Run("the order stays, and a new one is the last", func(t *testing.T) {
		list := deployment.SetCondition(
			[]condition{is("A", "True", "", ""), is("B", "True", "", "")},
			is("A", "False", "", ""),
			later,
		)
		list = deployment.SetCondition(list, is("C", "True", "", ""), later)
		assert.Equal(
			t,
			[]v1alpha1.MachineDeploymentConditionType{"A", "B", "C"},
			[]v1alpha1.MachineDeploymentConditionType{list[0].Type, list[1].Type, list[2].Type},
		)
		assert.Equal(t, condition{Type: "C", Status: "True", LastTransitionTime: later, LastUpdateTime: later}, list[2])
	})
}
