package scale_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/scale"
)

const substituteWait = "Waiting until its substitute is available (spec.remediation.maxSurge of the RolloutPolicy is 1)"

// With maxSurge, a member that needs a replacement is deleted only after its substitute is available.
func TestSubstituteFirst(t *testing.T) {
	sick := newMember("sick", 9*day, asUnhealthyMachine, asMarkedMachine)
	failed := newMember("failed", 9*day, asFailedMachine)
	well := runningMembers(2)
	fresh := newMember("fresh", time.Minute, asPendingMachine)
	substitute := newMember("substitute", time.Hour)
	failedSubstitute := newMember("fresh", time.Minute, asNeverJoinedMachine, asUnreplaceableMachine)
	with := func(members ...scale.Member) []scale.Member { return slices.Concat(well, members) }
	type change = func(*scale.Facts)
	for _, row := range []struct {
		name    string
		members []scale.Member
		change  change
		create  int
		delete  []string
		says    string // message of the condition Remediating
	}{
		{"the substitute comes first", with(sick), nil, 1, nil, "* Machine sick: " + substituteWait},
		{"also for a failed machine that had joined", with(failed), nil, 1, nil, "* Machine failed: " + substituteWait},
		{"a machine that never joined serves nothing", with(newMember("x", day, asPendingMachine, asUnhealthyMachine, asMarkedMachine)), nil, 0, []string{"x"}, ""},
		{"the substitute is not available yet", with(sick, fresh), nil, 0, nil, "* Machine sick: " + substituteWait},
		{"not before minReadySeconds", with(sick, substitute), func(o *scale.Facts) { o.MinReadyDuration = 2 * time.Hour }, 0, nil, "* Machine sick: " + substituteWait},
		{"the substitute is available", with(sick, substitute), nil, 0, []string{"sick"}, ""},
		{"for a failed machine, too", with(failed, substitute), nil, 0, []string{"failed"}, ""},
		{"another machine is not available", with(sick, substitute)[1:], func(o *scale.Facts) { o.Members = append(o.Members, fresh) }, 0, nil, "* Machine sick: " + substituteWait},
		{"one of two at a time", with(sick, newMember("sicker", 8*day, asUnhealthyMachine, asMarkedMachine), substitute), func(o *scale.Facts) { o.Replicas = 4 }, 0, []string{"sicker"}, "* Machine sick: " + substituteWait + "\n* Machine sicker: Machine is deleting"},
		{"two of two", with(sick, newMember("sicker", 8*day, asUnhealthyMachine, asMarkedMachine)), func(o *scale.Facts) { o.Replicas, o.Remediation.MaxSurge = 4, 2 }, 2, nil, ""},
		{
			"maxInFlight is smaller", with(sick, newMember("sicker", 8*day, asUnhealthyMachine, asMarkedMachine)),
			func(o *scale.Facts) {
				o.Replicas, o.Remediation.MaxSurge, o.Remediation.HasMaxInFlight, o.Remediation.MaxInFlight = 4, 2, true, 1
			},
			1, nil, "",
		},
		{"the machine recovers: the substitute is too many", with(newMember("sick", 9*day), fresh), nil, 0, []string{"fresh"}, ""},
		{"the set gets smaller: the marked machine is too many", with(sick, fresh), func(o *scale.Facts) { o.Replicas = 2 }, 0, []string{"sick"}, ""},
		{"the substitute fails: it goes, and the machine stays", with(sick, failedSubstitute), nil, 0, []string{"fresh"}, ""},
		{
			"the last retry has failed: both stay, and the substitute is too many", with(sick, failedSubstitute),
			func(o *scale.Facts) {
				o.Remediation.HasMaxRetry, o.Generations = true, scale.GenerationRecord{Failed: 1, Last: epochPlus(-time.Hour)}
			},
			0,
			[]string{"fresh"},
			"",
		},
		{
			"the substitute waits for the back-off", with(sick, failedSubstitute),
			func(o *scale.Facts) {
				o.Remediation.Backoff, o.Generations = 2*time.Hour, scale.GenerationRecord{Failed: 1, Last: epochPlus(-time.Hour)}
			},
			0, nil, "",
		},
		{"no machine may be created", with(sick), func(o *scale.Facts) { o.Preflight = upgradingControlPlane() }, 0, nil, ""},
		{"no machine may be created, and the substitute is there", with(sick, fresh), func(o *scale.Facts) { o.Preflight = upgradingControlPlane() }, 0, nil, ""},
		{"another set creates the substitutes", with(sick), func(o *scale.Facts) { o.Remediation.SubstitutesElsewhere = noScaleUpReason }, 0, []string{"sick"}, ""},
		{"an old set", with(sick), func(o *scale.Facts) { o.Remediation.SetIsOutdated = true }, 0, nil, ""},
		{"without maxSurge", with(sick), func(o *scale.Facts) { o.Remediation.MaxSurge = 0 }, 0, []string{"sick"}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := newSet(3, row.members...)
			o.Remediation.MaxSurge = 1
			o.ReportedStatus.PeakReplicas = len(row.members)
			if row.change != nil {
				row.change(&o)
			}
			d := scale.Decide(o)
			assert.Len(t, d.Create, row.create)
			assert.Equal(t, row.delete, targetNames(slices.Concat(d.Delete, d.Remediate)))
			if row.says != "" {
				assert.Equal(t, row.says, reportedCondition(t, o, "Remediating").Message)
			}
			assert.Empty(t, conditionOfType(o, "Overshoot"), "a substitute is wanted")
		})
	}
}

// A substitute is no surplus of the set, and the size of the spec stays the size that the set has acted on.
func TestStatusWithASubstitute(t *testing.T) {
	o := newSet(
		3,
		append(
			runningMembers(2),
			newMember("sick", 9*day, asUnhealthyMachine, asMarkedMachine),
			newMember("fresh", time.Minute, asPendingMachine),
		)...)
	o.Remediation.MaxSurge = 1
	status := scale.PlanSet(o).Status
	assert.Equal(t, 3, status.ObservedReplicas)
	assert.Zero(t, status.Overshoot)
	assert.Equal(t, scale.ConditionFalse, reportedCondition(t, o, "ScalingDown").Status)
	assert.Equal(
		t,
		"Scaling up to 4 replicas: waiting for 1 machine to become ready",
		reportedCondition(t, o, "ScalingUp").Message,
	)
}
