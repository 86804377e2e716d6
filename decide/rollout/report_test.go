package rollout_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/rollout"
)

// progressingConditions returns the condition Progressing with the given reason and time.
func progressingConditions(reason string, updated time.Time) []rollout.Condition {
	return []rollout.Condition{{Type: "Progressing", Status: "True", Reason: reason, LastUpdateTime: updated}}
}

func TestMachineCounts(t *testing.T) {
	o := rollingUpdateDeployment(
		5,
		1,
		0,
		withAdditionalMachines(
			withChangedMachine(oldSet(1, 3, 3, 3), 0, asFailedMachine, asPreservedMachine),
			newMachine("out", asDeletingMachine),
		),
		withChangedMachine(currentSet(2, 2, 2, 2), 1, asFailedMachine),
	)
	status := rollout.PlannedStatus(o)
	assert.Equal(
		t,
		rollout.MachineCounts{Replicas: 6, Updated: 2, Ready: 3, Available: 3, Unavailable: 2, PreservedFailed: 1},
		status.Counts,
	)
	assert.Equal(t, []string{"ms2-01"}, status.FailedNames)
	t.Run("a change of one number alone is seen", func(t *testing.T) {
		before := rollout.PlannedStatus(
			rollingUpdateDeployment(3, 1, 0, withChangedMachine(currentSet(1, 3, 3, 3), 0, asFailedMachine)),
		)
		after := rollout.PlannedStatus(
			rollingUpdateDeployment(3, 1, 0, withChangedMachine(currentSet(1, 3, 3, 3), 0, asFailedMachine, asPreservedMachine)),
		)
		before.Counts.PreservedFailed++
		assert.Equal(t, before.Counts, after.Counts)
		assert.NotEqual(t, 0, after.Counts.PreservedFailed)
	})
}

func TestAvailableCondition(t *testing.T) {
	for _, row := range []struct {
		name           string
		in             rollout.Facts
		status, reason string
	}{
		{"all", rollingUpdateDeployment(3, 1, 0, currentSet(1, 3, 3, 3)), "True", "MinimumReplicasAvailable"},
		{"as many as needed", rollingUpdateDeployment(3, 1, 1, currentSet(1, 3, 3, 2)), "True", "MinimumReplicasAvailable"},
		{"too few", rollingUpdateDeployment(3, 1, 1, currentSet(1, 3, 3, 1)), "False", "MinimumReplicasUnavailable"},
		{"a preserved failed one is not missed", rollingUpdateDeployment(3, 1, 0, withChangedMachine(currentSet(1, 3, 3, 3), 0, asFailedMachine, asPreservedMachine)), "True", "MinimumReplicasAvailable"},
		{"none wanted", rollingUpdateDeployment(0, 1, 0), "True", "MinimumReplicasAvailable"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := rollout.PlannedStatus(row.in).Conditions[0]
			assert.Equal(t, []string{"Available", row.status, row.reason}, []string{c.Type, c.Status, c.Reason})
		})
	}
}

func withCreationError(o rollout.Facts) rollout.Facts      { o.CreationError = "quota exceeded"; return o }
func withDeploymentDeletion(o rollout.Facts) rollout.Facts { o.Deleting = true; return o }

