package scale_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/phrase"
	"millwright/decide/scale"
)

// StopReasons contains the reasons why a Cluster API set creates no machine, except missing templates and the control
// plane.
func TestStopReasonsPreventCreations(t *testing.T) {
	const why = "Cluster c does not exist"
	stop := func(o *scale.Facts) { o.StopReasons = []string{why} }
	t.Run("a missing machine waits", func(t *testing.T) {
		o := withChange(newSet(3, runningMembers(1)...), stop)
		d := scale.Decide(o)
		assert.True(t, isIdleDecision(d))
		assert.Equal(t, "3 wanted, 1 there; none is created: "+why, d.Hold)
		assert.Equal(
			t,
			scale.Condition{Type: "MachinesCreated", Status: scale.ConditionFalse, Reason: "ScaleUpStopped", Message: why},
			reportedCondition(t, o, "MachinesCreated"),
		)
		assert.Equal(
			t,
			"Scaling up from 1 to 3 replicas is blocked because:\n* "+why,
			reportedCondition(t, o, "ScalingUp").Message,
		)
	})
	t.Run("it comes after the missing templates", func(t *testing.T) {
		o := withChange(newSet(1), func(o *scale.Facts) { stop(o); o.MissingObjectKinds = []string{"DockerMachineTemplate"} })
		assert.Equal(
			t,
			"1 wanted, 0 there; none is created: DockerMachineTemplate does not exist; "+why,
			scale.Decide(o).Hold,
		)
		assert.Equal(t, "TemplateNotFound", reportedCondition(t, o, "MachinesCreated").Reason)
	})
	t.Run("surplus machines are deleted", func(t *testing.T) {
		assert.Len(t, scale.Decide(withChange(newSet(1, runningMembers(3)...), stop)).Delete, 2)
	})
	t.Run("marked machines stay, because the set could not replace them", func(t *testing.T) {
		o := withChange(newSet(1, markedMembers(1)...), stop)
		assert.True(t, isIdleDecision(scale.Decide(o)))
		assert.Equal(t, "* Machine m-1: "+why, reportedCondition(t, o, "Remediating").Message)
	})
	t.Run("a complete set waits for nothing", func(t *testing.T) {
		o := withChange(newSet(1, runningMembers(1)...), stop)
		assert.Empty(t, scale.Decide(o).Hold)
		assert.Equal(t, scale.ConditionTrue, reportedCondition(t, o, "MachinesCreated").Status)
	})
}

func TestAPausedClusterPausesTheSet(t *testing.T) {
	const why = "Cluster spec.paused is set to true"
	pause := func(o *scale.Facts) { o.PauseSentences = []string{"Cluster spec.paused is set to true"} }
	o := withChange(newSet(3, runningMembers(1)...), pause)
	assert.True(t, isIdleDecision(scale.Decide(o)))
	assert.Equal(t, why, scale.Decide(o).Hold)
	assert.Equal(
		t,
		scale.Condition{Type: "Paused", Status: scale.ConditionTrue, Reason: "Paused", Message: why},
		reportedCondition(t, o, "Paused"),
	)
	assert.True(
		t,
		isIdleDecision(
			scale.Decide(withChange(newSet(0, runningMembers(2)...), func(o *scale.Facts) { pause(o); o.Deleting = true })),
		),
		"a deletion waits as well",
	)
	both := withChange(
		o,
		func(o *scale.Facts) { o.PauseSentences = append(o.PauseSentences, phrase.PausedSentence("MachineSet")) },
	)
	assert.Equal(
		t,
		why+", MachineSet has the cluster.x-k8s.io/paused annotation",
		reportedCondition(t, both, "Paused").Message,
		"the Cluster first, as in Cluster API",
	)
	assert.Equal(t, scale.ConditionFalse, reportedCondition(t, newSet(1), "Paused").Status)
}

const randomSuffixPattern = "[bcdfghjklmnpqrstvwxz2456789]{5}"

// setWithNamingTemplate returns a set with a template for machine names. "*" separates the parts of the template.
func setWithNamingTemplate(template string, n int) scale.Facts {
	o := newSet(n)
	o.NameParts = strings.Split(template, "*")
	return o
}

