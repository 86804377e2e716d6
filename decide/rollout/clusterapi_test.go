package rollout_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/attention"
	"millwright/decide/rollout"
	"millwright/decide/scale"
)

// withDrift returns the set with a difference from its deployment.
func withDrift(s rollout.MachineSet) rollout.MachineSet { s.Drifted = true; return s }

// While a Cluster API deployment or its Cluster is paused, Millwright deletes no set, creates no set and writes no
// finalizer.
func TestASuspendedDeploymentDoesNothing(t *testing.T) {
	for name, change := range map[string]func(*rollout.Facts){
		"in a rollout":        func(*rollout.Facts) {},
		"being deleted":       func(o *rollout.Facts) { o.Deleting = true },
		"without a set":       func(o *rollout.Facts) { o.Sets = nil },
		"a rollback is asked": func(o *rollout.Facts) { o.RollbackTo = new(int64(1)) },
		"a set differs":       func(o *rollout.Facts) { o.Sets[0].Drifted = true },
		"it is invalid":       func(o *rollout.Facts) { o.InvalidReason = "no" },
	} {
		o := rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3), currentSet(2, 0, 0, 0))
		change(&o)
		require.True(t, rollout.Decide(o).HasActions() || o.InvalidReason != "", name)
		o.ClusterAPI.SuspensionReason, o.HasFinalizer, o.Generation, o.ObservedGeneration = "its Cluster is paused", false, 1, 1
		plan := rollout.PlanDeployment(o)
		assert.False(t, plan.Decision.HasActions(), name)
		assert.False(t, plan.Decision.Done, name)
		assert.Equal(
			t,
			[]string{rollout.HeldByPause, "its Cluster is paused"},
			[]string{plan.Decision.HoldBy, plan.Decision.Hold},
			name,
		)
		assert.NotContains(t, plan.PendingWork.Why, "finalizer", name)
	}
	o := rollingUpdateDeployment(0, 1, 0)
	o.Deleting, o.HasFinalizer, o.ClusterAPI.SuspensionReason = true, true, "its Cluster is paused"
	plan := rollout.PlanDeployment(o)
	assert.Equal(t, attention.NeedDeletion, plan.PendingWork.Need, "its run stays open")
	assert.Equal(t, "its Cluster is paused", plan.PendingWork.Why)
}

// If an object of the template does not exist, no set is created for the template. The existing sets still follow
// spec.replicas.
func TestASetIsCreatedOnlyIfTheObjectsOfTheTemplateExist(t *testing.T) {
	lack := rollout.Problem{Reason: "TemplateNotFound", Message: "X shop/x does not exist"}
	o := rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3))
	require.NotNil(t, rollout.Decide(o).Create)
	o.CreationProblem = lack
	plan := rollout.PlanDeployment(o)
	d := plan.Decision
	assert.Nil(t, d.Create)
	assert.Empty(t, changedSizes(d))
	assert.True(t, d.NoSet)
	assert.Equal(t, []string{rollout.HeldByMachines, lack.Message, lack.Message}, []string{d.HoldBy, d.Hold, d.Why})
	assert.Equal(
		t,
		rollout.Condition{
			Type:           "Progressing",
			Status:         "False",
			Reason:         lack.Reason,
			Message:        lack.Message,
			LastUpdateTime: epoch,
		},
		plan.Status.Conditions[1],
	)

	o = rollingUpdateDeployment(5, 1, 0, oldSet(1, 3, 3, 3))
	o.CreationProblem = lack
	assert.Equal(t, map[string]int{"ms1": 5}, changedSizes(rollout.Decide(o)))
	o = rollingUpdateDeployment(1, 1, 0, oldSet(1, 3, 3, 3))
	o.CreationProblem = lack
	assert.Equal(t, map[string]int{"ms1": 1}, changedSizes(rollout.Decide(o)))

	o = rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3), currentSet(2, 0, 0, 0))
	o.CreationProblem = lack
	assert.Equal(
		t,
		map[string]int{"ms2": 1},
		changedSizes(rollout.Decide(o)),
		"the set is there: only its machines need the objects",
	)
}

// All sets that differ from the deployment are updated before any size changes, even if no set has the current
// template.
func TestSetsAreUpdatedBeforeTheyAreResized(t *testing.T) {
	d := rollout.Decide(
		rollingUpdateDeployment(
			3,
			1,
			0,
			withDrift(oldSet(1, 3, 3, 3)),
			oldSet(2, 0, 0, 0),
			withDrift(currentSet(3, 0, 0, 0)),
		),
	)
	assert.Equal(t, []string{"ms1", "ms3"}, targetNames(d.Sync))
	assert.Empty(t, d.Resize)
	assert.Equal(t, "bring 2 sets up to date", d.Why)

	d = rollout.Decide(rollingUpdateDeployment(3, 1, 0, withDrift(oldSet(4, 3, 3, 3)), withDrift(currentSet(3, 0, 0, 0))))
	require.NotNil(t, d.Revise)
	assert.Equal(t, []string{"ms4"}, targetNames(d.Sync), "the revision and what follows are one write")

	d = rollout.Decide(rollingUpdateDeployment(3, 1, 0, withDrift(oldSet(1, 3, 3, 3))))
	assert.Equal(t, []string{"ms1"}, targetNames(d.Sync))
	assert.Nil(t, d.Create, "then")
	assert.Equal(t, "bring set ms1 up to date", d.Why)

	o := rollingUpdateDeployment(3, 1, 0, withDrift(oldSet(1, 3, 3, 3)))
	o.Paused = true
	assert.Equal(t, []string{"ms1"}, targetNames(rollout.Decide(o).Sync))
}

