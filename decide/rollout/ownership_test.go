package rollout_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/rollout"
)

func TestOwnershipOfSets(t *testing.T) {
	orphan := func(name string, change func(*rollout.Orphan)) rollout.Orphan {
		o := rollout.Orphan{Name: name, UID: "uid-" + name, Version: "5", MatchesSelector: true}
		if change != nil {
			change(&o)
		}
		return o
	}
	foreign := func(s rollout.MachineSet) rollout.MachineSet { s.MCM.Unselected = true; return s }
	for _, row := range []struct {
		name           string
		in             rollout.Facts
		orphans        []rollout.Orphan
		adopt, release []string
	}{
		{name: "one that matches", in: rollingUpdateDeployment(3, 1, 0), orphans: []rollout.Orphan{orphan("b", nil), orphan("a", nil)}, adopt: []string{"a", "b"}},
		{name: "one that does not match", in: rollingUpdateDeployment(3, 1, 0), orphans: []rollout.Orphan{orphan("a", func(o *rollout.Orphan) { o.MatchesSelector = false })}},
		{name: "one that is being deleted", in: rollingUpdateDeployment(3, 1, 0), orphans: []rollout.Orphan{orphan("a", func(o *rollout.Orphan) { o.Deleting = true })}},
		{name: "also while the rollout is paused", in: withPause(rollingUpdateDeployment(3, 1, 0)), orphans: []rollout.Orphan{orphan("a", nil)}, adopt: []string{"a"}},
		{name: "not for an invalid deployment", in: withInvalidSpec(rollingUpdateDeployment(3, 1, 0, foreign(oldSet(1, 3, 3, 3)))), orphans: []rollout.Orphan{orphan("a", nil)}},
		{name: "an owned one that does not match", in: rollingUpdateDeployment(3, 1, 0, foreign(oldSet(1, 3, 3, 3)), currentSet(2, 0, 0, 0)), release: []string{"ms1"}},
		{name: "also the current one", in: rollingUpdateDeployment(3, 1, 0, foreign(currentSet(1, 3, 3, 3))), release: []string{"ms1"}},
		{name: "not one that is being deleted", in: rollingUpdateDeployment(3, 1, 0, withDeletion(foreign(oldSet(1, 3, 3, 3))), currentSet(2, 3, 3, 3))},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.in.Orphans = row.orphans
			d := rollout.Decide(row.in)
			assert.Equal(t, row.adopt, targetNames(d.Adopt))
			assert.Equal(t, row.release, targetNames(d.Release))
			if len(row.adopt)+len(row.release) > 0 {
				assert.Nil(t, d.Create, "a decision of its own")
				assert.Empty(t, d.Resize)
				assert.True(t, d.HasActions())
			}
		})
	}
	t.Run("a deployment that is being deleted does neither", func(t *testing.T) {
		o := rollingUpdateDeployment(3, 1, 0, foreign(oldSet(1, 3, 3, 3)))
		o.Deleting, o.Orphans = true, []rollout.Orphan{orphan("a", nil)}
		d := rollout.Decide(o)
		assert.Empty(t, d.Adopt)
		assert.Empty(t, d.Release)
		o.Orphaning = true
		assert.False(t, rollout.Decide(o).HasActions())
	})
	t.Run("a rollback waits for them", func(t *testing.T) {
		o := rollingUpdateDeployment(3, 1, 0, oldSet(1, 0, 0, 0), currentSet(2, 3, 3, 3))
		o.RollbackTo, o.Orphans = new(int64(0)), []rollout.Orphan{orphan("a", nil)}
		assert.Nil(t, rollout.Decide(o).Rollback)
	})
}
