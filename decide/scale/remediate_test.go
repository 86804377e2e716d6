package scale_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/scale"
)

// markedMembers returns n marked machines, from the oldest to the youngest.
func markedMembers(n int, changes ...memberChange) []scale.Member {
	return runningMembers(n, append(changes, asUnhealthyMachine, asMarkedMachine)...)
}

func TestRemediation(t *testing.T) {
	limit := func(n int) func(*scale.Facts) {
		return func(o *scale.Facts) { o.Remediation.HasMaxInFlight, o.Remediation.MaxInFlight = true, n }
	}
	for _, row := range []struct {
		name    string
		members []scale.Member
		change  func(*scale.Facts)
		want    []string
		says    string
	}{
		{"unhealthy and marked", append(runningMembers(2), newMember("x", day, asUnhealthyMachine, asMarkedMachine)), nil, []string{"x"}, "* Machine x: Machine is deleting"},
		{"unhealthy and not marked is not for the set", runningMembers(1, asUnhealthyMachine), nil, nil, "Machine m-1 is not healthy (not to be remediated by MachineSet)"},
		{"marked and being deleted", markedMembers(1, asDeletingMachine), nil, nil, "* Machine m-1: Machine is deleting"},
		{"marked and preserved", markedMembers(1, asPreservedMachine), nil, nil, "Machine m-1 is not healthy (not to be remediated by MachineSet)"},
		{
			"preflight fails", markedMembers(2),
			func(o *scale.Facts) { o.Preflight = upgradingControlPlane() },
			nil, `* Machines m-1, m-2: ControlPlane cp is upgrading ("ControlPlaneIsStable" preflight check failed)`,
		},
		{
			"blocked, and a limit", markedMembers(3), func(o *scale.Facts) { limit(1)(o); o.MCM.Freeze.HasLabel = true }, nil,
			"* Machines m-1, m-2: Waiting because there are already too many remediations in progress (spec.strategy.remediation.maxInFlight is 1)\n* Machine m-3: MachineSet is frozen",
		},
		{"a frozen set makes no other", markedMembers(1), func(o *scale.Facts) { o.MCM.Freeze.HasLabel = true }, nil, "* Machine m-1: MachineSet is frozen"},
		{
			"a set of an old revision", markedMembers(2), func(o *scale.Facts) { o.Remediation.SetIsOutdated = true }, nil,
			"* Machines m-1, m-2: Machine won't be remediated because it is pending removal due to rollout",
		},
		{
			"an old set whose rollout stands still, and whose deployment has closed it", markedMembers(2),
			func(o *scale.Facts) { o.Remediation.SubstitutesElsewhere = noScaleUpReason },
			[]string{"m-2", "m-1"},
			"* Machines m-1, m-2: Machine is deleting",
		},
		{
			"but no set may create a machine", markedMembers(1),
			func(o *scale.Facts) {
				o.Remediation.SubstitutesElsewhere, o.Preflight = noScaleUpReason, upgradingControlPlane()
			},
			nil, `* Machine m-1: ControlPlane cp is upgrading ("ControlPlaneIsStable" preflight check failed)`,
		},
		{"the current one", markedMembers(2), nil, []string{"m-2", "m-1"}, "* Machines m-1, m-2: Machine is deleting"},
		{
			"3 of 8", markedMembers(8), limit(3),
			[]string{"m-8", "m-7", "m-6"},
			"* Machines m-1, m-2, m-3, ... (2 more): Waiting because there are already too many remediations in progress (spec.strategy.remediation.maxInFlight is 3)\n* Machines m-6, m-7, m-8: Machine is deleting",
		},
		{"the limit is a percentage", markedMembers(2), func(o *scale.Facts) {
			limit(0)(o)
			o.Remediation.MaxInFlightText = "10%"
		}, nil, "* Machines m-1, m-2: Waiting because there are already too many remediations in progress (spec.strategy.remediation.maxInFlight is 10%)"},
		{"the deployment is gone", markedMembers(2), func(o *scale.Facts) { o.Remediation.Blocker = "MachineDeployment shop/d does not exist" }, nil, "* Machines m-1, m-2: MachineDeployment shop/d does not exist"},
		{"while these are not gone none follows", append(markedMembers(5), markedMembers(8, asDeletingMachine)[5:]...), limit(3), nil, "* Machines m-1, m-2, m-3, ... (2 more): Waiting because there are already too many remediations in progress (spec.strategy.remediation.maxInFlight is 3)\n* Machines m-6, m-7, m-8: Machine is deleting"},
		{"then the next three", markedMembers(5), limit(3), []string{"m-5", "m-4", "m-3"}, ""},
		{"none at all", markedMembers(1), limit(0), nil, ""},
		{"the newest first", markedMembers(3), limit(1), []string{"m-3"}, ""},
		{"of the same age by name", []scale.Member{newMember("b", day, asUnhealthyMachine, asMarkedMachine), newMember("a", day, asUnhealthyMachine, asMarkedMachine)}, limit(1), []string{"a"}, ""},
		{"the one that a person asked for", append(markedMembers(3)[1:], newMember("m-1", 9*day, asUnhealthyMachine, asMarkedMachine, asMachineToReplaceFirst)), limit(1), []string{"m-1"}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := newSet(len(row.members), row.members...)
			for _, m := range row.members {
				if m.Deleting {
					o.Replicas--
				}
			}
			if row.change != nil {
				row.change(&o)
			}
			d := scale.Decide(o)
			assert.Equal(t, row.want, targetNames(d.Remediate))
			assert.Empty(t, d.Delete)
			if row.says != "" {
				assert.Equal(t, row.says, reportedCondition(t, o, "Remediating").Message)
			}
		})
	}
}

