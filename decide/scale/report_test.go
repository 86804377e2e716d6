package scale_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/scale"
)

// reportedCondition returns the condition of the given type from PlanSet's status.
func reportedCondition(t *testing.T, o scale.Facts, kind string) scale.Condition {
	t.Helper()
	all := scale.PlanSet(o).Status.Conditions
	i := slices.IndexFunc(all, func(c scale.Condition) bool { return c.Type == kind })
	require.GreaterOrEqual(t, i, 0, kind)
	return all[i]
}

func hasCondition(o scale.Facts, kind string) bool {
	return slices.ContainsFunc(scale.PlanSet(o).Status.Conditions, func(c scale.Condition) bool { return c.Type == kind })
}

func TestMachineCounts(t *testing.T) {
	notReady := func(m *scale.Member) { m.Ready = scale.ConditionFalse }
	notReported := func(m *scale.Member) { m.Ready = "" }
	unknown := func(m *scale.Member) { m.Ready = scale.ConditionUnknown }
	outdated := func(m *scale.Member) { m.UpToDate = scale.ConditionFalse }
	untold := func(m *scale.Member) { m.UpToDate = "" }
	serves := func(m *scale.Member) { m.MCM.ServesWithoutNode = true }
	for _, row := range []struct {
		name    string
		members []scale.Member
		want    scale.MachineCounts
	}{
		{"no machines", nil, scale.MachineCounts{}},
		{
			"ready ones only",
			[]scale.Member{newMember("a", day, outdated), newMember("b", day, outdated, notReady), newMember("c", day, outdated, unknown), newMember("d", day, outdated, notReported)},
			scale.MachineCounts{Replicas: 4, Labelled: 4, Ready: 1, Available: 1},
		},
		{
			"available ones only",
			[]scale.Member{newMember("a", day, outdated, asPendingMachine, serves), newMember("b", day, outdated, notReady), newMember("c", day, outdated, unknown)},
			scale.MachineCounts{Replicas: 3, Labelled: 3, Available: 1},
		},
		{
			"up-to-date ones only",
			[]scale.Member{newMember("a", day, notReady), newMember("b", day, notReady, outdated), newMember("c", day, notReady, untold)},
			scale.MachineCounts{Replicas: 3, Labelled: 3, UpToDate: 1},
		},
		{"all together", runningMembers(1), scale.MachineCounts{Replicas: 1, Labelled: 1, Ready: 1, Available: 1, UpToDate: 1}},
		{"under update in place", append(runningMembers(1), newMember("u", day, asUpdatingMachine)), scale.MachineCounts{Replicas: 2, Labelled: 2, Ready: 1, Available: 1, UpToDate: 1}},
		{"one that is being deleted is a replica and no more", runningMembers(1, asDeletingMachine), scale.MachineCounts{Replicas: 1, Labelled: 1}},
		{"labels of the template are counted by themselves", runningMembers(2, func(m *scale.Member) { m.MCM.Labelled = false }), scale.MachineCounts{Replicas: 2, Ready: 2, Available: 2, UpToDate: 2}},
		{"failed and preserved", append(runningMembers(1, asFailedMachine, asPreservedMachine), newMember("x", day, asFailedMachine)), scale.MachineCounts{Replicas: 2, Labelled: 2, UpToDate: 2, PreservedFailed: 1}},
		{"and kept by the set", append(runningMembers(1, asFailedMachine, asAutoPreservedMachine), newMember("x", day, asPreservedMachine)), scale.MachineCounts{Replicas: 2, Labelled: 2, Ready: 1, Available: 1, UpToDate: 2, PreservedFailed: 1, AutoPreserved: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, &row.want, scale.PlanSet(newSet(1, row.members...)).Status.Counts)
		})
	}
}

func TestAMachineIsAvailableAfterMinReadySeconds(t *testing.T) {
	readyFor := func(d time.Duration) memberChange { return func(m *scale.Member) { m.ReadySince = epochPlus(-d) } }
	for _, row := range []struct {
		name      string
		least     time.Duration
		members   []scale.Member
		available int
		recheck   time.Time
	}{
		{"ready is available when nothing else is asked for", 0, []scale.Member{newMember("a", day, readyFor(0))}, 1, time.Time{}},
		{"not ready for long enough", time.Minute, []scale.Member{newMember("a", day, readyFor(59*time.Second))}, 0, epochPlus(time.Second)},
		{"to the second", time.Minute, []scale.Member{newMember("a", day, readyFor(time.Minute))}, 1, time.Time{}},
		{"the first of them wakes the set", time.Minute, []scale.Member{newMember("a", day, readyFor(10*time.Second)), newMember("b", day, readyFor(40*time.Second)), newMember("c", day)}, 1, epochPlus(20 * time.Second)},
		{"one that is not ready wakes nobody", time.Minute, []scale.Member{newMember("a", day, withUnhealthyNode, readyFor(0))}, 0, time.Time{}},
		{"nor does one that is being deleted for long", time.Minute, []scale.Member{newMember("a", day, withDeletionDuration(time.Hour), readyFor(0))}, 0, time.Time{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := newSet(len(row.members), row.members...)
			for _, m := range o.Members {
				if m.Deleting {
					o.Replicas--
				}
			}
			o.MinReadyDuration = row.least
			assert.Equal(t, row.available, scale.PlanSet(o).Status.Counts.Available)
			d := scale.Decide(o)
			assert.True(t, isIdleDecision(d))
			assert.Equal(t, row.recheck, d.Recheck)
		})
	}
}

