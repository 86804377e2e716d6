package replace_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/decidetest"
	"millwright/decide/replace"
	"millwright/decide/rollout"
)

// randomSource is the SplitMix64 generator, which gives the same numbers for the same seed in every version of Go.
type randomSource uint64

func (d *randomSource) randomIntBelow(n int) int {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return int((z ^ (z >> 31)) % uint64(n))
}

func (d *randomSource) randomBoolOneIn(n int) bool { return d.randomIntBelow(n) == 0 }

func shuffledItems[T any](d *randomSource, items []T) []T {
	items = slices.Clone(items)
	for i := range items {
		j := i + d.randomIntBelow(len(items)-i)
		items[i], items[j] = items[j], items[i]
	}
	return items
}

// simulatedDeployment is a simulated deployment that executes decisions, sometimes incompletely.
type simulatedDeployment struct {
	randomSource
	replace.Facts
	wantedCountByZone   map[string]int // number of wanted machines by zone
	createsSlowly       bool           // sets create missing machines with a delay
	createdMachineCount int
}

func newSimulatedDeployment(seed int, zones []string, each int) *simulatedDeployment {
	p := &simulatedDeployment{randomSource: randomSource(seed), wantedCountByZone: map[string]int{}}
	p.NodeCounts, p.Now = replace.NodeCounts{Joined: 500, Dead: 50}, epoch
	for _, zone := range zones {
		p.wantedCountByZone[zone] = each
		for i := range each {
			m := overdueMachine(fmt.Sprintf("%s-%02d", zone, i), time.Duration(p.randomIntBelow(100))*time.Minute)
			m.Domain = zone
			p.Machines = append(p.Machines, m)
		}
	}
	return p
}

// writeDecision executes the writes of a decision. At random, some or all of the writes fail.
func (p *simulatedDeployment) writeDecision(d replace.Decision) {
	if p.randomBoolOneIn(10) {
		return
	}
	p.Grants = d.Grants
	for i, m := range p.Machines {
		if slices.Contains(d.UIDsToAnnotate, m.UID) && !p.randomBoolOneIn(5) {
			p.Machines[i].Granted = true
		}
	}
}

// simulateStep simulates one step: granted machines fail, and sets delete and create machines. Some new machines
// never join.
func (p *simulatedDeployment) simulateStep() {
	p.Now = p.Now.Add(time.Minute)
	for i := range p.Machines {
		m := &p.Machines[i]
		switch {
		case m.Failed && m.Granted && p.randomBoolOneIn(2):
			m.Deleting = true
		case m.Granted && p.randomBoolOneIn(2):
			m.Failed = true
		case m.Joined || m.Due || !p.randomBoolOneIn(3):
		case p.randomBoolOneIn(4):
			m.Failed, m.Due, m.DueSince, m.Reason = p.randomBoolOneIn(2), true, p.Now, "CreationTimeout"
		default:
			m.Joined = true
		}
	}
	p.createMissingMachines()
	p.Machines = slices.DeleteFunc(p.Machines, func(m replace.Machine) bool { return m.Deleting && p.randomBoolOneIn(3) })
	if p.createsSlowly {
		p.MissingMachineCount = p.missingMachineCount()
	}
}

func (p *simulatedDeployment) createMissingMachines() {
	for _, zone := range []string{"", "a", "b", "c"} {
		for n := p.countMachines(zone, func(m replace.Machine) bool { return !m.Deleting }); n < p.wantedCountByZone[zone]; n++ {
			if p.createsSlowly && !p.randomBoolOneIn(4) {
				continue
			}
			p.createdMachineCount++
			m := newReplacementMachine(fmt.Sprintf("new-%d", p.createdMachineCount), p.Now)
			m.Domain = zone
			p.Machines = append(p.Machines, m)
		}
	}
}

func (p *simulatedDeployment) missingMachineCount() int {
	missing := 0
	for zone, wanted := range p.wantedCountByZone {
		missing += wanted - p.countMachines(zone, func(m replace.Machine) bool { return !m.Deleting })
	}
	return missing
}

func (p *simulatedDeployment) countMachines(zone string, is func(replace.Machine) bool) int {
	n := 0
	for _, m := range p.Machines {
		if m.Domain == zone && is(m) {
			n++
		}
	}
	return n
}

func (p *simulatedDeployment) hasOnlyHealthyMachines() bool {
	return len(p.Grants) == 0 && p.missingMachineCount() == 0 &&
		!slices.ContainsFunc(p.Machines, func(m replace.Machine) bool { return m.Due || !m.Joined || m.Deleting })
}

