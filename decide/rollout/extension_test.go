package rollout_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/decidetest"
	"millwright/decide/rollout"
)

// Answers of an extension.
var (
	possibleAnswer   = rollout.ExtensionAnswer{Possible: true}
	impossibleAnswer = rollout.ExtensionAnswer{Why: "DockerMachineTemplate differs in spec"}
	failedAnswer     = rollout.ExtensionAnswer{Failed: true, Why: "no answer within 10 s"}
)

// withExtensionAnswer returns a rolling update in place, with answer a of the extension for all old sets and the
// current set. The extension has given answer a for all old sets and the current set.
func withExtensionAnswer(a rollout.ExtensionAnswer, o rollout.Facts) rollout.Facts {
	o.ClusterAPI.UsesExtension, o.Sets = true, slices.Clone(o.Sets)
	current := slices.IndexFunc(o.Sets, func(s rollout.MachineSet) bool { return s.Current })
	for i := range o.Sets {
		if !o.Sets[i].Current && a != (rollout.ExtensionAnswer{}) {
			o.Sets[i].ClusterAPI.ExtensionAnswer = a
			o.Sets[i].ClusterAPI.ExtensionAnswer.TargetSetUID, o.Sets[i].ClusterAPI.ExtensionAnswer.RequestedAt = o.Sets[current].UID, epoch
		}
	}
	return o
}

// transferringSet returns the set with a transfer of its surplus machines to set ms2.
func transferringSet(s rollout.MachineSet) rollout.MachineSet {
	s.ClusterAPI.Transfer.To = "ms2"
	return s
}

// receivingSet returns the set with transfers from the sets in from. The set's size includes the machines in
// acknowledged.
func receivingSet(s rollout.MachineSet, from, acknowledged string) rollout.MachineSet {
	s.ClusterAPI.Transfer.From, s.ClusterAPI.Transfer.Acknowledged = from, acknowledged
	return s
}

// asMovedMachine marks a machine as moved to its set, but not included in the set's size. asAcknowledgedMachine marks
// the machine as included.
func asMovedMachine(m *rollout.Member) {
	asUpdatingMachine(m)
	m.MCM.IsUpdateCandidate, m.MCM.HasUpdateLabels, m.ClusterAPI.Unacknowledged, m.ClusterAPI.Moved = false, false, true, true
}

func asAcknowledgedMachine(m *rollout.Member) { asMovedMachine(m); m.ClusterAPI.Unacknowledged = false }

func transfersBySet(d rollout.Decision) map[string]rollout.MachineTransfer {
	m := map[string]rollout.MachineTransfer{}
	for _, r := range d.Resize {
		m[r.Name] = r.Transfer
	}
	return m
}

