package scale_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/phrase"
	"millwright/decide/scale"
)

// says is what a condition says, without its type.
type says struct {
	status          scale.Answer
	reason, message string
}

type row struct {
	name string
	o    scale.Observed
	want says
}

func check(t *testing.T, kind string, rows []row) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			c := condition(t, row.o, kind)
			assert.Equal(t, row.want, says{c.Status, c.Reason, c.Message})
		})
	}
}

func TestScalingUp(t *testing.T) {
	noClass := func(o *scale.Observed) { o.Missing = []string{"MachineClass"} }
	check(t, "ScalingUp", []row{
		{"nothing to do", set(0), says{scale.False, "NotScalingUp", ""}},
		{
			"would be blocked",
			with(set(0), noClass),
			says{scale.False, "NotScalingUp", "Scaling up would be blocked because MachineClass does not exist"},
		},
		{"under way", set(3), says{scale.True, "ScalingUp", "Scaling up from 0 to 3 replicas"}},
		{
			"blocked",
			with(set(3), noClass),
			says{scale.True, "ScalingUp", "Scaling up from 0 to 3 replicas is blocked because:\n* MachineClass does not exist"},
		},
		{
			"blocked by everything",
			with(set(3), func(o *scale.Observed) {
				o.Missing = []string{"MachineClass", "Secret"}
				o.Preflight = upgrading()
				o.MCM.Freeze.Label, o.Stopped, o.Invalid = true, []string{noScaleUp}, "the selector is empty"
				paused(o)
			}),
			says{
				scale.True,
				"ScalingUp",
				"Scaling up from 0 to 3 replicas is blocked because:\n* ControlPlane cp is upgrading (\"ControlPlaneIsStable\" preflight check failed)\n* MachineClass and Secret do not exist\n* MachineSet is frozen\n* MachineSet has the label scale-up-disabled\n* MachineSet has the cluster.x-k8s.io/paused annotation\n* the selector is empty",
			},
		},
		{
			"a set that goes does not tell",
			with(set(3, running(3)...), func(o *scale.Observed) { o.Deleting, o.Missing = true, []string{"MachineClass"} }),
			says{scale.False, "NotScalingUp", ""},
		},
		{
			"machines that go are gone",
			set(3, running(3, deleting)...),
			says{scale.True, "ScalingUp", "Scaling up from 0 to 3 replicas"},
		},
		{
			"machines that were never ready",
			set(3, append(running(1), member("x", 0, fresh), member("y", 0, crashing))...),
			says{scale.True, "ScalingUp", "Scaling up to 3 replicas: waiting for 2 machines to become ready"},
		},
		{
			"a machine that is not ready any more is no scaling",
			set(2, running(2, nodeUnhealthy)...),
			says{scale.False, "NotScalingUp", ""},
		},
		{"nor is one that failed", set(1, running(1, stillborn, notGranted)...), says{scale.False, "NotScalingUp", ""}},
		{"nor is it while there are too many", set(1, running(2, pending)...), says{scale.False, "NotScalingUp", ""}},
	})
}

