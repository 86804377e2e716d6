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
)

var epoch = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// fine is a cluster in which nothing but a machine can be to blame.
var fine = replace.Nodes{Joined: 500, Dead: 1}

// running is a healthy machine of zone a.
func running(name string) replace.Machine {
	return replace.Machine{Name: name, UID: "uid-" + name, Domain: "a", Joined: true, Created: epoch.Add(-24 * time.Hour)}
}

// overdue is a machine of zone a that is due for so long.
func overdue(name string, ago time.Duration) replace.Machine {
	m := running(name)
	m.Due, m.DueSince, m.Reason = true, epoch.Add(-ago), "HealthTimeout"
	return m
}

// with returns the machine after a change.
func with(m replace.Machine, change func(*replace.Machine)) replace.Machine {
	change(&m)
	return m
}

func marked(m replace.Machine) replace.Machine {
	return with(m, func(m *replace.Machine) { m.Granted = true })
}

// substitute is a machine of zone a that is being made since then.
func substitute(name string, created time.Time) replace.Machine {
	return replace.Machine{Name: name, UID: "uid-" + name, Domain: "a", Created: created}
}

// grantOf is the grant of a machine of zone a, given so long ago.
func grantOf(name string, ago time.Duration) replace.Grant {
	return replace.Grant{UID: "uid-" + name, Name: name, Domain: "a", Reason: "HealthTimeout", At: epoch.Add(-ago)}
}

func names(grants []replace.Grant) []string {
	var result []string
	for _, g := range grants {
		result = append(result, g.Name)
	}
	return result
}

// one is a deployment with a budget of one machine in a cluster without other trouble.
func one(machines ...replace.Machine) replace.Observed {
	return replace.Observed{Machines: machines, Budget: rollout.Bound{Value: 1}, Nodes: fine, Now: epoch}
}

func TestDeploymentsDoNotBlockEachOther(t *testing.T) {
	first := replace.Decide(one(overdue("x", time.Minute)))
	second := replace.Decide(one(overdue("y", time.Minute)))
	assert.Equal(t, []string{"uid-x"}, first.Mark)
	assert.Equal(t, []string{"uid-y"}, second.Mark)
	assert.Equal(t, []replace.Grant{grantOf("x", 0)}, first.Grants)
	assert.True(t, first.Changed)
	assert.Empty(t, first.Hold)
	assert.Equal(t, "grant replacement of machine x: HealthTimeout (1 of 1 in zone a)", first.Why)
}

func TestOfTwoOnlyTheOneThatIsDueForLonger(t *testing.T) {
	d := replace.Decide(one(overdue("a-young", time.Minute), overdue("b-old", time.Hour)))
	assert.Equal(t, []string{"uid-b-old"}, d.Mark)
	assert.Equal(t, []string{"b-old"}, names(d.Grants))
	assert.Equal(t, "1 machine is due; the replacement budget of zone a (1) is used by machine b-old", d.Hold)
	assert.Equal(t, "grant replacement of machine b-old: HealthTimeout (1 of 1 in zone a); hold: "+d.Hold, d.Why)
}

// MCM lets each of these hold back every replacement of the deployment; here only a replacement in progress does.
func TestOtherMachinesDoNotBlock(t *testing.T) {
	for _, row := range []struct {
		name  string
		other replace.Machine
	}{
		{"Failed", with(running("other"), func(m *replace.Machine) { m.Failed = true })},
		{"Terminating", with(running("other"), func(m *replace.Machine) { m.Deleting = true })},
		{"without phase, Pending or CrashLoopBackOff", substitute("other", epoch)},
		{"preserved", with(running("other"), func(m *replace.Machine) { m.Failed, m.Preserved, m.Granted = true, true, true })},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, []string{"uid-x"}, replace.Decide(one(row.other, overdue("x", time.Minute))).Mark)
		})
	}
}

