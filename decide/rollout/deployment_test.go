package rollout_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/rollout"
)

func TestTheSetOfTheTemplate(t *testing.T) {
	for _, row := range []struct {
		name string
		in   rollout.Observed
		want *rollout.Creation
	}{
		{"no set yet", rolling(0, 1, 0), &rollout.Creation{Revision: 1, Max: 0}},
		{"with machines", rolling(3, 1, 0), &rollout.Creation{Replicas: 3, Revision: 1, Desired: 3, Max: 4}},
		{"invalid", invalid(rolling(3, 1, 0)), nil},
		{"RollingUpdate", rolling(3, 1, 0, old(1, 3, 3, 3)), &rollout.Creation{Replicas: 1, Revision: 2, Desired: 3, Max: 4}},
		{"Recreate, old machines are there", by(rollout.Recreate, rolling(3, 1, 0, old(1, 3, 3, 3))), &rollout.Creation{Revision: 2, Desired: 3, Max: 3}},
		{"Recreate, none is", by(rollout.Recreate, rolling(3, 1, 0, old(1, 0, 0, 0))), &rollout.Creation{Replicas: 3, Revision: 2, Desired: 3, Max: 3}},
		{"in-place Auto has its surge", by(rollout.InPlaceAuto, rolling(3, 1, 0, old(1, 3, 3, 3))), &rollout.Creation{Replicas: 1, Revision: 2, Desired: 3, Max: 3}},
		{"in-place Manual begins with none", by(rollout.InPlaceManual, rolling(3, 1, 0, old(1, 3, 3, 3))), &rollout.Creation{Revision: 2, Desired: 3, Max: 3}},
		{"OnDelete begins with none", by(rollout.OnDelete, rolling(3, 1, 0, old(1, 3, 3, 3))), &rollout.Creation{Revision: 2, Desired: 3, Max: 3}},
		{"one that is being deleted is none", rolling(3, 1, 0, going(now(1, 0, 0, 0))), &rollout.Creation{Replicas: 3, Revision: 2, Desired: 3, Max: 4}},
		{"paused: none is made", paused(rolling(3, 1, 0, old(1, 3, 3, 3))), nil},
		{"in steps: as many as the first wants", inSteps(rolling(10, 5, 0, old(1, 10, 10, 10)), rollout.Step{Size: count(2), Approve: true}), &rollout.Creation{Replicas: 2, Revision: 2, Desired: 10, Max: 15}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := rollout.Decide(row.in)
			assert.Equal(t, row.want, d.Create)
			assert.Empty(t, d.Resize)
		})
	}
	t.Run("all as it should be", func(t *testing.T) {
		d := rollout.Decide(rolling(3, 1, 0, now(1, 3, 3, 3)))
		assert.False(t, d.Acts())
		assert.True(t, d.Complete)
		assert.Equal(t, "3 machines wanted and there, all of revision 1", d.Why)
	})
	t.Run("a deployment that is being deleted deletes its sets", func(t *testing.T) {
		o := rolling(3, 1, 0, old(1, 0, 0, 0), now(2, 3, 3, 3), going(old(3, 0, 0, 0)))
		o.Deleting = true
		d := rollout.Decide(o)
		assert.Equal(t, []string{"ms1", "ms2"}, names(d.Delete))
		assert.False(t, d.Done)
		o.Sets = nil
		assert.True(t, rollout.Decide(o).Done)
	})
	t.Run(
		"a set that is deleted with --cascade=orphan is made again when it is gone, and then adopts its machines",
		func(t *testing.T) {
			set := going(now(2, 3, 3, 3))
			set.Orphaning = true
			d := rollout.Decide(rolling(3, 3, 0, old(1, 0, 0, 0), set))
			assert.False(t, d.Acts())
			assert.Equal(
				t,
				"set ms2 is being deleted and has let go of its machines: when it is gone, a new one takes them",
				d.Why,
			)
			free := going(now(2, 3, 0, 0))
			free.Finalizer = true
			assert.False(
				t,
				rollout.Decide(rolling(3, 3, 0, free)).Acts(),
				"the garbage collector is done, and the set is not gone yet",
			)
			free.Finalizer = false
			assert.NotNil(t, rollout.Decide(rolling(3, 3, 0, free)).Create, "the finalizer of somebody else is not waited for")
			set.Current = false
			assert.NotNil(t, rollout.Decide(rolling(3, 3, 0, set)).Create, "a set of another template is not waited for")
		},
	)
	t.Run("of two with the template, the oldest is the one", func(t *testing.T) {
		d := rollout.Decide(rolling(3, 1, 0, now(2, 3, 3, 3), now(1, 1, 1, 1)))
		assert.Equal(t, "ms1", d.Revise.Name)
		assert.Equal(t, int64(3), d.Revise.Revision)
	})
	t.Run("an invalid one says so, and can still go", func(t *testing.T) {
		o := invalid(rolling(3, 1, 0, now(1, 3, 3, 3)))
		assert.Equal(t, "the selector is empty", rollout.Decide(o).Why)
		assert.Equal(t, "Invalid", rollout.Decide(o).HoldBy)
		o.Deleting = true
		assert.Len(t, rollout.Decide(o).Delete, 1)
	})
}

