package scale_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/phrase"
	"millwright/decide/scale"
)

// untypedCondition is a condition without its type.
type untypedCondition struct {
	status          scale.ConditionStatus
	reason, message string
}

type conditionRow struct {
	name  string
	facts scale.Facts
	want  untypedCondition
}

func checkCondition(t *testing.T, kind string, rows []conditionRow) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			c := reportedCondition(t, row.facts, kind)
			assert.Equal(t, row.want, untypedCondition{c.Status, c.Reason, c.Message})
		})
	}
}

func TestScalingUpCondition(t *testing.T) {
	noClass := func(o *scale.Facts) { o.MissingObjectKinds = []string{"MachineClass"} }
	checkCondition(t, "ScalingUp", []conditionRow{
		{"nothing to do", newSet(0), untypedCondition{scale.ConditionFalse, "NotScalingUp", ""}},
		{
			"would be blocked",
			withChange(newSet(0), noClass),
			untypedCondition{
				scale.ConditionFalse,
				"NotScalingUp",
				"Scaling up would be blocked because MachineClass does not exist",
			},
		},
		{"under way", newSet(3), untypedCondition{scale.ConditionTrue, "ScalingUp", "Scaling up from 0 to 3 replicas"}},
		{
			"blocked",
			withChange(newSet(3), noClass),
			untypedCondition{
				scale.ConditionTrue,
				"ScalingUp",
				"Scaling up from 0 to 3 replicas is blocked because:\n* MachineClass does not exist",
			},
		},
		{
			"blocked by everything",
			withChange(newSet(3), func(o *scale.Facts) {
				o.MissingObjectKinds = []string{"MachineClass", "Secret"}
				o.Preflight = upgradingControlPlane()
				o.MCM.Freeze.HasLabel, o.StopReasons, o.InvalidReason = true, []string{noScaleUpReason}, "the selector is empty"
				pauseSet(o)
			}),
			untypedCondition{
				scale.ConditionTrue,
				"ScalingUp",
				"Scaling up from 0 to 3 replicas is blocked because:\n* ControlPlane cp is upgrading (\"ControlPlaneIsStable\" preflight check failed)\n* MachineClass and Secret do not exist\n* MachineSet is frozen\n* MachineSet has the label scale-up-disabled\n* MachineSet has the cluster.x-k8s.io/paused annotation\n* the selector is empty",
			},
		},
		{
			"a set that goes does not tell",
			withChange(
				newSet(3, runningMembers(3)...),
				func(o *scale.Facts) { o.Deleting, o.MissingObjectKinds = true, []string{"MachineClass"} },
			),
			untypedCondition{scale.ConditionFalse, "NotScalingUp", ""},
		},
		{
			"machines that go are gone",
			newSet(3, runningMembers(3, asDeletingMachine)...),
			untypedCondition{scale.ConditionTrue, "ScalingUp", "Scaling up from 0 to 3 replicas"},
		},
		{
			"machines that were never ready",
			newSet(
				3,
				append(runningMembers(1), newMember("x", 0, asFreshMachine), newMember("y", 0, asMachineWithFailingCreation))...),
			untypedCondition{
				scale.ConditionTrue,
				"ScalingUp",
				"Scaling up to 3 replicas: waiting for 2 machines to become ready",
			},
		},
		{
			"a machine that is not ready any more is no scaling",
			newSet(2, runningMembers(2, withUnhealthyNode)...),
			untypedCondition{scale.ConditionFalse, "NotScalingUp", ""},
		},
		{
			"nor is one that failed",
			newSet(1, runningMembers(1, asNeverJoinedMachine, asUnreplaceableMachine)...),
			untypedCondition{scale.ConditionFalse, "NotScalingUp", ""},
		},
		{
			"nor is it while there are too many",
			newSet(1, runningMembers(2, asPendingMachine)...),
			untypedCondition{scale.ConditionFalse, "NotScalingUp", ""},
		},
	})
}