func TestAHealthyMachineLosesTheMark(t *testing.T) {
	d := scale.Decide(
		newSet(
			2,
			newMember("a", day, asMarkedMachine, asHealthyMachine),
			newMember("b", day, asMarkedMachine, asUnhealthyMachine),
		),
	)
	assert.Equal(t, []string{"a"}, targetNames(d.Unmark))
	assert.Empty(t, d.Remediate, "one thing after the other")
	assert.Empty(
		t,
		scale.Decide(newSet(0, newMember("a", day, asMarkedMachine, asHealthyMachine, asDeletingMachine))).Unmark,
	)
	assert.Empty(
		t,
		scale.Decide(newSet(1, newMember("a", day, asMarkedMachine, withUnknownHealth))).Unmark,
		"nobody says that it is healthy",
	)
}

// A class without usable machines is retried with a growing back-off.
func TestFailedGenerationsAreRetriedWithBackOff(t *testing.T) {
	last := epochPlus(-time.Hour)
	policy := scale.RemediationPolicy{RetryPolicy: scale.RetryPolicy{Backoff: 10 * time.Minute, MaxBackoff: 8 * time.Hour}}
	tried := func(failed int) scale.GenerationRecord { return scale.GenerationRecord{Failed: failed, Last: last} }
	young, older := newMember(
		"young",
		30*time.Minute,
		asNeverJoinedMachine,
	), newMember(
		"older",
		2*time.Hour,
		asNeverJoinedMachine,
	)
	for _, row := range []struct {
		name    string
		record  scale.GenerationRecord
		members []scale.Member
		want    []string
		next    *scale.GenerationRecord
		recheck time.Time
	}{
		{"the first goes at once", scale.GenerationRecord{}, []scale.Member{young}, []string{"young"}, &scale.GenerationRecord{Failed: 1, Last: epoch}, time.Time{}},
		{"the second after the pause, which is over", tried(1), []scale.Member{young}, []string{"young"}, &scale.GenerationRecord{Failed: 2, Last: epoch}, time.Time{}},
		{"the third after twice the pause, which is over", tried(2), []scale.Member{young}, []string{"young"}, &scale.GenerationRecord{Failed: 3, Last: epoch}, time.Time{}},
		{"the fifth waits", tried(4), []scale.Member{young}, nil, nil, last.Add(80 * time.Minute)},
		{"nobody waits for longer than the longest pause", tried(60), []scale.Member{young}, nil, nil, last.Add(8 * time.Hour)},
		{"one of a generation that was given up already goes, and is not counted again", tried(4), []scale.Member{older, young}, []string{"older"}, nil, last.Add(80 * time.Minute)},
		{"one that had joined goes", tried(4), []scale.Member{newMember("x", 30*time.Minute, asFailedMachine)}, []string{"x"}, &scale.GenerationRecord{}, time.Time{}},
		{"once a machine of a later generation has joined, all is forgotten", tried(4), []scale.Member{newMember("x", 30*time.Minute), young}, []string{"young"}, &scale.GenerationRecord{Failed: 1, Last: epoch}, time.Time{}},
		{"and the record is emptied, so that it stays forgotten", tried(4), []scale.Member{newMember("x", 30*time.Minute)}, nil, &scale.GenerationRecord{}, time.Time{}},
		{"one that joined and is gone soon is proof as well", tried(4), []scale.Member{newMember("x", 30*time.Minute, withDeletionDuration(time.Hour))}, nil, &scale.GenerationRecord{}, time.Time{}},
		{"one of an earlier generation is no proof", tried(4), []scale.Member{newMember("x", 2*time.Hour), young}, nil, nil, last.Add(80 * time.Minute)},
		{"marked machines wait as well", tried(4), []scale.Member{newMember("x", 30*time.Minute, asPendingMachine, asUnhealthyMachine, asMarkedMachine)}, nil, nil, last.Add(80 * time.Minute)},
		{"one that an operator wants replaced does not wait, and the count begins again", tried(4), []scale.Member{newMember("x", 30*time.Minute, asNeverJoinedMachine, asMachineToReplaceFirst)}, []string{"x"}, &scale.GenerationRecord{Failed: 1, Last: epoch}, time.Time{}},
		{"one that goes already wakes nobody", tried(4), []scale.Member{newMember("x", 30*time.Minute, asPendingMachine, asUnhealthyMachine, asMarkedMachine, withDeletionDuration(time.Hour))}, nil, nil, time.Time{}},
		{"clocks differ: one made in the seconds before counts as later", tried(4), []scale.Member{newMember("x", time.Hour+5*time.Second, asNeverJoinedMachine)}, nil, nil, last.Add(80 * time.Minute)},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := newSet(len(row.members), row.members...)
			o.Generations, o.Remediation = row.record, policy
			d := scale.Decide(o)
			assert.Equal(t, row.want, targetNames(d.Delete))
			assert.Equal(t, row.next, d.Generations)
			assert.Equal(t, row.recheck, d.Recheck)
			assert.Equal(t, !row.recheck.IsZero(), d.Hold != "")
		})
	}
	t.Run("one that fails within seconds is not held when its deletion is repeated", func(t *testing.T) {
		o := newSet(1, newMember("x", 5*time.Second, asNeverJoinedMachine))
		o.Remediation = policy
		o.Remediation.HasMaxRetry = true
		first := scale.Decide(o)
		assert.Equal(t, &scale.GenerationRecord{Failed: 1, Last: epochPlus(6 * time.Second)}, first.Generations)
		o.Generations = *first.Generations
		second := scale.Decide(o)
		assert.Equal(t, []string{"x"}, targetNames(second.Delete))
		assert.Nil(t, second.Generations)
		o.Members = []scale.Member{newMember("substitute", time.Second, asNeverJoinedMachine)}
		assert.Empty(t, scale.Decide(o).Delete, "it belongs to the next generation")
	})
	t.Run("without a back-off nothing is recorded", func(t *testing.T) {
		o := newSet(1, young)
		o.Generations = tried(4)
		d := scale.Decide(o)
		assert.Len(t, d.Delete, 1)
		assert.Nil(t, d.Generations)
	})
	t.Run("it says why", func(t *testing.T) {
		o := newSet(1, young)
		o.Generations, o.Remediation = tried(4), policy
		want := "Waiting until 00:20:00 UTC because 4 generations of machines failed in a row before they had joined"
		assert.Equal(t, want, scale.Decide(o).Hold)
		assert.Equal(t, "* Machine young: "+want, reportedCondition(t, o, "Remediating").Message)
		assert.Equal(t, scale.ConditionTrue, reportedCondition(t, o, "Remediating").Status)
		held := reportedCondition(t, o, "ReplacementHeld")
		assert.Equal(
			t,
			scale.Condition{
				Type:    "ReplacementHeld",
				Status:  scale.ConditionTrue,
				Reason:  "RemediationBackoff",
				Message: "Machine young: " + want,
			},
			held,
		)
	})
}