func TestAStatusThatChangesWithTheClockIsRechecked(t *testing.T) {
	o := newSet(
		1,
		newMember("a", 4*time.Second, func(m *scale.Member) { m.UpToDate = "" }),
		newMember("z", day, withDeletionDuration(10*time.Minute)),
	)
	assert.Equal(
		t,
		epochPlus(6*time.Second),
		scale.Decide(o).Recheck,
		"until then nobody wonders whether it is up to date",
	)
	o.Now = epochPlus(6 * time.Second)
	assert.Equal(t, epochPlus(5*time.Minute), scale.Decide(o).Recheck, "then its deletion lasts long")
	o.Now = epochPlus(5 * time.Minute)
	assert.True(t, scale.Decide(o).Recheck.IsZero())
}

func TestOvershoot(t *testing.T) {
	for _, row := range []struct {
		name         string
		peak, wanted int
		members      []scale.Member
		next, beyond int
	}{
		{"an ordinary scale-down is none", 6, 2, runningMembers(6), 6, 0},
		{"nor is it while machines go", 6, 2, append(runningMembers(3), markedMembers(6, asDeletingMachine)[3:]...), 6, 0},
		{"when it is done, a smaller number is the peak", 6, 2, runningMembers(2), 2, 0},
		{"a larger size raises it", 2, 6, runningMembers(2), 6, 0},
		{"two more than were ever wanted", 6, 6, runningMembers(8), 6, 2},
		{"and while they go", 6, 6, append(runningMembers(7), newMember("z", 0, asDeletingMachine)), 6, 1},
		{"a smaller size meanwhile makes it no smaller", 6, 3, runningMembers(8), 6, 2},
		{"machines that an update handed over are no overshoot", 2, 2, append(runningMembers(2), newMember("u", 0, asMovedMachine)), 2, 0},
		{"a set that is seen for the first time", 0, 3, runningMembers(3), 3, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := newSet(row.wanted, row.members...)
			o.ReportedStatus.PeakReplicas = row.peak
			s := scale.PlanSet(o).Status
			assert.Equal(t, row.next, s.PeakReplicas)
			assert.Equal(t, row.beyond, s.Overshoot)
			assert.Equal(t, row.beyond > 0, hasCondition(o, "Overshoot"))
			assert.False(t, hasCondition(o, "Frozen"))
			o.ReportedStatus.PeakReplicas = s.PeakReplicas
			assert.Equal(t, s, scale.PlanSet(o).Status, "said once, it stays so")
		})
	}
	t.Run("it is told, and what is too much goes", func(t *testing.T) {
		o := newSet(6, runningMembers(8)...)
		o.ReportedStatus.PeakReplicas = 6
		c := reportedCondition(t, o, "Overshoot")
		assert.Equal(
			t,
			scale.Condition{
				Type:    "Overshoot",
				Status:  scale.ConditionTrue,
				Reason:  "OverShootingReplicaCount",
				Message: "2 machines more than the 6 wanted at most; the surplus is deleted",
			},
			c,
		)
		assert.Len(t, scale.Decide(o).Delete, 2)
	})
	t.Run("a set that goes overshoots nothing", func(t *testing.T) {
		o := newSet(0, runningMembers(3)...)
		o.Deleting = true
		assert.False(t, hasCondition(o, "Overshoot"))
	})
}

func TestOptionalConditions(t *testing.T) {
	blocked := func(reason, message string) memberChange {
		return func(m *scale.Member) {
			asMachineWithFailingCreation(m)
			m.MCM.CreationProblem = scale.Problem{Reason: reason, Message: message}
		}
	}
	t.Run("none", func(t *testing.T) {
		assert.Len(t, scale.PlanSet(newSet(1, runningMembers(1)...)).Status.Conditions, 8)
	})
	t.Run("frozen", func(t *testing.T) {
		o := newSet(1)
		o.MCM.Freeze.HasLabel = true
		assert.Equal(t, "FreezeLabel", reportedCondition(t, o, "Frozen").Reason)
	})
	t.Run("no instance", func(t *testing.T) {
		o := newSet(
			3,
			newMember("b", 0, blocked("ResourceExhausted", "no capacity")),
			newMember("c", 0, blocked("Internal", "oops")),
			newMember("a", 0, blocked("ResourceExhausted", "zone is full")),
		)
		c := reportedCondition(t, o, "ReplicaFailure")
		assert.Equal(t, "ResourceExhausted", c.Reason)
		assert.Equal(t, "machines get no instance; machine a: zone is full", c.Message)
		o.Members = o.Members[1:2]
		assert.Equal(t, "machines get no instance; machine c: oops", reportedCondition(t, o, "ReplicaFailure").Message)
	})
	t.Run("machines cannot be made, or not be deleted", func(t *testing.T) {
		o := newSet(1, newMember("a", 0, blocked("Internal", "oops")))
		o.LastWriteFailure = scale.WriteFailure{Message: "create machine s-x: quota"}
		assert.Equal(
			t,
			scale.Condition{
				Type:    "ReplicaFailure",
				Status:  scale.ConditionTrue,
				Reason:  "FailedCreate",
				Message: "create machine s-x: quota",
			},
			reportedCondition(t, o, "ReplicaFailure"),
		)
		o.LastWriteFailure.Deleting = true
		assert.Equal(t, "FailedDelete", reportedCondition(t, o, "ReplicaFailure").Reason)
	})
}
