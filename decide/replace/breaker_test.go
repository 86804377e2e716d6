package replace_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/replace"
	"millwright/decide/rollout"
)

func TestBreakerState(t *testing.T) {
	for _, row := range []struct {
		name         string
		joined, dead int
		open         bool
	}{
		{"no node", 0, 0, false},
		{"none is dead", 9, 0, false},
		{"one of one", 1, 1, false},
		{"two of two", 2, 2, false},
		{"three of three", 3, 3, true},
		{"three of five", 5, 3, true},
		{"exactly half", 6, 3, true},
		{"just below half", 7, 3, false},
		{"most of many", 9, 5, true},
		{"a tenth of many", 500, 50, false},
		{"all of many", 500, 500, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			open, why, until := replace.BreakerState(replace.NodeCounts{Joined: row.joined, Dead: row.dead}, epoch)
			assert.Equal(t, row.open, open)
			assert.Equal(t, row.open, why != "")
			assert.Zero(t, until)
		})
	}
	_, why, _ := replace.BreakerState(replace.NodeCounts{Joined: 9, Dead: 5}, epoch)
	assert.Equal(
		t,
		"5 of 9 nodes look dead at once: that is more likely the API server or the network than the machines; nothing is replaced until most of them report again",
		why,
	)
}

// Nodes recover one after the other. The breaker stays open long enough for the last nodes to recover.
func TestTheBreakerStaysOpenDuringTheFirstRecoveries(t *testing.T) {
	ago := func(seconds ...int) (moments []time.Time) {
		for _, s := range seconds {
			moments = append(moments, epoch.Add(-time.Duration(s)*time.Second))
		}
		return moments
	}
	for _, row := range []struct {
		name      string
		joined    int
		dead      int
		recovered []time.Time
		closes    time.Duration // time from now until the breaker closes; zero: the breaker is closed
	}{
		{"one of four is back, most are dead no more", 6, 2, ago(1), 59 * time.Second},
		{"the last to come back counts", 6, 1, ago(50, 5, 30), 55 * time.Second},
		{"all are back", 6, 0, ago(10, 10, 10), 50 * time.Second},
		{"a minute is over for one of them", 6, 2, ago(60, 1), 59 * time.Second},
		{"a minute is over for all of them", 6, 2, ago(60, 61), 0},
		{"too few for an outage", 6, 1, ago(1), 0},
		{"less than half of many", 9, 2, ago(1, 1), 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			open, why, until := replace.BreakerState(
				replace.NodeCounts{Joined: row.joined, Dead: row.dead, RecoveryTimes: row.recovered},
				epoch,
			)
			assert.Equal(t, row.closes != 0, open)
			if open {
				assert.Equal(t, row.closes, until.Sub(epoch))
				assert.Contains(t, why, "nothing is replaced before "+until.Format(time.TimeOnly))
			}
		})
	}
}

func TestOpenBreakerHoldsOnlyDueMachines(t *testing.T) {
	o := deploymentWithBudgetOne(healthyMachine("p"))
	o.Budget, o.NodeCounts = rollout.IntOrPercent{Value: 9}, replace.NodeCounts{Joined: 4, Dead: 3}
	assert.Empty(t, replace.Decide(o).HoldReason)
}

func TestTheOpenBreakerHoldsAllReplacements(t *testing.T) {
	never := changedMachine(
		newReplacementMachine("never", epoch),
		func(m *replace.Machine) { m.Failed, m.Due = true, true },
	)
	o := deploymentWithBudgetOne(
		overdueMachine("x", time.Minute),
		overdueMachine("recorded", time.Hour),
		never,
		grantedMachine(healthyMachine("p")),
	)
	o.Grants = []replace.ReplacementGrant{grantOfMachine("recorded", time.Hour), grantOfMachine("gone", time.Hour)}
	o.Budget, o.NodeCounts = rollout.IntOrPercent{Value: 9}, replace.NodeCounts{Joined: 4, Dead: 3}
	d := replace.Decide(o)
	assert.Empty(t, d.UIDsToAnnotate)
	assert.Equal(t, []string{"recorded", "p"}, grantedMachineNames(d.Grants), "what is true is recorded all the same")
	_, why, _ := replace.BreakerState(o.NodeCounts, o.Now)
	assert.Equal(t, "3 machines are due; "+why, d.HoldReason)
	assert.Equal(
		t,
		"replacement of machine gone is complete; record machine p: it was granted by a person; hold: "+d.HoldReason,
		d.Why,
	)

	o.NodeCounts = healthyNodeCounts
	assert.ElementsMatch(t, []string{"uid-recorded", "uid-x", "uid-never"}, replace.Decide(o).UIDsToAnnotate)

	o.Machines, o.Grants, o.NodeCounts = []replace.Machine{
		healthyMachine("y"),
	}, nil, replace.NodeCounts{
		Joined: 4,
		Dead:   3,
	}
	assert.Equal(t, replace.Decision{Why: "no machine is due, and none is being replaced"}, replace.Decide(o))
}

