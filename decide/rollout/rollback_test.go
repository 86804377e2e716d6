package rollout_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/rollout"
)

func TestRollback(t *testing.T) {
	to := func(revision int64, sets ...rollout.MachineSet) *rollout.Rollback {
		o := rollingUpdateDeployment(3, 1, 0, sets...)
		o.RollbackTo = &revision
		return rollout.Decide(o).Rollback
	}
	r := to(1, oldSet(1, 0, 0, 0), oldSet(2, 0, 0, 0), currentSet(3, 3, 3, 3))
	t.Run("the set of the revision gives its template", func(t *testing.T) {
		assert.Equal(t, &rollout.Rollback{
			Set:      &rollout.ObjectTarget{Name: "ms1", UID: "uid-ms1", Version: "5", Why: "its template returns"},
			Revision: 1, Reason: "DeploymentRollback", Why: "return to revision 1, set ms1",
		}, r)
	})
	t.Run("0 is the one before", func(t *testing.T) {
		assert.Equal(t, int64(2), to(0, oldSet(1, 0, 0, 0), oldSet(2, 0, 0, 0), currentSet(3, 3, 3, 3)).Revision)
	})
	t.Run("there is none", func(t *testing.T) {
		assert.Equal(t, "DeploymentRollbackRevisionNotFound", to(0, currentSet(3, 3, 3, 3)).Reason)
		assert.Equal(t, "DeploymentRollbackRevisionNotFound", to(7, oldSet(1, 0, 0, 0), currentSet(3, 3, 3, 3)).Reason)
		assert.Nil(t, to(7, oldSet(1, 0, 0, 0), currentSet(3, 3, 3, 3)).Set)
	})
	t.Run("it is the same", func(t *testing.T) {
		assert.Equal(t, "DeploymentRollbackTemplateUnchanged", to(3, oldSet(1, 0, 0, 0), currentSet(3, 3, 3, 3)).Reason)
	})
	t.Run("a topology would write the template again", func(t *testing.T) {
		o := rollingUpdateDeployment(3, 1, 0, oldSet(1, 0, 0, 0), currentSet(3, 3, 3, 3))
		o.RollbackTo, o.ClusterAPI.TemplateOwner = new(int64(1)), "the topology of Cluster shop/c"
		assert.Equal(t, &rollout.Rollback{
			Revision: 1,
			Reason:   "DeploymentRollbackTemplateOwned",
			Why:      "the topology of Cluster shop/c writes the template, and would write it again: pin the revision instead",
		}, rollout.Decide(o).Rollback)
	})
	t.Run("not while paused, as in MCM", func(t *testing.T) {
		o := withPause(rollingUpdateDeployment(3, 1, 0, oldSet(1, 0, 0, 0), currentSet(3, 3, 3, 3)))
		o.RollbackTo = new(int64(1))
		assert.Nil(t, rollout.Decide(o).Rollback)
	})
	t.Run("a held rollout is undone", func(t *testing.T) {
		o := rollingUpdateDeployment(3, 1, 0, oldSet(1, 0, 0, 0), currentSet(3, 3, 3, 3))
		o.RollbackTo, o.HoldReason = new(int64(1)), "cancelled"
		assert.NotNil(t, rollout.Decide(o).Rollback)
	})
}

func TestRevisionHistory(t *testing.T) {
	t.Run("a set that is used again gets a new revision, and remembers the former", func(t *testing.T) {
		o := rollingUpdateDeployment(3, 1, 0, currentSet(1, 0, 0, 0), oldSet(2, 3, 3, 3))
		o.Sets[0].History = "7"
		d := rollout.Decide(o)
		assert.Equal(t, int64(3), d.Revise.Revision)
		assert.Equal(t, "7,1", d.Revise.History)
		assert.Empty(t, d.Resize)
	})
	t.Run("the history has an end, and no entry where the revision stays", func(t *testing.T) {
		o := rollingUpdateDeployment(3, 1, 0, currentSet(1, 0, 0, 0), oldSet(2, 3, 3, 3))
		o.Sets[0].History = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20"
		assert.Equal(t, "2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,1", rollout.Decide(o).Revise.History)
		o.Sets[0].Revision = 5
		o.Sets[0].Drifted = true
		d := rollout.Decide(o)
		assert.Nil(t, d.Revise)
		assert.Equal(t, []string{"ms1"}, targetNames(d.Sync))
	})
	limited := func(limit int, sets ...rollout.MachineSet) []string {
		o := rollingUpdateDeployment(1, 1, 0, append(sets, currentSet(9, 1, 1, 1))...)
		o.HistoryLimit = &limit
		return targetNames(rollout.Decide(o).Delete)
	}
	t.Run("old sets that nobody needs go, by revision", func(t *testing.T) {
		again := oldSet(1, 0, 0, 0)
		again.Revision = 8
		assert.Equal(t, []string{"ms2"}, limited(2, again, oldSet(2, 0, 0, 0), oldSet(3, 0, 0, 0)))
		assert.Len(t, limited(0, again, oldSet(2, 0, 0, 0), oldSet(3, 0, 0, 0)), 3)
		assert.Empty(t, limited(3, again, oldSet(2, 0, 0, 0), oldSet(3, 0, 0, 0)))
	})
	t.Run("without a limit all are kept; during a rollout, too", func(t *testing.T) {
		assert.Empty(t, rollout.Decide(rollingUpdateDeployment(1, 1, 0, oldSet(1, 0, 0, 0), currentSet(2, 1, 1, 1))).Delete)
		o := rollingUpdateDeployment(1, 1, 0, oldSet(1, 0, 0, 0), currentSet(2, 1, 1, 0))
		o.HistoryLimit = new(0)
		assert.Empty(t, rollout.Decide(o).Delete)
		assert.Len(t, rollout.Decide(withPause(o)).Delete, 1)
	})
	t.Run("one that has machines, or may still make some, stays", func(t *testing.T) {
		o := rollingUpdateDeployment(
			1,
			1,
			0,
			withObservedReplicas(oldSet(1, 0, 0, 0), 2),
			withStatusMachineCount(oldSet(2, 0, 0, 0), 1),
			currentSet(3, 1, 1, 1),
		)
		o.HistoryLimit = new(0)
		assert.Empty(t, rollout.Decide(o).Delete)
	})
}
