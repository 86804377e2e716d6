package replace_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/replace"
	"millwright/decide/rollout"
	"millwright/decide/scale"
)

var epoch = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// healthyNodeCounts is a cluster in which almost all nodes are healthy: the breaker is closed.
var healthyNodeCounts = replace.NodeCounts{Joined: 500, Dead: 1}

// healthyMachine returns a healthy machine of zone a.
func healthyMachine(name string) replace.Machine {
	return replace.Machine{
		Name:      name,
		UID:       "uid-" + name,
		Domain:    "a",
		Joined:    true,
		CreatedAt: epoch.Add(-24 * time.Hour),
	}
}

// overdueMachine returns a machine of zone a that has been due for the duration ago at the time epoch.
func overdueMachine(name string, ago time.Duration) replace.Machine {
	m := healthyMachine(name)
	m.Due, m.DueSince, m.Reason = true, epoch.Add(-ago), "HealthTimeout"
	return m
}

// changedMachine returns a changed copy of the machine.
func changedMachine(m replace.Machine, change func(*replace.Machine)) replace.Machine {
	change(&m)
	return m
}

func grantedMachine(m replace.Machine) replace.Machine {
	return changedMachine(m, func(m *replace.Machine) { m.Granted = true })
}

// newReplacementMachine returns a machine of zone a that was created at this time and has not joined.
func newReplacementMachine(name string, created time.Time) replace.Machine {
	return replace.Machine{Name: name, UID: "uid-" + name, Domain: "a", CreatedAt: created}
}

// grantOfMachine returns a grant for a machine of zone a. The grant is older than epoch by the duration ago.
func grantOfMachine(name string, ago time.Duration) replace.ReplacementGrant {
	return replace.ReplacementGrant{
		MachineUID:  "uid-" + name,
		MachineName: name,
		Domain:      "a",
		Reason:      "HealthTimeout",
		GrantedAt:   epoch.Add(-ago),
	}
}

func grantedMachineNames(grants []replace.ReplacementGrant) []string {
	var result []string
	for _, g := range grants {
		result = append(result, g.MachineName)
	}
	return result
}

// deploymentWithBudgetOne returns a deployment with a budget of one machine in a healthy cluster.
func deploymentWithBudgetOne(machines ...replace.Machine) replace.Facts {
	return replace.Facts{
		Machines:   machines,
		Budget:     rollout.IntOrPercent{Value: 1},
		NodeCounts: healthyNodeCounts,
		Now:        epoch,
	}
}

func TestDeploymentsDoNotBlockEachOther(t *testing.T) {
	first := replace.Decide(deploymentWithBudgetOne(overdueMachine("x", time.Minute)))
	second := replace.Decide(deploymentWithBudgetOne(overdueMachine("y", time.Minute)))
	assert.Equal(t, []string{"uid-x"}, first.UIDsToAnnotate)
	assert.Equal(t, []string{"uid-y"}, second.UIDsToAnnotate)
	assert.Equal(t, []replace.ReplacementGrant{grantOfMachine("x", 0)}, first.Grants)
	assert.True(t, first.GrantsChanged)
	assert.Empty(t, first.HoldReason)
	assert.Equal(t, "grant replacement of machine x: HealthTimeout (1 of 1 in zone a)", first.Why)
}

func TestTheMachineThatIsDueLongerIsReplacedFirst(t *testing.T) {
	d := replace.Decide(
		deploymentWithBudgetOne(overdueMachine("a-young", time.Minute), overdueMachine("b-old", time.Hour)),
	)
	assert.Equal(t, []string{"uid-b-old"}, d.UIDsToAnnotate)
	assert.Equal(t, []string{"b-old"}, grantedMachineNames(d.Grants))
	assert.Equal(t, "1 machine is due; the replacement budget of zone a (1) is used by machine b-old", d.HoldReason)
	assert.Equal(t, "grant replacement of machine b-old: HealthTimeout (1 of 1 in zone a); hold: "+d.HoldReason, d.Why)
}