func TestAGrantEndsByFactsAndNeverByTime(t *testing.T) {
	const day = 24 * time.Hour
	x := overdue("x", 2*day)
	failed := marked(with(x, func(m *replace.Machine) { m.Failed = true }))
	deleting := with(failed, func(m *replace.Machine) { m.Deleting = true })
	next := overdue("next", time.Minute)
	for _, row := range []struct {
		name     string
		machines []replace.Machine
		missing  int
		open     bool // the grant of x is still in progress, and next has to wait
		why      string
	}{
		{"the machine was marked a day ago", []replace.Machine{marked(x)}, 0, true, "used by machine x"},
		{"it has failed", []replace.Machine{failed}, 0, true, "used by machine x"},
		{"it is being deleted", []replace.Machine{deleting, substitute("s", epoch)}, 0, true, "used by machine x"},
		{"it is being deleted, unmarked", []replace.Machine{with(x, func(m *replace.Machine) { m.Deleting = true })}, 0, true, "used by machine x"},
		{"it is gone, its substitute is being made", []replace.Machine{substitute("s", epoch.Add(-day))}, 0, true, "used by the substitute of machine x"},
		{"it is gone, its substitute is still missing", nil, 1, true, "used by the substitute of machine x"},
		{"the substitute has joined", []replace.Machine{with(running("s"), func(m *replace.Machine) { m.Created = epoch })}, 0, false, "replacement of machine x is complete"},
		{"there is no substitute: the deployment shrank", nil, 0, false, "replacement of machine x is complete"},
		{"a machine that was being made before", []replace.Machine{substitute("s", epoch.Add(-day-time.Minute))}, 0, false, "is complete"},
		{"a machine that is being made in another zone", []replace.Machine{with(substitute("s", epoch), func(m *replace.Machine) { m.Domain = "b" })}, 0, false, "is complete"},
		{"the substitute failed", []replace.Machine{with(substitute("s", epoch), func(m *replace.Machine) { m.Failed = true })}, 0, false, "is complete"},
		{"the substitute is preserved", []replace.Machine{with(substitute("s", epoch), func(m *replace.Machine) { m.Preserved = true })}, 0, false, "is complete"},
		{"the substitute is being deleted", []replace.Machine{with(substitute("s", epoch), func(m *replace.Machine) { m.Deleting = true })}, 0, false, "is complete"},
		{"it recovered before it was marked", []replace.Machine{running("x")}, 0, false, "withdraw the grant of machine x: it recovered"},
		{"it recovered when it was marked", []replace.Machine{marked(running("x"))}, 0, true, "used by machine x"},
		{"it is preserved", []replace.Machine{with(failed, func(m *replace.Machine) { m.Preserved = true })}, 0, false, "release the grant of machine x: it is preserved"},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := one(append(row.machines, next)...)
			o.Grants, o.Missing = []replace.Grant{grantOf("x", day)}, row.missing
			d := replace.Decide(o)
			want, mark := []string{"next"}, []string{"uid-next"}
			if row.open {
				want, mark = []string{"x"}, nil
			}
			assert.Equal(t, want, names(d.Grants))
			assert.Equal(t, mark, d.Mark)
			assert.Equal(t, !row.open, d.Changed)
			assert.Equal(t, row.open, d.Hold != "")
			assert.Contains(t, d.Why, row.why)
		})
	}
}

// The older of two grants is left with the only machine that is old enough for no other, and that is so on every look.
func TestGrantsWhoseMachineIsGoneKeepTheirOwnSubstitutes(t *testing.T) {
	o := one(substitute("s", epoch.Add(-5*time.Minute)))
	o.Grants = []replace.Grant{grantOf("new", time.Minute), grantOf("old", time.Hour)}
	d := replace.Decide(o)
	assert.Equal(t, []string{"old"}, names(d.Grants))
	o.Grants = d.Grants
	assert.False(t, replace.Decide(o).Changed)

	o.Machines = []replace.Machine{substitute("s", epoch)}
	o.Grants = []replace.Grant{grantOf("old", time.Hour), grantOf("new", time.Minute)}
	assert.Equal(t, []string{"new"}, names(replace.Decide(o).Grants), "either may have it: the newer one")

	o.Machines, o.Missing = nil, 1
	assert.Equal(t, []string{"new"}, names(replace.Decide(o).Grants), "one machine is missing, not two")
	o.Grants[0].Domain = "b"
	assert.Equal(t, []string{"old", "new"}, names(replace.Decide(o).Grants), "in which zone is not known")
}