func TestScalingDown(t *testing.T) {
	stale := func(names ...string) []scale.Member {
		var list []scale.Member
		for _, name := range names {
			list = append(list, member(name, day, deletingFor(20*time.Minute)))
		}
		return append(list, member("machine-9", day))
	}
	goes := func(o *scale.Observed) { o.Deleting = true }
	check(t, "ScalingDown", []row{
		{"nothing to do", set(0), says{scale.False, "NotScalingDown", ""}},
		{"not while scaling up", set(1), says{scale.False, "NotScalingDown", ""}},
		{
			"also when those that go are many",
			set(2, append(running(5, deleting), member("x", 0))...),
			says{scale.False, "NotScalingDown", ""},
		},
		{"to zero", set(0, running(1)...), says{scale.True, "ScalingDown", "Scaling down from 1 to 0 replicas"}},
		{
			"one for long",
			set(1, stale("stale-1")...),
			says{
				scale.True,
				"ScalingDown",
				"Scaling down from 2 to 1 replicas\n* Machine stale-1 is in deletion since more than 15m",
			},
		},
		{
			"three for long",
			set(1, stale("stale-2", "stale-1", "stale-3")...),
			says{
				scale.True,
				"ScalingDown",
				"Scaling down from 4 to 1 replicas\n* Machines stale-1, stale-2, stale-3 are in deletion since more than 15m",
			},
		},
		{
			"five for long",
			set(1, stale("stale-5", "stale-4", "stale-2", "stale-3", "stale-1")...),
			says{
				scale.True,
				"ScalingDown",
				"Scaling down from 6 to 1 replicas\n* Machines stale-1, stale-2, stale-3, ... (2 more) are in deletion since more than 15m",
			},
		},
		{"a set that goes, without machines", with(set(1), goes), says{scale.False, "NotScalingDown", ""}},
		{
			"a set that goes, with one",
			with(set(1, running(1)...), goes),
			says{scale.True, "ScalingDown", "Scaling down from 1 to 0 replicas"},
		},
		{
			"objects count until they are gone",
			set(3, append(running(3), member("z", day, deleting))...),
			says{scale.True, "ScalingDown", "Scaling down from 4 to 3 replicas"},
		},
	})
}

func TestMachinesReady(t *testing.T) {
	no := func(why string) change { return func(m *scale.Member) { m.Ready, m.ReadyWhy = scale.False, why } }
	check(t, "MachinesReady", []row{
		{"no machines", set(0), says{scale.True, "NoReplicas", ""}},
		{"one", set(1, running(1)...), says{scale.True, "Ready", ""}},
		{"all", set(2, running(2)...), says{scale.True, "Ready", ""}},
		{
			"one has not reported",
			set(2, append(running(1), member("m-2", 0, fresh))...),
			says{scale.Unknown, "ReadyUnknown", "* Machine m-2: Condition Ready not yet reported"},
		},
		{
			"not ready, unknown and deleted",
			set(
				4,
				member("m-1", day),
				member("m-2", day, no("NodeHealthy: some message")),
				member("m-3", day, func(m *scale.Member) { m.Ready, m.ReadyWhy = scale.Unknown, "some unknown message" }),
				member(
					"m-4",
					day,
					deleting,
					func(m *scale.Member) { m.ReadyWhy = "Deleting: Machine deletion in progress, stage: drain" },
				),
			),
			says{
				scale.False,
				"NotReady",
				"* Machine m-2: NodeHealthy: some message\n* Machine m-4: Deleting: Machine deletion in progress, stage: drain\n* Machine m-3: some unknown message",
			},
		},
		{
			"a list below the name of its machine",
			set(3, member("a", 0, no("* one\n* two")), member("b", 0, no("* one")), member("c", 0, no("three:\n* four"))),
			says{
				scale.False,
				"NotReady",
				"* Machine a:\n  * one\n  * two\n* Machine b:\n  * one\n* Machine c:\n  * three:\n    * four",
			},
		},
		{"one without words", set(1, running(1, pending)...), says{scale.False, "NotReady", "* Machine m-1: phase Pending"}},
		{
			"a deleted one without words",
			set(0, running(1, deleting)...),
			says{scale.False, "NotReady", "* Machine m-1: Deleting: Machine deletion in progress"},
		},
		{
			"no more than three messages",
			set(
				9,
				member("a", 0, no("one")),
				member("b", 0, no("two")),
				member("c", 0, no("two\nlines")),
				member("d", 0, no("four")),
				member("e", 0, no("two")),
				member("f", 0, no("six")),
				member("g", 0, fresh),
				member("h", 0, fresh),
			),
			says{
				scale.False,
				"NotReady",
				"* Machines b, e: two\n* Machine a: one\n* Machine c:\n  * two\n  * lines\nAnd 2 Machines with other issues\nAnd 2 Machines with status unknown",
			},
		},
		{
			"and one more",
			set(
				9,
				member("a", 0, no("one")),
				member("b", 0, no("two")),
				member("c", 0, no("three")),
				member("d", 0, no("four")),
			),
			says{
				scale.False,
				"NotReady",
				"* Machine a: one\n* Machine b: two\n* Machine c: three\nAnd 1 Machine with other issues",
			},
		},
	})
}

