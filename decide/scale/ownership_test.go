package scale_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/scale"
)

func TestOwnership(t *testing.T) {
	foreign, going := orphan("foreign"), orphan("going")
	foreign.Matches = false
	going.Deleting = true
	for _, row := range []struct {
		name           string
		replicas       int
		members        []scale.Member
		orphans        []scale.Orphan
		change         func(*scale.Observed)
		adopt, release []string
		create         int
	}{
		{name: "an orphan that matches", replicas: 3, orphans: []scale.Orphan{orphan("b"), orphan("a")}, adopt: []string{"a", "b"}},
		{name: "one that does not match is left alone, and one is made", replicas: 1, orphans: []scale.Orphan{foreign}, create: 1},
		{name: "the controller is put on an orphan before any is made", replicas: 2, members: running(1), orphans: []scale.Orphan{orphan("a")}, adopt: []string{"a"}},
		{name: "an orphan that is being deleted is left alone", replicas: 1, orphans: []scale.Orphan{going}, create: 1},
		{name: "more than wanted are adopted all the same", replicas: 0, orphans: []scale.Orphan{orphan("a")}, adopt: []string{"a"}},
		{
			name: "an empty selector adopts nothing", replicas: 1, orphans: []scale.Orphan{orphan("a")}, create: 1,
			change: func(o *scale.Observed) { o.SelectsAll = true },
		},
		{
			name: "nor does a set whose selector is refused, and it makes none", replicas: 1, orphans: []scale.Orphan{orphan("a")},
			change: func(o *scale.Observed) { o.SelectsAll, o.Invalid = true, "the selector is empty" },
		},
		{
			name: "a set that is being deleted adopts nothing", orphans: []scale.Orphan{orphan("a")},
			change: func(o *scale.Observed) { o.Deleting = true },
		},
		{name: "one that does not match any more", replicas: 1, members: running(1, stray), release: []string{"m-1"}},
		{name: "release comes first, also before what is adopted", replicas: 1, members: running(2, stray), orphans: []scale.Orphan{orphan("a")}, release: []string{"m-1", "m-2"}},
		{
			name: "an empty selector lets go of nothing", replicas: 1, members: running(1, stray),
			change: func(o *scale.Observed) { o.SelectsAll = true },
		},
		{name: "own ones count, those that go and do not match any more are let be", replicas: 2, members: append(running(2), member("z", 0, stray, deleting))},
		{
			name: "a set that is being deleted lets go of none", replicas: 1, members: append(running(1), member("z", 0, stray)),
			change: func(o *scale.Observed) { o.Deleting = true },
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := set(row.replicas, row.members...)
			o.Orphans = row.orphans
			if row.change != nil {
				row.change(&o)
			}
			d := scale.Decide(o)
			assert.Equal(t, row.adopt, targets(d.Adopt))
			assert.Equal(t, row.release, targets(d.Release))
			assert.Len(t, d.Create, row.create)
			assert.NotEmpty(t, d.Why)
		})
	}
}

func TestTargetsCarryWhatWasSeen(t *testing.T) {
	o := set(1)
	o.Orphans = []scale.Orphan{orphan("a")}
	d := scale.Decide(o)
	assert.Equal(
		t,
		[]scale.Target{{Name: "a", UID: "uid-a", Version: "7", Why: "the labels match the selector, and there is no owner"}},
		d.Adopt,
	)
	assert.Equal(t, "adopt 1 machine: the labels match the selector, and there is no owner", d.Why)
	d = scale.Decide(set(1, running(1, stray)...))
	assert.Equal(
		t,
		[]scale.Target{{Name: "m-1", UID: "uid-m-1", Version: "7", Why: "the labels do not match the selector"}},
		d.Release,
	)
	assert.Equal(t, "release 1 machine: the labels do not match the selector", d.Why)
}

// Fifty orphans are one batch; the next is decided on what is there then.
func TestFiftyOrphansAreOneBatch(t *testing.T) {
	o := set(60)
	for i := range 60 {
		o.Orphans = append(o.Orphans, orphan(fmt.Sprintf("o-%02d", 59-i)))
	}
	d := scale.Decide(o)
	assert.Len(t, d.Adopt, scale.MaxBatch)
	assert.Equal(t, "o-00", d.Adopt[0].Name)
	assert.Equal(t, "o-49", d.Adopt[49].Name)
}

// Something takes the labels off every machine that the set makes. Each is released, and would be followed by another.
func TestReleasedMachinesAreNotReplacedForEver(t *testing.T) {
	o := set(3)
	made := 0
	for range 50 {
		d := scale.Decide(o)
		o.Released += len(d.Release)
		if len(d.Release) > 0 {
			o.Members = nil
		}
		for _, name := range d.Create {
			o.Members = append(o.Members, member(name, 0, fresh, stray))
			made++
		}
		o.Seed++
	}
	assert.Equal(t, 9, made)
	d := scale.Decide(o)
	assert.True(t, idle(d))
	assert.Equal(t, "3 wanted, 0 there; none is created: 9 Machines that the MachineSet released have no owner", d.Hold)
	assert.Contains(t, condition(t, o, "ScalingUp").Message, "* 9 Machines that the MachineSet released have no owner")
	o.Released = 0 // a person took care of them
	assert.Len(t, scale.Decide(o).Create, 3)
}

// Where one machine is taken out of a set by its labels, one takes its place.
func TestAReleasedMachineIsReplacedOnce(t *testing.T) {
	o := set(3, running(2)...)
	o.Released = 1
	assert.Len(t, scale.Decide(o).Create, 1)
	o = set(3, append(running(2), member("x", time.Hour, stray))...)
	assert.Empty(t, scale.Decide(o).Create, "while the set owns it, it counts")
}
