package scale_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/scale"
)

func TestReleaseAndAdoptionOfMachines(t *testing.T) {
	foreign, going := newOrphan("foreign"), newOrphan("going")
	foreign.MatchesSelector = false
	going.MayNotBeAdopted = true
	for _, row := range []struct {
		name           string
		replicas       int
		members        []scale.Member
		orphans        []scale.Orphan
		change         func(*scale.Facts)
		adopt, release []string
		create         int
	}{
		{name: "an orphan that matches", replicas: 3, orphans: []scale.Orphan{newOrphan("b"), newOrphan("a")}, adopt: []string{"a", "b"}},
		{name: "one that does not match is left alone, and one is made", replicas: 1, orphans: []scale.Orphan{foreign}, create: 1},
		{name: "the controller is put on an orphan before any is made", replicas: 2, members: runningMembers(1), orphans: []scale.Orphan{newOrphan("a")}, adopt: []string{"a"}},
		{name: "an orphan that is being deleted is left alone", replicas: 1, orphans: []scale.Orphan{going}, create: 1},
		{name: "more than wanted are adopted all the same", replicas: 0, orphans: []scale.Orphan{newOrphan("a")}, adopt: []string{"a"}},
		{
			name: "an empty selector adopts nothing", replicas: 1, orphans: []scale.Orphan{newOrphan("a")}, create: 1,
			change: func(o *scale.Facts) { o.SelectsAll = true },
		},
		{
			name: "nor does a set whose selector is refused, and it makes none", replicas: 1, orphans: []scale.Orphan{newOrphan("a")},
			change: func(o *scale.Facts) { o.SelectsAll, o.InvalidReason = true, "the selector is empty" },
		},
		{
			name: "a set that is being deleted adopts nothing", orphans: []scale.Orphan{newOrphan("a")},
			change: func(o *scale.Facts) { o.Deleting = true },
		},
		{name: "one that does not match any more", replicas: 1, members: runningMembers(1, asUnmatchedMachine), release: []string{"m-1"}},
		{name: "release comes first, also before what is adopted", replicas: 1, members: runningMembers(2, asUnmatchedMachine), orphans: []scale.Orphan{newOrphan("a")}, release: []string{"m-1", "m-2"}},
		{
			name: "an empty selector lets go of nothing", replicas: 1, members: runningMembers(1, asUnmatchedMachine),
			change: func(o *scale.Facts) { o.SelectsAll = true },
		},
		{name: "own ones count, those that go and do not match any more are let be", replicas: 2, members: append(runningMembers(2), newMember("z", 0, asUnmatchedMachine, asDeletingMachine))},
		{
			name: "a set that is being deleted lets go of none", replicas: 1, members: append(runningMembers(1), newMember("z", 0, asUnmatchedMachine)),
			change: func(o *scale.Facts) { o.Deleting = true },
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := newSet(row.replicas, row.members...)
			o.Orphans = row.orphans
			if row.change != nil {
				row.change(&o)
			}
			d := scale.Decide(o)
			assert.Equal(t, row.adopt, targetNames(d.Adopt))
			assert.Equal(t, row.release, targetNames(d.Release))
			assert.Len(t, d.Create, row.create)
			assert.NotEmpty(t, d.Why)
		})
	}
}

func TestTargetsHaveTheVersionThatWasRead(t *testing.T) {
	o := newSet(1)
	o.Orphans = []scale.Orphan{newOrphan("a")}
	d := scale.Decide(o)
	assert.Equal(
		t,
		[]scale.MachineTarget{
			{Name: "a", UID: "uid-a", Version: "7", Why: "the labels match the selector, and there is no owner"},
		},
		d.Adopt,
	)
	assert.Equal(t, "adopt 1 machine: the labels match the selector, and there is no owner", d.Why)
	d = scale.Decide(newSet(1, runningMembers(1, asUnmatchedMachine)...))
	assert.Equal(
		t,
		[]scale.MachineTarget{{Name: "m-1", UID: "uid-m-1", Version: "7", Why: "the labels do not match the selector"}},
		d.Release,
	)
	assert.Equal(t, "release 1 machine: the labels do not match the selector", d.Why)
}

// A decision adopts at most 50 orphans. The next decision adopts the remaining orphans that still exist.
func TestADecisionAdoptsAtMostFiftyMachines(t *testing.T) {
	o := newSet(60)
	for i := range 60 {
		o.Orphans = append(o.Orphans, newOrphan(fmt.Sprintf("o-%02d", 59-i)))
	}
	d := scale.Decide(o)
	assert.Len(t, d.Adopt, scale.MaxBatchSize)
	assert.Equal(t, "o-00", d.Adopt[0].Name)
	assert.Equal(t, "o-49", d.Adopt[49].Name)
}

// If another program removes the labels of every new machine, the set releases each machine. The set must not create
// replacements forever.
func TestReleasedMachinesAreNotReplacedForEver(t *testing.T) {
	o := newSet(3)
	made := 0
	for range 50 {
		d := scale.Decide(o)
		o.ReleasedMachineCount += len(d.Release)
		if len(d.Release) > 0 {
			o.Members = nil
		}
		for _, name := range d.Create {
			o.Members = append(o.Members, newMember(name, 0, asFreshMachine, asUnmatchedMachine))
			made++
		}
		o.NameSeed++
	}
	assert.Equal(t, 9, made)
	d := scale.Decide(o)
	assert.True(t, isIdleDecision(d))
	assert.Equal(t, "3 wanted, 0 there; none is created: 9 Machines that the MachineSet released have no owner", d.Hold)
	assert.Contains(
		t,
		reportedCondition(t, o, "ScalingUp").Message,
		"* 9 Machines that the MachineSet released have no owner",
	)
	o.ReleasedMachineCount = 0 // a person has deleted the released machines or given them an owner
	assert.Len(t, scale.Decide(o).Create, 3)
}

// If a person removes one machine from a set by changing its labels, the set creates one replacement.
func TestAReleasedMachineIsReplacedOnce(t *testing.T) {
	o := newSet(3, runningMembers(2)...)
	o.ReleasedMachineCount = 1
	assert.Len(t, scale.Decide(o).Create, 1)
	o = newSet(3, append(runningMembers(2), newMember("x", time.Hour, asUnmatchedMachine))...)
	assert.Empty(t, scale.Decide(o).Create, "while the set owns it, it counts")
}