func TestScalingDownCondition(t *testing.T) {
	stale := func(names ...string) []scale.Member {
		var list []scale.Member
		for _, name := range names {
			list = append(list, newMember(name, day, withDeletionDuration(20*time.Minute)))
		}
		return append(list, newMember("machine-9", day))
	}
	blocked := func(members []scale.Member, blockers ...string) []scale.Member {
		members[0].ClusterAPI.DrainBlockers = blockers
		return members
	}
	goes := func(o *scale.Facts) { o.Deleting = true }
	checkCondition(t, "ScalingDown", []conditionRow{
		{"nothing to do", newSet(0), untypedCondition{scale.ConditionFalse, "NotScalingDown", ""}},
		{"not while scaling up", newSet(1), untypedCondition{scale.ConditionFalse, "NotScalingDown", ""}},
		{
			"also when those that go are many",
			newSet(2, append(runningMembers(5, asDeletingMachine), newMember("x", 0))...),
			untypedCondition{scale.ConditionFalse, "NotScalingDown", ""},
		},
		{
			"to zero",
			newSet(0, runningMembers(1)...),
			untypedCondition{scale.ConditionTrue, "ScalingDown", "Scaling down from 1 to 0 replicas"},
		},
		{
			"one for long",
			newSet(1, stale("stale-1")...),
			untypedCondition{
				scale.ConditionTrue,
				"ScalingDown",
				"Scaling down from 2 to 1 replicas\n* Machine stale-1 is in deletion since more than 15m",
			},
		},
		{
			"one for long, and its drain is blocked",
			newSet(1, blocked(stale("stale-1"), scale.DrainNotCompleted, scale.DrainBudgets)...),
			untypedCondition{
				scale.ConditionTrue,
				"ScalingDown",
				"Scaling down from 2 to 1 replicas\n* Machine stale-1 is in deletion since more than 15m, delay likely due to PodDisruptionBudgets, Pods not completed yet",
			},
		},
		{
			"three for long",
			newSet(1, stale("stale-2", "stale-1", "stale-3")...),
			untypedCondition{
				scale.ConditionTrue,
				"ScalingDown",
				"Scaling down from 4 to 1 replicas\n* Machines stale-1, stale-2, stale-3 are in deletion since more than 15m",
			},
		},
		{
			"five for long",
			newSet(1, stale("stale-5", "stale-4", "stale-2", "stale-3", "stale-1")...),
			untypedCondition{
				scale.ConditionTrue,
				"ScalingDown",
				"Scaling down from 6 to 1 replicas\n* Machines stale-1, stale-2, stale-3, ... (2 more) are in deletion since more than 15m",
			},
		},
		{
			"a set that goes, without machines",
			withChange(newSet(1), goes),
			untypedCondition{scale.ConditionFalse, "NotScalingDown", ""},
		},
		{
			"a set that goes, with one",
			withChange(newSet(1, runningMembers(1)...), goes),
			untypedCondition{scale.ConditionTrue, "ScalingDown", "Scaling down from 1 to 0 replicas"},
		},
		{
			"objects count until they are gone",
			newSet(3, append(runningMembers(3), newMember("z", day, asDeletingMachine))...),
			untypedCondition{scale.ConditionTrue, "ScalingDown", "Scaling down from 4 to 3 replicas"},
		},
	})
}