// In MCM, each unhealthy machine blocks every replacement of the deployment. In Millwright, only a replacement in
// progress blocks other replacements.
func TestOtherUnhealthyMachinesDoNotBlockReplacements(t *testing.T) {
	for _, row := range []struct {
		name  string
		other replace.Machine
	}{
		{"Failed", changedMachine(healthyMachine("other"), func(m *replace.Machine) { m.Failed = true })},
		{"Terminating", changedMachine(healthyMachine("other"), func(m *replace.Machine) { m.Deleting = true })},
		{"without phase, Pending or CrashLoopBackOff", newReplacementMachine("other", epoch)},
		{"preserved", changedMachine(healthyMachine("other"), func(m *replace.Machine) { m.Failed, m.Preserved, m.Granted = true, true, true })},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(
				t,
				[]string{"uid-x"},
				replace.Decide(deploymentWithBudgetOne(row.other, overdueMachine("x", time.Minute))).UIDsToAnnotate,
			)
		})
	}
}

func TestWhichEventsEndAGrant(t *testing.T) {
	const day = 24 * time.Hour
	x := overdueMachine("x", 2*day)
	failed := grantedMachine(changedMachine(x, func(m *replace.Machine) { m.Failed = true }))
	deleting := changedMachine(failed, func(m *replace.Machine) { m.Deleting = true })
	next := overdueMachine("next", time.Minute)
	for _, row := range []struct {
		name     string
		machines []replace.Machine
		missing  int
		open     bool // the grant of machine x is still in progress, so machine next must wait
		why      string
	}{
		{"the machine was marked a day ago", []replace.Machine{grantedMachine(x)}, 0, true, "used by machine x"},
		{"it has failed", []replace.Machine{failed}, 0, true, "used by machine x"},
		{"it is being deleted", []replace.Machine{deleting, newReplacementMachine("s", epoch)}, 0, true, "used by machine x"},
		{"it is being deleted, unmarked", []replace.Machine{changedMachine(x, func(m *replace.Machine) { m.Deleting = true })}, 0, true, "used by machine x"},
		{"it is gone, its substitute is being made", []replace.Machine{newReplacementMachine("s", epoch.Add(-day))}, 0, true, "used by the substitute of machine x"},
		{"it is gone, its substitute is still missing", nil, 1, true, "used by the substitute of machine x"},
		{"the substitute has joined", []replace.Machine{changedMachine(healthyMachine("s"), func(m *replace.Machine) { m.CreatedAt = epoch })}, 0, false, "replacement of machine x is complete"},
		{"there is no substitute: the deployment shrank", nil, 0, false, "replacement of machine x is complete"},
		{"a machine that was being made before", []replace.Machine{newReplacementMachine("s", epoch.Add(-day-time.Minute))}, 0, false, "is complete"},
		{"a machine that is being made in another zone", []replace.Machine{changedMachine(newReplacementMachine("s", epoch), func(m *replace.Machine) { m.Domain = "b" })}, 0, false, "is complete"},
		{"the substitute failed", []replace.Machine{changedMachine(newReplacementMachine("s", epoch), func(m *replace.Machine) { m.Failed = true })}, 0, false, "is complete"},
		{"the substitute is preserved", []replace.Machine{changedMachine(newReplacementMachine("s", epoch), func(m *replace.Machine) { m.Preserved = true })}, 0, false, "is complete"},
		{"the substitute is being deleted", []replace.Machine{changedMachine(newReplacementMachine("s", epoch), func(m *replace.Machine) { m.Deleting = true })}, 0, false, "is complete"},
		{"it recovered before it was marked", []replace.Machine{healthyMachine("x")}, 0, false, "withdraw the grant of machine x: it recovered"},
		{"it recovered when it was marked", []replace.Machine{grantedMachine(healthyMachine("x"))}, 0, true, "used by machine x"},
		{"it is preserved", []replace.Machine{changedMachine(failed, func(m *replace.Machine) { m.Preserved = true })}, 0, false, "release the grant of machine x: it is preserved"},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := deploymentWithBudgetOne(append(row.machines, next)...)
			o.Grants, o.MissingMachineCount = []replace.ReplacementGrant{grantOfMachine("x", day)}, row.missing
			d := replace.Decide(o)
			want, mark := []string{"next"}, []string{"uid-next"}
			if row.open {
				want, mark = []string{"x"}, nil
			}
			assert.Equal(t, want, grantedMachineNames(d.Grants))
			assert.Equal(t, mark, d.UIDsToAnnotate)
			assert.Equal(t, !row.open, d.GrantsChanged)
			assert.Equal(t, row.open, d.HoldReason != "")
			assert.Contains(t, d.Why, row.why)
		})
	}
}

