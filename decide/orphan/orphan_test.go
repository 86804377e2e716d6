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

// allowanceForAnHour returns a value of collect-orphans that allows n deletions for an hour.
func allowanceForAnHour(n int) string { return fmt.Sprintf("%d until 2026-11-22T13:00:00Z", n) }

func timeAgo(d time.Duration) time.Time { return now.Add(-d) }

// newInstance returns an instance with the tags of a machine, created an hour ago.
func newInstance(id, machine string) orphan.Instance {
	return orphan.Instance{ProviderID: id, MachineName: machine, MachineUID: "uid-" + machine, Created: timeAgo(time.Hour)}
}

func newMachine(name, providerID string) orphan.Machine {
	return orphan.Machine{Name: name, UID: "uid-" + name, ProviderID: providerID}
}

// factsWithoutOrphans returns the facts of n machines with their instances.
func factsWithoutOrphans(n int) orphan.Facts {
	f := orphan.Facts{Now: now}
	for i := range n {
		name := fmt.Sprintf("m-%d", i)
		f.Machines = append(f.Machines, newMachine(name, "i-"+name))
		f.Instances = append(f.Instances, newInstance("i-"+name, name))
	}
	return f
}

// withInstances adds instances. Each added instance was first seen without a machine at the time now minus seen.
func withInstances(f orphan.Facts, seen time.Duration, instances ...orphan.Instance) orphan.Facts {
	f.Instances = append(f.Instances, instances...)
	for _, i := range instances {
		if seen > 0 {
			f.Sightings = append(f.Sightings, orphan.Sighting{ProviderID: i.ProviderID, UID: i.MachineUID, Since: timeAgo(seen)})
		}
	}
	return f
}

// withoutInstanceUIDs removes the UIDs of the instances, as in a cloud that tags instances only with names.
func withoutInstanceUIDs(f orphan.Facts) orphan.Facts {
	f.IdentifiedByName = true
	for i := range f.Instances {
		f.Instances[i].MachineUID = ""
	}
	for i := range f.Sightings {
		f.Sightings[i].UID = ""
	}
	return f
}

func changedFacts(f orphan.Facts, change func(*orphan.Facts)) orphan.Facts {
	change(&f)
	return f
}

// unclaimedInstances returns n instances whose machines do not exist.
func unclaimedInstances(n int) []orphan.Instance {
	var all []orphan.Instance
	for i := range n {
		all = append(all, newInstance(fmt.Sprintf("i-lost-%d", i), fmt.Sprintf("lost-%d", i)))
	}
	return all
}

// deletedProviderIDs returns the sorted provider IDs of all instances that are deleted.
func deletedProviderIDs(d orphan.Decision) []string {
	var ids []string
	for _, t := range d.Collect {
		ids = append(ids, t.ProviderIDs...)
	}
	slices.Sort(ids)
	return ids
}

