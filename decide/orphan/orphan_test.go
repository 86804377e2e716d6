package orphan_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/orphan"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// soon allows that many for an hour.
func soon(n int) string { return fmt.Sprintf("%d until 2026-11-22T13:00:00Z", n) }

func ago(d time.Duration) time.Time { return now.Add(-d) }

// instance is one of an hour, with the tags of a machine.
func instance(id, machine string) orphan.Instance {
	return orphan.Instance{ProviderID: id, Machine: machine, UID: "uid-" + machine, Created: ago(time.Hour)}
}

func machine(name, providerID string) orphan.Machine {
	return orphan.Machine{Name: name, UID: "uid-" + name, ProviderID: providerID}
}

// healthy is a world of n machines with their instances.
func healthy(n int) orphan.Facts {
	f := orphan.Facts{Now: now}
	for i := range n {
		name := fmt.Sprintf("m-%d", i)
		f.Machines = append(f.Machines, machine(name, "i-"+name))
		f.Instances = append(f.Instances, instance("i-"+name, name))
	}
	return f
}

// with adds instances, each of which was seen without a machine for the given time.
func with(f orphan.Facts, seen time.Duration, instances ...orphan.Instance) orphan.Facts {
	f.Instances = append(f.Instances, instances...)
	for _, i := range instances {
		if seen > 0 {
			f.Sightings = append(f.Sightings, orphan.Sighting{ProviderID: i.ProviderID, UID: i.UID, Since: ago(seen)})
		}
	}
	return f
}

// named makes a world of a cloud whose instances carry names alone.
func named(f orphan.Facts) orphan.Facts {
	f.Named = true
	for i := range f.Instances {
		f.Instances[i].UID = ""
	}
	for i := range f.Sightings {
		f.Sightings[i].UID = ""
	}
	return f
}

func changed(f orphan.Facts, change func(*orphan.Facts)) orphan.Facts {
	change(&f)
	return f
}

// lost are n instances whose machines do not exist.
func lost(n int) []orphan.Instance {
	var all []orphan.Instance
	for i := range n {
		all = append(all, instance(fmt.Sprintf("i-lost-%d", i), fmt.Sprintf("lost-%d", i)))
	}
	return all
}

// goes returns the provider IDs of all that is deleted, sorted.
func goes(d orphan.Decision) []string {
	var ids []string
	for _, t := range d.Collect {
		ids = append(ids, t.ProviderIDs...)
	}
	slices.Sort(ids)
	return ids
}

