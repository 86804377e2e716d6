package observe_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	"millwright/observe"
)

// reportedFamily is a deployment on its way whose status says all that there is to say.
func reportedFamily(change ...onDeployment) observe.Family {
	family := onTheWay(change...)
	d := family.Deployment
	d.Finalizers = []string{v1alpha1.FinalizerMachine}
	d.Status.Rollout = &v1alpha1.RolloutStatus{Revision: 7, ReachedAt: new(metav1.NewTime(noon))}
	d.Status.ObservedGeneration = d.Generation
	observe.ApplyRolloutStatus(&d.Status, rollout.Report(observe.RolloutObserved(family, noon)), metav1.NewTime(noon))
	return family
}

func TestDeploymentFacts(t *testing.T) {
	waits := attention.DeploymentFacts{
		Finalizer: true, Generation: 1, ObservedGeneration: 1, Machines: 4, Rolling: true,
		Says: "hold: stage 1 of 2 has its 1 machine and waits until a person passes it",
	}
	edited := func(change func(*attention.DeploymentFacts)) attention.DeploymentFacts {
		f := waits
		change(&f)
		return f
	}
	for name, row := range map[string]struct {
		family observe.Family
		want   attention.DeploymentFacts
	}{
		"a rollout waits for people": {reportedFamily(), waits},
		"it goes on by the clock": {reportedFamily(func(d *v1alpha1.MachineDeployment) {
			d.Spec.Rollout.Steps[0] = v1alpha1.RolloutStep{Replicas: d.Spec.Rollout.Steps[0].Replicas, Wait: &metav1.Duration{Duration: time.Hour}}
		}), edited(func(f *attention.DeploymentFacts) {
			f.Recheck, f.Says = true, "hold: stage 1 of 2 has its 1 machine and waits until 2026-01-01T13:00:00Z"
		})},
		"somebody cancelled it: nothing waits": {reportedFamily(noteDeployment(v1alpha1.AnnotationRolloutHold, "7 ann: it burns")), edited(func(f *attention.DeploymentFacts) {
			f.Rolling, f.Says = false, "hold: held: ann: it burns"
		})},
		"paused: it goes on some day": {reportedFamily(func(d *v1alpha1.MachineDeployment) { d.Spec.Paused = true }), edited(func(f *attention.DeploymentFacts) {
			f.Says = "hold: paused"
		})},
		"a new generation": {func() observe.Family {
			f := reportedFamily()
			f.Deployment.Generation = 7
			return f
		}(), edited(func(f *attention.DeploymentFacts) { f.Generation = 7 })},
		"nobody cares for it yet": {func() observe.Family {
			f := reportedFamily()
			f.Deployment.Finalizers = nil
			return f
		}(), edited(func(f *attention.DeploymentFacts) { f.Finalizer = false })},
		"a replacement is under way": {reportedFamily(func(d *v1alpha1.MachineDeployment) {
			d.Status.Replacements = []v1alpha1.MachineReplacement{{UID: "x"}}
		}), edited(func(f *attention.DeploymentFacts) { f.Replacing = 1 })},
		"it says something else": {func() observe.Family {
			f := reportedFamily()
			f.Deployment.Status.ReadyReplicas = 1
			return f
		}(), edited(func(f *attention.DeploymentFacts) { f.Unreported = true })},
	} {
		t.Run(name, func(t *testing.T) {
			before := row.family.Deployment.DeepCopy()
			assert.Equal(t, row.want, observe.DeploymentFacts(row.family, noon))
			assert.Equal(t, before, row.family.Deployment, "what is looked at stays as it is")
		})
	}
	t.Run("what is to be done next, in a sentence", func(t *testing.T) {
		family := reportedFamily()
		family.Deployment.Spec.Rollout = nil
		f := observe.DeploymentFacts(family, noon)
		assert.True(t, f.Rolling)
		assert.Contains(t, f.Next, "resize set d-4 1→2")
		assert.Equal(t, f.Says, f.Next)
	})
	t.Run("it is to go", func(t *testing.T) {
		f := observe.DeploymentFacts(reportedFamily(func(d *v1alpha1.MachineDeployment) { d.DeletionTimestamp = now() }), noon)
		assert.True(t, f.Deleting)
		assert.Equal(t, "delete 3 sets: the deployment is being deleted", f.Next)
	})
}

