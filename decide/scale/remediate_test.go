package scale_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/scale"
)

// sick are n machines that are marked, the last of them the youngest.
func sick(n int, changes ...change) []scale.Member {
	return running(n, append(changes, unhealthy, marked)...)
}

func TestRemediation(t *testing.T) {
	limit := func(n int) func(*scale.Observed) {
		return func(o *scale.Observed) { o.Remediation.Limited, o.Remediation.MaxInFlight = true, n }
	}
	for _, row := range []struct {
		name    string
		members []scale.Member
		change  func(*scale.Observed)
		want    []string
		says    string
	}{
		{"unhealthy and marked", append(running(2), member("x", day, unhealthy, marked)), nil, []string{"x"}, "* Machine x: Machine is deleting"},
		{"unhealthy and not marked is not for the set", running(1, unhealthy), nil, nil, "Machine m-1 is not healthy (not to be remediated by MachineSet)"},
		{"marked and being deleted", sick(1, deleting), nil, nil, "* Machine m-1: Machine is deleting"},
		{"marked and preserved", sick(1, preserved), nil, nil, "Machine m-1 is not healthy (not to be remediated by MachineSet)"},
		{
			"preflight fails", sick(2),
			func(o *scale.Observed) { o.Preflight = upgrading() },
			nil, `* Machines m-1, m-2: ControlPlane cp is upgrading ("ControlPlaneIsStable" preflight check failed)`,
		},
		{
			"blocked, and a limit", sick(3), func(o *scale.Observed) { limit(1)(o); o.MCM.Freeze.Label = true }, nil,
			"* Machines m-1, m-2: Waiting because there are already too many remediations in progress (spec.strategy.remediation.maxInFlight is 1)\n* Machine m-3: MachineSet is frozen",
		},
		{"a frozen set makes no other", sick(1), func(o *scale.Observed) { o.MCM.Freeze.Label = true }, nil, "* Machine m-1: MachineSet is frozen"},
		{
			"a set of an old revision", sick(2), func(o *scale.Observed) { o.Remediation.Outdated = true }, nil,
			"* Machines m-1, m-2: Machine won't be remediated because it is pending removal due to rollout",
		},
		{"the current one", sick(2), nil, []string{"m-2", "m-1"}, "* Machines m-1, m-2: Machine is deleting"},
		{
			"3 of 8", sick(8), limit(3),
			[]string{"m-8", "m-7", "m-6"},
			"* Machines m-1, m-2, m-3, ... (2 more): Waiting because there are already too many remediations in progress (spec.strategy.remediation.maxInFlight is 3)\n* Machines m-6, m-7, m-8: Machine is deleting",
		},
		{"while these are not gone none follows", append(sick(5), sick(8, deleting)[5:]...), limit(3), nil, "* Machines m-1, m-2, m-3, ... (2 more): Waiting because there are already too many remediations in progress (spec.strategy.remediation.maxInFlight is 3)\n* Machines m-6, m-7, m-8: Machine is deleting"},
		{"then the next three", sick(5), limit(3), []string{"m-5", "m-4", "m-3"}, ""},
		{"none at all", sick(1), limit(0), nil, ""},
		{"the newest first", sick(3), limit(1), []string{"m-3"}, ""},
		{"of the same age by name", []scale.Member{member("b", day, unhealthy, marked), member("a", day, unhealthy, marked)}, limit(1), []string{"a"}, ""},
		{"the one that a person asked for", append(sick(3)[1:], member("m-1", 9*day, unhealthy, marked, urgent)), limit(1), []string{"m-1"}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := set(len(row.members), row.members...)
			for _, m := range row.members {
				if m.Deleting {
					o.Replicas--
				}
			}
			if row.change != nil {
				row.change(&o)
			}
			d := scale.Decide(o)
			assert.Equal(t, row.want, targets(d.Remediate))
			assert.Empty(t, d.Delete)
			if row.says != "" {
				assert.Equal(t, row.says, condition(t, o, "Remediating").Message)
			}
		})
	}
}

func TestAHealthyMachineLosesTheMark(t *testing.T) {
	d := scale.Decide(set(2, member("a", day, marked, checked), member("b", day, marked, unhealthy)))
	assert.Equal(t, []string{"a"}, targets(d.Unmark))
	assert.Empty(t, d.Remediate, "one thing after the other")
	assert.Empty(t, scale.Decide(set(0, member("a", day, marked, checked, deleting))).Unmark)
	assert.Empty(t, scale.Decide(set(1, member("a", day, marked, unchecked))).Unmark, "nobody says that it is healthy")
}