func TestDecide(t *testing.T) {
	const long = 16 * time.Minute
	gone := instance("i-gone", "gone")
	for _, row := range []struct {
		name  string
		facts orphan.Facts
		goes  []string
		held  string // a part of why
		says  string // a part of the notes, or of what is unclear
	}{
		{name: "nothing to do", facts: healthy(3)},
		{name: "nothing at all", facts: orphan.Facts{Now: now}},
		{name: "no machine: it goes", facts: with(healthy(3), long, gone), goes: []string{"i-gone"}},
		{name: "a machine in CrashLoopBackOff, which names no instance yet, keeps it", facts: changed(with(healthy(3), long, gone), func(f *orphan.Facts) {
			f.Machines = append(f.Machines, machine("gone", ""))
		})},
		{
			name: "a machine that names another instance keeps it, since a provider deletes all of one UID: a person decides",
			facts: changed(with(healthy(3), long, gone, instance("i-other", "gone")), func(f *orphan.Facts) {
				f.Machines = append(f.Machines, machine("gone", "i-other"))
			}), says: "Machine gone has 2 instances (i-gone, i-other)",
		},
		{name: "a machine of that name with another UID does not keep it", facts: changed(with(healthy(3), long, gone), func(f *orphan.Facts) {
			f.Machines = append(f.Machines, orphan.Machine{Name: "gone", UID: "uid-new"})
		}), goes: []string{"i-gone"}},
		{name: "restored from a backup: the machine has another UID and names its instance", facts: changed(with(healthy(3), long, gone), func(f *orphan.Facts) {
			f.Machines = append(f.Machines, orphan.Machine{Name: "gone", UID: "uid-new", ProviderID: "i-gone"})
		}), says: "Machine gone names instance i-gone"},
		{name: "two instances of one lost machine of which another machine names one: both stay", facts: changed(with(healthy(30), long, gone, instance("i-gone-2", "gone")), func(f *orphan.Facts) {
			f.Machines = append(f.Machines, orphan.Machine{Name: "new", UID: "uid-new", ProviderID: "i-gone-2"})
		}), says: "Machine new names instance i-gone-2"},
		{name: "two instances of one lost machine go together", facts: with(healthy(3), long, gone, instance("i-gone-2", "gone")), goes: []string{"i-gone", "i-gone-2"}},
		{name: "one of the two was just seen", facts: with(with(healthy(3), long, gone), 0, instance("i-gone-2", "gone")), says: "not confirmed before 12:15:00 UTC"},
		{name: "in a cloud of names, no machine of its name: it goes", facts: named(with(healthy(3), long, gone)), goes: []string{"i-gone"}},
		{name: "in a cloud of names, a machine of its name that has no instance yet keeps it", facts: changed(named(with(healthy(3), long, gone)), func(f *orphan.Facts) {
			f.Machines = append(f.Machines, orphan.Machine{Name: "gone", UID: "uid-new"})
		})},
		{
			name: "in a cloud of names, a second one of a name stays: a person decides", facts: named(with(healthy(3), long, instance("i-2", "m-1"))),
			says: "instance i-2 has no UID, and the name of Machine m-1, which names instance i-m-1",
		},
		{name: "in a cloud of names, a machine that was moved keeps it", facts: changed(named(with(healthy(3), long, gone)), func(f *orphan.Facts) {
			f.Machines = append(f.Machines, orphan.Machine{Name: "gone", UID: "uid-new", Elsewhere: "other"})
		}), says: "i-gone"},
		{name: "in a cloud of names, one that a machine of another name has on record stays", facts: changed(named(with(healthy(3), long, gone)), func(f *orphan.Facts) {
			f.Machines = append(f.Machines, machine("renamed", "i-gone"))
		})},
		{name: "in a cloud of names, one without a name stays", facts: named(with(healthy(3), long, orphan.Instance{ProviderID: "i-gone"})), says: "has neither the name nor the UID"},
		{name: "first sighting", facts: with(healthy(3), 0, gone), says: "first seen at 12:00:00 UTC"},
		{name: "a second look that comes too early", facts: with(healthy(3), 15*time.Minute-1, gone), says: "not confirmed"},
		{name: "exactly at the time", facts: with(healthy(3), 15*time.Minute, gone), goes: []string{"i-gone"}},
		{name: "too young", facts: with(healthy(3), long, orphan.Instance{ProviderID: "i-young", Machine: "y", UID: "uid-y", Created: ago(20*time.Minute - 1)}), says: "too young until 12:00:00"},
		{name: "old enough", facts: with(healthy(3), long, orphan.Instance{ProviderID: "i-young", Machine: "y", UID: "uid-y", Created: ago(20 * time.Minute)}), goes: []string{"i-young"}},
		{name: "a cloud that does not tell ages", facts: with(healthy(3), long, orphan.Instance{ProviderID: "i-gone", Machine: "y", UID: "uid-y"}), goes: []string{"i-gone"}},
		{name: "a cloud whose clock is ahead", facts: with(healthy(3), long, orphan.Instance{ProviderID: "i-gone", Machine: "y", UID: "uid-y", Created: now.Add(time.Hour)}), says: "too young"},
		{name: "a sighting of the future counts from now", facts: with(healthy(3), -time.Hour, gone), says: "first seen at 12:00:00 UTC"},
		{name: "a provider ID that is used again is another instance", facts: changed(with(healthy(3), 0, gone), func(f *orphan.Facts) {
			f.Sightings = []orphan.Sighting{{ProviderID: "i-gone", UID: "uid-former", Since: ago(time.Hour)}}
		}), says: "first seen at 12:00:00 UTC"},
		{name: "without a UID", facts: with(healthy(3), long, orphan.Instance{ProviderID: "i-x", Machine: "x", Created: ago(time.Hour)}), says: "instance i-x has no UID, and the name of Machine x, which does not exist"},
		{name: "without a UID, with the name of a machine that adopts it", facts: changed(with(healthy(3), long, orphan.Instance{ProviderID: "i-x", Machine: "x", Created: ago(time.Hour)}), func(f *orphan.Facts) {
			f.Machines = append(f.Machines, machine("x", ""))
		})},
		{name: "without a UID, with the name of a machine that has another instance", facts: with(healthy(3), long, orphan.Instance{ProviderID: "i-x", Machine: "m-0", Created: ago(time.Hour)}), says: "instance i-x has no UID, and the name of Machine m-0, which names instance i-m-0"},
		{name: "without a name", facts: with(healthy(3), long, orphan.Instance{ProviderID: "i-x", UID: "uid-x", Created: ago(time.Hour)}), says: "instance i-x has no name of a machine"},
		{name: "without a provider ID", facts: with(healthy(3), long, orphan.Instance{UID: "uid-x", Machine: "x", Created: ago(time.Hour)}), says: "instance x has no provider ID"},
		{name: "two of one UID, one of them without a provider ID", facts: with(healthy(3), long, gone, orphan.Instance{UID: "uid-gone", Machine: "gone"}), says: "has no provider ID"},
		{name: "without a UID, but named by a machine", facts: changed(healthy(3), func(f *orphan.Facts) { f.Instances[1].UID = "" })},
		{name: "no machine at all", facts: with(orphan.Facts{Now: now}, long, gone), held: "1 instance and no machine at all: moved or restored control plane?"},
		{name: "no machine at all, and no instance of ours", facts: with(orphan.Facts{Now: now}, long, orphan.Instance{ProviderID: "i-x"}), says: "i-x"},
		{name: "only machines of other classes are there", facts: with(orphan.Facts{Now: now, Machines: []orphan.Machine{{Name: "other", UID: "uid-other", ProviderID: "i-of-another-class"}}}, long, gone), held: "no machine claims any of the class's 1 instance"},
		{name: "two of three", facts: with(healthy(1), long, lost(2)...), goes: []string{"i-lost-0", "i-lost-1"}},
		{name: "three of four", facts: with(healthy(1), long, lost(3)...), held: "3 of 4 instances have no machine, more than the 2 allowed at once"},
		{name: "a tenth", facts: with(healthy(45), long, lost(5)...), goes: []string{"i-lost-0", "i-lost-1", "i-lost-2", "i-lost-3", "i-lost-4"}},
		{name: "more than a tenth", facts: with(healthy(44), long, lost(5)...), held: "5 of 49 instances"},
		{name: "those that were just seen count, too", facts: with(with(healthy(10), long, gone), 0, lost(2)...), held: "3 of 13 instances"},
		{name: "a person lets some go", facts: changed(with(orphan.Facts{Now: now}, long, lost(5)...), func(f *orphan.Facts) { f.Allowed = " 2 until 2026-11-22T12:00:01Z " }), goes: []string{"i-lost-0", "i-lost-1"}, says: "one sweep deletes at most 2"},
		{name: "a person lets none go", facts: changed(with(healthy(3), long, gone), func(f *orphan.Facts) { f.Allowed = "0" }), says: "one sweep deletes at most 0"},
		{name: "a person who is hard to understand", facts: changed(with(healthy(3), long, gone), func(f *orphan.Facts) { f.Allowed = "all" }), held: `says "all", which is not a number`},
		{name: "a person who counts down", facts: changed(with(healthy(3), long, gone), func(f *orphan.Facts) { f.Allowed = "-1" }), held: `says "-1", which is not a number`},
		{name: "a person does not shorten the time between two looks", facts: changed(with(healthy(3), 0, gone), func(f *orphan.Facts) { f.Allowed = soon(9) }), says: "not confirmed"},
		{name: "a person's number that has ended: the breaker holds", facts: changed(with(orphan.Facts{Now: now}, long, lost(5)...), func(f *orphan.Facts) { f.Allowed = "2 until 2026-11-22T12:00:00Z" }), held: "no machine at all"},
		{name: "a person's number that has ended replaces no limit", facts: changed(with(healthy(3), long, gone), func(f *orphan.Facts) { f.Allowed = "0 until 2026-11-22T11:00:00Z" }), goes: []string{"i-gone"}},
		{name: "a person's number without an end", facts: changed(with(healthy(3), long, gone), func(f *orphan.Facts) { f.Allowed = "2" }), held: `says "2", which has no end`},
		{name: "a person's number with an end that is far away", facts: changed(with(healthy(3), long, gone), func(f *orphan.Facts) { f.Allowed = "2 until 2026-11-23T12:00:01Z" }), held: "more than 24h from now"},
		{name: "a person's time that is none", facts: changed(with(healthy(3), long, gone), func(f *orphan.Facts) { f.Allowed = "2 until tomorrow" }), held: `says "2 until tomorrow", which has no end`},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := orphan.Decide(row.facts)
			assert.Equal(t, row.goes, goes(d))
			assert.Contains(t, d.Held, row.held)
			assert.Equal(t, row.held == "", d.Held == "", d.Held)
			assert.Contains(t, strings.Join(slices.Concat(d.Notes, d.Unclear), "\n"), row.says)
			if row.says == "" {
				assert.Empty(t, slices.Concat(d.Notes, d.Unclear))
			}
		})
	}
}

