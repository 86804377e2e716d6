package rollout_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/rollout"
)

// denialCausesRollback reports whether the rollout is rolled back if a new machine fails with this denial.
func denialCausesRollback(
	denied rollout.DenialReason,
	was, is rollout.InstanceSource,
	good ...func(*rollout.Member),
) bool {
	o := rollingUpdateDeployment(5, 2, 0, oldSet(1, 0, 0, 0), oldSet(2, 4, 4, 4), currentSet(3, 1, 1, 0))
	o.RollbackPolicy, o.Progress = rollout.AutoRollback{
		HasMaxFailed: true,
	}, rollout.Progress{
		Revision: 3,
		Set:      "ms3",
		Good:     "ms2",
	}
	o.Sets[1].Source, o.Sets[2].Source = was, is
	o.Sets[1] = withChangedMachine(o.Sets[1], 0, good...)
	o.Sets[2] = withChangedMachine(o.Sets[2], 0, asFailedMachine, func(m *rollout.Member) { m.DenialReason = denied })
	return recordedPin(o) != nil
}

// A denial counts against the new template only if the earlier template is known not to cause the same denial.
func TestWhichDenialsCauseRollback(t *testing.T) {
	of := rollout.InstanceSource{Provider: "aws", Account: "a", InstanceType: "small", Object: "user-data"}
	with := func(change func(*rollout.InstanceSource)) rollout.InstanceSource {
		s := of
		change(&s)
		return s
	}
	provider := with(func(s *rollout.InstanceSource) { s.Provider = "gcp" })
	account := with(func(s *rollout.InstanceSource) { s.Account = "b" })
	size := with(func(s *rollout.InstanceSource) { s.InstanceType = "large" })
	object := with(func(s *rollout.InstanceSource) { s.Object = "other" })
	for _, denial := range []rollout.DenialReason{
		rollout.DeniedByNetwork, rollout.DeniedByWorker, rollout.DeniedByCredentials, rollout.DeniedByQuota, rollout.DeniedBySecret,
	} {
		assert.False(t, denialCausesRollback(denial, of, of), denial)
		assert.False(t, denialCausesRollback(denial, of, object), denial)
		assert.False(t, denialCausesRollback(denial, rollout.InstanceSource{}, of), denial)
		assert.False(t, denialCausesRollback(denial, of, rollout.InstanceSource{}), denial)
		assert.Equal(t, denial != rollout.DeniedByNetwork, denialCausesRollback(denial, of, provider), denial)
	}
	assert.False(t, denialCausesRollback(rollout.DeniedByWorker, of, account), "no worker serves the old machines either")
	assert.True(t, denialCausesRollback(rollout.DeniedByCredentials, of, account))
	assert.True(t, denialCausesRollback(rollout.DeniedBySecret, of, account))
	one := func(object string) rollout.InstanceSource { return rollout.InstanceSource{Object: object} }
	assert.True(t, denialCausesRollback(rollout.DeniedBySecret, one("v1"), one("v2")), "the only Secret of the new class")
	assert.False(t, denialCausesRollback(rollout.DeniedBySecret, one("v1"), one("v1")))
	assert.True(t, denialCausesRollback(rollout.DeniedByQuota, of, account))
	assert.True(t, denialCausesRollback(rollout.DeniedByQuota, of, size))
	assert.False(t, denialCausesRollback(rollout.DeniedByCredentials, of, size))
	assert.False(t, denialCausesRollback(rollout.DeniedByTemplate, of, of), "the Secret that both use is invalid")
	assert.True(
		t,
		denialCausesRollback(rollout.DeniedByTemplate, of, object),
		"the Secret that only the new class uses is invalid",
	)
	assert.True(t, denialCausesRollback(rollout.DeniedByTemplate, rollout.InstanceSource{}, rollout.InstanceSource{}))
}

// If the cloud also denies a machine of the earlier template, the new template is not the cause.
func TestDenialSharedByGoodSetCausesNoRollback(t *testing.T) {
	was, is := rollout.InstanceSource{
		Object:       "v1",
		InstanceType: "small",
	}, rollout.InstanceSource{
		Object:       "v2",
		InstanceType: "large",
	}
	for _, denial := range []rollout.DenialReason{rollout.DeniedByTemplate, rollout.DeniedByQuota} {
		alike := func(m *rollout.Member) { m.DenialReason = denial }
		assert.True(t, denialCausesRollback(denial, was, is), denial)
		assert.False(t, denialCausesRollback(denial, was, is, alike), denial)
		assert.True(t, denialCausesRollback(denial, was, is, alike, asDeletingMachine), "it is not waited for")
	}
	assert.True(t, denialCausesRollback(rollout.DeniedByQuota, was, is, func(m *rollout.Member) {
		m.DenialReason = rollout.DeniedByNetwork
	}), "another reason")
}

// withMissingObject makes a set whose template refers to a missing object. The set is of MCM's kinds or of Cluster API.
func withMissingObject(clusterAPI bool) func(*rollout.MachineSet) {
	return func(s *rollout.MachineSet) {
		if clusterAPI {
			s.ClusterAPI.MissingObject = "X shop/x"
		} else {
			s.MCM.MissingClass = "X shop/x"
		}
	}
}