func TestMachinesReadyCondition(t *testing.T) {
	no := func(why string) memberChange {
		return func(m *scale.Member) { m.Ready, m.NotReadyReason = scale.ConditionFalse, why }
	}
	checkCondition(t, "MachinesReady", []conditionRow{
		{"no machines", newSet(0), untypedCondition{scale.ConditionTrue, "NoReplicas", ""}},
		{"one", newSet(1, runningMembers(1)...), untypedCondition{scale.ConditionTrue, "Ready", ""}},
		{"all", newSet(2, runningMembers(2)...), untypedCondition{scale.ConditionTrue, "Ready", ""}},
		{
			"one has not reported",
			newSet(2, append(runningMembers(1), newMember("m-2", 0, asFreshMachine))...),
			untypedCondition{scale.ConditionUnknown, "ReadyUnknown", "* Machine m-2: Condition Ready not yet reported"},
		},
		{
			"not ready, unknown and deleted",
			newSet(
				4,
				newMember("m-1", day),
				newMember("m-2", day, no("NodeHealthy: some message")),
				newMember(
					"m-3",
					day,
					func(m *scale.Member) { m.Ready, m.NotReadyReason = scale.ConditionUnknown, "some unknown message" },
				),
				newMember(
					"m-4",
					day,
					asDeletingMachine,
					func(m *scale.Member) { m.NotReadyReason = "Deleting: Machine deletion in progress, stage: drain" },
				),
			),
			untypedCondition{
				scale.ConditionFalse,
				"NotReady",
				"* Machine m-2: NodeHealthy: some message\n* Machine m-4: Deleting: Machine deletion in progress, stage: drain\n* Machine m-3: some unknown message",
			},
		},
		{
			"a list below the name of its machine",
			newSet(
				3,
				newMember("a", 0, no("* one\n* two")),
				newMember("b", 0, no("* one")),
				newMember("c", 0, no("three:\n* four")),
			),
			untypedCondition{
				scale.ConditionFalse,
				"NotReady",
				"* Machine a:\n  * one\n  * two\n* Machine b:\n  * one\n* Machine c:\n  * three:\n    * four",
			},
		},
		{
			"one without words",
			newSet(1, runningMembers(1, asPendingMachine)...),
			untypedCondition{scale.ConditionFalse, "NotReady", "* Machine m-1: phase Pending"},
		},
		{
			"a deleted one without words",
			newSet(0, runningMembers(1, asDeletingMachine)...),
			untypedCondition{scale.ConditionFalse, "NotReady", "* Machine m-1: Deleting: Machine deletion in progress"},
		},
		{
			"no more than three messages",
			newSet(
				9,
				newMember("a", 0, no("one")),
				newMember("b", 0, no("two")),
				newMember("c", 0, no("two\nlines")),
				newMember("d", 0, no("four")),
				newMember("e", 0, no("two")),
				newMember("f", 0, no("six")),
				newMember("g", 0, asFreshMachine),
				newMember("h", 0, asFreshMachine),
			),
			untypedCondition{
				scale.ConditionFalse,
				"NotReady",
				"* Machines b, e: two\n* Machine a: one\n* Machine c:\n  * two\n  * lines\nAnd 2 Machines with other issues\nAnd 2 Machines with status unknown",
			},
		},
		{
			"and one more",
			newSet(
				9,
				newMember("a", 0, no("one")),
				newMember("b", 0, no("two")),
				newMember("c", 0, no("three")),
				newMember("d", 0, no("four")),
			),
			untypedCondition{
				scale.ConditionFalse,
				"NotReady",
				"* Machine a: one\n* Machine b: two\n* Machine c: three\nAnd 1 Machine with other issues",
			},
		},
	})
}

func TestMachinesUpToDateCondition(t *testing.T) {
	no := func(m *scale.Member) {
		m.UpToDate, m.OutdatedReason = scale.ConditionFalse, "This is not up-to-date message"
	}
	untold := func(m *scale.Member) { m.UpToDate = "" }
	checkCondition(t, "MachinesUpToDate", []conditionRow{
		{"no machines", newSet(0), untypedCondition{scale.ConditionTrue, "NoReplicas", ""}},
		{"one", newSet(1, runningMembers(1)...), untypedCondition{scale.ConditionTrue, "UpToDate", ""}},
		{
			"one unknown",
			newSet(
				1,
				runningMembers(
					1,
					func(m *scale.Member) { m.UpToDate, m.OutdatedReason = scale.ConditionUnknown, "some unknown message" },
				)...),
			untypedCondition{scale.ConditionUnknown, "UpToDateUnknown", "* Machine m-1: some unknown message"},
		},
		{
			"one is not",
			newSet(1, runningMembers(1, no)...),
			untypedCondition{scale.ConditionFalse, "NotUpToDate", "* Machine m-1: This is not up-to-date message"},
		},
		{
			"a young one is passed over",
			newSet(2, newMember("old", 10*time.Second, untold), newMember("young", 9*time.Second, untold)),
			untypedCondition{scale.ConditionUnknown, "UpToDateUnknown", "* Machine old: Condition UpToDate not yet reported"},
		},
		{
			"and when there is no other, all is well",
			newSet(1, newMember("young", 0, untold)),
			untypedCondition{scale.ConditionTrue, "NoReplicas", ""},
		},
		{
			"several of each kind",
			newSet(
				6,
				newMember("up-1", day),
				newMember("up-2", day),
				newMember("not-2", day, no),
				newMember("not-1", day, no),
				newMember("none-1", day, untold),
				newMember("none-2", day, untold),
			),
			untypedCondition{
				scale.ConditionFalse,
				"NotUpToDate",
				"* Machines not-1, not-2: This is not up-to-date message\n* Machines none-1, none-2: Condition UpToDate not yet reported",
			},
		},
	})
}