// The number of moves and of new machines follows the rules of Cluster API's in-place updates.
func TestMachinesMoveWhereAnExtensionCanUpdateThem(t *testing.T) {
	to := rollout.MachineTransfer{To: "ms2"}
	from := rollout.MachineTransfer{From: "ms1"}
	for name, test := range map[string]struct {
		o         rollout.Facts
		sizes     map[string]int
		transfers map[string]rollout.MachineTransfer
		why       string
	}{
		"one is lent at the start, of a surge of three": {
			o:     withExtensionAnswer(possibleAnswer, rollingUpdateDeployment(6, 3, 0, oldSet(1, 6, 6, 6), currentSet(2, 0, 0, 0))),
			sizes: map[string]int{"ms2": 1}, transfers: map[string]rollout.MachineTransfer{"ms1": to, "ms2": from},
		},
		"none is lent if machines may be unavailable": {
			o:     withExtensionAnswer(possibleAnswer, rollingUpdateDeployment(6, 3, 1, oldSet(1, 6, 6, 6), currentSet(2, 0, 0, 0))),
			sizes: map[string]int{"ms1": 5}, transfers: map[string]rollout.MachineTransfer{"ms1": to, "ms2": from},
		},
		"the lent one makes a move possible": {
			o:     withExtensionAnswer(possibleAnswer, rollingUpdateDeployment(3, 1, 0, transferringSet(oldSet(1, 3, 3, 3)), receivingSet(currentSet(2, 1, 1, 1), "ms1", ""))),
			sizes: map[string]int{"ms1": 2}, transfers: map[string]rollout.MachineTransfer{"ms1": to},
		},
		"the lent one is not available yet": {
			o:   withExtensionAnswer(possibleAnswer, rollingUpdateDeployment(3, 1, 0, transferringSet(oldSet(1, 3, 3, 3)), receivingSet(currentSet(2, 1, 1, 0), "ms1", ""))),
			why: "1 new machine is not available yet: 3 are available, 3 are needed",
		},
		"a machine that has moved is counted": {
			o:     withExtensionAnswer(possibleAnswer, rollingUpdateDeployment(3, 1, 0, transferringSet(oldSet(1, 2, 2, 2)), withChangedMachine(receivingSet(currentSet(2, 1, 2, 2), "ms1", ""), 1, asMovedMachine))),
			sizes: map[string]int{"ms2": 2}, transfers: map[string]rollout.MachineTransfer{"ms2": {From: "ms1", Acknowledged: "ms2-01"}},
		},
		"it is counted once": {
			o:   withExtensionAnswer(possibleAnswer, rollingUpdateDeployment(3, 1, 0, transferringSet(oldSet(1, 2, 2, 2)), withChangedMachine(receivingSet(currentSet(2, 2, 2, 2), "ms1", "ms2-01"), 1, asAcknowledgedMachine))),
			why: "1 machine is updated in place: 3 available, 3 needed",
		},
		"its name goes once its update has begun": {
			o:         withExtensionAnswer(possibleAnswer, rollingUpdateDeployment(3, 1, 0, transferringSet(oldSet(1, 2, 2, 2)), withChangedMachine(receivingSet(currentSet(2, 2, 2, 2), "ms1", "ms2-01"), 1, asUpdatingMachine))),
			transfers: map[string]rollout.MachineTransfer{"ms2": from},
		},
		"no machine is lent while one is updated": {
			o:   withExtensionAnswer(possibleAnswer, rollingUpdateDeployment(6, 1, 1, transferringSet(oldSet(1, 5, 5, 5)), withChangedMachine(receivingSet(currentSet(2, 1, 1, 1), "ms1", ""), 0, asUpdatingMachine))),
			why: "1 machine is updated in place: 5 available, 5 needed",
		},
		"no machine is lent while one moves": {
			o: withExtensionAnswer(possibleAnswer, rollingUpdateDeployment(6, 1, 1, transferringSet(oldSet(1, 5, 6, 6)), receivingSet(currentSet(2, 0, 0, 0), "ms1", ""))),
		},
		"the last one is deleted: all wanted ones are there": {
			o:     withExtensionAnswer(possibleAnswer, rollingUpdateDeployment(3, 1, 0, transferringSet(oldSet(1, 1, 1, 1)), receivingSet(currentSet(2, 3, 3, 3), "ms1", ""))),
			sizes: map[string]int{"ms1": 0}, transfers: map[string]rollout.MachineTransfer{"ms1": {}, "ms2": {}},
		},
		"no more move than there are places": {
			o:     withExtensionAnswer(possibleAnswer, rollingUpdateDeployment(4, 1, 2, transferringSet(oldSet(1, 2, 2, 2)), receivingSet(currentSet(2, 3, 3, 3), "ms1", ""))),
			sizes: map[string]int{"ms1": 1}, transfers: map[string]rollout.MachineTransfer{"ms1": to},
		},
		"it cannot: machines are replaced": {
			o:     withExtensionAnswer(impossibleAnswer, rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3), currentSet(2, 0, 0, 0))),
			sizes: map[string]int{"ms2": 1}, transfers: map[string]rollout.MachineTransfer{"ms2": {}},
		},
		"a scale-up beside it is not dropped": {
			o:     withExtensionAnswer(possibleAnswer, rollingUpdateDeployment(6, 1, 0, transferringSet(oldSet(1, 3, 3, 3)), receivingSet(currentSet(2, 1, 1, 1), "ms1", ""))),
			sizes: map[string]int{"ms2": 3}, transfers: map[string]rollout.MachineTransfer{"ms2": from},
		},
		"nobody asked for it": {
			o: func() rollout.Facts {
				o := withExtensionAnswer(possibleAnswer, rollingUpdateDeployment(3, 1, 0, transferringSet(oldSet(1, 3, 3, 3)), receivingSet(currentSet(2, 0, 0, 0), "ms1", "")))
				o.ClusterAPI.UsesExtension = false
				return o
			}(),
			sizes: map[string]int{"ms2": 1}, transfers: map[string]rollout.MachineTransfer{"ms1": {}, "ms2": {}},
		},
		"OnDelete": {
			o:         withExtensionAnswer(possibleAnswer, withStrategy(rollout.OnDelete, rollingUpdateDeployment(3, 1, 0, withoutScaleUp(transferringSet(oldSet(1, 3, 3, 3))), receivingSet(currentSet(2, 0, 0, 0), "ms1", "")))),
			transfers: map[string]rollout.MachineTransfer{"ms1": {}, "ms2": {}},
			why:       "3 machines of old templates stay until somebody deletes them",
		},
		"a former set that got machines counts them": {
			o:     withExtensionAnswer(possibleAnswer, rollingUpdateDeployment(3, 1, 0, withChangedMachine(receivingSet(oldSet(1, 2, 3, 3), "ms0", ""), 2, asMovedMachine), currentSet(2, 1, 1, 1))),
			sizes: map[string]int{"ms1": 3}, transfers: map[string]rollout.MachineTransfer{"ms1": {To: "ms2", Acknowledged: "ms1-02"}, "ms2": from},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := rollout.Decide(test.o)
			assert.Empty(t, d.Ask)
			if assert.Equal(t, emptyMapIfNil(test.sizes), changedSizes(d), d.Why); test.transfers != nil {
				for set, want := range test.transfers {
					assert.Equal(t, want, transfersBySet(d)[set], set)
				}
			}
			if test.why != "" {
				assert.Equal(t, test.why, d.Hold)
			}
		})
	}
	d := rollout.Decide(
		withExtensionAnswer(possibleAnswer, rollingUpdateDeployment(6, 3, 1, oldSet(1, 6, 6, 6), currentSet(2, 0, 0, 0))),
	)
	assert.Equal(
		t,
		[]string{"ms2", "ms1"},
		[]string{d.Resize[0].Name, d.Resize[1].Name},
		"who takes machines says so first",
	)
}