func TestMarks(t *testing.T) {
	x, y := overdue("x", time.Hour), overdue("y", time.Minute)
	t.Run("a mark that was not written is written again", func(t *testing.T) {
		o := one(x, y)
		o.Grants = []replace.Grant{grantOf("x", time.Minute)}
		d := replace.Decide(o)
		assert.Equal(t, []string{"uid-x"}, d.Mark)
		assert.Equal(t, o.Grants, d.Grants)
		assert.False(t, d.Changed)
	})
	t.Run("it failed without the mark", func(t *testing.T) {
		o := one(with(running("x"), func(m *replace.Machine) { m.Failed = true }))
		o.Grants = []replace.Grant{grantOf("x", time.Minute)}
		assert.Equal(t, []string{"uid-x"}, replace.Decide(o).Mark)
	})
	t.Run("a person's mark is recorded, counted and kept", func(t *testing.T) {
		d := replace.Decide(one(marked(running("p")), y))
		assert.Equal(t, []replace.Grant{{UID: "uid-p", Name: "p", Domain: "a", At: epoch}}, d.Grants)
		assert.Empty(t, d.Mark)
		assert.True(t, d.Changed)
		assert.Equal(
			t,
			"record machine p: it was granted by a person; hold: 1 machine is due; the replacement budget of zone a (1) is used by machine p",
			d.Why,
		)
	})
	t.Run("persons may mark more than the budget", func(t *testing.T) {
		d := replace.Decide(one(marked(running("p")), marked(running("q")), y))
		assert.Equal(t, []string{"p", "q"}, names(d.Grants))
		assert.Empty(t, d.Mark)
	})
	t.Run("a person marks a substitute: one grant for both", func(t *testing.T) {
		o := one(marked(substitute("s", epoch)))
		o.Grants = []replace.Grant{grantOf("x", time.Minute)}
		assert.Equal(t, []string{"s"}, names(replace.Decide(o).Grants))
	})
	t.Run("due, but not to be replaced", func(t *testing.T) {
		preserved := with(x, func(m *replace.Machine) { m.Preserved = true })
		deleting := with(y, func(m *replace.Machine) { m.Deleting = true })
		d := replace.Decide(one(preserved, deleting))
		assert.Equal(t, replace.Decision{Why: "no machine is due, and none is being replaced"}, d)
	})
	t.Run("a failed join", func(t *testing.T) {
		failed := with(
			substitute("x", epoch),
			func(m *replace.Machine) { m.Failed, m.Due, m.Reason = true, true, "CreationTimeout" },
		)
		assert.Equal(t, "grant replacement of machine x: CreationTimeout (1 of 1 in zone a)", replace.Decide(one(failed)).Why)
	})
	t.Run("the moment of a grant survives a status", func(t *testing.T) {
		o := one(x)
		o.Now = epoch.Add(700 * time.Millisecond)
		d := replace.Decide(o)
		assert.Equal(t, epoch, d.Grants[0].At)
		o.Machines = []replace.Machine{substitute("s", epoch)} // created 700 ms later, as the API server tells it
		o.Grants = d.Grants
		assert.False(t, replace.Decide(o).Changed)
	})
}

func TestBudget(t *testing.T) {
	for _, row := range []struct {
		name     string
		budget   rollout.Bound
		machines int
		deleting int // of the machines; the others are due
		granted  int
	}{
		{"none", rollout.Bound{}, 5, 0, 0},
		{"no percent", rollout.Bound{Percent: true}, 5, 0, 0},
		{"a number", rollout.Bound{Value: 2}, 5, 0, 2},
		{"more than there are", rollout.Bound{Value: 9}, 5, 0, 5},
		{"20% of 5", rollout.Bound{Value: 20, Percent: true}, 5, 0, 1},
		{"20% of 6, rounded up", rollout.Bound{Value: 20, Percent: true}, 6, 0, 2},
		{"20% of the 5 that stay", rollout.Bound{Value: 20, Percent: true}, 6, 1, 1},
		{"1% of 1", rollout.Bound{Value: 1, Percent: true}, 1, 0, 1},
		{"200%", rollout.Bound{Value: 200, Percent: true}, 3, 0, 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			var machines []replace.Machine
			for i := range row.machines {
				m := overdue(fmt.Sprintf("m-%d", i), time.Minute)
				m.Deleting = i < row.deleting
				machines = append(machines, m)
			}
			o := one(machines...)
			o.Budget = row.budget
			d := replace.Decide(o)
			assert.Len(t, d.Mark, row.granted)
			assert.Equal(t, row.machines-row.deleting > row.granted, d.Hold != "")
		})
	}
	t.Run("each zone has its own", func(t *testing.T) {
		inB := func(m *replace.Machine) { m.Domain = "b" }
		nowhere := func(m *replace.Machine) { m.Domain = "" }
		d := replace.Decide(one(
			overdue("a1", time.Hour), overdue("a2", time.Minute),
			with(overdue("b1", time.Hour), inB), with(overdue("b2", time.Minute), inB),
			with(overdue("c1", time.Hour), nowhere), with(overdue("c2", time.Minute), nowhere),
		))
		assert.Equal(t, []string{"a1", "b1", "c1"}, names(d.Grants))
		assert.Equal(t, "1 machine is due; the replacement budget (1) is used by machine c1; "+
			"1 machine is due; the replacement budget of zone a (1) is used by machine a1; "+
			"1 machine is due; the replacement budget of zone b (1) is used by machine b1", d.Hold)
	})
	t.Run("said", func(t *testing.T) {
		o := one(overdue("x", time.Minute), overdue("y", time.Minute))
		o.Budget = rollout.Bound{}
		assert.Equal(
			t,
			"hold: 2 machines are due; the replacement budget of zone a is 0: none is replaced",
			replace.Decide(o).Why,
		)
		o.Budget = rollout.Bound{Value: 10, Percent: true}
		assert.Equal(
			t,
			"1 machine is due; the replacement budget of zone a (10%: 1) is used by machine x",
			replace.Decide(o).Hold,
		)
	})
}