func TestRemediatingCondition(t *testing.T) {
	blocked := func(o *scale.Facts) { o.Preflight = upgradingControlPlane() }
	checkCondition(t, "Remediating", []conditionRow{
		{"none unhealthy", newSet(2, runningMembers(2)...), untypedCondition{scale.ConditionFalse, "NotRemediating", ""}},
		{
			"being replaced",
			newSet(
				3,
				newMember("m1", day),
				newMember("m2", day, asUnhealthyMachine),
				newMember("m3", day, asUnhealthyMachine, asMarkedMachine),
			),
			untypedCondition{scale.ConditionTrue, "Remediating", "* Machine m3: Machine is deleting"},
		},
		{
			"one is going, one waits for preflight",
			withChange(
				newSet(
					3,
					newMember("m1", day),
					newMember("m3", day, asUnhealthyMachine, asMarkedMachine, asDeletingMachine),
					newMember("m4", day, asUnhealthyMachine, asMarkedMachine),
				),
				blocked,
			),
			untypedCondition{
				scale.ConditionTrue,
				"Remediating",
				"* Machine m3: Machine is deleting\n* Machine m4: ControlPlane cp is upgrading (\"ControlPlaneIsStable\" preflight check failed)",
			},
		},
		{
			"one that is not ours",
			newSet(2, newMember("m1", day), newMember("m2", day, asUnhealthyMachine)),
			untypedCondition{
				scale.ConditionFalse,
				"NotRemediating",
				"Machine m2 is not healthy (not to be remediated by MachineSet)",
			},
		},
		{
			"two that are not ours",
			newSet(3, newMember("m1", day, asUnhealthyMachine), newMember("m2", day, asUnhealthyMachine), newMember("m3", day)),
			untypedCondition{
				scale.ConditionFalse,
				"NotRemediating",
				"Machines m1, m2 are not healthy (not to be remediated by MachineSet)",
			},
		},
		{
			"failed, and to be replaced",
			newSet(1, runningMembers(1, asFailedMachine)...),
			untypedCondition{scale.ConditionTrue, "Remediating", "* Machine m-1: Machine is deleting"},
		},
		{
			"and until it is gone",
			newSet(0, runningMembers(1, asFailedMachine, asDeletingMachine)...),
			untypedCondition{scale.ConditionTrue, "Remediating", "* Machine m-1: Machine is deleting"},
		},
		{
			"failed, and its deployment has not agreed",
			newSet(1, runningMembers(1, asFailedMachine, asUnreplaceableMachine)...),
			untypedCondition{
				scale.ConditionFalse,
				"NotRemediating",
				"Machine m-1 is not healthy (not to be remediated by MachineSet)",
			},
		},
	})
}

func TestDeletingCondition(t *testing.T) {
	goes := func(o *scale.Facts) { o.Deleting = true }
	checkCondition(t, "Deleting", []conditionRow{
		{"not deleted", newSet(1), untypedCondition{scale.ConditionFalse, "NotDeleting", ""}},
		{
			"one is left",
			withChange(newSet(1, runningMembers(1)...), goes),
			untypedCondition{scale.ConditionTrue, "Deleting", "Deleting 1 Machine"},
		},
		{
			"none is left",
			withChange(newSet(1), goes),
			untypedCondition{scale.ConditionTrue, "Deleting", "Deletion completed"},
		},
		{
			"in deletion for long",
			withChange(
				newSet(
					3,
					newMember("m1", day, withDeletionDuration(16*time.Minute)),
					newMember("m2", day, withDeletionDuration(15*time.Minute)),
					newMember("m3", day, asDeletingMachine),
				),
				goes,
			),
			untypedCondition{
				scale.ConditionTrue,
				"Deleting",
				"Deleting 3 Machines\n* Machines m1, m2 are in deletion since more than 15m",
			},
		},
	})
}