func TestMachineNamesFollowTheNamingTemplate(t *testing.T) {
	for _, row := range []struct{ name, template, want string }{
		{"at the end", "c-pool-*", "^c-pool-" + randomSuffixPattern + "$"},
		{"in the middle", "c-*-pool", "^c-" + randomSuffixPattern + "-pool$"},
		{"at the start", "*-pool", "^" + randomSuffixPattern + "-pool$"},
		{"nothing else", "*", "^" + randomSuffixPattern + "$"},
		{"one part: at the end", "c-pool-", "^c-pool-" + randomSuffixPattern + "$"},
		{"no part", "", "^" + randomSuffixPattern + "$"},
	} {
		t.Run(row.name, func(t *testing.T) {
			created := scale.Decide(setWithNamingTemplate(row.template, 30)).Create
			require.Len(t, created, 30)
			seen := map[string]bool{}
			for _, name := range created {
				assert.Regexp(t, row.want, name)
				assert.False(t, seen[name], "%s twice", name)
				seen[name] = true
			}
		})
	}
	t.Run("the random characters of all places are the same", func(t *testing.T) {
		name := scale.Decide(setWithNamingTemplate("*-x-*", 1)).Create[0]
		first, second, found := strings.Cut(name, "-x-")
		require.True(t, found)
		assert.Regexp(t, "^"+randomSuffixPattern+"$", first)
		assert.Equal(t, first, second)
	})
	t.Run("a name that is taken is not used again", func(t *testing.T) {
		o := setWithNamingTemplate("c-*-x", 2)
		taken := scale.Decide(o).Create
		o.Members = []scale.Member{newMember(taken[0], 0)}
		o.Orphans = []scale.Orphan{{Name: taken[1]}}
		created := scale.Decide(o).Create
		require.Len(t, created, 1)
		assert.NotContains(t, taken, created[0])
	})
}

func TestLongNamesEndWithRandomCharacters(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	for _, row := range []struct {
		name, template, want string
	}{
		{"as long as a name may be", x(29) + "*" + x(29), "^" + x(29) + randomSuffixPattern + x(29) + "$"},
		{"one character more", x(29) + "*" + x(30), "^" + x(29) + randomSuffixPattern + x(24) + randomSuffixPattern + "$"},
		{"the place of the random characters is cut off", x(70) + "*", "^" + x(58) + randomSuffixPattern + "$"},
		{"a long end", "*" + x(70), "^" + randomSuffixPattern + x(53) + randomSuffixPattern + "$"},
	} {
		t.Run(row.name, func(t *testing.T) {
			created := scale.Decide(setWithNamingTemplate(row.template, 2)).Create
			for _, name := range created {
				assert.Regexp(t, row.want, name)
				assert.Len(t, name, 63)
			}
			assert.NotEqual(t, created[0], created[1])
		})
	}
}

func TestReasonsWhyMarkedMachinesStay(t *testing.T) {
	limit := func(n int) func(*scale.Facts) {
		return func(o *scale.Facts) { o.Remediation.HasMaxInFlight, o.Remediation.MaxInFlight = true, n }
	}
	const tooMany = "Waiting because there are already too many remediations in progress (spec.strategy.remediation.maxInFlight is 1)"
	for _, row := range []struct {
		name     string
		o        scale.Facts
		want     map[string]string // reasons by machine name
		outdated bool
	}{
		{"none waits", newSet(2, markedMembers(2)...), nil, false},
		{"one that the health check did not mark", newSet(1, runningMembers(1, asUnhealthyMachine)...), nil, false},
		{"one that is healthy again", newSet(1, runningMembers(1, asMarkedMachine, asHealthyMachine)...), nil, false},
		{
			"preflight fails", withChange(newSet(2, markedMembers(2)...), func(o *scale.Facts) { o.Preflight = upgradingControlPlane() }),
			map[string]string{
				"m-1": `ControlPlane cp is upgrading ("ControlPlaneIsStable" preflight check failed)`,
				"m-2": `ControlPlane cp is upgrading ("ControlPlaneIsStable" preflight check failed)`,
			},
			false,
		},
		{
			"a template is missing", withChange(newSet(1, markedMembers(1)...), func(o *scale.Facts) { o.MissingObjectKinds = []string{"DockerMachineTemplate"} }),
			map[string]string{"m-1": "DockerMachineTemplate does not exist"},
			false,
		},
		{
			"a set of an old revision", withChange(newSet(1, markedMembers(1)...), func(o *scale.Facts) { o.Remediation.SetIsOutdated = true }),
			map[string]string{"m-1": "Machine won't be remediated because it is pending removal due to rollout"},
			true,
		},
		{"an old revision without a marked machine", withChange(newSet(1, runningMembers(1)...), func(o *scale.Facts) { o.Remediation.SetIsOutdated = true }), nil, true},
		{"one at a time, the newest first", withChange(newSet(3, markedMembers(3)...), limit(1)), map[string]string{"m-1": tooMany, "m-2": tooMany}, false},
		{"one that is being deleted takes the place", withChange(newSet(1, append(markedMembers(1), newMember("x", day, asUnhealthyMachine, asMarkedMachine, asDeletingMachine))...), limit(1)), map[string]string{"m-1": tooMany}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			plan := scale.PlanSet(row.o)
			members, outdated := plan.PostponedMembers, plan.SetIsOutdated
			assert.Equal(t, row.outdated, outdated)
			got := map[string]string{}
			for _, m := range members {
				got[m.Name] = m.Why
				assert.Equal(
					t,
					scale.MachineTarget{Name: m.Name, UID: "uid-" + m.Name, Version: "7", Why: m.Why},
					m,
					"the machine as it was read",
				)
			}
			assert.Len(t, members, len(row.want))
			for name, why := range row.want {
				assert.Equal(t, why, got[name], name)
			}
			for _, target := range scale.Decide(row.o).Remediate {
				assert.NotContains(t, got, target.Name, "one that is replaced now does not wait")
			}
		})
	}
}