func TestDecide(t *testing.T) {
	const long = 16 * time.Minute
	gone := newInstance("i-gone", "gone")
	for _, row := range []struct {
		name  string
		facts orphan.Facts
		goes  []string
		held  string // an expected substring of Held
		says  string // a substring of Notes or Unclear
	}{
		{name: "nothing to do", facts: factsWithoutOrphans(3)},
		{name: "nothing at all", facts: orphan.Facts{Now: now}},
		{name: "no machine: it goes", facts: withInstances(factsWithoutOrphans(3), long, gone), goes: []string{"i-gone"}},
		{name: "a machine in CrashLoopBackOff, which names no instance yet, keeps it", facts: changedFacts(withInstances(factsWithoutOrphans(3), long, gone), func(f *orphan.Facts) {
			f.Machines = append(f.Machines, newMachine("gone", ""))
		})},
		{
			name: "a machine that names another instance keeps it, since a provider deletes all of one UID: a person decides",
			facts: changedFacts(withInstances(factsWithoutOrphans(3), long, gone, newInstance("i-other", "gone")), func(f *orphan.Facts) {
				f.Machines = append(f.Machines, newMachine("gone", "i-other"))
			}), says: "Machine gone has 2 instances (i-gone, i-other)",
		},
		{name: "a machine of that name with another UID does not keep it", facts: changedFacts(withInstances(factsWithoutOrphans(3), long, gone), func(f *orphan.Facts) {
			f.Machines = append(f.Machines, orphan.Machine{Name: "gone", UID: "uid-new"})
		}), goes: []string{"i-gone"}},
		{name: "restored from a backup: the machine has another UID and names its instance", facts: changedFacts(withInstances(factsWithoutOrphans(3), long, gone), func(f *orphan.Facts) {
			f.Machines = append(f.Machines, orphan.Machine{Name: "gone", UID: "uid-new", ProviderID: "i-gone"})
		}), says: "Machine gone names instance i-gone"},
		{name: "two instances of one lost machine of which another machine names one: both stay", facts: changedFacts(withInstances(factsWithoutOrphans(30), long, gone, newInstance("i-gone-2", "gone")), func(f *orphan.Facts) {
			f.Machines = append(f.Machines, orphan.Machine{Name: "new", UID: "uid-new", ProviderID: "i-gone-2"})
		}), says: "Machine new names instance i-gone-2"},
		{name: "two instances of one lost machine go together", facts: withInstances(factsWithoutOrphans(3), long, gone, newInstance("i-gone-2", "gone")), goes: []string{"i-gone", "i-gone-2"}},
		{name: "one of the two was just seen", facts: withInstances(withInstances(factsWithoutOrphans(3), long, gone), 0, newInstance("i-gone-2", "gone")), says: "not confirmed before 12:15:00 UTC"},
		{name: "in a cloud of names, no machine of its name: it goes", facts: withoutInstanceUIDs(withInstances(factsWithoutOrphans(3), long, gone)), goes: []string{"i-gone"}},
		{name: "in a cloud of names, a machine of its name that has no instance yet keeps it", facts: changedFacts(withoutInstanceUIDs(withInstances(factsWithoutOrphans(3), long, gone)), func(f *orphan.Facts) {
			f.Machines = append(f.Machines, orphan.Machine{Name: "gone", UID: "uid-new"})
		})},
		{
			name: "in a cloud of names, a second one of a name stays: a person decides", facts: withoutInstanceUIDs(withInstances(factsWithoutOrphans(3), long, newInstance("i-2", "m-1"))),
			says: "instance i-2 has no UID, and the name of Machine m-1, which names instance i-m-1",
		},
		{name: "in a cloud of names, a machine that was moved keeps it", facts: changedFacts(withoutInstanceUIDs(withInstances(factsWithoutOrphans(3), long, gone)), func(f *orphan.Facts) {
			f.Machines = append(f.Machines, orphan.Machine{Name: "gone", UID: "uid-new", Elsewhere: "other"})
		}), says: "i-gone"},
		{name: "in a cloud of names, one that a machine of another name has on record stays", facts: changedFacts(withoutInstanceUIDs(withInstances(factsWithoutOrphans(3), long, gone)), func(f *orphan.Facts) {
			f.Machines = append(f.Machines, newMachine("renamed", "i-gone"))
		})},
		{name: "in a cloud of names, one without a name stays", facts: withoutInstanceUIDs(withInstances(factsWithoutOrphans(3), long, orphan.Instance{ProviderID: "i-gone"})), says: "has neither the name nor the UID"},
		{name: "first sighting", facts: withInstances(factsWithoutOrphans(3), 0, gone), says: "first seen at 12:00:00 UTC"},
		{name: "a second look that comes too early", facts: withInstances(factsWithoutOrphans(3), 15*time.Minute-1, gone), says: "not confirmed"},
		{name: "exactly at the time", facts: withInstances(factsWithoutOrphans(3), 15*time.Minute, gone), goes: []string{"i-gone"}},
		{name: "too young", facts: withInstances(factsWithoutOrphans(3), long, orphan.Instance{ProviderID: "i-young", MachineName: "y", MachineUID: "uid-y", Created: timeAgo(20*time.Minute - 1)}), says: "too young until 12:00:00"},
		{name: "old enough", facts: withInstances(factsWithoutOrphans(3), long, orphan.Instance{ProviderID: "i-young", MachineName: "y", MachineUID: "uid-y", Created: timeAgo(20 * time.Minute)}), goes: []string{"i-young"}},
		{name: "a cloud that does not tell ages", facts: withInstances(factsWithoutOrphans(3), long, orphan.Instance{ProviderID: "i-gone", MachineName: "y", MachineUID: "uid-y"}), goes: []string{"i-gone"}},
		{name: "a cloud whose clock is ahead", facts: withInstances(factsWithoutOrphans(3), long, orphan.Instance{ProviderID: "i-gone", MachineName: "y", MachineUID: "uid-y", Created: now.Add(time.Hour)}), says: "too young"},
		{name: "a sighting of the future counts from now", facts: withInstances(factsWithoutOrphans(3), -time.Hour, gone), says: "first seen at 12:00:00 UTC"},
		{name: "a provider ID that is used again is another instance", facts: changedFacts(withInstances(factsWithoutOrphans(3), 0, gone), func(f *orphan.Facts) {
			f.Sightings = []orphan.Sighting{{ProviderID: "i-gone", UID: "uid-former", Since: timeAgo(time.Hour)}}
		}), says: "first seen at 12:00:00 UTC"},
		{name: "without a UID", facts: withInstances(factsWithoutOrphans(3), long, orphan.Instance{ProviderID: "i-x", MachineName: "x", Created: timeAgo(time.Hour)}), says: "instance i-x has no UID, and the name of Machine x, which does not exist"},
		{name: "without a UID, with the name of a machine that adopts it", facts: changedFacts(withInstances(factsWithoutOrphans(3), long, orphan.Instance{ProviderID: "i-x", MachineName: "x", Created: timeAgo(time.Hour)}), func(f *orphan.Facts) {
			f.Machines = append(f.Machines, newMachine("x", ""))
		})},
		{name: "without a UID, with the name of a machine that has another instance", facts: withInstances(factsWithoutOrphans(3), long, orphan.Instance{ProviderID: "i-x", MachineName: "m-0", Created: timeAgo(time.Hour)}), says: "instance i-x has no UID, and the name of Machine m-0, which names instance i-m-0"},
		{name: "without a name", facts: withInstances(factsWithoutOrphans(3), long, orphan.Instance{ProviderID: "i-x", MachineUID: "uid-x", Created: timeAgo(time.Hour)}), says: "instance i-x has no name of a machine"},
		{name: "without a provider ID", facts: withInstances(factsWithoutOrphans(3), long, orphan.Instance{MachineUID: "uid-x", MachineName: "x", Created: timeAgo(time.Hour)}), says: "instance x has no provider ID"},
		{name: "two of one UID, one of them without a provider ID", facts: withInstances(factsWithoutOrphans(3), long, gone, orphan.Instance{MachineUID: "uid-gone", MachineName: "gone"}), says: "has no provider ID"},
		{name: "without a UID, but named by a machine", facts: changedFacts(factsWithoutOrphans(3), func(f *orphan.Facts) { f.Instances[1].MachineUID = "" })},
		{name: "no machine at all", facts: withInstances(orphan.Facts{Now: now}, long, gone), held: "1 instance and no machine at all: moved or restored control plane?"},
		{name: "no machine at all, and no instance of ours", facts: withInstances(orphan.Facts{Now: now}, long, orphan.Instance{ProviderID: "i-x"}), says: "i-x"},
		{name: "only machines of other classes are there", facts: withInstances(orphan.Facts{Now: now, Machines: []orphan.Machine{{Name: "other", UID: "uid-other", ProviderID: "i-of-another-class"}}}, long, gone), held: "no machine claims any of the class's 1 instance"},
		{name: "two of three", facts: withInstances(factsWithoutOrphans(1), long, unclaimedInstances(2)...), goes: []string{"i-lost-0", "i-lost-1"}},
		{name: "three of four", facts: withInstances(factsWithoutOrphans(1), long, unclaimedInstances(3)...), held: "3 of 4 instances have no machine, more than the 2 allowed at once"},
		{name: "a tenth", facts: withInstances(factsWithoutOrphans(45), long, unclaimedInstances(5)...), goes: []string{"i-lost-0", "i-lost-1", "i-lost-2", "i-lost-3", "i-lost-4"}},
		{name: "more than a tenth", facts: withInstances(factsWithoutOrphans(44), long, unclaimedInstances(5)...), held: "5 of 49 instances"},
		{name: "those that were just seen count, too", facts: withInstances(withInstances(factsWithoutOrphans(10), long, gone), 0, unclaimedInstances(2)...), held: "3 of 13 instances"},
		{name: "a person lets some go", facts: changedFacts(withInstances(orphan.Facts{Now: now}, long, unclaimedInstances(5)...), func(f *orphan.Facts) { f.AllowedDeletionsText = " 2 until 2026-11-22T12:00:01Z " }), goes: []string{"i-lost-0", "i-lost-1"}, says: "one sweep deletes at most 2"},
		{name: "a person lets none go", facts: changedFacts(withInstances(factsWithoutOrphans(3), long, gone), func(f *orphan.Facts) { f.AllowedDeletionsText = "0" }), says: "one sweep deletes at most 0"},
		{name: "a person who is hard to understand", facts: changedFacts(withInstances(factsWithoutOrphans(3), long, gone), func(f *orphan.Facts) { f.AllowedDeletionsText = "all" }), held: `says "all", which is not a number`},
		{name: "a person who counts down", facts: changedFacts(withInstances(factsWithoutOrphans(3), long, gone), func(f *orphan.Facts) { f.AllowedDeletionsText = "-1" }), held: `says "-1", which is not a number`},
		{name: "a person does not shorten the time between two looks", facts: changedFacts(withInstances(factsWithoutOrphans(3), 0, gone), func(f *orphan.Facts) { f.AllowedDeletionsText = allowanceForAnHour(9) }), says: "not confirmed"},
		{name: "a person's number that has ended: the breaker holds", facts: changedFacts(withInstances(orphan.Facts{Now: now}, long, unclaimedInstances(5)...), func(f *orphan.Facts) { f.AllowedDeletionsText = "2 until 2026-11-22T12:00:00Z" }), held: "no machine at all"},
		{name: "a person's number that has ended replaces no limit", facts: changedFacts(withInstances(factsWithoutOrphans(3), long, gone), func(f *orphan.Facts) { f.AllowedDeletionsText = "0 until 2026-11-22T11:00:00Z" }), goes: []string{"i-gone"}},
		{name: "a person's number without an end", facts: changedFacts(withInstances(factsWithoutOrphans(3), long, gone), func(f *orphan.Facts) { f.AllowedDeletionsText = "2" }), held: `says "2", which has no end`},
		{name: "a person's number with an end that is far away", facts: changedFacts(withInstances(factsWithoutOrphans(3), long, gone), func(f *orphan.Facts) { f.AllowedDeletionsText = "2 until 2026-11-23T12:00:01Z" }), held: "more than 24h from now"},
		{name: "a person's time that is none", facts: changedFacts(withInstances(factsWithoutOrphans(3), long, gone), func(f *orphan.Facts) { f.AllowedDeletionsText = "2 until tomorrow" }), held: `says "2 until tomorrow", which has no end`},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := orphan.Decide(row.facts)
			assert.Equal(t, row.goes, deletedProviderIDs(d))
			assert.Contains(t, d.Held, row.held)
			assert.Equal(t, row.held == "", d.Held == "", d.Held)
			assert.Contains(t, strings.Join(slices.Concat(d.Notes, d.Unclear), "\n"), row.says)
			if row.says == "" {
				assert.Empty(t, slices.Concat(d.Notes, d.Unclear))
			}
		})
	}
}