func invalid(o rollout.Observed) rollout.Observed { o.Invalid = "the selector is empty"; return o }
func paused(o rollout.Observed) rollout.Observed  { o.Paused = true; return o }

func inSteps(o rollout.Observed, steps ...rollout.Step) rollout.Observed {
	o.Steps = steps
	return o
}

func TestRecreate(t *testing.T) {
	recreate := func(sets ...rollout.Set) rollout.Decision {
		return rollout.Decide(by(rollout.Recreate, rolling(3, 1, 1, sets...)))
	}
	t.Run("first the old set goes to 0", func(t *testing.T) {
		assert.Equal(t, map[string]int{"ms1": 0}, sizes(recreate(old(1, 3, 3, 3), now(2, 0, 0, 0))))
	})
	t.Run("it waits until the last old machine is gone", func(t *testing.T) {
		d := recreate(plus(old(1, 0, 0, 0), machine("out", deleting)), now(2, 0, 0, 0))
		assert.Empty(t, sizes(d))
		assert.Equal(t, "1 machine of old templates still there", d.Hold)
		assert.True(t, d.Rolling)
	})
	t.Run("then the new set gets its full size", func(t *testing.T) {
		assert.Equal(t, map[string]int{"ms2": 3}, sizes(recreate(old(1, 0, 0, 0), now(2, 0, 0, 0))))
	})
	t.Run("without a block of bounds nothing is an error, and nothing may be missing", func(t *testing.T) {
		o := by(rollout.Recreate, rolling(3, 0, 0, now(1, 3, 3, 2)))
		assert.Equal(t, rollout.Condition{
			Type:    "Available",
			Status:  "False",
			Reason:  "MinimumReplicasUnavailable",
			Message: "2 of 3 machines available, 3 needed",
		}, rollout.Report(o).Conditions[0])
		assert.False(t, rollout.Decide(o).Acts())
	})
}

func TestOnDelete(t *testing.T) {
	onDelete := func(replicas int, sets ...rollout.Set) rollout.Decision {
		return rollout.Decide(by(rollout.OnDelete, rolling(replicas, 3, 3, sets...)))
	}
	t.Run("old sets make no machines any more", func(t *testing.T) {
		assert.Equal(t, []string{"ms1"}, names(onDelete(3, old(1, 3, 3, 3), now(2, 0, 0, 0)).ForbidScaleUp))
	})
	t.Run("they stay", func(t *testing.T) {
		d := onDelete(3, closed(old(1, 3, 3, 3)), now(2, 0, 0, 0))
		assert.Empty(t, sizes(d))
		assert.Equal(t, "3 machines of old templates stay until somebody deletes them", d.Hold)
	})
	t.Run("what is deleted comes back in the new set, once it is gone", func(t *testing.T) {
		assert.Equal(
			t,
			map[string]int{"ms1": 2},
			sizes(onDelete(3, plus(closed(old(1, 3, 2, 2)), machine("out", deleting)), now(2, 0, 0, 0))),
		)
		assert.Equal(t, map[string]int{"ms2": 1}, sizes(onDelete(3, closed(old(1, 2, 2, 2)), now(2, 0, 0, 0))))
	})
	t.Run("fewer wanted: new ones go first that do not serve yet", func(t *testing.T) {
		assert.Equal(t, map[string]int{"ms2": 1}, sizes(onDelete(4, closed(old(1, 3, 3, 3)), now(2, 3, 3, 0))))
		assert.Equal(t, map[string]int{"ms1": 1, "ms2": 1}, sizes(onDelete(2, closed(old(1, 3, 3, 3)), now(2, 2, 2, 1))))
	})
	t.Run("old ones serve as long as those have not gone", func(t *testing.T) {
		assert.Empty(t, sizes(onDelete(4, closed(old(1, 3, 3, 3)), unseen(now(2, 3, 1, 0), 0))))
	})
	t.Run("fewer wanted: from the oldest set", func(t *testing.T) {
		assert.Equal(
			t,
			map[string]int{"ms1": 0, "ms2": 1},
			sizes(onDelete(3, closed(old(1, 2, 2, 2)), closed(old(2, 2, 2, 2)), now(3, 2, 2, 2))),
		)
	})
}