// D35: a number or a condition that changed alone is reason enough to write the status. Times alone are none.
func TestD35_ReportsDeployment(t *testing.T) {
	at := metav1.NewTime(noon)
	want := rollout.Status{
		Counts: rollout.Counts{Replicas: 1, Updated: 2, Ready: 3, Available: 4, Unavailable: 5, PreservedFailed: 6},
		Conditions: []rollout.Condition{
			{Type: "Available", Status: "True", Reason: "R", Message: "m"}, {Type: "ReplicaFailure", Status: "True", Reason: "ResourceExhausted", Message: "no room"},
		},
		Failed: []string{"a", "b"},
	}
	said := func() *v1alpha1.MachineDeployment {
		d := deployment("d", func(d *v1alpha1.MachineDeployment) {
			d.Status.Conditions = []v1alpha1.MachineDeploymentCondition{{Type: v1alpha1.MachineDeploymentSelectorOverlap, Status: "True"}}
			d.Status.FailedMachines = []v1alpha1.MachineSummary{{Name: "a"}, {Name: "b"}}
		})
		observe.ApplyRolloutStatus(&d.Status, want, at)
		return d
	}
	assert.True(t, observe.ReportsDeployment(said(), want))
	told := map[string]bool{}
	condition := func(change func(*v1alpha1.MachineDeploymentCondition)) func(*v1alpha1.MachineDeploymentStatus) {
		return func(s *v1alpha1.MachineDeploymentStatus) { change(&s.Conditions[1]) }
	}
	for _, row := range []struct {
		field  string
		change func(*v1alpha1.MachineDeploymentStatus)
		same   bool // it is not for this report to say
	}{
		{"Replicas", func(s *v1alpha1.MachineDeploymentStatus) { s.Replicas++ }, false},
		{"UpdatedReplicas", func(s *v1alpha1.MachineDeploymentStatus) { s.UpdatedReplicas-- }, false},
		{"ReadyReplicas", func(s *v1alpha1.MachineDeploymentStatus) { s.ReadyReplicas = 0 }, false},
		{"AvailableReplicas", func(s *v1alpha1.MachineDeploymentStatus) { s.AvailableReplicas = 0 }, false},
		{"UnavailableReplicas", func(s *v1alpha1.MachineDeploymentStatus) { s.UnavailableReplicas = 0 }, false},
		{"PreservedFailedReplicas", func(s *v1alpha1.MachineDeploymentStatus) { s.PreservedFailedReplicas = 0 }, false},
		{"FailedMachines", func(s *v1alpha1.MachineDeploymentStatus) { s.FailedMachines = s.FailedMachines[1:] }, false},
		{"FailedMachines", func(s *v1alpha1.MachineDeploymentStatus) { s.FailedMachines[0].Name = "c" }, false},
		{"FailedMachines", func(s *v1alpha1.MachineDeploymentStatus) { s.FailedMachines[0].OwnerRef = "other" }, true},
		{"Conditions", condition(func(c *v1alpha1.MachineDeploymentCondition) { c.Status = "False" }), false},
		{"Conditions", condition(func(c *v1alpha1.MachineDeploymentCondition) { c.Reason = "Other" }), false},
		{"Conditions", condition(func(c *v1alpha1.MachineDeploymentCondition) { c.Message = "other" }), false},
		{"Conditions", condition(func(c *v1alpha1.MachineDeploymentCondition) { c.LastTransitionTime, c.LastUpdateTime = ago(9), ago(9) }), true},
		{"Conditions", func(s *v1alpha1.MachineDeploymentStatus) { s.Conditions = s.Conditions[:2] }, false},
		{"Conditions", func(s *v1alpha1.MachineDeploymentStatus) { s.Conditions[2].Message = "no room for another one" }, true},
		{"Conditions", func(s *v1alpha1.MachineDeploymentStatus) { s.Conditions[0].Message = "somebody else's" }, true},
		{"Conditions", func(s *v1alpha1.MachineDeploymentStatus) {
			s.Conditions = append(s.Conditions, v1alpha1.MachineDeploymentCondition{Type: v1alpha1.MachineDeploymentFrozen, Status: "True"})
		}, false},
		{"ObservedGeneration", func(s *v1alpha1.MachineDeploymentStatus) { s.ObservedGeneration = 9 }, true},
		{"Replacements", func(s *v1alpha1.MachineDeploymentStatus) { s.Replacements = []v1alpha1.MachineReplacement{{UID: "x"}} }, true},
		{"Rollout", func(s *v1alpha1.MachineDeploymentStatus) { s.Rollout = &v1alpha1.RolloutStatus{Revision: 9} }, true},
		{"CollisionCount", func(s *v1alpha1.MachineDeploymentStatus) { s.CollisionCount = new(int32(1)) }, true},
		{"Selector", func(s *v1alpha1.MachineDeploymentStatus) { s.Selector = "x" }, true},
		{"CurrentOperation", func(s *v1alpha1.MachineDeploymentStatus) { s.CurrentOperation = &v1alpha1.Operation{Step: "x"} }, true},
	} {
		d := said()
		row.change(&d.Status)
		before := d.DeepCopy()
		assert.Equal(t, row.same, observe.ReportsDeployment(d, want), "%s: %+v", row.field, d.Status)
		assert.Equal(t, before, d, "what is looked at stays as it is")
		told[row.field] = true
	}
	for f := range reflect.TypeFor[v1alpha1.MachineDeploymentStatus]().Fields() {
		assert.True(t, told[f.Name], "field %s has no row", f.Name)
	}
}

