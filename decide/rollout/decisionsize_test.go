package rollout_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/rollout"
	"millwright/decide/rollout/simulate"
)

// longName returns a name of the given length in bytes, with the given suffix.
func longName(length int, suffix string) string {
	return strings.Repeat("n", length-len(suffix)) + suffix
}

// hugeDeployment returns a deployment of 200 sets. Each set has `each` machines, and all names have `name` bytes. The
// last set is the current set. All taints, annotations and in-place labels need changes, and so do the names in the
// cluster autoscaler's annotation.
func hugeDeployment(strategy rollout.Strategy, each, name int) rollout.Facts {
	o := rollout.Facts{
		Now: epoch,
		Settings: rollout.Settings{
			Replicas:       200 * each,
			Strategy:       strategy,
			MaxSurge:       percentValue(10),
			MaxUnavailable: percentValue(10),
			HistoryLimit:   new(3),
			Steps:          []rollout.Step{{Size: percentValue(50)}},
			RollbackPolicy: rollout.AutoRollback{HasMaxFailed: true, MaxFailed: 4000},
		},
		MCM: rollout.MCMDeployment{ProtectsNodesFromAutoscaler: true},
	}
	var named []string
	for n := range 200 {
		s := oldSet(n+1, each, each, each*4/5)
		s.Name, s.UID = longName(name, fmt.Sprint("-", n)), fmt.Sprintf("0d9ad1a5-2f8e-4b7a-9a0e-%012d", n)
		s.ScaleUpDisabled = n%2 == 0
		for i := range s.Machines {
			m := &s.Machines[i]
			m.Name = longName(name, fmt.Sprintf("-%d-%d", n, i))
			m.UID = fmt.Sprintf("1d9ad1a5-2f8e-4b7a-%04d-%012d", n, i)
			m.Version = "123456789"
			m.MCM.NodeName, m.MCM.NodeTainted = m.Name, n == 199
			switch i % 5 {
			case 0:
				named = append(named, m.Name)
			case 1:
				asChosenMachine(m)
			case 2:
				named = append(named, longName(name, fmt.Sprintf("-gone-%d-%d", n, i)))
			case 3:
				m.MCM.HasUpdateLabels = true
			}
		}
		o.Sets = append(o.Sets, s)
	}
	last := &o.Sets[199]
	last.Current, last.MCM.Frozen = true, true
	for i := range last.Machines {
		asFailedMachine(&last.Machines[i])
	}
	o.MCM.TriggerAnnotation = strings.Join(named, ",") // the annotation in the old form, without times
	return o
}

func countEntries(d rollout.Decision) int {
	n := len(d.Mark) + len(d.Unmark) + len(d.AllowScaleUp) + len(d.ForbidScaleUp) + len(d.Sync) + len(d.Resize) +
		len(d.Move) + len(d.ClearUpdateResult) + len(d.FinishUpdate) + len(d.ClearUpdateLabels) + len(d.Candidates) +
		len(d.Select) + len(d.Taint) + len(d.Untaint) + len(d.ProtectFromAutoscaler) + len(d.UnprotectFromAutoscaler) +
		len(d.Delete)
	if d.Record != nil {
		n += len(d.Record.Failed)
	}
	if d.Trigger != nil {
		n += len(d.Trigger.Drop)
	}
	return n
}

// A decision takes at most 16 KiB in a history, whatever the number of machines is. The 16 KiB also include a second
// copy of Why and an overview of ten sets.
func requireBoundedLists(t *testing.T, d rollout.Decision) {
	t.Helper()
	text, err := json.Marshal(d)
	require.NoError(t, err)
	require.Less(t, len(text), 12<<10, "%s", text)
	require.LessOrEqual(t, countEntries(d), rollout.MaxBatchSize, "%s", text)
	require.LessOrEqual(t, len(d.Why), rollout.MaxSentenceBytes+300)
}

// Entries that do not fit into a decision are in the next decision. A rollout of 5000 machines in 200 sets becomes
// complete.
func TestAHugeRolloutEndsWithBoundedDecisions(t *testing.T) {
	for strategy, each := range map[rollout.Strategy]int{
		// an in-place update has nine steps per machine
		rollout.RollingUpdate: 25, rollout.Recreate: 25, rollout.InPlaceAuto: 5,
	} {
		if testing.Short() {
			each = 5 // even 1000 machines need several decisions
		}
		t.Run(string(strategy), func(t *testing.T) {
			decided := func(d rollout.Decision, _ rollout.Facts) { requireBoundedLists(t, d) }
			_, ends := simulate.Run(hugeDeployment(strategy, each, 63), time.Nanosecond, time.Nanosecond, 1000, decided)
			require.True(t, ends)
		})
	}
}