// The only new machine was created after the older grant, and before the newer grant. The new machine therefore counts
// as the replacement for the older grant. Each later decision keeps the same grants.
func TestANewMachineReplacesTheMachineOfTheOlderGrant(t *testing.T) {
	o := deploymentWithBudgetOne(newReplacementMachine("s", epoch.Add(-5*time.Minute)))
	o.Grants = []replace.ReplacementGrant{grantOfMachine("new", time.Minute), grantOfMachine("old", time.Hour)}
	d := replace.Decide(o)
	assert.Equal(t, []string{"old"}, grantedMachineNames(d.Grants))
	o.Grants = d.Grants
	assert.False(t, replace.Decide(o).GrantsChanged)

	o.Machines = []replace.Machine{newReplacementMachine("s", epoch)}
	o.Grants = []replace.ReplacementGrant{grantOfMachine("old", time.Hour), grantOfMachine("new", time.Minute)}
	assert.Equal(t, []string{"new"}, grantedMachineNames(replace.Decide(o).Grants), "either may have it: the newer one")

	o.Machines, o.MissingMachineCount = nil, 1
	assert.Equal(t, []string{"new"}, grantedMachineNames(replace.Decide(o).Grants), "one machine is missing, not two")
	o.Grants[0].Domain = "b"
	assert.Equal(t, []string{"old", "new"}, grantedMachineNames(replace.Decide(o).Grants), "in which zone is not known")
}

func TestGrantedMachinesAreAnnotated(t *testing.T) {
	x, y := overdueMachine("x", time.Hour), overdueMachine("y", time.Minute)
	t.Run("a mark that was not written is written again", func(t *testing.T) {
		o := deploymentWithBudgetOne(x, y)
		o.Grants = []replace.ReplacementGrant{grantOfMachine("x", time.Minute)}
		d := replace.Decide(o)
		assert.Equal(t, []string{"uid-x"}, d.UIDsToAnnotate)
		assert.Equal(t, o.Grants, d.Grants)
		assert.False(t, d.GrantsChanged)
	})
	t.Run("it failed without the mark", func(t *testing.T) {
		o := deploymentWithBudgetOne(changedMachine(healthyMachine("x"), func(m *replace.Machine) { m.Failed = true }))
		o.Grants = []replace.ReplacementGrant{grantOfMachine("x", time.Minute)}
		assert.Equal(t, []string{"uid-x"}, replace.Decide(o).UIDsToAnnotate)
	})
	t.Run("a person's mark is recorded, counted and kept", func(t *testing.T) {
		d := replace.Decide(deploymentWithBudgetOne(grantedMachine(healthyMachine("p")), y))
		assert.Equal(
			t,
			[]replace.ReplacementGrant{
				{MachineUID: "uid-p", MachineName: "p", Domain: "a", Reason: "RequestedByPerson", GrantedAt: epoch},
			},
			d.Grants,
		)
		assert.Empty(t, d.UIDsToAnnotate)
		assert.True(t, d.GrantsChanged)
		assert.Equal(
			t,
			"record machine p: it was granted by a person; hold: 1 machine is due; the replacement budget of zone a (1) is used by machine p",
			d.Why,
		)
	})
	t.Run("persons may mark more than the budget", func(t *testing.T) {
		d := replace.Decide(
			deploymentWithBudgetOne(grantedMachine(healthyMachine("p")), grantedMachine(healthyMachine("q")), y),
		)
		assert.Equal(t, []string{"p", "q"}, grantedMachineNames(d.Grants))
		assert.Empty(t, d.UIDsToAnnotate)
	})
	t.Run("a person marks a substitute: one grant for both", func(t *testing.T) {
		o := deploymentWithBudgetOne(grantedMachine(newReplacementMachine("s", epoch)))
		o.Grants = []replace.ReplacementGrant{grantOfMachine("x", time.Minute)}
		assert.Equal(t, []string{"s"}, grantedMachineNames(replace.Decide(o).Grants))
	})
	t.Run("due, but not to be replaced", func(t *testing.T) {
		preserved := changedMachine(x, func(m *replace.Machine) { m.Preserved = true })
		deleting := changedMachine(y, func(m *replace.Machine) { m.Deleting = true })
		d := replace.Decide(deploymentWithBudgetOne(preserved, deleting))
		assert.Equal(t, replace.Decision{Why: "no machine is due, and none is being replaced"}, d)
	})
	t.Run("a failed join", func(t *testing.T) {
		failed := changedMachine(
			newReplacementMachine("x", epoch),
			func(m *replace.Machine) { m.Failed, m.Due, m.Reason = true, true, "CreationTimeout" },
		)
		assert.Equal(
			t,
			"grant replacement of machine x: CreationTimeout (1 of 1 in zone a)",
			replace.Decide(deploymentWithBudgetOne(failed)).Why,
		)
	})
	t.Run("the moment of a grant survives a status", func(t *testing.T) {
		o := deploymentWithBudgetOne(x)
		o.Now = epoch.Add(700 * time.Millisecond)
		d := replace.Decide(o)
		assert.Equal(t, epoch, d.Grants[0].GrantedAt)
		o.Machines = []replace.Machine{newReplacementMachine("s", epoch)} // created at 12:00:00.7, stored in whole seconds
		o.Grants = d.Grants
		assert.False(t, replace.Decide(o).GrantsChanged)
	})
}