// A class that makes no usable machine is tried again and again, more and more seldom.
func TestGenerationsBackOff(t *testing.T) {
	last := at(-time.Hour)
	policy := scale.Remediation{Backoff: 10 * time.Minute, MaxBackoff: 8 * time.Hour}
	tried := func(failed int) scale.Generations { return scale.Generations{Failed: failed, Last: last} }
	young, older := member("young", 30*time.Minute, stillborn), member("older", 2*time.Hour, stillborn)
	for _, row := range []struct {
		name    string
		record  scale.Generations
		members []scale.Member
		want    []string
		next    *scale.Generations
		recheck time.Time
	}{
		{"the first goes at once", scale.Generations{}, []scale.Member{young}, []string{"young"}, &scale.Generations{Failed: 1, Last: epoch}, time.Time{}},
		{"the second after the pause, which is over", tried(1), []scale.Member{young}, []string{"young"}, &scale.Generations{Failed: 2, Last: epoch}, time.Time{}},
		{"the third after twice the pause, which is over", tried(2), []scale.Member{young}, []string{"young"}, &scale.Generations{Failed: 3, Last: epoch}, time.Time{}},
		{"the fifth waits", tried(4), []scale.Member{young}, nil, nil, last.Add(80 * time.Minute)},
		{"nobody waits for longer than the longest pause", tried(60), []scale.Member{young}, nil, nil, last.Add(8 * time.Hour)},
		{"one of a generation that was given up already goes, and is not counted again", tried(4), []scale.Member{older, young}, []string{"older"}, nil, last.Add(80 * time.Minute)},
		{"one that had joined goes", tried(4), []scale.Member{member("x", 30*time.Minute, failed)}, []string{"x"}, &scale.Generations{}, time.Time{}},
		{"once a machine of a later generation has joined, all is forgotten", tried(4), []scale.Member{member("x", 30*time.Minute), young}, []string{"young"}, &scale.Generations{Failed: 1, Last: epoch}, time.Time{}},
		{"and the record is emptied, so that it stays forgotten", tried(4), []scale.Member{member("x", 30*time.Minute)}, nil, &scale.Generations{}, time.Time{}},
		{"one that joined and is gone soon is proof as well", tried(4), []scale.Member{member("x", 30*time.Minute, deletingFor(time.Hour))}, nil, &scale.Generations{}, time.Time{}},
		{"one of an earlier generation is no proof", tried(4), []scale.Member{member("x", 2*time.Hour), young}, nil, nil, last.Add(80 * time.Minute)},
		{"marked machines wait as well", tried(4), []scale.Member{member("x", 30*time.Minute, pending, unhealthy, marked)}, nil, nil, last.Add(80 * time.Minute)},
		{"one that goes already wakes nobody", tried(4), []scale.Member{member("x", 30*time.Minute, pending, unhealthy, marked, deletingFor(time.Hour))}, nil, nil, time.Time{}},
		{"clocks differ: one made in the seconds before counts as later", tried(4), []scale.Member{member("x", time.Hour+5*time.Second, stillborn)}, nil, nil, last.Add(80 * time.Minute)},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := set(len(row.members), row.members...)
			o.MCM.Generations, o.Remediation = row.record, policy
			d := scale.Decide(o)
			assert.Equal(t, row.want, targets(d.Delete))
			assert.Equal(t, row.next, d.Generations)
			assert.Equal(t, row.recheck, d.Recheck)
			assert.Equal(t, !row.recheck.IsZero(), d.Hold != "")
		})
	}
	t.Run("without a back-off nothing is recorded", func(t *testing.T) {
		o := set(1, young)
		o.MCM.Generations = tried(4)
		d := scale.Decide(o)
		assert.Len(t, d.Delete, 1)
		assert.Nil(t, d.Generations)
	})
	t.Run("it says why", func(t *testing.T) {
		o := set(1, young)
		o.MCM.Generations, o.Remediation = tried(4), policy
		want := "Waiting until 00:20:00 UTC because 4 generations of machines failed in a row before they had joined"
		assert.Equal(t, want, scale.Decide(o).Hold)
		assert.Equal(t, "* Machine young: "+want, condition(t, o, "Remediating").Message)
		assert.Equal(t, scale.True, condition(t, o, "Remediating").Status)
	})
}

// A generation of two hundred is one generation, although a batch is smaller.
func TestOneGenerationOfMany(t *testing.T) {
	o := set(200)
	o.Remediation = scale.Remediation{Backoff: time.Minute}
	for i := range 200 {
		o.Members = append(o.Members, member(fmt.Sprintf("m-%03d", i), time.Hour, stillborn))
	}
	first := scale.Decide(o)
	assert.Len(t, first.Delete, scale.MaxBatch)
	assert.Equal(t, &scale.Generations{Failed: 1, Last: epoch}, first.Generations)
	o.MCM.Generations, o.Members = *first.Generations, o.Members[50:]
	second := scale.Decide(o)
	assert.Len(t, second.Delete, scale.MaxBatch)
	assert.Nil(t, second.Generations)
}