func TestBounds(t *testing.T) {
	for _, row := range []struct {
		name               string
		in                 rollout.Observed
		surge, unavailable int
	}{
		{"Recreate", by(rollout.Recreate, rolling(5, 1, 1)), 0, 0},
		{"0 replicas", rolling(0, 1, 1), 0, 0},
		{"1 of 5", rolling(5, 1, 1), 1, 1},
		{"10 of 5 is capped", rolling(5, 1, 10), 1, 5},
		{"in-place Manual has no surge", by(rollout.InPlaceManual, rolling(5, 1, 0)), 0, 1},
		{"in-place Auto", by(rollout.InPlaceAuto, rolling(5, 1, 0)), 1, 0},
		{"both zero", rolling(5, 0, 0), 0, 1},
		{"surge is rounded up, unavailable down", rollout.Observed{Settings: rollout.Settings{Strategy: rollout.RollingUpdate, Replicas: 5, Surge: percent(25), Unavailable: percent(25)}}, 2, 1},
		{"no number below zero", rolling(5, -3, 1), 0, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			surge, unavailable := rollout.Bounds(row.in)
			assert.Equal(t, []int{row.surge, row.unavailable}, []int{surge, unavailable})
		})
	}
}

func TestScalingWhilePaused(t *testing.T) {
	max12 := func(s rollout.Set) rollout.Set { s.Desired, s.Max = 10, 12; return s }
	max10 := func(s rollout.Set) rollout.Set { s.Desired, s.Max = 10, 10; return s }
	frozen := func(replicas, surge int, sets ...rollout.Set) rollout.Decision {
		o := rollout.Observed{
			Now: epoch,
			Settings: rollout.Settings{
				Replicas: replicas,
				Strategy: rollout.RollingUpdate,
				Surge:    count(surge),
			},
			Sets:     sets,
			Requests: rollout.Requests{Paused: true},
		}
		o.Progress.Revision = 2
		for _, s := range sets {
			for _, m := range s.Machines {
				if m.MCM.MarkedAt != "" {
					o.MCM.Trigger += "," + m.Name + "~" + m.MCM.MarkedAt
				}
			}
		}
		o.MCM.Trigger = strings.TrimPrefix(o.MCM.Trigger, ",")
		return rollout.Decide(o)
	}
	for _, row := range []struct {
		name string
		in   rollout.Decision
		want map[string]int
	}{
		{"sizes stay", frozen(10, 2, max12(old(1, 8, 8, 8)), max12(now(2, 4, 4, 4))), map[string]int{}},
		{"out, to the new set only", frozen(14, 2, max12(old(1, 8, 8, 8)), max12(now(2, 4, 4, 4))), map[string]int{"ms2": 6}},
		{"in, with nothing left over", frozen(4, 2, max12(old(1, 8, 8, 8)), max12(now(2, 4, 4, 4))), map[string]int{"ms1": 4, "ms2": 2}},
		{"in, what is left over falls on the largest", frozen(5, 0, max10(old(1, 4, 4, 4)), max10(old(2, 3, 3, 3)), max10(now(3, 3, 3, 3))), map[string]int{"ms1": 1, "ms2": 2, "ms3": 2}},
		{"in to none", frozen(0, 2, max12(old(1, 8, 8, 8)), max12(now(2, 4, 4, 4))), map[string]int{"ms1": 0, "ms2": 0}},
		{"a single set takes it all", frozen(3, 2, max12(old(1, 8, 8, 8)), max12(now(2, 0, 0, 0))), map[string]int{"ms1": 3}},
		{"out, single", frozen(9, 2, max12(old(1, 8, 8, 8)), max12(now(2, 0, 0, 0))), map[string]int{"ms1": 9}},
		{"none is active", frozen(2, 2, max12(old(1, 0, 0, 0)), max12(old(2, 0, 0, 0))), map[string]int{"ms2": 2}},
		{"what has the annotation delete-machine goes first", frozen(8, 2, max12(old(1, 8, 8, 8)), with(with(max12(now(2, 4, 4, 4)), 0, first), 1, first)), map[string]int{"ms2": 2}},
		{"what the autoscaler chose goes first", frozen(8, 2, max12(old(1, 8, 8, 8)), with(with(max12(now(2, 4, 4, 4)), 0, chosen), 1, chosen)), map[string]int{"ms2": 2}},
		{"no set at all", frozen(2, 0), map[string]int{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, sizes(row.in))
			assert.Equal(t, "Paused", row.in.HoldBy)
		})
	}
	t.Run("held is like paused", func(t *testing.T) {
		o := rolling(10, 2, 0, old(1, 8, 8, 8), now(2, 4, 4, 4))
		o.Held = "cancelled by ann"
		d := rollout.Decide(o)
		assert.False(t, d.Acts())
		assert.Equal(t, []string{"Held", "held (cancelled by ann)"}, []string{d.HoldBy, d.Hold})
	})
	t.Run("a set that may make none is opened first", func(t *testing.T) {
		d := frozen(9, 2, closed(old(1, 8, 8, 8)))
		assert.Equal(t, []string{"ms1"}, names(d.AllowScaleUp))
		assert.Empty(t, sizes(d))
	})
	t.Run("an outdated annotation is put right", func(t *testing.T) {
		o := rolling(3, 1, 0, now(1, 3, 3, 3), old(2, 0, 0, 0))
		o.Sets[0].Desired = 7
		o.Sets[0].Revision = 3
		o.Sets[1].Desired = 7
		d := rollout.Decide(o)
		assert.Equal(
			t,
			[]rollout.Resize{{Name: "ms1", UID: "uid-ms1", Version: "5", From: 3, To: 3, ActedOn: 3, Desired: 3, Max: 4}},
			d.Resize,
		)
	})
	t.Run("a rollback while scaling: both go on at once", func(t *testing.T) {
		o := rolling(6, 1, 0, now(1, 1, 1, 1), old(2, 3, 3, 3))
		o.Sets[0].Revision = 3
		assert.Equal(t, map[string]int{"ms1": 4}, sizes(rollout.Decide(o)))
	})
	t.Run("outside of a rollout, more are made at once although others are on their way out", func(t *testing.T) {
		o := rolling(5, 0, 1, plus(now(1, 2, 2, 2), machine("a", deleting), machine("b", deleting), machine("c", deleting)))
		assert.Empty(t, sizes(rollout.Decide(o)))
		o.Reported.Conditions = []rollout.Condition{
			{Type: "Progressing", Status: "True", Reason: "NewMachineSetAvailable", Updated: at(-time.Hour)},
		}
		assert.Equal(t, map[string]int{"ms1": 5}, sizes(rollout.Decide(o)))
		assert.Equal(t, "NewMachineSetAvailable", rollout.Report(o).Conditions[1].Reason)
	})
	for name, wanted := range map[string]int{"wholly": 10, "in part": 6} {
		t.Run("outside of a rollout, a smaller number is taken back before it is carried out: "+name, func(t *testing.T) {
			o := rolling(wanted, 1, 0, unseen(now(1, 0, 7, 7), 10))
			assert.Empty(t, sizes(rollout.Decide(o)), "while a rollout lasts, two numbers say what there may be")
			o.Reported.Conditions = []rollout.Condition{
				{Type: "Progressing", Status: "True", Reason: "NewMachineSetAvailable", Updated: at(-time.Hour)},
			}
			assert.Equal(t, map[string]int{"ms1": wanted}, sizes(rollout.Decide(o)))
		})
	}
	t.Run("a larger number is carried out first: what is being made is not known yet", func(t *testing.T) {
		o := rolling(0, 1, 0, unseen(now(1, 10, 0, 0), 0))
		o.Reported.Conditions = []rollout.Condition{
			{Type: "Progressing", Status: "True", Reason: "NewMachineSetAvailable", Updated: at(-time.Hour)},
		}
		assert.Empty(t, sizes(rollout.Decide(o)))
	})
}