func TestReplacementBudget(t *testing.T) {
	for _, row := range []struct {
		name     string
		budget   rollout.IntOrPercent
		machines int
		deleting int // number of machines that are being deleted; the other machines are due
		granted  int
	}{
		{"none", rollout.IntOrPercent{}, 5, 0, 0},
		{"no percent", rollout.IntOrPercent{IsPercent: true}, 5, 0, 0},
		{"a number", rollout.IntOrPercent{Value: 2}, 5, 0, 2},
		{"more than there are", rollout.IntOrPercent{Value: 9}, 5, 0, 5},
		{"20% of 5", rollout.IntOrPercent{Value: 20, IsPercent: true}, 5, 0, 1},
		{"20% of 6, rounded up", rollout.IntOrPercent{Value: 20, IsPercent: true}, 6, 0, 2},
		{"20% of the 5 that stay", rollout.IntOrPercent{Value: 20, IsPercent: true}, 6, 1, 1},
		{"1% of 1", rollout.IntOrPercent{Value: 1, IsPercent: true}, 1, 0, 1},
		{"200%", rollout.IntOrPercent{Value: 200, IsPercent: true}, 3, 0, 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			var machines []replace.Machine
			for i := range row.machines {
				m := overdueMachine(fmt.Sprintf("m-%d", i), time.Minute)
				m.Deleting = i < row.deleting
				machines = append(machines, m)
			}
			o := deploymentWithBudgetOne(machines...)
			o.Budget = row.budget
			d := replace.Decide(o)
			assert.Len(t, d.UIDsToAnnotate, row.granted)
			assert.Equal(t, row.machines-row.deleting > row.granted, d.HoldReason != "")
		})
	}
	t.Run("each zone has its own", func(t *testing.T) {
		inB := func(m *replace.Machine) { m.Domain = "b" }
		nowhere := func(m *replace.Machine) { m.Domain = "" }
		d := replace.Decide(deploymentWithBudgetOne(
			overdueMachine("a1", time.Hour), overdueMachine("a2", time.Minute),
			changedMachine(overdueMachine("b1", time.Hour), inB), changedMachine(overdueMachine("b2", time.Minute), inB),
			changedMachine(overdueMachine("c1", time.Hour), nowhere), changedMachine(overdueMachine("c2", time.Minute), nowhere),
		))
		assert.Equal(t, []string{"a1", "b1", "c1"}, grantedMachineNames(d.Grants))
		assert.Equal(t, "1 machine is due; the replacement budget (1) is used by machine c1; "+
			"1 machine is due; the replacement budget of zone a (1) is used by machine a1; "+
			"1 machine is due; the replacement budget of zone b (1) is used by machine b1", d.HoldReason)
	})
	t.Run("said", func(t *testing.T) {
		o := deploymentWithBudgetOne(overdueMachine("x", time.Minute), overdueMachine("y", time.Minute))
		o.Budget = rollout.IntOrPercent{}
		assert.Equal(
			t,
			"hold: 2 machines are due; the replacement budget of zone a is 0: none is replaced",
			replace.Decide(o).Why,
		)
		o.Budget = rollout.IntOrPercent{Value: 10, IsPercent: true}
		assert.Equal(
			t,
			"1 machine is due; the replacement budget of zone a (10%: 1) is used by machine x",
			replace.Decide(o).HoldReason,
		)
	})
}