func TestMachinesUpToDate(t *testing.T) {
	no := func(m *scale.Member) { m.UpToDate, m.UpToDateWhy = scale.False, "This is not up-to-date message" }
	untold := func(m *scale.Member) { m.UpToDate = "" }
	check(t, "MachinesUpToDate", []row{
		{"no machines", set(0), says{scale.True, "NoReplicas", ""}},
		{"one", set(1, running(1)...), says{scale.True, "UpToDate", ""}},
		{
			"one unknown",
			set(1, running(1, func(m *scale.Member) { m.UpToDate, m.UpToDateWhy = scale.Unknown, "some unknown message" })...),
			says{scale.Unknown, "UpToDateUnknown", "* Machine m-1: some unknown message"},
		},
		{
			"one is not",
			set(1, running(1, no)...),
			says{scale.False, "NotUpToDate", "* Machine m-1: This is not up-to-date message"},
		},
		{
			"a young one is passed over",
			set(2, member("old", 10*time.Second, untold), member("young", 9*time.Second, untold)),
			says{scale.Unknown, "UpToDateUnknown", "* Machine old: Condition UpToDate not yet reported"},
		},
		{"and when there is no other, all is well", set(1, member("young", 0, untold)), says{scale.True, "NoReplicas", ""}},
		{
			"several of each kind",
			set(
				6,
				member("up-1", day),
				member("up-2", day),
				member("not-2", day, no),
				member("not-1", day, no),
				member("none-1", day, untold),
				member("none-2", day, untold),
			),
			says{
				scale.False,
				"NotUpToDate",
				"* Machines not-1, not-2: This is not up-to-date message\n* Machines none-1, none-2: Condition UpToDate not yet reported",
			},
		},
	})
}

func TestRemediating(t *testing.T) {
	blocked := func(o *scale.Observed) { o.Preflight = upgrading() }
	check(t, "Remediating", []row{
		{"none unhealthy", set(2, running(2)...), says{scale.False, "NotRemediating", ""}},
		{
			"being replaced",
			set(3, member("m1", day), member("m2", day, unhealthy), member("m3", day, unhealthy, marked)),
			says{scale.True, "Remediating", "* Machine m3: Machine is deleting"},
		},
		{
			"one is going, one waits for preflight",
			with(
				set(3, member("m1", day), member("m3", day, unhealthy, marked, deleting), member("m4", day, unhealthy, marked)),
				blocked,
			),
			says{
				scale.True,
				"Remediating",
				"* Machine m3: Machine is deleting\n* Machine m4: ControlPlane cp is upgrading (\"ControlPlaneIsStable\" preflight check failed)",
			},
		},
		{
			"one that is not ours",
			set(2, member("m1", day), member("m2", day, unhealthy)),
			says{scale.False, "NotRemediating", "Machine m2 is not healthy (not to be remediated by MachineSet)"},
		},
		{
			"two that are not ours",
			set(3, member("m1", day, unhealthy), member("m2", day, unhealthy), member("m3", day)),
			says{scale.False, "NotRemediating", "Machines m1, m2 are not healthy (not to be remediated by MachineSet)"},
		},
		{
			"failed, and to be replaced",
			set(1, running(1, failed)...),
			says{scale.True, "Remediating", "* Machine m-1: Machine is deleting"},
		},
		{
			"and until it is gone",
			set(0, running(1, failed, deleting)...),
			says{scale.True, "Remediating", "* Machine m-1: Machine is deleting"},
		},
		{
			"failed, and its deployment has not agreed",
			set(1, running(1, failed, notGranted)...),
			says{scale.False, "NotRemediating", "Machine m-1 is not healthy (not to be remediated by MachineSet)"},
		},
	})
}