// In a transfer, a set moves available machines, because it moves machines with nodes first. A smaller size may
// therefore remove available machines although the set has unavailable machines.
func TestATransferLeavesEnoughAvailableMachines(t *testing.T) {
	// The set's workflow may create four machines, and then transfers available machines.
	creating := transferringSet(oldSet(1, 8, 4, 4))
	d := rollout.Decide(
		withExtensionAnswer(
			possibleAnswer,
			rollingUpdateDeployment(8, 4, 4, creating, receivingSet(currentSet(2, 1, 1, 1), "ms1", "")),
		),
	)
	assert.Equal(t, map[string]int{"ms1": 7}, changedSizes(d), "5 are available, 4 needed")

	deleting := oldSet(1, 3, 11, 5) // the set must delete its six unavailable machines first
	deleting.ObservedReplicas = 11
	o := withExtensionAnswer(possibleAnswer, rollingUpdateDeployment(6, 0, 2, deleting, currentSet(2, 1, 1, 1)))
	d = rollout.Decide(o)
	assert.Empty(t, transfersBySet(d)["ms1"].To, "it would hand over the five that are available")
	assert.Empty(t, changedSizes(d))
	o.Sets[0] = withExtensionAnswer(possibleAnswer, rollingUpdateDeployment(6, 0, 2, oldSet(1, 3, 3, 3), currentSet(2, 1, 1, 1))).Sets[0]
	assert.Equal(t, "ms2", transfersBySet(rollout.Decide(o))["ms1"].To, "they are gone")
}