// An automatic rollback never selects a set that cannot create machines, and the condition Degraded gives the reason.
func TestNoRollbackToASetThatLacksAnObject(t *testing.T) {
	for _, clusterAPI := range []bool{false, true} {
		lacks := withMissingObject(clusterAPI)
		t.Run("an automatic rollback", func(t *testing.T) {
			o := newFailingRollout(2, rollout.AutoRollback{HasMaxFailed: true, MaxFailed: 1})
			lacks(&o.Sets[1])
			assert.Nil(t, recordedPin(o))
			const says = "revision 3 failed (2 machines of it failed, 1 allowed) and does not go back to revision 2: " +
				"X shop/x does not exist any more"
			o = withRecordedProgress(o)
			assert.Equal(t, rollout.Condition{
				Type: "Degraded", Status: "True", Reason: "DeploymentRollbackTemplateNotFound", Message: says,
			}, plannedCondition(o, "Degraded"))
			assert.Contains(t, rollout.Decide(o).Why, says)
			o.Sets[1].MCM.MissingClass, o.Sets[1].ClusterAPI.MissingObject = "", ""
			assert.NotNil(t, recordedPin(o), "the object is there again")
		})
		t.Run("without a policy there is nothing to say", func(t *testing.T) {
			o := newFailingRollout(2, rollout.AutoRollback{})
			lacks(&o.Sets[1])
			assert.Empty(t, plannedCondition(o, "Degraded"))
			assert.NotContains(t, rollout.Decide(o).Why, "shop/x")
		})
		t.Run("a person's pin", func(t *testing.T) {
			o := rollingUpdateDeployment(3, 1, 0, oldSet(1, 0, 0, 0), currentSet(2, 3, 3, 3))
			o.Progress = rollout.Progress{Revision: 2, Set: "ms2", Completed: epoch, Good: "ms2"}
			o.PinRevision, o.PinRequestedBy = 1, "ann: slow"
			lacks(&o.Sets[0])
			assert.Nil(t, recordedPin(o))
			assert.Equal(
				t,
				"revision 2 is not pinned to revision 1, as requested by ann (slow): X shop/x does not exist any more",
				plannedCondition(o, "Degraded").Message,
			)
		})
		t.Run("a person's pin does not hide a rollback that is possible", func(t *testing.T) {
			o := newFailingRollout(2, rollout.AutoRollback{HasMaxFailed: true, MaxFailed: 1})
			o.PinRevision, o.PinRequestedBy = 1, "ann: slow"
			lacks(&o.Sets[0])
			assert.Equal(t, "ms2", recordedPin(o).Set)
		})
		t.Run("an undo", func(t *testing.T) {
			o := newFailingRollout(0, rollout.AutoRollback{})
			lacks(&o.Sets[1])
			o.RollbackTo = new(int64(2))
			r := rollout.Decide(o).Rollback
			assert.Nil(t, r.Set)
			assert.Equal(t, "DeploymentRollbackTemplateNotFound", r.Reason)
		})
		t.Run("no machine is deleted for a pinned set that can make none", func(t *testing.T) {
			o := deploymentAfterRollback()
			o.Strategy = rollout.Recreate
			o = withCorrectAnnotations(o)
			assert.NotEmpty(t, rollout.Decide(o).Resize)
			lacks(&o.Sets[1])
			d := rollout.Decide(o)
			assert.Empty(t, d.Resize)
			assert.Contains(t, d.Why, "X shop/x does not exist")
		})
	}
}

// The history limit does not delete the set that a rollback would use, until the rollout is complete.
func TestTheHistoryLimitKeepsTheGoodSet(t *testing.T) {
	o := newFailingRollout(0, rollout.AutoRollback{HasMaxFailed: true})
	o.Sets[0], o.Sets[1] = oldSet(1, 0, 0, 0), oldSet(2, 0, 0, 0)
	o.HistoryLimit = new(0)
	assert.Equal(t, []string{"ms1"}, targetNames(rollout.Decide(withPause(o)).Delete))
	o.Sets[2] = currentSet(3, 5, 5, 5)
	o = withCorrectAnnotations(o)
	assert.Equal(t, []string{"ms1", "ms2"}, targetNames(rollout.Decide(o).Delete))
}

// A restart in Cluster API creates another set with the same template. A pin can still move the machines back to the
// set before the restart.
func TestMachinesCanBePinnedToTheSetBeforeARestart(t *testing.T) {
	o := newFailingRollout(2, rollout.AutoRollback{HasMaxFailed: true, MaxFailed: 1})
	o.Sets[1].ClusterAPI.DuplicatesTemplate = true
	assert.Equal(t, "ms2", recordedPin(o).Set)
	o.RollbackPolicy, o.PinRevision = rollout.AutoRollback{}, 2
	assert.Equal(t, "ms2", recordedPin(o).Set)
	o = withRecordedProgress(o)
	o.ClusterAPI.UsesExtension = true
	assert.Empty(t, rollout.Decide(o).Ask, "machines of the same template are replaced, not updated in place")
}