func TestDeletingCondition(t *testing.T) {
	goes := func(o *scale.Observed) { o.Deleting = true }
	check(t, "Deleting", []row{
		{"not deleted", set(1), says{scale.False, "NotDeleting", ""}},
		{"one is left", with(set(1, running(1)...), goes), says{scale.True, "Deleting", "Deleting 1 Machine"}},
		{"none is left", with(set(1), goes), says{scale.True, "Deleting", "Deletion completed"}},
		{
			"in deletion for long",
			with(
				set(
					3,
					member("m1", day, deletingFor(16*time.Minute)),
					member("m2", day, deletingFor(15*time.Minute)),
					member("m3", day, deleting),
				),
				goes,
			),
			says{scale.True, "Deleting", "Deleting 3 Machines\n* Machines m1, m2 are in deletion since more than 15m"},
		},
	})
}

func TestPaused(t *testing.T) {
	check(t, "Paused", []row{
		{"not paused", set(1), says{scale.False, "NotPaused", ""}},
		{
			"by the set",
			with(set(1), paused),
			says{scale.True, "Paused", "MachineSet has the cluster.x-k8s.io/paused annotation"},
		},
		{
			"by both",
			with(set(1), func(o *scale.Observed) {
				o.Pauses = []string{phrase.PausedBy("MachineDeployment"), phrase.PausedBy("MachineSet")}
			}),
			says{
				scale.True,
				"Paused",
				"MachineDeployment has the cluster.x-k8s.io/paused annotation, MachineSet has the cluster.x-k8s.io/paused annotation",
			},
		},
	})
}

func TestMachinesCreated(t *testing.T) {
	check(t, "MachinesCreated", []row{
		{"all there", set(1, running(1)...), says{scale.True, "MachinesCreated", ""}},
		{"under way", set(3), says{scale.True, "MachinesCreated", ""}},
		{
			"the class is missing",
			with(set(1), func(o *scale.Observed) { o.Missing = []string{"MachineClass"} }),
			says{scale.False, "TemplateNotFound", "MachineClass does not exist"},
		},
		{
			"a preflight check fails",
			with(set(1), func(o *scale.Observed) {
				o.Preflight = upgrading()
				o.Preflight.ControlPlane.Version = "latest"
			}),
			says{
				scale.False,
				"PreflightCheckFailed",
				`ControlPlane cp is upgrading ("ControlPlaneIsStable" preflight check failed); ` +
					`version "latest" of ControlPlane cp cannot be read ("KubernetesVersionSkew" preflight check failed)`,
			},
		},
		{
			"as MCM, more than MCM would freeze",
			with(set(1, running(0)...), func(o *scale.Observed) { o.MCM.Freeze = scale.Freeze{Label: true, EndsAt: 1} }),
			says{scale.True, "MachinesCreated", ""},
		},
		{
			"frozen",
			with(set(1), func(o *scale.Observed) { o.MCM.Freeze.Label = true }),
			says{scale.False, "ScaleUpStopped", "MachineSet is frozen"},
		},
		{
			"invalid",
			with(set(1), func(o *scale.Observed) { o.Invalid = "the selector is empty" }),
			says{scale.False, "MachineSetInvalid", "the selector is empty"},
		},
		{
			"creation failed",
			with(set(1), func(o *scale.Observed) { o.LastFailure.Message = "quota" }),
			says{scale.False, "MachineCreationFailed", "quota"},
		},
		{
			"deletion failed",
			with(set(1), func(o *scale.Observed) { o.LastFailure = scale.Failure{Deleting: true, Message: "quota"} }),
			says{scale.True, "MachinesCreated", ""},
		},
		{
			"what blocks is of no interest when none is missing",
			with(set(0), func(o *scale.Observed) { o.Missing, o.MCM.Freeze.Label = []string{"MachineClass"}, true }),
			says{scale.True, "MachinesCreated", ""},
		},
	})
}
