package scale_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/scale"
)

func TestSurplusAndFailedMachinesAreDeleted(t *testing.T) {
	before, after := epochPlus(-time.Hour), epochPlus(-time.Minute)
	a, b, c := newMember("a", 3*time.Hour), newMember("b", 2*time.Hour), newMember("c", time.Hour)
	of := func(m scale.Member, changes ...memberChange) scale.Member {
		for _, change := range changes {
			change(&m)
		}
		return m
	}
	scaled := func(replicas int, members ...scale.Member) scale.Facts {
		o := newSet(replicas, members...)
		o.MCM.AutoscaledAt = epochPlus(-time.Minute)
		return o
	}
	for _, row := range []struct {
		name string
		o    scale.Facts
		want []string
	}{
		{"one too many, and one failed", newSet(2, a, of(b, asFailedMachine), c), []string{"b"}},
		{"one too many, and one failed that nobody may replace yet", newSet(2, a, of(b, asFailedMachine, asUnreplaceableMachine), c), []string{"b"}},
		{"failed ones go first, the surplus is counted afterwards", newSet(1, of(a, asFailedMachine), of(b, asFailedMachine), c), []string{"b", "a"}},
		{"failed ones go although the number is right", newSet(2, a, of(b, asFailedMachine)), []string{"b"}},
		{"and although it is too small", newSet(9, a, of(b, asFailedMachine)), []string{"b"}},
		{"one too many", newSet(2, a, b, c), []string{"c"}},
		{"two too many", newSet(1, a, b, c), []string{"c", "b"}},
		{"in the order of deletion", newSet(0, a, of(b, asMachineToDeleteFirst), c), []string{"b", "c", "a"}},
		{"enough are being deleted", newSet(1, a, of(b, asDeletingMachine), of(c, asDeletingMachine)), nil},
		{"some are being deleted: the difference", newSet(1, a, b, of(c, asDeletingMachine)), []string{"b"}},
		{"marked by the autoscaler, the size stays", scaled(2, of(a, withChoiceTime(before)), b), []string{"a"}},
		{"the mark is not older than the last change of the size", scaled(2, of(a, withChoiceTime(after)), b), []string{"a"}},
		{"marked, and a smaller size", scaled(1, of(a, withChoiceTime(before)), b), []string{"a"}},
		{"marked without a new size: not yet meant", newSet(2, of(a, withChoiceTime(before)), b), nil},
		{"marked after the size was last changed: not yet meant", scaled(2, of(a, withChoiceTime(epochPlus(0))), b), nil},
		{"a mark without a time is a priority and no more", scaled(2, of(a, withPriority(1)), b), nil},
		{"marked, then scaled out: it goes, another is made afterwards", scaled(5, of(a, withChoiceTime(before)), b), []string{"a"}},
		{"marked, and gone already", scaled(1, of(a, withChoiceTime(before), asDeletingMachine), b), nil},
		{"marked, and preserved since", scaled(2, of(a, withChoiceTime(before), asPreservedMachine), b), nil},
		{"one that was updated in place is not too much", newSet(2, a, b, of(c, asMovedMachine)), nil},
		{"nor does it hide a surplus", newSet(1, a, b, of(c, asMovedMachine)), []string{"b"}},
		{"nor does the autoscaler take it", scaled(2, a, of(b, asMovedMachine, withChoiceTime(before))), nil},
		{"a preserved one only when there is no other", newSet(1, a, of(b, asPreservedMachine)), []string{"a"}},
		{"also when the others are dearer by priority", newSet(1, of(a, withPriority(9)), of(b, asPreservedMachine, withPriority(1))), []string{"a"}},
		{"and then it goes", newSet(0, of(b, asPreservedMachine)), []string{"b"}},
		{"one that failed and is preserved stays", newSet(2, a, of(b, asFailedMachine, asPreservedMachine)), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := scale.Decide(row.o)
			assert.Equal(t, row.want, targetNames(d.Delete))
			assert.Empty(t, d.Create)
			assert.NotEmpty(t, d.Why)
		})
	}
}