func TestDecideIsBounded(t *testing.T) {
	const uid = "3f2b8c1e-0d4a-4f6b-9a77-5e1c0d9b2a%02d"
	var machines []replace.Machine
	for i := range 1000 {
		m := overdue(fmt.Sprintf("shoot--project--cluster-worker-pool-z1-5d8f7-%05d", i), time.Minute)
		m.UID, m.Domain = fmt.Sprintf(uid, i), fmt.Sprintf("europe-west-1%03d", i%100)
		machines = append(machines, m)
	}
	o := one(machines...)
	o.Budget = rollout.Bound{Value: 100, Percent: true}
	d := replace.Decide(o)
	assert.Len(t, d.Mark, replace.MaxBatch)
	assert.Len(t, d.Grants, replace.MaxBatch)
	assert.Contains(
		t,
		d.Hold,
		"9 machines are due in zone europe-west-1000; at most 50 are granted at once, the others follow; ",
	)
	assert.True(t, strings.HasSuffix(d.Hold, " and 95 more"), d.Hold)
	assert.Contains(t, d.Why, " and 35 more; hold: ")
	data, err := json.Marshal(d)
	require.NoError(t, err)
	assert.Less(t, len(data), 16<<10)

	o = one(machines[:1]...)
	o.Budget = rollout.Bound{Value: 60}
	for i := range 60 {
		o.Machines = append(o.Machines, overdue(fmt.Sprintf("m-%d", i), time.Hour))
		o.Grants = append(o.Grants, grantOf(fmt.Sprintf("m-%d", i), time.Minute))
	}
	d = replace.Decide(o)
	assert.Len(t, d.Mark, replace.MaxBatch, "marks of earlier grants count too")
	assert.Len(t, d.Grants, 60)

	o.Budget = rollout.Bound{Value: 5}
	o.Machines[0].Domain, o.Grants = "a", o.Grants[:5]
	assert.True(
		t,
		strings.HasSuffix(
			replace.Decide(o).Hold,
			"is used by machine m-0, machine m-1, machine m-2, machine m-3, machine m-4",
		),
	)
	o.Budget, o.Grants = rollout.Bound{Value: 7}, o.Grants[:7]
	assert.True(t, strings.HasSuffix(replace.Decide(o).Hold, ", machine m-4 and 2 more"))
}

// A status has an entry for each grant, and etcd bounds its size.
func TestTheGrantsOfADeploymentAreBounded(t *testing.T) {
	o := one(
		overdue("x", time.Minute),
		overdue("y", time.Minute),
		with(overdue("free", time.Minute), func(m *replace.Machine) { m.Free = true }),
	)
	o.Budget = rollout.Bound{Value: 2 * replace.MaxGrants}
	for i := range replace.MaxGrants - 2 {
		name := fmt.Sprintf("m-%03d", i)
		o.Machines, o.Grants = append(o.Machines, marked(running(name))), append(o.Grants, grantOf(name, time.Minute))
	}
	d := replace.Decide(o)
	assert.Equal(t, []string{"uid-free", "uid-x"}, d.Mark)
	assert.Len(t, d.Grants, replace.MaxGrants)
	assert.Equal(
		t,
		"1 machine is due in zone a; 500 replacements are in progress, and a deployment may have no more",
		d.Hold,
	)
	o.Grants = d.Grants
	o.Machines[2] = with(overdue("free", time.Minute), func(m *replace.Machine) { m.Free, m.Granted = true, true })
	o.Machines = append(o.Machines, with(overdue("another", time.Minute), func(m *replace.Machine) { m.Free = true }))
	assert.Equal(t, []string{"uid-x"}, replace.Decide(o).Mark, "beside the budget there is no room either")
}

func TestDecideLeavesItsInputAlone(t *testing.T) {
	o := one(overdue("b", time.Minute), overdue("a", time.Hour), substitute("s", epoch))
	o.Grants = []replace.Grant{grantOf("y", time.Minute), grantOf("x", time.Hour)}
	machines, grants := slices.Clone(o.Machines), slices.Clone(o.Grants)
	replace.Decide(o)
	assert.Equal(t, machines, o.Machines)
	assert.Equal(t, grants, o.Grants)
}