// While the deployment is paused, no further machine is updated in place. Machines that are moving are neither replaced
// nor deleted.
func TestPausedDeploymentMovesNoFurtherMachine(t *testing.T) {
	paused := func(replicas int, sets ...rollout.MachineSet) rollout.Decision {
		o := withExtensionAnswer(possibleAnswer, rollingUpdateDeployment(replicas, 1, 1, sets...))
		o.Paused = true
		return rollout.Decide(o)
	}
	calm, taker := transferringSet(oldSet(1, 6, 6, 6)), receivingSet(currentSet(2, 0, 0, 0), "ms1", "")
	d := paused(4, calm, taker)
	assert.Equal(t, map[string]int{"ms1": 4}, changedSizes(d))
	assert.Equal(t, map[string]rollout.MachineTransfer{"ms1": {}, "ms2": {}}, transfersBySet(d), "the surplus is deleted")

	moving := transferringSet(oldSet(1, 4, 6, 6))
	assert.Empty(t, paused(6, moving, taker).Resize, "two of six are on their way")
	assert.Empty(t, paused(4, moving, taker).Resize, "a smaller number waits until they have moved")
	// The set's workflow may still act on the larger size 3, so the size must not grow now.
	refused := receivingSet(currentSet(2, 0, 2, 2), "ms1", "")
	refused.ObservedReplicas = 3
	assert.Empty(
		t,
		changedSizes(
			paused(
				6,
				transferringSet(oldSet(1, 4, 4, 4)),
				withChangedMachine(withChangedMachine(refused, 0, asMovedMachine), 1, asMovedMachine),
			),
		),
		"two of six have moved",
	)
	assert.Equal(t, map[string]int{"ms1": 6}, changedSizes(paused(8, moving, taker)), "a larger number is followed")
}

// An annotation names the acknowledged machines, so there are at most MaxBatchSize at a time.
func TestAtMostOneBatchOfMachinesIsAcknowledgedAtATime(t *testing.T) {
	s := receivingSet(currentSet(2, 10, 90, 90), "ms1", "ms2-10,ms2-11")
	for i := 10; i < 90; i++ {
		s = withChangedMachine(s, i, asMovedMachine)
	}
	s = withChangedMachine(withChangedMachine(s, 10, asAcknowledgedMachine), 11, asAcknowledgedMachine)
	s.Replicas, s.ObservedReplicas = 12, 12
	d := rollout.Decide(
		withExtensionAnswer(
			possibleAnswer,
			rollingUpdateDeployment(200, 1, 100, transferringSet(oldSet(1, 100, 100, 100)), s),
		),
	)
	assert.Equal(t, 60, changedSizes(d)["ms2"])
	assert.Len(t, strings.Split(transfersBySet(d)["ms2"].Acknowledged, ","), rollout.MaxBatchSize)
}

func emptyMapIfNil(m map[string]int) map[string]int {
	if m == nil {
		return map[string]int{}
	}
	return m
}