func TestSweepDeletesOldestOrphansUpToTheLimit(t *testing.T) {
	f := factsWithoutOrphans(200)
	for i, o := range unclaimedInstances(12) {
		f = withInstances(f, time.Hour-time.Duration(i)*time.Minute, o)
	}
	d := orphan.Decide(f)
	require.Len(t, d.Collect, 10)
	assert.Equal(
		t,
		orphan.DeletionTarget{Machine: "lost-0", UID: "uid-lost-0", ProviderIDs: []string{"i-lost-0"}},
		d.Collect[0],
	)
	assert.Equal(t, "i-lost-9", d.Collect[9].ProviderIDs[0])
	assert.Len(t, d.Sightings, 12)
	assert.Len(t, orphan.SightingsWithoutDeleted(d.Sightings, deletedProviderIDs(d)), 2)
	assert.Equal(t, []int{212, 200, 12}, []int{d.Instances, d.Machines, d.Orphans})
	f.AllowedDeletionsText = allowanceForAnHour(100)
	assert.Len(t, orphan.Decide(f).Collect, 12)
	assert.Len(
		t,
		orphan.Decide(
			changedFacts(
				withInstances(f, time.Hour, unclaimedInstances(60)[12:]...),
				func(f *orphan.Facts) { f.AllowedDeletionsText = allowanceForAnHour(100) },
			),
		).Collect,
		orphan.MaxDeletionsPerSweep,
	)
}