// Names of 253 bytes fit into a decision.
func TestADecisionWithLongNamesHasFewerEntries(t *testing.T) {
	for _, strategy := range []rollout.Strategy{rollout.RollingUpdate, rollout.InPlaceAuto} {
		o := hugeDeployment(strategy, 25, 253)
		steps := 0
		simulate.Run(o, time.Nanosecond, time.Nanosecond, 60, func(d rollout.Decision, _ rollout.Facts) {
			requireBoundedLists(t, d)
			if d.HasActions() {
				assert.Positive(t, countEntries(d))
			}
			steps++
		})
		assert.Equal(t, 60, steps)
	}
}

// Sets that get the label scale-up-disabled are split into batches.
func TestScaleUpOfManySetsIsDisabledInBatches(t *testing.T) {
	o := hugeDeployment(rollout.OnDelete, 25, 253)
	o.MCM.TriggerAnnotation = ""
	for i := range o.Sets {
		for j := range o.Sets[i].Machines {
			o.Sets[i].Machines[j].MCM.MarkedAt = ""
		}
		o.Sets[i].ScaleUpDisabled = false
	}
	d := rollout.Decide(o)
	requireBoundedLists(t, d)
	assert.NotEmpty(t, d.ForbidScaleUp)
}

func TestADeploymentOfManySetsIsTornDownInBatches(t *testing.T) {
	o := hugeDeployment(rollout.RollingUpdate, 25, 253)
	o.Deleting = true
	steps := 0
	for done := false; !done; steps++ {
		require.Less(t, steps, 50)
		d := rollout.Decide(o)
		requireBoundedLists(t, d)
		require.True(t, d.Done || len(d.Delete) > 0)
		done = d.Done
		o.Sets = o.Sets[len(d.Delete):] // the oldest sets are deleted first
	}
}

// Texts that people wrote are cut to the bound of a decision.
func TestADecisionCutsLongReasons(t *testing.T) {
	endless := strings.Repeat("because ", 10000)
	held := rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3), currentSet(2, 0, 0, 0))
	held.HoldReason = endless
	wrong := rollingUpdateDeployment(3, 1, 0)
	wrong.InvalidReason = endless
	for _, o := range []rollout.Facts{held, wrong} {
		requireBoundedLists(t, rollout.Decide(o))
	}
}

// Failed machines are recorded in batches. No failed machine is lost or counted twice.
func TestManyFailedMachinesAreRecordedInBatches(t *testing.T) {
	o := rollingUpdateDeployment(200, 1, 0, withAllMachinesChanged(currentSet(1, 200, 200, 0), asFailedMachine))
	o.RollbackPolicy = rollout.AutoRollback{HasMaxFailed: true, MaxFailed: 500}
	o.Progress.Completed = time.Time{}
	for _, want := range []int{50, 100, 150, 200} {
		d := rollout.Decide(o)
		require.NotNil(t, d.Record)
		o.Progress = o.Progress.MergedWith(*d.Record)
		require.Equal(t, o.Progress, o.Progress.MergedWith(*d.Record), "twice is once")
		require.Len(t, o.Progress.Failed, want)
	}
	require.Nil(t, rollout.Decide(o).Record)
	o.RollbackPolicy = rollout.AutoRollback{}
	require.Nil(t, rollout.Decide(o).Record, "what is on record stays")
}

// A simulated plan includes the steps that follow when the cluster autoscaler chooses machines for deletion.
func TestPredictedStepsMarkMachinesChosenByTheAutoscaler(t *testing.T) {
	o := rollingUpdateDeployment(2, 1, 0, currentSet(1, 3, 3, 3))
	o.MCM.TriggerAnnotation = "ms1-00~2026-01-01T10:00:00Z,gone~2026-01-01T10:00:00Z"
	plan := simulate.PredictSteps(o)
	require.NotEmpty(t, plan)
	assert.Equal(t, []simulate.PredictedSetSize{{Set: "ms1", Replicas: 2, Current: true}}, plan[len(plan)-1].Sizes)
	took, ends := simulate.IdealDuration(o, time.Second, time.Second)
	assert.True(t, ends)
	assert.Equal(t, time.Second, took)
}