func TestADecisionHasABoundedSize(t *testing.T) {
	const uid = "3f2b8c1e-0d4a-4f6b-9a77-5e1c0d9b2a%02d"
	var machines []replace.Machine
	for i := range 1000 {
		m := overdueMachine(fmt.Sprintf("shoot--project--cluster-worker-pool-z1-5d8f7-%05d", i), time.Minute)
		m.UID, m.Domain = fmt.Sprintf(uid, i), fmt.Sprintf("europe-west-1%03d", i%100)
		machines = append(machines, m)
	}
	o := deploymentWithBudgetOne(machines...)
	o.Budget = rollout.IntOrPercent{Value: 100, IsPercent: true}
	d := replace.Decide(o)
	assert.Len(t, d.UIDsToAnnotate, replace.MaxBatchSize)
	assert.Len(t, d.Grants, replace.MaxBatchSize)
	assert.Contains(
		t,
		d.HoldReason,
		"9 machines are due in zone europe-west-1000; at most 50 are granted at once, the others follow; ",
	)
	assert.True(t, strings.HasSuffix(d.HoldReason, " and 95 more"), d.HoldReason)
	assert.Contains(t, d.Why, " and 35 more; hold: ")
	data, err := json.Marshal(d)
	require.NoError(t, err)
	assert.Less(t, len(data), 16<<10)

	o = deploymentWithBudgetOne(machines[:1]...)
	o.Budget = rollout.IntOrPercent{Value: 60}
	for i := range 60 {
		o.Machines = append(o.Machines, overdueMachine(fmt.Sprintf("m-%d", i), time.Hour))
		o.Grants = append(o.Grants, grantOfMachine(fmt.Sprintf("m-%d", i), time.Minute))
	}
	d = replace.Decide(o)
	assert.Len(t, d.UIDsToAnnotate, replace.MaxBatchSize, "marks of earlier grants count too")
	assert.Len(t, d.Grants, 60)

	o.Budget = rollout.IntOrPercent{Value: 5}
	o.Machines[0].Domain, o.Grants = "a", o.Grants[:5]
	assert.True(
		t,
		strings.HasSuffix(
			replace.Decide(o).HoldReason,
			"is used by machine m-0, machine m-1, machine m-2, machine m-3, machine m-4",
		),
	)
	o.Budget, o.Grants = rollout.IntOrPercent{Value: 7}, o.Grants[:7]
	assert.True(t, strings.HasSuffix(replace.Decide(o).HoldReason, ", machine m-4 and 2 more"))
}

