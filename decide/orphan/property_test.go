package orphan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/decidetest"
	"millwright/decide/orphan"
)

// randomSource is the SplitMix64 generator, which returns the same numbers for the same seed in every version of Go.
type randomSource uint64

func (d *randomSource) randomIntBelow(n int) int {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return int((z ^ (z >> 31)) % uint64(n))
}

func (d *randomSource) randomBoolOneIn(n int) bool { return d.randomIntBelow(n) == 0 }

// simulatedCloud is a simulated cloud that changes at random between two sweeps.
type simulatedCloud struct {
	randomSource
	orphan.Facts
	machineCount int
}

// makeRandomChange changes the simulated cloud: machines and instances are created and deleted, alone and together.
func (c *simulatedCloud) makeRandomChange() {
	c.Now = c.Now.Add(time.Duration(1+c.randomIntBelow(12)) * time.Minute)
	for range c.randomIntBelow(5) {
		name := fmt.Sprintf("m-%d", c.machineCount)
		c.machineCount++
		m, i := newMachine(name, ""), newInstance("i-"+name, name)
		i.Created = c.Now
		if c.randomBoolOneIn(3) {
			i.Created = time.Time{}
		}
		switch c.randomIntBelow(8) {
		case 0:
			i.MachineUID = ""
		case 1:
			i.MachineName = ""
		case 2:
			c.Instances = append(c.Instances, newInstance("i-twin-"+name, name))
		case 3: // a machine that was restored from a backup
			i.MachineUID, m.ProviderID = "uid-former", i.ProviderID
		default:
		}
		c.Machines = append(c.Machines, m)
		if !c.randomBoolOneIn(6) {
			c.Instances = append(c.Instances, i)
		}
	}
	for i := range c.Machines { // some machines are moved into another namespace
		if c.randomBoolOneIn(20) {
			c.Machines[i].Elsewhere = "elsewhere"
		}
	}
	c.Machines = slices.DeleteFunc(c.Machines, func(orphan.Machine) bool { return c.randomBoolOneIn(12) })
	if c.randomBoolOneIn(30) {
		c.Machines = nil
	}
}

// isClaimedInstance reports whether an existing machine claims an instance. isClaimedInstance does not use the
// package's functions.
func isClaimedInstance(f orphan.Facts, id string) bool {
	at := slices.IndexFunc(f.Instances, func(i orphan.Instance) bool { return i.ProviderID == id })
	return slices.ContainsFunc(
		f.Machines,
		func(m orphan.Machine) bool { return m.UID == f.Instances[at].MachineUID || m.ProviderID == id },
	)
}

func TestAClaimedInstanceIsNeverDeleted(t *testing.T) {
	collected, held, seeds := 0, 0, decidetest.RandomRunCount(200)
	for seed := range seeds {
		c := &simulatedCloud{randomSource: randomSource(seed), Facts: orphan.Facts{Now: now}}
		// time since which every sweep has seen the instance without a machine, by provider ID
		first := map[string]time.Time{}
		for range 40 {
			c.makeRandomChange()
			c.AllowedDeletionsText = []string{"", "", "", "3 until " + c.Now.Add(time.Minute).Format(time.RFC3339), "nonsense"}[c.randomIntBelow(5)]
			d := orphan.Decide(c.Facts)
			require.Equal(t, d, orphan.Decide(c.Facts), "the same facts, the same answer")
			for id := range first {
				if !slices.ContainsFunc(c.Instances, func(i orphan.Instance) bool { return i.ProviderID == id }) ||
					isClaimedInstance(c.Facts, id) {
					delete(first, id)
				}
			}
			gone := deletedProviderIDs(d)
			for _, id := range gone {
				require.False(t, isClaimedInstance(c.Facts, id), "seed %d: %s has a machine", seed, id)
				require.Contains(t, first, id, "seed %d: %s was not seen before", seed, id)
				require.GreaterOrEqual(t, c.Now.Sub(first[id]), orphan.DefaultConfirmTime, "seed %d: %s", seed, id)
			}
			for _, i := range c.Instances { // a provider deletes all instances with the UID
				together := slices.ContainsFunc(d.Collect, func(t orphan.DeletionTarget) bool { return t.UID == i.MachineUID })
				require.Equal(t, together, slices.Contains(gone, i.ProviderID), "seed %d: %s", seed, i.ProviderID)
			}
			most := map[string]int{"": orphan.DefaultMaxPerSweep, "3": 3}[strings.Split(c.AllowedDeletionsText, " ")[0]]
			require.LessOrEqual(t, len(gone), most, "seed %d", seed)
			if c.AllowedDeletionsText == "" && len(gone) > 0 {
				require.NotEmpty(t, c.Machines, "seed %d", seed)
				require.LessOrEqual(t, d.Orphans, max(2, len(c.Instances)/10), "seed %d", seed)
			}
			require.True(t, d.Held == "" || len(gone) == 0)
			for _, i := range c.Instances {
				if _, known := first[i.ProviderID]; !known && !isClaimedInstance(c.Facts, i.ProviderID) {
					first[i.ProviderID] = c.Now
				}
			}
			c.Sightings = orphan.SightingsWithoutDeleted(d.Sightings, gone)
			c.Instances = slices.DeleteFunc(
				c.Instances,
				func(i orphan.Instance) bool { return slices.Contains(gone, i.ProviderID) },
			)
			collected += len(gone)
			if d.Held != "" {
				held++
			}
		}
	}
	assert.Greater(t, collected, seeds/2, "the worlds are too quiet")
	assert.Greater(t, held, seeds/2)
}

// If nothing else changes, all orphans that may be deleted are deleted after a few sweeps.
func TestOrphansOfAnUnchangedCloudAreDeleted(t *testing.T) {
	for seed := range decidetest.RandomRunCount(200) {
		d := randomSource(seed)
		f := factsWithoutOrphans(50 + d.randomIntBelow(400))
		few := 1 + d.randomIntBelow(max(2, len(f.Instances)/10))
		for _, i := range unclaimedInstances(few) {
			i.Created = now.Add(-time.Duration(d.randomIntBelow(40)) * time.Minute)
			f.Instances = append(f.Instances, i)
		}
		sweeps := 0
		for ; sweeps < 10; sweeps++ {
			decision := orphan.Decide(f)
			gone := deletedProviderIDs(decision)
			f.Sightings = orphan.SightingsWithoutDeleted(decision.Sightings, gone)
			f.Instances = slices.DeleteFunc(
				f.Instances,
				func(i orphan.Instance) bool { return slices.Contains(gone, i.ProviderID) },
			)
			f.Now = f.Now.Add(15 * time.Minute)
		}
		require.Len(t, f.Instances, len(f.Machines), "seed %d", seed)
		require.False(
			t,
			slices.ContainsFunc(f.Instances, func(i orphan.Instance) bool { return strings.Contains(i.ProviderID, "lost") }),
		)
	}
}