// budgetOfZone returns the budget of a zone with this number of machines. budgetOfZone does not use the package's
// functions.
func budgetOfZone(b rollout.IntOrPercent, machines int) int {
	if !b.IsPercent {
		return b.Value
	}
	n := 0
	for 100*n < b.Value*machines {
		n++
	}
	return n
}

func TestFiftyOverdueMachinesAreReplacedWithinTheBudget(t *testing.T) {
	for _, row := range []struct {
		name   string
		zones  []string
		each   int
		budget rollout.IntOrPercent
		lazy   bool
		first  int
	}{
		{"one at a time", []string{""}, 50, rollout.IntOrPercent{Value: 1}, false, 1},
		{"one at a time, sets are slow", []string{""}, 50, rollout.IntOrPercent{Value: 1}, true, 1},
		{"20% of each of three zones", []string{"a", "b", "c"}, 17, rollout.IntOrPercent{Value: 20, IsPercent: true}, false, 12},
		{"20% of each of three zones, sets are slow", []string{"a", "b", "c"}, 17, rollout.IntOrPercent{Value: 20, IsPercent: true}, true, 12},
	} {
		t.Run(row.name, func(t *testing.T) {
			for seed := range decidetest.RandomRunCount(10) {
				p := newSimulatedDeployment(seed, row.zones, row.each)
				p.Budget, p.createsSlowly = row.budget, row.lazy
				require.Len(t, replace.Decide(p.Facts).UIDsToAnnotate, row.first)
				replaced := map[string]bool{}
				for step := 0; !p.hasOnlyHealthyMachines(); step++ {
					require.Less(t, step, 5000, "does not end")
					d := replace.Decide(p.Facts)
					p.Machines, p.Grants = shuffledItems(&p.randomSource, p.Machines), shuffledItems(&p.randomSource, p.Grants)
					require.Equal(t, d, replace.Decide(p.Facts), "the order matters")
					for _, zone := range row.zones {
						most := budgetOfZone(row.budget, row.each)
						inZone := 0
						for _, g := range d.Grants {
							replaced[g.MachineUID] = true
							if g.Domain == zone {
								inZone++
							}
						}
						require.LessOrEqual(t, inZone, most, "grants in progress")
						untouched := p.countMachines(
							zone,
							func(m replace.Machine) bool { return !m.Deleting && !m.Granted && (m.Joined || m.Due) },
						)
						require.LessOrEqual(t, row.each-untouched, most, "machines that are given up or not there yet")
					}
					p.writeDecision(d)
					p.simulateStep()
				}
				require.GreaterOrEqual(t, len(replaced), len(row.zones)*row.each)
				require.Positive(t, len(replaced)-len(row.zones)*row.each, "failed joins were replaced too")
				for uid := range replaced {
					require.False(t, slices.ContainsFunc(p.Machines, func(m replace.Machine) bool { return m.UID == uid }))
				}
			}
		})
	}
}

// randomFacts returns random facts: machines in every state, and grants of existing machines and of machines that
// are gone.
func randomFacts(d *randomSource) replace.Facts {
	o := replace.Facts{
		Budget:     rollout.IntOrPercent{Value: d.randomIntBelow(5)},
		NodeCounts: replace.NodeCounts{Joined: 40, Dead: d.randomIntBelow(25)},
		Now:        epoch,
	}
	if d.randomBoolOneIn(2) {
		o.Budget = rollout.IntOrPercent{Value: d.randomIntBelow(120), IsPercent: true}
	}
	for range d.randomIntBelow(25) {
		o.NodeCounts.RecoveryTimes = append(
			o.NodeCounts.RecoveryTimes,
			epoch.Add(-time.Duration(d.randomIntBelow(120))*time.Second),
		)
	}
	for i := range d.randomIntBelow(40) {
		m := replace.Machine{
			Name:     fmt.Sprintf("m-%d", i),
			UID:      fmt.Sprintf("uid-%d", i),
			Domain:   []string{"", "a", "b"}[d.randomIntBelow(3)],
			Due:      d.randomBoolOneIn(2),
			DueSince: epoch.Add(-time.Duration(d.randomIntBelow(4)) * time.Minute),
			Granted: d.randomBoolOneIn(
				6,
			),
			Preserved: d.randomBoolOneIn(8),
			Deleting:  d.randomBoolOneIn(5),
			Joined:    d.randomBoolOneIn(2),
			Failed:    d.randomBoolOneIn(5),
			CreatedAt: epoch.Add(-time.Duration(d.randomIntBelow(20)) * time.Minute),
		}
		o.Machines = append(o.Machines, m)
		if d.randomBoolOneIn(6) {
			o.Grants = append(
				o.Grants,
				replace.ReplacementGrant{
					MachineUID:  m.UID,
					MachineName: m.Name,
					Domain:      m.Domain,
					GrantedAt:   epoch.Add(-time.Duration(d.randomIntBelow(20)) * time.Minute),
				},
			)
		}
	}
	for i := range d.randomIntBelow(4) {
		name := fmt.Sprintf("gone-%d", i)
		o.Grants = append(
			o.Grants,
			replace.ReplacementGrant{
				MachineUID:  name,
				MachineName: name,
				Domain:      []string{"", "a", "b"}[d.randomIntBelow(3)],
				GrantedAt:   epoch.Add(-time.Duration(d.randomIntBelow(20)) * time.Minute),
			},
		)
	}
	return o
}