// No machine moves or is replaced before the extension has answered. If the request to the extension fails, the sizes
// still follow spec.replicas.
func TestAnExtensionIsAskedFirst(t *testing.T) {
	o := rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3))
	o.ClusterAPI.UsesExtension = true
	d := rollout.Decide(o)
	require.NotNil(t, d.Create)
	assert.Zero(t, d.Create.Replicas)

	o = withExtensionAnswer(
		rollout.ExtensionAnswer{},
		rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3), currentSet(2, 0, 0, 0)),
	)
	d = rollout.Decide(o)
	assert.Equal(t, []string{"ms1"}, targetNames(d.Ask))
	assert.Empty(t, changedSizes(d))
	assert.Equal(t, "ask a runtime extension whether it can update the machines of 1 set in place", d.Why)
	assert.True(t, d.HasActions())

	other := withExtensionAnswer(possibleAnswer, o)
	other.Sets[0].ClusterAPI.ExtensionAnswer.TargetSetUID = "uid-ms0"
	assert.Equal(t, []string{"ms1"}, targetNames(rollout.Decide(other).Ask), "it was asked about another template")

	more := withExtensionAnswer(
		rollout.ExtensionAnswer{},
		rollingUpdateDeployment(5, 1, 0, oldSet(1, 3, 3, 3), currentSet(2, 0, 0, 0)),
	)
	assert.Empty(t, changedSizes(rollout.Decide(more)), "the answer comes within seconds")
	more = withExtensionAnswer(failedAnswer, more)
	assert.Equal(t, map[string]int{"ms1": 5}, changedSizes(rollout.Decide(more)))
	fewer := withExtensionAnswer(
		failedAnswer,
		rollingUpdateDeployment(2, 1, 0, oldSet(1, 3, 3, 3), currentSet(2, 0, 0, 0)),
	)
	assert.Equal(t, map[string]int{"ms1": 2}, changedSizes(rollout.Decide(fewer)))

	o.Paused = true
	assert.Empty(t, rollout.Decide(o).Ask)

	same := withExtensionAnswer(
		rollout.ExtensionAnswer{},
		rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3), currentSet(2, 0, 0, 0)),
	)
	same.Sets[0].ClusterAPI.DuplicatesTemplate = true
	d = rollout.Decide(same)
	assert.Empty(t, d.Ask, "the machines of the same template are to be replaced")
	assert.Equal(t, map[string]int{"ms2": 1}, changedSizes(d))
}

// A failed request to an extension is retried after 30 s. The decision's Hold names the missing answer.
func TestExtensionWithoutAnswerIsAskedAgain(t *testing.T) {
	o := withExtensionAnswer(failedAnswer, rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3), currentSet(2, 0, 0, 0)))
	d := rollout.Decide(o)
	assert.Empty(t, d.Ask)
	assert.Empty(t, changedSizes(d))
	assert.Equal(
		t,
		"no runtime extension says whether the machines of set ms1 can be updated in place: no answer within 10 s",
		d.Hold,
	)
	assert.Equal(t, rollout.HeldByMachines, d.HoldBy)
	assert.Equal(t, epoch.Add(30*time.Second), d.Recheck)
	o.Progress.Revision = 1 // the current set has just been created
	progressing := rollout.PlannedStatus(o).Conditions[1]
	assert.Equal(
		t,
		[]string{"Progressing", "False", "ExtensionFailed", d.Hold},
		[]string{progressing.Type, progressing.Status, progressing.Reason, progressing.Message},
	)

	o.Now = epoch.Add(30 * time.Second)
	assert.Equal(t, []string{"ms1"}, targetNames(rollout.Decide(o).Ask))
}

// If in-place updates are required, a rollout replaces no machine: it stops, and the sizes still follow spec.replicas.
func TestRequiredInPlaceUpdatesStopTheRollout(t *testing.T) {
	required := func(a rollout.ExtensionAnswer, replicas int) rollout.Facts {
		o := withExtensionAnswer(a, rollingUpdateDeployment(replicas, 1, 0, oldSet(1, 3, 3, 3), currentSet(2, 0, 0, 0)))
		o.ClusterAPI.RequiresExtension = true
		return o
	}
	o := required(impossibleAnswer, 3)
	d := rollout.Decide(o)
	assert.Empty(t, d.Ask)
	assert.Empty(t, changedSizes(d))
	assert.Equal(
		t,
		`the machines of set ms1 cannot be updated in place, and in-place-updates is "required": DockerMachineTemplate differs in spec`,
		d.Hold,
	)
	progressing := rollout.PlannedStatus(o).Conditions[1]
	assert.Equal(
		t,
		[]string{"Progressing", "False", "NotUpdatedInPlace", d.Hold},
		[]string{progressing.Type, progressing.Status, progressing.Reason, progressing.Message},
	)
	assert.Equal(t, map[string]int{"ms1": 5}, changedSizes(rollout.Decide(required(impossibleAnswer, 5))))
	assert.Equal(t, map[string]int{"ms1": 2}, changedSizes(rollout.Decide(required(impossibleAnswer, 2))))
	assert.Equal(
		t,
		map[string]int{"ms2": 1},
		changedSizes(rollout.Decide(required(possibleAnswer, 3))),
		"the surge machine",
	)

	other := required(possibleAnswer, 6)
	other.Sets = append(other.Sets, oldSet(0, 3, 3, 3))
	other.Sets[2].ClusterAPI.ExtensionAnswer = rollout.ExtensionAnswer{TargetSetUID: other.Sets[1].UID, Why: "too old"}
	assert.Empty(t, changedSizes(rollout.Decide(other)), "one set cannot be updated, so no set is")
}