// With --as-mcm, all machines whose Nodes a person deletes are replaced at once.
func TestMachinesOfDeletedNodesBypassBudgetAndBreaker(t *testing.T) {
	free := func(name string) replace.Machine {
		return changedMachine(
			overdueMachine(name, time.Minute),
			func(m *replace.Machine) { m.BypassesBudget, m.Reason = true, "NodeDeleted" },
		)
	}
	o := deploymentWithBudgetOne(free("a"), free("b"), free("recorded"), overdueMachine("x", time.Hour))
	o.Grants = []replace.ReplacementGrant{grantOfMachine("recorded", time.Hour)}
	o.NodeCounts = replace.NodeCounts{Joined: 4, Dead: 3}
	d := replace.Decide(o)
	assert.ElementsMatch(t, []string{"uid-a", "uid-b", "uid-recorded"}, d.UIDsToAnnotate)
	assert.ElementsMatch(t, []string{"recorded", "a", "b"}, grantedMachineNames(d.Grants))
	assert.Contains(t, d.HoldReason, "1 machine is due; 3 of 4 nodes look dead at once")
	assert.Contains(t, d.Why, "grant replacement of machine a: NodeDeleted, beside the budget")

	o.NodeCounts = healthyNodeCounts
	d = replace.Decide(o)
	assert.ElementsMatch(
		t,
		[]string{"uid-a", "uid-b", "uid-recorded"},
		d.UIDsToAnnotate,
		"what is free uses the budget of the others",
	)
	assert.Contains(t, d.HoldReason, "the replacement budget of zone a (1) is used by")

	for i := range 2 * replace.MaxBatchSize {
		o.Machines = append(o.Machines, free(fmt.Sprintf("m-%02d", i)))
	}
	assert.Len(t, replace.Decide(o).UIDsToAnnotate, replace.MaxBatchSize)
}

// While the API server of the target cluster is unavailable, no node renews its Lease, and the health timeouts of all
// machines expire. When the API server is back, the machines may recover before or after the nodes that close the
// breaker.
func TestAnUnstableAPIServerCausesNoReplacement(t *testing.T) {
	well := []replace.Machine{healthyMachine("x"), healthyMachine("y"), healthyMachine("z")}
	silent := []replace.Machine{
		overdueMachine("x", time.Minute),
		overdueMachine("y", time.Minute),
		overdueMachine("z", time.Minute),
	}
	var grants []replace.ReplacementGrant
	for flap := range 20 {
		for _, look := range []struct {
			machines []replace.Machine
			nodes    replace.NodeCounts
		}{
			{well, replace.NodeCounts{Joined: 3}},
			{silent, replace.NodeCounts{Joined: 3, Dead: 3}},
			{well, replace.NodeCounts{Joined: 3, Dead: 3}},
			{well, replace.NodeCounts{Joined: 3}},
		} {
			o := deploymentWithBudgetOne(look.machines...)
			o.Grants, o.NodeCounts, o.Now = grants, look.nodes, epoch.Add(time.Duration(flap)*25*time.Second)
			d := replace.Decide(o)
			assert.Empty(t, d.UIDsToAnnotate)
			assert.Empty(t, d.Grants)
			assert.False(t, d.GrantsChanged)
			grants = d.Grants
		}
	}
}

func TestAfterAnOutageEachMachineIsJudgedByItsOwnNode(t *testing.T) {
	o := deploymentWithBudgetOne(
		overdueMachine("x", time.Hour),
		overdueMachine("y", time.Hour),
		overdueMachine("z", time.Hour),
	)
	o.Budget, o.NodeCounts = rollout.IntOrPercent{Value: 3}, replace.NodeCounts{Joined: 3, Dead: 3}
	assert.Empty(t, replace.Decide(o).UIDsToAnnotate)

	o.Machines = []replace.Machine{healthyMachine("x"), overdueMachine("y", time.Hour), healthyMachine("z")}
	o.NodeCounts = replace.NodeCounts{Joined: 3, Dead: 1, RecoveryTimes: []time.Time{o.Now, o.Now}}
	d := replace.Decide(o)
	assert.Empty(t, d.UIDsToAnnotate)
	assert.Contains(t, d.HoldReason, "1 machine is due; most of the 3 nodes looked dead at once")
	o.Now = d.RecheckTime
	d = replace.Decide(o)
	assert.Equal(t, []string{"uid-y"}, d.UIDsToAnnotate)
	assert.Zero(t, d.RecheckTime)
}

// MCM's freeze depends on a timer and on its previous state. Millwright's breaker depends only on the present facts, so
// an earlier outage does not affect a decision.
func TestTheBreakerKeepsNoState(t *testing.T) {
	for _, away := range []time.Duration{0, 29 * time.Second, 31 * time.Second, 24 * time.Hour} {
		for _, before := range []replace.NodeCounts{{Joined: 3}, {Joined: 3, Dead: 3}} {
			o := deploymentWithBudgetOne(overdueMachine("x", time.Hour))
			o.NodeCounts = before
			o.Grants = replace.Decide(o).Grants
			o.Now = epoch.Add(away)
			o.NodeCounts = replace.NodeCounts{Joined: 3, Dead: 3}
			assert.Empty(t, replace.Decide(o).UIDsToAnnotate)
			o.NodeCounts = replace.NodeCounts{Joined: 3, Dead: 1}
			assert.Equal(t, []string{"uid-x"}, replace.Decide(o).UIDsToAnnotate)
		}
	}
}