// 200 machines that fail together are one generation, although one batch deletes fewer machines.
func TestMachinesThatFailTogetherAreOneGeneration(t *testing.T) {
	o := newSet(200)
	o.Remediation = scale.RemediationPolicy{RetryPolicy: scale.RetryPolicy{Backoff: time.Minute}}
	for i := range 200 {
		o.Members = append(o.Members, newMember(fmt.Sprintf("m-%03d", i), time.Hour, asNeverJoinedMachine))
	}
	first := scale.Decide(o)
	assert.Len(t, first.Delete, scale.MaxBatchSize)
	assert.Equal(t, &scale.GenerationRecord{Failed: 1, Last: epoch}, first.Generations)
	o.Generations, o.Members = *first.Generations, o.Members[50:]
	second := scale.Decide(o)
	assert.Len(t, second.Delete, scale.MaxBatchSize)
	assert.Nil(t, second.Generations)
}

// After maxRetry retries the set replaces no machine, until a machine joins or an operator requests a replacement.
func TestRemediationStopsAfterTheLastRetry(t *testing.T) {
	last := epochPlus(-time.Hour)
	young := newMember("young", 30*time.Minute, asNeverJoinedMachine)
	older := newMember("older", 2*time.Hour, asNeverJoinedMachine)
	veteran := newMember("veteran", day, asFailedMachine)
	marked := newMember("marked", 30*time.Minute, asPendingMachine, asUnhealthyMachine, asMarkedMachine)
	const why = "Machine won't be remediated because 3 generations of machines failed in a row before they had joined (spec.remediation.maxRetry of the RolloutPolicy is 2); annotate a Machine with cluster.x-k8s.io/remediate-machine to try again"
	for _, row := range []struct {
		name    string
		failed  int
		members []scale.Member
		want    []string
		next    *scale.GenerationRecord
		held    string // message of the condition ReplacementHeld
	}{
		{"the first generation is no retry", 0, []scale.Member{young}, []string{"young"}, &scale.GenerationRecord{Failed: 1, Last: epoch}, ""},
		{"the last retry", 2, []scale.Member{young}, []string{"young"}, &scale.GenerationRecord{Failed: 3, Last: epoch}, ""},
		{"the retries are over", 3, []scale.Member{young}, nil, nil, "Machine young: " + why},
		{"a marked machine", 3, []scale.Member{marked}, nil, nil, "Machine marked: " + why},
		{"a machine that had joined stays, because its substitute would fail", 3, []scale.Member{veteran, young}, nil, nil, "Machines veteran, young: " + why},
		{"the rest of a recorded generation goes", 3, []scale.Member{older, young}, []string{"older"}, nil, "Machine young: " + why},
		{"without a grant of the deployment", 3, []scale.Member{newMember("x", 30*time.Minute, asNeverJoinedMachine, asUnreplaceableMachine)}, nil, nil, "Machine x: " + why},
		{"a preserved machine waits for nothing", 3, []scale.Member{newMember("x", 30*time.Minute, asNeverJoinedMachine, asPreservedMachine)}, nil, nil, ""},
		{"a machine has joined since", 3, []scale.Member{newMember("x", 30*time.Minute), young}, []string{"young"}, &scale.GenerationRecord{Failed: 1, Last: epoch}, ""},
		{"an operator asks for a failed one: the retries begin again", 3, []scale.Member{newMember("x", 30*time.Minute, asNeverJoinedMachine, asMachineToReplaceFirst), young}, []string{"x"}, &scale.GenerationRecord{Failed: 1, Last: epoch}, "Machine young: " + why},
		{"an operator asks for one that had joined: only this one goes", 3, []scale.Member{newMember("x", day, asUnhealthyMachine, asMarkedMachine, asMachineToReplaceFirst), young}, []string{"x"}, nil, "Machine young: " + why},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := newSet(len(row.members), row.members...)
			o.Generations = scale.GenerationRecord{Failed: row.failed, Last: last}
			o.Remediation.HasMaxRetry, o.Remediation.MaxRetry = true, 2
			d := scale.Decide(o)
			assert.Equal(t, row.want, targetNames(slices.Concat(d.Delete, d.Remediate)))
			assert.Equal(t, row.next, d.Generations)
			assert.Zero(t, d.Recheck, "no time ends the wait")
			held := conditionOfType(o, "ReplacementHeld")
			assert.Equal(t, row.held, held.Message)
			if row.held != "" {
				assert.Equal(t, "MaxRetryReached", held.Reason)
				assert.Contains(t, reportedCondition(t, o, "Remediating").Message, why)
			}
		})
	}
}

// conditionOfType returns a condition that the set reports only at times; zero if it does not report the condition.
func conditionOfType(o scale.Facts, kind string) scale.Condition {
	for _, c := range scale.PlanSet(o).Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return scale.Condition{}
}

// A deletion that is repeated does not change the record again. Otherwise a set whose deletions conflict with its own
// record would never delete.
func TestRepeatedDeletionsChangeTheRecordOnce(t *testing.T) {
	for _, urgent := range []bool{false, true} {
		for _, retries := range []int{0, 2} {
			young := newMember("young", 30*time.Minute, asNeverJoinedMachine)
			young.Urgent = urgent
			veteran := newMember("veteran", day, asUnhealthyMachine, asMarkedMachine, asMachineToReplaceFirst)
			o := newSet(2, young, veteran)
			o.Remediation.HasMaxRetry, o.Remediation.MaxRetry = true, retries
			first := scale.Decide(o)
			require.NotNil(t, first.Generations)
			o.Generations = *first.Generations
			second := scale.Decide(o)
			assert.Nil(t, second.Generations)
			assert.Equal(t, targetNames(first.Delete), targetNames(second.Delete))
		}
	}
}