// maxGrantsOfGoneMachines returns the maximum number of grants of a zone that can be in progress although their
// machines are gone. Each grant needs a machine in the zone that was created after the first of these grants and has
// not joined.
func maxGrantsOfGoneMachines(o replace.Facts, zone string) int {
	gone, first := 0, time.Time{}
	for _, g := range o.Grants {
		exists := slices.ContainsFunc(o.Machines, func(m replace.Machine) bool { return m.UID == g.MachineUID })
		if g.Domain == zone && !exists {
			gone++
			if first.IsZero() || g.GrantedAt.Before(first) {
				first = g.GrantedAt
			}
		}
	}
	made := 0
	for _, m := range o.Machines {
		if m.Domain == zone && !m.Joined && !m.Failed && !m.Deleting && !m.Due && !m.CreatedAt.Before(first) {
			made++
		}
	}
	return min(gone, made)
}

func TestInvariantsOfDecide(t *testing.T) {
	grantedInAll := 0
	for seed := range decidetest.RandomRunCount(3000) {
		random := randomSource(seed)
		o := randomFacts(&random)
		d := replace.Decide(o)
		machines, before := map[string]replace.Machine{}, map[string]bool{}
		for _, m := range o.Machines {
			machines[m.UID] = m
		}
		for _, g := range o.Grants {
			before[g.MachineUID] = true
		}
		all, fresh, gone := map[string]int{}, map[string]int{}, map[string]int{}
		for _, g := range d.Grants {
			all[g.Domain]++
			m, exists := machines[g.MachineUID]
			if !exists {
				gone[g.Domain]++
			}
			if !before[g.MachineUID] && !m.Granted {
				fresh[g.Domain]++
				grantedInAll++
				require.True(t, m.Due && !m.Preserved && !m.Deleting, "seed %d grants %+v", seed, m)
			}
		}
		open, _, _ := replace.BreakerState(o.NodeCounts, o.Now)
		if open {
			require.Empty(t, d.UIDsToAnnotate, "seed %d", seed)
			require.Empty(t, fresh, "seed %d", seed)
		}
		waiting := 0
		for _, zone := range []string{"", "a", "b"} {
			live := 0
			for _, m := range o.Machines {
				if m.Domain == zone && !m.Deleting {
					live++
				}
			}
			require.LessOrEqual(t, gone[zone], maxGrantsOfGoneMachines(o, zone), "seed %d", seed)
			due := 0
			for _, m := range o.Machines {
				if m.Domain == zone && m.Due && !m.Preserved && !m.Granted && !m.Deleting && !before[m.UID] {
					due++
				}
			}
			if !open {
				left := max(budgetOfZone(o.Budget, live)-(all[zone]-fresh[zone]), 0)
				require.Equal(t, min(left, due), fresh[zone], "seed %d: neither more than is left, nor less", seed)
			}
			waiting += due - fresh[zone]
		}
		if !open {
			require.Equal(t, waiting > 0, d.HoldReason != "", "seed %d", seed)
		}
		checkDecisionIsStable(t, seed, o, d)
	}
	assert.Positive(t, grantedInAll)
}

// checkDecisionIsStable checks that Decide changes nothing after a decision was written.
func checkDecisionIsStable(t *testing.T, seed int, o replace.Facts, d replace.Decision) {
	t.Helper()
	o.Machines, o.Grants = slices.Clone(o.Machines), d.Grants
	for i, m := range o.Machines {
		if slices.Contains(d.UIDsToAnnotate, m.UID) {
			require.False(t, m.Granted || m.Deleting, "seed %d marks %+v", seed, m)
			o.Machines[i].Granted = true
		}
	}
	again := replace.Decide(o)
	require.False(t, again.GrantsChanged, "seed %d", seed)
	require.Empty(t, again.UIDsToAnnotate, "seed %d", seed)
	require.Equal(t, d.Grants, again.Grants, "seed %d", seed)
}