func TestADeletedSetDeletesItsMachines(t *testing.T) {
	o := newSet(
		5,
		append(
			runningMembers(2, asPreservedMachine),
			newMember("u", 0, asMovedMachine),
			newMember("z", 0, asDeletingMachine),
		)...)
	o.Deleting, o.MCM.Freeze.HasLabel, o.Remediation.SetIsOutdated = true, true, true
	d := scale.Decide(o)
	assert.ElementsMatch(t, []string{"m-1", "m-2", "u"}, targetNames(d.Delete))
	assert.Equal(t, "delete all 3 machines: the set is being deleted", d.Why)
	assert.False(t, d.Done)

	t.Run("with --cascade=orphan it deletes none", func(t *testing.T) {
		orphaning := o
		orphaning.Orphaning = true
		d := scale.Decide(orphaning)
		assert.True(t, isIdleDecision(d))
		assert.False(t, d.Done)
	})
	t.Run("its finalizer stays while machines are left", func(t *testing.T) {
		o.Members = []scale.Member{newMember("z", 0, asDeletingMachine)}
		d := scale.Decide(o)
		assert.True(t, isIdleDecision(d))
		assert.False(t, d.Done)
		assert.Equal(t, "the set is being deleted, 1 machine left", d.Why)
	})
	t.Run("and goes with the last of them", func(t *testing.T) {
		o.Members = nil
		assert.True(t, scale.Decide(o).Done)
	})
	t.Run("not while it is paused", func(t *testing.T) {
		pauseSet(&o)
		assert.False(t, scale.Decide(o).Done)
	})
	t.Run("an invalid set can be deleted", func(t *testing.T) {
		o.PauseSentences, o.InvalidReason, o.Members = nil, "the selector is empty", runningMembers(1, asUnmatchedMachine)
		assert.Equal(t, []string{"m-1"}, targetNames(scale.Decide(o).Delete))
	})
}

func TestFailedMachinesArePreserved(t *testing.T) {
	old, young := newMember("old", time.Hour, asFailedMachine), newMember("young", time.Minute, asFailedMachine)
	for _, row := range []struct {
		name    string
		most    int
		members []scale.Member
		keep    []string
		remove  []string
	}{
		{"1 of 1", 1, []scale.Member{old}, []string{"old"}, nil},
		{"none may be kept", 0, []scale.Member{old}, nil, []string{"old"}},
		{"as many as may be are kept already", 1, []scale.Member{newMember("kept", time.Hour, asFailedMachine, asAutoPreservedMachine), young}, nil, []string{"young"}},
		{"2 of 2", 2, []scale.Member{young, old}, []string{"old", "young"}, nil},
		{"one more", 2, []scale.Member{newMember("kept", time.Hour, asFailedMachine, asAutoPreservedMachine), young}, []string{"young"}, nil},
		{"somebody does not want it kept", 1, []scale.Member{newMember("old", time.Hour, asFailedMachine, withForbiddenPreservation)}, nil, []string{"old"}},
		{"fewer may be kept now: those that are stay", 0, []scale.Member{newMember("kept", time.Hour, asFailedMachine, asAutoPreservedMachine)}, nil, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := newSet(len(row.members), row.members...)
			o.MCM.MaxAutoPreserved = row.most
			d := scale.Decide(o)
			assert.Equal(t, row.keep, targetNames(d.Keep))
			assert.Equal(t, row.remove, targetNames(d.Delete))
		})
	}
}

// The activity in observe/set converts the annotations of machine and node into the facts Replaceable and Preserved.
func TestAFailedMachineIsDeletedOrPreserved(t *testing.T) {
	for _, row := range []struct {
		name    string
		changes []memberChange
		gone    bool
	}{
		{"its time has not come", []memberChange{asFailedMachine, withPreservationEnd(epochPlus(time.Hour))}, false},
		{"kept on purpose, and its time is not on record yet", []memberChange{asFailedMachine, asPreservedMachine}, false},
		{"its time is over, or nobody wants it", []memberChange{asFailedMachine}, true},
		{"nobody wants it kept", []memberChange{asFailedMachine, withForbiddenPreservation}, true},
		{"preserved and allowed to go: it stays", []memberChange{asFailedMachine, asPreservedMachine, func(m *scale.Member) { m.MCM.Replaceable = true }}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := scale.Decide(newSet(1, runningMembers(1, row.changes...)...))
			assert.Equal(t, row.gone, len(d.Delete) == 1)
		})
	}
}

func TestDeletionReasons(t *testing.T) {
	why := func(changes ...memberChange) string {
		return scale.Decide(newSet(0, runningMembers(1, changes...)...)).Delete[0].Why
	}
	assert.Equal(t, "surplus: marked to be deleted first", why(asMachineToDeleteFirst))
	assert.Equal(t, "surplus: the autoscaler chose it", why(withChoiceTime(epochPlus(0))))
	assert.Equal(t, "surplus: failed", why(asFailedMachine, asUnreplaceableMachine))
	assert.Equal(t, "failed", why(asFailedMachine))
	assert.Equal(t, "surplus (priority 3, phase new)", why(asFreshMachine))
	assert.Equal(t, "surplus (priority 1, phase Running)", why(withPriority(1)))
	assert.Equal(t, "delete 1 machine: 0 wanted, 1 there", scale.Decide(newSet(0, runningMembers(1)...)).Why)
	assert.Equal(
		t,
		"delete 1 machine that failed: 0 wanted, 1 there",
		scale.Decide(newSet(0, runningMembers(1, asFailedMachine)...)).Why,
	)
	assert.Equal(t, "2 machines wanted and there", scale.Decide(newSet(2, runningMembers(2)...)).Why)
}