// A rollout step that needs approval limits the number of machines that move.
func TestRolloutStepLimitsMovedMachines(t *testing.T) {
	o := withExtensionAnswer(
		possibleAnswer,
		rollingUpdateDeployment(
			6,
			1,
			0,
			transferringSet(oldSet(1, 5, 5, 5)),
			receivingSet(currentSet(2, 2, 2, 2), "ms1", ""),
		),
	)
	o.Steps = []rollout.Step{{Size: countValue(2), NeedsApproval: true}}
	d := rollout.Decide(o)
	assert.Equal(t, map[string]int{"ms1": 4}, changedSizes(d), "the surplus goes")
	assert.Equal(t, map[string]rollout.MachineTransfer{"ms1": {}, "ms2": {}}, transfersBySet(d))
}

// In Cluster API's in-place rollouts, all machines keep their names, except the machine that the surge machine
// replaces.
func TestInPlaceRolloutScenarios(t *testing.T) {
	for _, row := range []struct{ replicas, surge, unavailable, kept int }{
		{3, 1, 0, 2},
		{6, 1, 0, 5},
		{12, 1, 0, 11},
		{3, 0, 1, 3},
		{6, 0, 1, 6},
		{12, 0, 1, 12},
		{6, 3, 1, 6},
		{12, 3, 1, 12},
		{6, 1, 3, 6},
		{12, 1, 3, 12},
		{6, 10, 0, 5},
		{12, 0, 10, 12},
	} {
		for seed := range uint64(decidetest.RandomRunCount(40)) {
			spec := rollout.Facts{
				Settings: rollout.Settings{
					Replicas:       row.replicas,
					Strategy:       rollout.RollingUpdate,
					MaxSurge:       countValue(row.surge),
					MaxUnavailable: countValue(row.unavailable),
				},
				ClusterAPI: rollout.ClusterAPIDeployment{UsesExtension: true},
			}
			w := newSimulation(seed, spec)
			w.isClusterAPI, w.extensionAnswer = true, func() rollout.ExtensionAnswer { return possibleAnswer }
			w.rollOutFirstTemplate(t)
			before := map[string]bool{}
			for _, name := range w.machineNames() {
				before[name] = true
			}
			w.template = "v2"
			require.True(
				t,
				w.runUntilDone(seed > 0, 5000),
				"%v seed %d: does not end:%s; %s",
				row,
				seed,
				w.stateLine(),
				w.lastDecision.Why,
			)
			require.Empty(t, w.brokenInvariant, "%v seed %d", row, seed)
			kept := len(slices.DeleteFunc(w.machineNames(), func(name string) bool { return !before[name] }))
			require.Equal(t, row.kept, kept, "%v seed %d: %v", row, seed, w.turnTexts)
		}
	}
}

// machineNames returns the names of all machines.
func (w *rolloutSimulation) machineNames() (names []string) {
	for _, g := range w.sets {
		for _, u := range g.machines {
			names = append(names, u.Name)
		}
	}
	return names
}