// The conditions Reconciling and Stalled tell tools such as kstatus whether the machines of a set match the spec.
func TestReconcilingAndStalledOfAClusterAPISet(t *testing.T) {
	unready := func(m *scale.Member) { m.Ready = scale.ConditionFalse }
	for name, row := range map[string]struct {
		members []scale.Member
		change  func(*scale.Facts)
		want    []scale.Condition
	}{
		"complete":                  {runningMembers(2), nil, nil},
		"paused when complete":      {runningMembers(2), func(o *scale.Facts) { o.PauseSentences = []string{"ann"} }, nil},
		"a template that is unused": {runningMembers(2), func(o *scale.Facts) { o.MissingObjectKinds = []string{"X"} }, nil},
		"deletion":                  {runningMembers(1), func(o *scale.Facts) { o.Deleting = true }, nil},
		"too few machines": {runningMembers(1), nil, []scale.Condition{
			{Type: "Reconciling", Status: "True", Reason: "Scaling", Message: "1 machine, 1 of 2 available"},
		}},
		"too many machines": {runningMembers(3), nil, []scale.Condition{
			{Type: "Reconciling", Status: "True", Reason: "Scaling", Message: "3 machines, 3 of 2 available"},
		}},
		"a machine is not ready": {runningMembers(2, unready), nil, []scale.Condition{
			{Type: "Reconciling", Status: "True", Reason: "Scaling", Message: "2 machines, 0 of 2 available"},
		}},
		"paused": {runningMembers(1), func(o *scale.Facts) { o.PauseSentences = []string{"ann", "bob"} }, []scale.Condition{
			{Type: "Reconciling", Status: "True", Reason: "Paused", Message: "ann, bob"},
		}},
		"stopped": {runningMembers(1), func(o *scale.Facts) { o.StopReasons = []string{"Cluster web does not exist"} }, []scale.Condition{
			{Type: "Reconciling", Status: "True", Reason: "ScaleUpStopped", Message: "Cluster web does not exist"},
		}},
		"refused": {runningMembers(1), func(o *scale.Facts) { o.LastWriteFailure.Message = "quota" }, []scale.Condition{
			{Type: "Reconciling", Status: "True", Reason: "MachineCreationFailed", Message: "quota"},
		}},
		"the template is missing": {runningMembers(1), func(o *scale.Facts) { o.MissingObjectKinds = []string{"X"} }, []scale.Condition{
			{Type: "Stalled", Status: "True", Reason: "TemplateNotFound", Message: "X does not exist"},
		}},
		"invalid, although complete": {runningMembers(2), func(o *scale.Facts) { o.InvalidReason = "no selector" }, []scale.Condition{
			{Type: "Stalled", Status: "True", Reason: "MachineSetInvalid", Message: "no selector"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newSet(2, row.members...)
			if row.change != nil {
				row.change(&o)
			}
			reported := func() (all []scale.Condition) {
				for _, c := range scale.PlanSet(o).Status.Conditions {
					if c.Type == "Reconciling" || c.Type == "Stalled" {
						all = append(all, c)
					}
				}
				return all
			}
			assert.Empty(t, reported(), "a set of MCM's kinds")
			o.ClusterAPI.ReportsReconciling = true
			assert.Equal(t, row.want, reported())
		})
	}
}