func TestNoMoreThanTheCapGoInOneSweepTheOldestFirst(t *testing.T) {
	f := healthy(200)
	for i, o := range lost(12) {
		f = with(f, time.Hour-time.Duration(i)*time.Minute, o)
	}
	d := orphan.Decide(f)
	require.Len(t, d.Collect, 10)
	assert.Equal(t, orphan.Target{Machine: "lost-0", UID: "uid-lost-0", ProviderIDs: []string{"i-lost-0"}}, d.Collect[0])
	assert.Equal(t, "i-lost-9", d.Collect[9].ProviderIDs[0])
	assert.Len(t, d.Sightings, 12)
	assert.Len(t, orphan.After(d.Sightings, goes(d)), 2)
	assert.Equal(t, []int{212, 200, 12}, []int{d.Instances, d.Machines, d.Orphans})
	f.Allowed = soon(100)
	assert.Len(t, orphan.Decide(f).Collect, 12)
	assert.Len(
		t,
		orphan.Decide(changed(with(f, time.Hour, lost(60)[12:]...), func(f *orphan.Facts) { f.Allowed = soon(100) })).Collect,
		orphan.MostPerSweep,
	)
}

func TestSightings(t *testing.T) {
	gone := instance("i-gone", "gone")
	seen := func(since time.Time) []orphan.Sighting {
		return []orphan.Sighting{{ProviderID: "i-gone", UID: "uid-gone", Since: since}}
	}
	t.Run("the first keeps its time", func(t *testing.T) {
		assert.Equal(t, seen(now), orphan.Decide(with(healthy(3), 0, gone)).Sightings)
		assert.Equal(t, seen(ago(time.Minute)), orphan.Decide(with(healthy(3), time.Minute, gone)).Sightings)
	})
	t.Run("what is claimed again is forgotten", func(t *testing.T) {
		f := with(healthy(3), time.Hour, gone)
		f.Machines = append(f.Machines, machine("gone", ""))
		assert.Empty(t, orphan.Decide(f).Sightings)
	})
	t.Run("what is not there any more is forgotten", func(t *testing.T) {
		assert.Empty(
			t,
			orphan.Decide(changed(healthy(3), func(f *orphan.Facts) { f.Sightings = seen(ago(time.Hour)) })).Sightings,
		)
	})
	t.Run("what shows while machines come back one by one is no sighting", func(t *testing.T) {
		f := with(orphan.Facts{Now: now}, time.Hour, lost(20)...)
		for i := range 20 {
			d := orphan.Decide(f)
			assert.Empty(t, goes(d), "%d machines are there", i)
			f.Machines = append(f.Machines, orphan.Machine{Name: fmt.Sprintf("lost-%d", i), UID: fmt.Sprintf("uid-lost-%d", i)})
			f.Now, f.Sightings = f.Now.Add(7*time.Minute), d.Sightings
		}
		assert.Empty(t, orphan.Decide(f).Sightings)
	})
}

func TestDecisionsAreBounded(t *testing.T) {
	for _, length := range []int{1, 60, 300} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			long := strings.Repeat("x", length)
			f := with(healthy(2000), time.Hour)
			for _, i := range lost(1500) {
				i.ProviderID, i.Machine = i.ProviderID+long, i.Machine+long
				f = with(f, time.Hour, i)
			}
			for i := range 500 {
				f.Instances = append(
					f.Instances,
					orphan.Instance{ProviderID: fmt.Sprint(long, i)},
					instance(fmt.Sprint("i-twin-", i, long), fmt.Sprint("m-", i)),
				)
			}
			f.Allowed = soon(1000)
			d := orphan.Decide(f)
			text, err := json.Marshal(d)
			require.NoError(t, err)
			assert.Less(t, len(text), 16<<10)
			assert.NotEmpty(t, d.Collect)
			assert.LessOrEqual(t, len(d.Sightings), 100)
			assert.Len(t, d.Notes, 10)
			assert.Len(t, d.Unclear, 10)
			assert.Equal(t, "and 991 more", d.Unclear[9])
			assert.Equal(t, []int{1500, 500, 500}, []int{d.Orphans, d.Unknown, d.Duplicates})
		})
	}
}
