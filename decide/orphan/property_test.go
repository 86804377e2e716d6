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

// dice is the SplitMix64 generator: the same throws for the same seed, on every version of Go.
type dice uint64

func (d *dice) below(n int) int {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return int((z ^ (z >> 31)) % uint64(n))
}

func (d *dice) oneIn(n int) bool { return d.below(n) == 0 }

// cloud is a small world in which anything happens between two sweeps.
type cloud struct {
	dice
	orphan.Facts
	made int
}

// happen changes the world: machines and instances come and go, by themselves and together.
func (c *cloud) happen() {
	c.Now = c.Now.Add(time.Duration(1+c.below(12)) * time.Minute)
	for range c.below(5) {
		name := fmt.Sprintf("m-%d", c.made)
		c.made++
		m, i := machine(name, ""), instance("i-"+name, name)
		i.Created = c.Now
		if c.oneIn(3) {
			i.Created = time.Time{}
		}
		switch c.below(8) {
		case 0:
			i.UID = ""
		case 1:
			i.Machine = ""
		case 2:
			c.Instances = append(c.Instances, instance("i-twin-"+name, name))
		case 3: // of a backup
			i.UID, m.ProviderID = "uid-former", i.ProviderID
		default:
		}
		c.Machines = append(c.Machines, m)
		if !c.oneIn(6) {
			c.Instances = append(c.Instances, i)
		}
	}
	for i := range c.Machines { // moved into another namespace
		if c.oneIn(20) {
			c.Machines[i].Elsewhere = "elsewhere"
		}
	}
	c.Machines = slices.DeleteFunc(c.Machines, func(orphan.Machine) bool { return c.oneIn(12) })
	if c.oneIn(30) {
		c.Machines = nil
	}
}

// claimed reports whether a machine that exists has to do with an instance, by a rule that is written here once more.
func claimed(f orphan.Facts, id string) bool {
	at := slices.IndexFunc(f.Instances, func(i orphan.Instance) bool { return i.ProviderID == id })
	return slices.ContainsFunc(
		f.Machines,
		func(m orphan.Machine) bool { return m.UID == f.Instances[at].UID || m.ProviderID == id },
	)
}

func TestNoWorldLosesAnInstanceThatAMachineClaims(t *testing.T) {
	collected, held, seeds := 0, 0, decidetest.Seeds(200)
	for seed := range seeds {
		c := &cloud{dice: dice(seed), Facts: orphan.Facts{Now: now}}
		first := map[string]time.Time{} // when each was first seen without a machine, and since then at each sweep
		for range 40 {
			c.happen()
			c.Allowed = []string{"", "", "", "3 until " + c.Now.Add(time.Minute).Format(time.RFC3339), "nonsense"}[c.below(5)]
			d := orphan.Decide(c.Facts)
			require.Equal(t, d, orphan.Decide(c.Facts), "the same facts, the same answer")
			for id := range first {
				if !slices.ContainsFunc(c.Instances, func(i orphan.Instance) bool { return i.ProviderID == id }) ||
					claimed(c.Facts, id) {
					delete(first, id)
				}
			}
			gone := goes(d)
			for _, id := range gone {
				require.False(t, claimed(c.Facts, id), "seed %d: %s has a machine", seed, id)
				require.Contains(t, first, id, "seed %d: %s was not seen before", seed, id)
				require.GreaterOrEqual(t, c.Now.Sub(first[id]), orphan.DefaultConfirm, "seed %d: %s", seed, id)
			}
			for _, i := range c.Instances { // a provider deletes all that carry the UID
				together := slices.ContainsFunc(d.Collect, func(t orphan.Target) bool { return t.UID == i.UID })
				require.Equal(t, together, slices.Contains(gone, i.ProviderID), "seed %d: %s", seed, i.ProviderID)
			}
			most := map[string]int{"": orphan.DefaultMaxPerSweep, "3": 3}[strings.Split(c.Allowed, " ")[0]]
			require.LessOrEqual(t, len(gone), most, "seed %d", seed)
			if c.Allowed == "" && len(gone) > 0 {
				require.NotEmpty(t, c.Machines, "seed %d", seed)
				require.LessOrEqual(t, d.Orphans, max(2, len(c.Instances)/10), "seed %d", seed)
			}
			require.True(t, d.Held == "" || len(gone) == 0)
			for _, i := range c.Instances {
				if _, known := first[i.ProviderID]; !known && !claimed(c.Facts, i.ProviderID) {
					first[i.ProviderID] = c.Now
				}
			}
			c.Sightings = orphan.After(d.Sightings, gone)
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

// In a world in which nothing else happens, whatever may go is gone after a few sweeps.
func TestOrphansOfAHealthyWorldGo(t *testing.T) {
	for seed := range decidetest.Seeds(200) {
		d := dice(seed)
		f := healthy(50 + d.below(400))
		few := 1 + d.below(max(2, len(f.Instances)/10))
		for _, i := range lost(few) {
			i.Created = now.Add(-time.Duration(d.below(40)) * time.Minute)
			f.Instances = append(f.Instances, i)
		}
		sweeps := 0
		for ; sweeps < 10; sweeps++ {
			decision := orphan.Decide(f)
			gone := goes(decision)
			f.Sightings = orphan.After(decision.Sightings, gone)
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