func TestProgressingCondition(t *testing.T) {
	half := func() rollout.Facts {
		return rollingUpdateDeployment(3, 1, 0, oldSet(1, 2, 2, 2), currentSet(2, 2, 2, 1))
	}
	reported := func(o rollout.Facts, reason string, updated time.Time) rollout.Facts {
		o.ReportedStatus = rollout.PlannedStatus(o)
		o.ReportedStatus.Conditions = progressingConditions(reason, updated)
		return o
	}
	due := func(o rollout.Facts) rollout.Facts { o.ProgressDeadline = new(time.Minute); return o }
	held := func(o rollout.Facts) rollout.Facts { o.HoldReason = "cancelled by ann"; return o }
	progress := func(o rollout.Facts) rollout.Facts { o.ReportedStatus.Counts.Available--; return o }
	unrecorded := func(o rollout.Facts) rollout.Facts { o.Progress = rollout.Progress{}; return o }
	again := func(s rollout.MachineSet) rollout.MachineSet { s.History = "1"; return s }
	early := epochPlus(-time.Hour)
	for _, row := range []struct {
		name           string
		in             rollout.Facts
		status, reason string
		updated        time.Time
	}{
		{"complete", reported(rollingUpdateDeployment(3, 1, 0, currentSet(1, 3, 3, 3)), "NewMachineSetAvailable", early), "True", "NewMachineSetAvailable", early},
		{"just completed", reported(rollingUpdateDeployment(3, 1, 0, currentSet(1, 3, 3, 3)), "MachineSetUpdated", early), "True", "NewMachineSetAvailable", epoch},
		{"progress", rollingUpdateDeployment(3, 1, 0, oldSet(1, 2, 2, 2), currentSet(2, 2, 2, 1)), "True", "MachineSetUpdated", epoch},
		{"none since", reported(half(), "MachineSetUpdated", early), "True", "MachineSetUpdated", early},
		{"the deadline passed", reported(due(half()), "MachineSetUpdated", early), "False", "ProgressDeadlineExceeded", epoch},
		{"and stays passed", reported(due(half()), "ProgressDeadlineExceeded", early), "False", "ProgressDeadlineExceeded", early},
		{"it goes on after all", progress(reported(due(half()), "ProgressDeadlineExceeded", early)), "True", "MachineSetUpdated", epoch},
		{"a set was made", unrecorded(half()), "True", "NewMachineSetCreated", epoch},
		{"and nothing since", reported(half(), "NewMachineSetCreated", early), "True", "NewMachineSetCreated", early},
		{"another one, before the first got on: it has its own time", unrecorded(reported(half(), "NewMachineSetCreated", early)), "True", "NewMachineSetCreated", epoch},
		{"a set was made after what was paused", unrecorded(reported(half(), "DeploymentPaused", early)), "True", "NewMachineSetCreated", epoch},
		{"and the deadline passed", reported(due(half()), "NewMachineSetCreated", early), "False", "ProgressDeadlineExceeded", epoch},
		{"and its first progress", progress(reported(half(), "NewMachineSetCreated", early)), "True", "MachineSetUpdated", epoch},
		{"and then another template", reported(rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3)), "NewMachineSetCreated", early), "True", "MachineSetUpdated", epoch},
		{"a former set is the current one again", rollingUpdateDeployment(3, 1, 0, currentSet(1, 0, 0, 0), oldSet(2, 3, 3, 3)), "True", "FoundNewMachineSet", epoch},
		{"and has its revision", unrecorded(rollingUpdateDeployment(3, 1, 0, again(currentSet(3, 0, 0, 0)), oldSet(2, 3, 3, 3))), "True", "FoundNewMachineSet", epoch},
		{"and nothing since that", reported(rollingUpdateDeployment(3, 1, 0, again(currentSet(3, 0, 0, 0)), oldSet(2, 3, 3, 3)), "FoundNewMachineSet", early), "True", "FoundNewMachineSet", early},
		{"the set of the template was refused", withCreationError(rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3))), "False", "MachineSetCreateError", epoch},
		{"refused, and by now there is one", withCreationError(half()), "True", "MachineSetUpdated", epoch},
		{"refused, and then deleted", withCreationError(withDeploymentDeletion(rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3)))), "True", "MachineSetUpdated", epoch},
		{"refused, and then paused", withCreationError(withPause(rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3)))), "Unknown", "DeploymentPaused", epoch},
		{"paused", reported(withPause(half()), "MachineSetUpdated", early), "Unknown", "DeploymentPaused", epoch},
		{"paused after the deadline: it stays", reported(withPause(due(half())), "ProgressDeadlineExceeded", early), "True", "ProgressDeadlineExceeded", early},
		{"resumed", reported(half(), "DeploymentPaused", early), "Unknown", "DeploymentResumed", epoch},
		{"resumed, and its time begins anew", reported(due(half()), "DeploymentResumed", early), "True", "MachineSetUpdated", epoch},
		{"held", reported(held(half()), "MachineSetUpdated", early), "Unknown", "RolloutHeld", epoch},
		{"waits at a step", withRolloutSteps(rollingUpdateDeployment(3, 1, 0, oldSet(1, 2, 2, 2), currentSet(2, 1, 1, 1)), rollout.Step{Size: countValue(1), NeedsApproval: true}), "Unknown", "RolloutWaiting", epoch},
		{"invalid", withInvalidSpec(half()), "False", "Invalid", epoch},
		{"paused, and the template has no set", withPause(rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3))), "Unknown", "DeploymentPaused", epoch},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := rollout.PlannedStatus(row.in).Conditions[1]
			assert.Equal(t, []string{"Progressing", row.status, row.reason}, []string{c.Type, c.Status, c.Reason})
			assert.Equal(t, row.updated, c.LastUpdateTime)
			for _, other := range rollout.PlannedStatus(row.in).Conditions[2:] {
				assert.Contains(t, []string{"Reconciling", "Stalled"}, other.Type)
			}
		})
	}
	t.Run("late is told by the decision, too", func(t *testing.T) {
		assert.True(t, rollout.Decide(reported(due(half()), "MachineSetUpdated", early)).Late)
		assert.False(t, rollout.Decide(reported(half(), "MachineSetUpdated", early)).Late)
	})
}