func TestApplyRolloutStatus(t *testing.T) {
	at, last := metav1.NewTime(noon), noon.Add(-time.Hour+time.Millisecond)
	mine := v1alpha1.MachineDeploymentCondition{Type: v1alpha1.MachineDeploymentReplacementHeld, Status: "True", Message: "m"}
	s := v1alpha1.MachineDeploymentStatus{
		ObservedGeneration: 4, Selector: "app=web", Conditions: []v1alpha1.MachineDeploymentCondition{
			{Type: v1alpha1.MachineDeploymentFrozen, Status: "True"}, mine, {Type: v1alpha1.MachineDeploymentReplicaFailure, Status: "True"},
		},
	}
	observe.ApplyRolloutStatus(&s, rollout.Status{
		Counts: rollout.Counts{Replicas: 1, Updated: 2, Ready: 3, Available: 4, Unavailable: 5, PreservedFailed: 6},
		Conditions: []rollout.Condition{
			{Type: "Available", Status: "False", Reason: "A", Message: "a"}, {Type: "Progressing", Status: "Unknown", Reason: "P", Message: strings.Repeat("x", 5000), Updated: last},
		},
		Failed: []string{"a"},
	}, at)
	message := s.Conditions[2].Message
	assert.Less(t, len(message), 1010, "short enough for a status")
	assert.Equal(t, v1alpha1.MachineDeploymentStatus{
		Replicas: 1, UpdatedReplicas: 2, ReadyReplicas: 3, AvailableReplicas: 4, UnavailableReplicas: 5, PreservedFailedReplicas: 6,
		ObservedGeneration: 4, Selector: "app=web", // not what is counted or decided
		Conditions: []v1alpha1.MachineDeploymentCondition{
			mine, // nor is this one
			{Type: v1alpha1.MachineDeploymentAvailable, Status: "False", Reason: "A", Message: "a", LastUpdateTime: at, LastTransitionTime: at},
			{
				Type: v1alpha1.MachineDeploymentProgressing, Status: "Unknown", Reason: "P", Message: message,
				LastUpdateTime: metav1.NewTime(last).Rfc3339Copy(), LastTransitionTime: at,
			},
		},
	}, s, "what is not so any more is gone")
}

