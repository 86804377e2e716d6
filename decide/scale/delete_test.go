package scale_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/scale"
)

func TestDelete(t *testing.T) {
	before, after := at(-time.Hour), at(-time.Minute)
	a, b, c := member("a", 3*time.Hour), member("b", 2*time.Hour), member("c", time.Hour)
	of := func(m scale.Member, changes ...change) scale.Member {
		for _, change := range changes {
			change(&m)
		}
		return m
	}
	scaled := func(replicas int, members ...scale.Member) scale.Observed {
		o := set(replicas, members...)
		o.MCM.Scaled = at(-time.Minute)
		return o
	}
	for _, row := range []struct {
		name string
		o    scale.Observed
		want []string
	}{
		{"one too many, and one failed", set(2, a, of(b, failed), c), []string{"b"}},
		{"one too many, and one failed that nobody may replace yet", set(2, a, of(b, failed, notGranted), c), []string{"b"}},
		{"failed ones go first, the surplus is counted afterwards", set(1, of(a, failed), of(b, failed), c), []string{"b", "a"}},
		{"failed ones go although the number is right", set(2, a, of(b, failed)), []string{"b"}},
		{"and although it is too small", set(9, a, of(b, failed)), []string{"b"}},
		{"one too many", set(2, a, b, c), []string{"c"}},
		{"two too many", set(1, a, b, c), []string{"c", "b"}},
		{"in the order of deletion", set(0, a, of(b, annotated), c), []string{"b", "c", "a"}},
		{"enough are being deleted", set(1, a, of(b, deleting), of(c, deleting)), nil},
		{"some are being deleted: the difference", set(1, a, b, of(c, deleting)), []string{"b"}},
		{"marked by the autoscaler, the size stays", scaled(2, of(a, chosen(before)), b), []string{"a"}},
		{"the mark is not older than the last change of the size", scaled(2, of(a, chosen(after)), b), []string{"a"}},
		{"marked, and a smaller size", scaled(1, of(a, chosen(before)), b), []string{"a"}},
		{"marked without a new size: not yet meant", set(2, of(a, chosen(before)), b), nil},
		{"marked after the size was last changed: not yet meant", scaled(2, of(a, chosen(at(0))), b), nil},
		{"a mark without a time is a priority and no more", scaled(2, of(a, priority(1)), b), nil},
		{"marked, then scaled out: it goes, another is made afterwards", scaled(5, of(a, chosen(before)), b), []string{"a"}},
		{"marked, and gone already", scaled(1, of(a, chosen(before), deleting), b), nil},
		{"marked, and preserved since", scaled(2, of(a, chosen(before), preserved), b), nil},
		{"one that was updated in place is not too much", set(2, a, b, of(c, updated)), nil},
		{"nor does it hide a surplus", set(1, a, b, of(c, updated)), []string{"b"}},
		{"nor does the autoscaler take it", scaled(2, a, of(b, updated, chosen(before))), nil},
		{"a preserved one only when there is no other", set(1, a, of(b, preserved)), []string{"a"}},
		{"also when the others are dearer by priority", set(1, of(a, priority(9)), of(b, preserved, priority(1))), []string{"a"}},
		{"and then it goes", set(0, of(b, preserved)), []string{"b"}},
		{"one that failed and is preserved stays", set(2, a, of(b, failed, preserved)), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := scale.Decide(row.o)
			assert.Equal(t, row.want, targets(d.Delete))
			assert.Empty(t, d.Create)
			assert.NotEmpty(t, d.Why)
		})
	}
}