func TestEndOfAFreeze(t *testing.T) {
	for _, row := range []struct {
		name                          string
		frozen, unfreeze, thaws, sets bool
		want                          bool
	}{
		{"frozen", true, false, false, false, false},
		{"the annotation ends it", true, true, false, true, true},
		{"an annotation without a freeze is removed, too", false, true, false, false, true},
		{"as MCM: a set is frozen", true, false, true, true, false},
		{"as MCM: no set is frozen any more", true, false, true, false, true},
		{"as MCM: nothing is frozen", false, false, true, false, false},
	} {
		o := rollingUpdateDeployment(3, 1, 0, currentSet(3, 3, 3, 3))
		o.MCM.Frozen, o.MCM.UnfreezeRequested, o.MCM.FreezeEndsWithSets, o.Sets[0].MCM.Frozen = row.frozen, row.unfreeze, row.thaws, row.sets
		plan := rollout.PlanDeployment(o)
		assert.Equal(t, row.want, plan.FreezeEnded, row.name)
		assert.True(t, !plan.FreezeEnded || plan.NeedsStatusWrite, row.name)
	}
}

func TestTheConditionsReplicaFailureAndFrozen(t *testing.T) {
	o := rollingUpdateDeployment(3, 1, 0, oldSet(1, 2, 2, 2), currentSet(2, 2, 2, 1))
	o.Sets[0].Failure = rollout.Problem{Reason: "FailedDelete", Message: "old"}
	assert.Equal(
		t,
		rollout.Condition{Type: "ReplicaFailure", Status: "True", Reason: "FailedDelete", Message: "old"},
		rollout.PlannedStatus(o).Conditions[2],
	)
	o.Sets[1].Failure = rollout.Problem{Reason: "FailedCreate", Message: "new"}
	assert.Equal(t, "FailedCreate", rollout.PlannedStatus(o).Conditions[2].Reason, "what the current set says comes first")
	o.Sets[1].MCM.Frozen = true
	assert.Equal(
		t,
		"No machine is created while the label freeze of set ms2 is True",
		rollout.PlannedStatus(o).Conditions[3].Message,
	)
	o.MCM.Frozen = true
	assert.Equal(t, "No machine is created while the label freeze is True", rollout.PlannedStatus(o).Conditions[3].Message)
	assert.Equal(t, "MachineDeploymentStateSync", rollout.PlannedStatus(o).Conditions[3].Reason)
}