func TestSightingsKeepTheFirstSeenTime(t *testing.T) {
	gone := newInstance("i-gone", "gone")
	seen := func(since time.Time) []orphan.Sighting {
		return []orphan.Sighting{{ProviderID: "i-gone", UID: "uid-gone", Since: since}}
	}
	t.Run("the first keeps its time", func(t *testing.T) {
		assert.Equal(t, seen(now), orphan.Decide(withInstances(factsWithoutOrphans(3), 0, gone)).Sightings)
		assert.Equal(
			t,
			seen(timeAgo(time.Minute)),
			orphan.Decide(withInstances(factsWithoutOrphans(3), time.Minute, gone)).Sightings,
		)
	})
	t.Run("what is claimed again is forgotten", func(t *testing.T) {
		f := withInstances(factsWithoutOrphans(3), time.Hour, gone)
		f.Machines = append(f.Machines, newMachine("gone", ""))
		assert.Empty(t, orphan.Decide(f).Sightings)
	})
	t.Run("what is not there any more is forgotten", func(t *testing.T) {
		assert.Empty(
			t,
			orphan.Decide(
				changedFacts(factsWithoutOrphans(3), func(f *orphan.Facts) { f.Sightings = seen(timeAgo(time.Hour)) }),
			).Sightings,
		)
	})
	t.Run("what shows while machines come back one by one is no sighting", func(t *testing.T) {
		f := withInstances(orphan.Facts{Now: now}, time.Hour, unclaimedInstances(20)...)
		for i := range 20 {
			d := orphan.Decide(f)
			assert.Empty(t, deletedProviderIDs(d), "%d machines are there", i)
			f.Machines = append(f.Machines, orphan.Machine{Name: fmt.Sprintf("lost-%d", i), UID: fmt.Sprintf("uid-lost-%d", i)})
			f.Now, f.Sightings = f.Now.Add(7*time.Minute), d.Sightings
		}
		assert.Empty(t, orphan.Decide(f).Sightings)
	})
}

func TestDecisionHasLimitedSize(t *testing.T) {
	for _, length := range []int{1, 60, 300} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			long := strings.Repeat("x", length)
			f := withInstances(factsWithoutOrphans(2000), time.Hour)
			for _, i := range unclaimedInstances(1500) {
				i.ProviderID, i.MachineName = i.ProviderID+long, i.MachineName+long
				f = withInstances(f, time.Hour, i)
			}
			for i := range 500 {
				f.Instances = append(
					f.Instances,
					orphan.Instance{ProviderID: fmt.Sprint(long, i)},
					newInstance(fmt.Sprint("i-twin-", i, long), fmt.Sprint("m-", i)),
				)
			}
			f.AllowedDeletionsText = allowanceForAnHour(1000)
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