// A status has an entry for each grant, and etcd limits the size of an object.
func TestGrantCountOfADeploymentIsBounded(t *testing.T) {
	o := deploymentWithBudgetOne(
		overdueMachine("x", time.Minute),
		overdueMachine("y", time.Minute),
		changedMachine(overdueMachine("free", time.Minute), func(m *replace.Machine) { m.BypassesBudget = true }),
	)
	o.Budget = rollout.IntOrPercent{Value: 2 * replace.MaxGrants}
	for i := range replace.MaxGrants - 2 {
		name := fmt.Sprintf("m-%03d", i)
		o.Machines, o.Grants = append(
			o.Machines,
			grantedMachine(healthyMachine(name)),
		), append(
			o.Grants,
			grantOfMachine(name, time.Minute),
		)
	}
	d := replace.Decide(o)
	assert.Equal(t, []string{"uid-free", "uid-x"}, d.UIDsToAnnotate)
	assert.Len(t, d.Grants, replace.MaxGrants)
	assert.Equal(
		t,
		"1 machine is due in zone a; 500 replacements are in progress, and a deployment may have no more",
		d.HoldReason,
	)
	o.Grants = d.Grants
	o.Machines[2] = changedMachine(
		overdueMachine("free", time.Minute),
		func(m *replace.Machine) { m.BypassesBudget, m.Granted = true, true },
	)
	o.Machines = append(
		o.Machines,
		changedMachine(overdueMachine("another", time.Minute), func(m *replace.Machine) { m.BypassesBudget = true }),
	)
	assert.Equal(t, []string{"uid-x"}, replace.Decide(o).UIDsToAnnotate, "beside the budget there is no room either")
}

func TestDecideDoesNotChangeItsInput(t *testing.T) {
	o := deploymentWithBudgetOne(
		overdueMachine("b", time.Minute),
		overdueMachine("a", time.Hour),
		newReplacementMachine("s", epoch),
	)
	o.Grants = []replace.ReplacementGrant{grantOfMachine("y", time.Minute), grantOfMachine("x", time.Hour)}
	machines, grants := slices.Clone(o.Machines), slices.Clone(o.Grants)
	replace.Decide(o)
	assert.Equal(t, machines, o.Machines)
	assert.Equal(t, grants, o.Grants)
}

// After the last retry, the set's machines get no grant, so that they do not use the budget of other sets.
func TestMachinesOfASetThatHasMadeItsLastRetryGetNoGrant(t *testing.T) {
	failed := func(n int) func(*replace.Machine) {
		return func(m *replace.Machine) {
			m.Generations = scale.GenerationRecord{Failed: n, Last: epoch.Add(-time.Hour)}
		}
	}
	neverJoined := func(age time.Duration) replace.Machine {
		return changedMachine(overdueMachine("x", time.Minute), func(m *replace.Machine) {
			m.Joined, m.CreatedAt = false, epoch.Add(-age)
		})
	}
	const hold = "1 machine is due; 3 generations of machines failed in a row before they had joined (spec.remediation.maxRetry of the RolloutPolicy is 2); annotate a Machine with cluster.x-k8s.io/remediate-machine to try again"
	for _, row := range []struct {
		name    string
		machine replace.Machine
		held    string
	}{
		{"the last retry", changedMachine(neverJoined(time.Minute), failed(2)), ""},
		{"the last retry has failed", changedMachine(neverJoined(time.Minute), failed(3)), hold},
		{"a machine that had joined", changedMachine(overdueMachine("x", time.Minute), failed(3)), hold},
		{"the rest of a generation that was replaced", changedMachine(neverJoined(2*time.Hour), failed(3)), ""},
		{"a person deletes its Node", changedMachine(neverJoined(time.Minute), func(m *replace.Machine) { failed(3)(m); m.BypassesBudget = true }), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := deploymentWithBudgetOne(row.machine)
			o.Retries = scale.RetryPolicy{HasMaxRetry: true, MaxRetry: 2}
			d := replace.Decide(o)
			assert.Equal(t, row.held, d.HoldReason)
			assert.Equal(t, row.held == "", len(d.UIDsToAnnotate) == 1)
			unlimited := o
			unlimited.Retries = scale.RetryPolicy{}
			assert.Equal(t, []string{"uid-x"}, replace.Decide(unlimited).UIDsToAnnotate)
			o.Machines = append(o.Machines, overdueMachine("y", time.Second))
			if row.held != "" {
				assert.Equal(t, []string{"uid-y"}, replace.Decide(o).UIDsToAnnotate, "the budget is free for others")
			}
		})
	}
}
