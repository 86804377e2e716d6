package explain_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/api/vocabulary"
	"millwright/decide/drain"
	"millwright/decide/explain"
)

func TestShortTextsHaveCauseAndDeadline(t *testing.T) {
	for name, row := range map[string]struct {
		machine explain.Machine
		says    string
	}{
		"a budget": {
			waitingMachine(
				vocabulary.StepEvictPods, "PodDisruptionBudget shop/app allows none", withBlockers("PodDisruptionBudget shop/app"),
				withDeadline("12:07:00"), asEvictingMachine,
			),
			"PDB shop/app; pods deleted 12:07 UTC",
		},
		"two budgets": {
			waitingMachine(
				vocabulary.StepEvictPods, "both select one pod", withBlockers("PodDisruptionBudget shop/a and shop/b"), asEvictingMachine,
				withDeadline("12:07:00"),
			),
			"PDB shop/a, shop/b; pods deleted 12:07 UTC",
		},
		"a long name": {
			waitingMachine(
				vocabulary.StepEvictPods, "cause", withBlockers("PodDisruptionBudget shop/"+strings.Repeat("long-", 20)), asEvictingMachine,
				withDeadline("12:07:00"),
			),
			"PDB shop/long-long-long-long-long-l…; pods deleted 12:07 UTC",
		},
		"a machine that boots": {
			waitingMachine(vocabulary.StepAwaitNode, "node n-1 has not joined yet", withDeadline("10:15:57")),
			"boots; its node joins; gives up 10:15 UTC",
		},
		"an unhealthy node": {
			waitingMachine(vocabulary.StepAwaitRecovery, "Ready is False", withDeadline("10:15:57")),
			"node is not healthy; replaced 10:15 UTC",
		},
		"no quota": {
			waitingMachine(
				vocabulary.StepCreateInstance, "quota of 3 used up", withBlockers("ResourceExhausted"), withDeadline("10:15:57"),
			),
			"no quota or capacity; gives up 10:15 UTC",
		},
		"the next day": {
			waitingMachine(vocabulary.StepAwaitRecovery, "Ready is False", func(m *explain.Machine) {
				m.Deadline = parseClockTime("10:00:00").Add(24 * time.Hour)
			}),
			"node is not healthy; replaced 11-26 10:00 UTC",
		},
		"a hook":           {waitingMachine(vocabulary.StepAwaitHooks, "hooks", withBlockers("pre-drain.example.org/backup")), "hook pre-drain.example.org/backup"},
		"an unknown code":  {waitingMachine(vocabulary.StepCreateInstance, "cause", withBlockers("DataLoss")), "DataLoss"},
		"nothing to do":    {explain.Machine{}, ""},
		"an unknown cause": {waitingMachine("new-step", "what it does"), "what it does"},
	} {
		assert.Equal(t, row.says, row.machine.CurrentWait().ShortText(now), name)
	}
	assert.Equal(
		t,
		"1 new machine is not available yet: 10 are available, 10…",
		explain.WaitState{
			Step:  "roll",
			Cause: "1 new machine is not available yet: 10 are available, 10 are needed",
		}.ShortText(
			now,
		),
		"no word is cut",
	)
	assert.Equal(t, "rolling out", explain.WaitState{Step: "roll", Cause: "rolling out"}.ShortText(now))
	assert.Equal(
		t,
		"PDB",
		explain.WaitState{Blockers: []string{"PodDisruptionBudget"}}.ShortText(now),
		"the reason has no name",
	)
}

// A set and a deployment count their machines, and name the number of further causes.
func TestShortTextsOfPoolsCountTheirMachines(t *testing.T) {
	machine := func(name, clock string, by ...string) explain.Machine {
		m := waitingMachine(vocabulary.StepEvictPods, "cause of "+by[0], withBlockers(by...), withDeadline(clock))
		m.Name, m.Deleting, m.Means, m.NextMeans = name, true, drain.MeansEvict, drain.MeansDelete
		return m
	}
	d := explain.Deployment{Namespace: "shop", Name: "web", MachineCount: 20, Machines: []explain.Machine{
		machine(
			"m-1",
			"12:07:00",
			"PodDisruptionBudget shop/app",
		),
		machine("m-2", "12:07:00", "PodDisruptionBudget shop/app"),
	}}
	assert.Equal(t, "2/20 PDB shop/app; pods deleted 12:07 UTC", d.BlockedSummary(now).Short)
	d.Machines[1].Deadline = parseClockTime("12:09:00")
	d.Machines = append(d.Machines, machine("m-3", "12:09:00", "DoNotDisrupt"))
	assert.Equal(t, "2/20 PDB shop/app; pods deleted from 12:07 UTC +1", d.BlockedSummary(now).Short)
	d.Conditions = []explain.Condition{
		{Type: vocabulary.ConditionProgressing, Reason: vocabulary.ReasonRolloutWaiting, Message: "step 1"},
	}
	assert.Equal(t, "waits for approval +2", d.BlockedSummary(now).Short)
}

func TestShortTextsNeverExceedTheirLength(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	pick := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	for range 5000 {
		m := waitingMachine(
			pick(vocabulary.StepEvictPods, vocabulary.StepCreateInstance, vocabulary.StepAwaitRecovery, "other"),
			strings.Repeat("ä", 1+random.IntN(200)),
			withBlockers(
				pick("PodDisruptionBudget ", "Volume ", "Unknown", "pre-drain.example.org/")+strings.Repeat("é", random.IntN(300)),
			),
		)
		m.BlockedBy = m.BlockedBy[:random.IntN(2)]
		m.Deleting, m.Means = random.IntN(2) == 0, drain.MeansEvict
		m.NextMeans = drain.RemovalMeans(pick("", string(drain.MeansDelete), string(drain.MeansKill)))
		m.Deadline = now.Add(time.Duration(random.IntN(96)) * time.Hour)
		short := m.CurrentWait().ShortText(now)
		require.LessOrEqual(t, utf8.RuneCountInString(short), explain.MaxShortLength, short)
		require.NotEmpty(t, short)
		summary := explain.MachineSet{
			Namespace:    "shop",
			Name:         "s",
			MachineCount: 100000,
			Machines:     []explain.Machine{m, m},
		}.BlockedSummary(
			now,
		)
		require.LessOrEqual(t, utf8.RuneCountInString(summary.Short), explain.MaxShortLength, summary.Short)
		require.Equal(t, summary.IsBlocked(), summary.Short != "")
	}
}