func TestPausedCondition(t *testing.T) {
	checkCondition(t, "Paused", []conditionRow{
		{"not paused", newSet(1), untypedCondition{scale.ConditionFalse, "NotPaused", ""}},
		{
			"by the set",
			withChange(newSet(1), pauseSet),
			untypedCondition{scale.ConditionTrue, "Paused", "MachineSet has the cluster.x-k8s.io/paused annotation"},
		},
		{
			"by both",
			withChange(newSet(1), func(o *scale.Facts) {
				o.PauseSentences = []string{phrase.PausedSentence("MachineDeployment"), phrase.PausedSentence("MachineSet")}
			}),
			untypedCondition{
				scale.ConditionTrue,
				"Paused",
				"MachineDeployment has the cluster.x-k8s.io/paused annotation, MachineSet has the cluster.x-k8s.io/paused annotation",
			},
		},
	})
}

func TestMachinesCreatedCondition(t *testing.T) {
	checkCondition(t, "MachinesCreated", []conditionRow{
		{"all there", newSet(1, runningMembers(1)...), untypedCondition{scale.ConditionTrue, "MachinesCreated", ""}},
		{"under way", newSet(3), untypedCondition{scale.ConditionTrue, "MachinesCreated", ""}},
		{
			"the class is missing",
			withChange(newSet(1), func(o *scale.Facts) { o.MissingObjectKinds = []string{"MachineClass"} }),
			untypedCondition{scale.ConditionFalse, "TemplateNotFound", "MachineClass does not exist"},
		},
		{
			"a preflight check fails",
			withChange(newSet(1), func(o *scale.Facts) {
				o.Preflight = upgradingControlPlane()
				o.Preflight.ControlPlane.Version = "latest"
			}),
			untypedCondition{
				scale.ConditionFalse,
				"PreflightCheckFailed",
				`ControlPlane cp is upgrading ("ControlPlaneIsStable" preflight check failed); ` +
					`version "latest" of ControlPlane cp cannot be read ("KubernetesVersionSkew" preflight check failed)`,
			},
		},
		{
			"as MCM, more than MCM would freeze",
			withChange(
				newSet(1, runningMembers(0)...),
				func(o *scale.Facts) { o.MCM.Freeze = scale.FreezeState{HasLabel: true, EndsAtMachineCount: 1} },
			),
			untypedCondition{scale.ConditionTrue, "MachinesCreated", ""},
		},
		{
			"frozen",
			withChange(newSet(1), func(o *scale.Facts) { o.MCM.Freeze.HasLabel = true }),
			untypedCondition{scale.ConditionFalse, "ScaleUpStopped", "MachineSet is frozen"},
		},
		{
			"invalid",
			withChange(newSet(1), func(o *scale.Facts) { o.InvalidReason = "the selector is empty" }),
			untypedCondition{scale.ConditionFalse, "MachineSetInvalid", "the selector is empty"},
		},
		{
			"creation failed",
			withChange(newSet(1), func(o *scale.Facts) { o.LastWriteFailure.Message = "quota" }),
			untypedCondition{scale.ConditionFalse, "MachineCreationFailed", "quota"},
		},
		{
			"deletion failed",
			withChange(
				newSet(1),
				func(o *scale.Facts) { o.LastWriteFailure = scale.WriteFailure{Deleting: true, Message: "quota"} },
			),
			untypedCondition{scale.ConditionTrue, "MachinesCreated", ""},
		},
		{
			"what blocks is of no interest when none is missing",
			withChange(
				newSet(0),
				func(o *scale.Facts) { o.MissingObjectKinds, o.MCM.Freeze.HasLabel = []string{"MachineClass"}, true },
			),
			untypedCondition{scale.ConditionTrue, "MachinesCreated", ""},
		},
	})
}