// Recheck is the next time at which the decision changes although no object changes.
func TestADecisionHasTheEarliestRecheckTime(t *testing.T) {
	o := rollingUpdateDeployment(3, 1, 0, currentSet(1, 3, 3, 3))
	assert.Zero(t, rollout.Decide(o).Recheck)
	o.ClusterAPI.RecheckTime, o.HasFinalizer = epochPlus(time.Hour), true
	plan := rollout.PlanDeployment(o)
	assert.Equal(t, epochPlus(time.Hour), plan.Decision.Recheck)
	o.ProgressDeadline, o.Progress.Revision, o.Progress.Set = new(time.Minute), 2, "ms2"
	o.Sets = []rollout.MachineSet{oldSet(1, 3, 3, 3), currentSet(2, 1, 1, 0)}
	o.ReportedStatus = rollout.Status{
		Counts:     rollout.MachineCounts{Replicas: 4, Updated: 1, Ready: 3, Available: 3},
		Conditions: []rollout.Condition{{Type: "Progressing", Reason: "MachineSetUpdated", LastUpdateTime: epoch}},
	}
	assert.Equal(t, epochPlus(time.Minute), rollout.Decide(o).Recheck, "the earlier of both")
}

// No rollback returns to a set that has the current template or refers to a missing object.
func TestARollbackNeedsAnotherTemplateWhoseObjectsExist(t *testing.T) {
	twin := oldSet(1, 0, 0, 0)
	twin.ClusterAPI.DuplicatesTemplate = true
	lacking := oldSet(2, 0, 0, 0)
	lacking.ClusterAPI.MissingObject = "X shop/x"
	to := func(revision int64) *rollout.Rollback {
		o := rollingUpdateDeployment(3, 1, 0, twin, lacking, currentSet(3, 3, 3, 3))
		o.RollbackTo = &revision
		return rollout.Decide(o).Rollback
	}
	assert.Equal(
		t,
		&rollout.Rollback{
			Revision: 1,
			Reason:   "DeploymentRollbackTemplateUnchanged",
			Why:      "revision 1 has the deployment's present template",
		},
		to(1),
	)
	gone := &rollout.Rollback{
		Revision: 2,
		Reason:   "DeploymentRollbackTemplateNotFound",
		Why:      "revision 2 cannot return: X shop/x does not exist any more",
	}
	assert.Equal(t, gone, to(2))
	assert.Equal(t, gone, to(0), "the one before")

	o := rollingUpdateDeployment(
		3,
		1,
		0,
		oldSet(1, 0, 0, 0),
		lacking,
		withChangedMachine(currentSet(3, 3, 3, 2), 2, asFailedMachine),
	)
	o.RollbackPolicy, o.Progress = rollout.AutoRollback{
		HasMaxFailed: true,
	}, rollout.Progress{
		Revision: 3,
		Set:      "ms3",
		Failed:   []string{"ms3-02"},
	}
	o.Progress.Good = "ms1"
	require.NotNil(t, recordedPin(o))
	assert.EqualValues(t, 1, recordedPin(o).Revision)
	o.Progress.Good = lacking.Name
	assert.Nil(t, recordedPin(o), "its objects are gone")
}

// The conditions of Cluster API replace the condition Available. The condition Progressing remains. The status omits
// the number of unavailable machines.
func TestConditionsOfClusterAPI(t *testing.T) {
	o := rollingUpdateDeployment(3, 1, 0, currentSet(1, 3, 3, 2))
	o.ClusterAPI.Machines = &scale.DeploymentMachines{}
	o.HasFinalizer = true
	status := rollout.PlannedStatus(o)
	var kinds []string
	for _, c := range status.Conditions {
		kinds = append(kinds, c.Type)
	}
	assert.Equal(t, []string{
		"Available",
		"MachinesReady",
		"MachinesUpToDate",
		"RollingOut",
		"ScalingUp",
		"ScalingDown",
		"Remediating",
		"Deleting",
		"Paused",
		"Progressing",
		"Reconciling",
	}, kinds)
	assert.Equal(t, rollout.Condition{
		Type: "Available", Status: "False", Reason: "NotAvailable",
		Message: "2 available replicas, at least 3 required (spec.strategy.rollout.maxUnavailable is 0, spec.replicas is 3)",
	}, status.Conditions[0])
	o.ReportedStatus = status
	o.ReportedStatus = rollout.PlannedStatus(o)
	o.ReportedStatus.Counts.Unavailable = 0
	assert.False(t, rollout.PlanDeployment(o).NeedsStatusWrite)
}