// The transition time of a condition is that of its status. Its update time is that of what it says, but of Progressing: there it
// is the last progress, which the progress deadline counts from.
func TestTimesOfADeploymentsConditions(t *testing.T) {
	type condition = v1alpha1.MachineDeploymentCondition
	first, progress, later := metav1.NewTime(noon), metav1.NewTime(noon.Add(time.Minute)), metav1.NewTime(noon.Add(time.Hour))
	is := func(kind v1alpha1.MachineDeploymentConditionType, status v1alpha1.ConditionStatus, reason, message string) condition {
		return condition{Type: kind, Status: status, Reason: reason, Message: message}
	}
	for name, row := range map[string]struct {
		was, is    condition
		brings     metav1.Time // its update time
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
			list := observe.SetDeploymentCondition(nil, row.was, first)
			row.is.LastUpdateTime = row.brings
			list = observe.SetDeploymentCondition(list, row.is, later)
			want := row.is
			want.LastTransitionTime, want.LastUpdateTime = row.transition, row.update
			assert.Equal(t, []condition{want}, list)
		})
	}
	t.Run("the order stays, and a new one is the last", func(t *testing.T) {
		list := observe.SetDeploymentCondition([]condition{is("A", "True", "", ""), is("B", "True", "", "")}, is("A", "False", "", ""), later)
		list = observe.SetDeploymentCondition(list, is("C", "True", "", ""), later)
		assert.Equal(t, []v1alpha1.MachineDeploymentConditionType{"A", "B", "C"}, []v1alpha1.MachineDeploymentConditionType{list[0].Type, list[1].Type, list[2].Type})
		assert.Equal(t, condition{Type: "C", Status: "True", LastTransitionTime: later, LastUpdateTime: later}, list[2])
	})
}

// Which of many machines is named changes all the time, and is no news; why they get no instance is.
func TestADeploymentsReplicaFailureKeepsItsSentence(t *testing.T) {
	failing := func(reason, message string) rollout.Status {
		return rollout.Status{Conditions: []rollout.Condition{{Type: "ReplicaFailure", Status: "True", Reason: reason, Message: message}}}
	}
	d := deployment("d")
	says := func(want rollout.Status, at metav1.Time) v1alpha1.MachineDeploymentCondition {
		observe.ApplyRolloutStatus(&d.Status, want, at)
		assert.True(t, observe.ReportsDeployment(d, want))
		if len(d.Status.Conditions) == 0 {
			return v1alpha1.MachineDeploymentCondition{}
		}
		return d.Status.Conditions[0]
	}
	first, later := metav1.NewTime(noon), metav1.NewTime(noon.Add(time.Hour))
	was := says(failing("ResourceExhausted", "machine a: no"), first)
	assert.Equal(t, "machine a: no", was.Message)
	assert.True(t, observe.ReportsDeployment(d, failing("ResourceExhausted", "machine b: no")), "nothing to write")
	assert.Equal(t, was, says(failing("ResourceExhausted", "machine b: no"), later), "nor are its times news")
	assert.False(t, observe.ReportsDeployment(d, failing("Internal", "machine b: odd")))
	assert.Equal(t, "machine b: odd", says(failing("Internal", "machine b: odd"), later).Message)
	assert.Empty(t, says(rollout.Status{}, later))
	assert.Equal(t, "machine c: odd", says(failing("Internal", "machine c: odd"), later).Message, "once it was over it is news")
}