func TestASetThatGoesDeletesItsMachines(t *testing.T) {
	o := set(5, append(running(2, preserved), member("u", 0, updated), member("z", 0, deleting))...)
	o.Deleting, o.MCM.Freeze.Label, o.Remediation.Outdated = true, true, true
	d := scale.Decide(o)
	assert.ElementsMatch(t, []string{"m-1", "m-2", "u"}, targets(d.Delete))
	assert.Equal(t, "delete all 3 machines: the set is being deleted", d.Why)
	assert.False(t, d.Done)

	t.Run("with --cascade=orphan it deletes none", func(t *testing.T) {
		orphaning := o
		orphaning.Orphaning = true
		d := scale.Decide(orphaning)
		assert.True(t, idle(d))
		assert.False(t, d.Done)
	})
	t.Run("its finalizer stays while machines are left", func(t *testing.T) {
		o.Members = []scale.Member{member("z", 0, deleting)}
		d := scale.Decide(o)
		assert.True(t, idle(d))
		assert.False(t, d.Done)
		assert.Equal(t, "the set is being deleted, 1 machine left", d.Why)
	})
	t.Run("and goes with the last of them", func(t *testing.T) {
		o.Members = nil
		assert.True(t, scale.Decide(o).Done)
	})
	t.Run("not while it is paused", func(t *testing.T) {
		paused(&o)
		assert.False(t, scale.Decide(o).Done)
	})
	t.Run("an invalid set can be deleted", func(t *testing.T) {
		o.Pauses, o.Invalid, o.Members = nil, "the selector is empty", running(1, stray)
		assert.Equal(t, []string{"m-1"}, targets(scale.Decide(o).Delete))
	})
}

func TestFailedMachinesAreKept(t *testing.T) {
	old, young := member("old", time.Hour, failed), member("young", time.Minute, failed)
	for _, row := range []struct {
		name    string
		most    int
		members []scale.Member
		keep    []string
		remove  []string
	}{
		{"1 of 1", 1, []scale.Member{old}, []string{"old"}, nil},
		{"none may be kept", 0, []scale.Member{old}, nil, []string{"old"}},
		{"as many as may be are kept already", 1, []scale.Member{member("kept", time.Hour, failed, kept), young}, nil, []string{"young"}},
		{"2 of 2", 2, []scale.Member{young, old}, []string{"old", "young"}, nil},
		{"one more", 2, []scale.Member{member("kept", time.Hour, failed, kept), young}, []string{"young"}, nil},
		{"somebody does not want it kept", 1, []scale.Member{member("old", time.Hour, failed, dismissed)}, nil, []string{"old"}},
		{"fewer may be kept now: those that are stay", 0, []scale.Member{member("kept", time.Hour, failed, kept)}, nil, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := set(len(row.members), row.members...)
			o.MCM.Keep = row.most
			d := scale.Decide(o)
			assert.Equal(t, row.keep, targets(d.Keep))
			assert.Equal(t, row.remove, targets(d.Delete))
		})
	}
}

// What the annotations of machine and node say is decided elsewhere, and told by two facts: may it be replaced, and is
// it preserved.
func TestAFailedMachineIsTerminatedOrKept(t *testing.T) {
	for _, row := range []struct {
		name    string
		changes []change
		gone    bool
	}{
		{"its time has not come", []change{failed, preservedUntil(at(time.Hour))}, false},
		{"kept on purpose, and its time is not on record yet", []change{failed, preserved}, false},
		{"its time is over, or nobody wants it", []change{failed}, true},
		{"nobody wants it kept", []change{failed, dismissed}, true},
		{"preserved and allowed to go: it stays", []change{failed, preserved, func(m *scale.Member) { m.MCM.Replace = true }}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := scale.Decide(set(1, running(1, row.changes...)...))
			assert.Equal(t, row.gone, len(d.Delete) == 1)
		})
	}
}

func TestReasons(t *testing.T) {
	why := func(changes ...change) string { return scale.Decide(set(0, running(1, changes...)...)).Delete[0].Why }
	assert.Equal(t, "surplus: marked to be deleted first", why(annotated))
	assert.Equal(t, "surplus: the autoscaler chose it", why(chosen(at(0))))
	assert.Equal(t, "surplus: failed", why(failed, notGranted))
	assert.Equal(t, "failed", why(failed))
	assert.Equal(t, "surplus (priority 3, phase new)", why(fresh))
	assert.Equal(t, "surplus (priority 1, phase Running)", why(priority(1)))
	assert.Equal(t, "delete 1 machine: 0 wanted, 1 there", scale.Decide(set(0, running(1)...)).Why)
	assert.Equal(t, "delete 1 machine that failed: 0 wanted, 1 there", scale.Decide(set(0, running(1, failed)...)).Why)
	assert.Equal(t, "2 machines wanted and there", scale.Decide(set(2, running(2)...)).Why)
}
