package scale_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/preflight"
	"millwright/decide/scale"
)

// transitionRow is a row of Cluster API's transition tables, with facts, expected changes, and the status after the
// changes.
type transitionRow struct {
	name                string
	facts               scale.Facts
	createdMachineCount int
	deletedNames        []string
	counts              scale.MachineCounts              // Labelled and UpToDate are not compared
	conditions          map[string][2]string             // status and reason by condition type, after the changes
	messages            map[string]string                // condition messages by condition type, after the changes
	extraCheck          func(*testing.T, *setSimulation) // further checks
	holdReason          string
}

func runTransitions(t *testing.T, rows []transitionRow) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			d := scale.Decide(row.facts)
			assert.Len(t, d.Create, row.createdMachineCount)
			assert.Equal(t, row.deletedNames, targetNames(append(d.Delete, d.Remediate...)))
			assert.Contains(t, d.Hold, row.holdReason)
			w := newSetSimulation(row.facts)
			w.carryOutDecisions()
			if counts := scale.PlanSet(w.Facts).Status.Counts; counts != nil {
				counts.Labelled, counts.UpToDate = 0, 0
				assert.Equal(t, row.counts, *counts)
			}
			for kind, want := range row.conditions {
				c := reportedCondition(t, w.Facts, kind)
				assert.Equal(t, want, [2]string{string(c.Status), c.Reason}, kind)
			}
			for kind, want := range row.messages {
				assert.Equal(t, want, reportedCondition(t, w.Facts, kind).Message)
			}
			if row.extraCheck != nil {
				row.extraCheck(t, w)
			}
		})
	}
}

func TestTransitionsOfNormalReconciliation(t *testing.T) {
	ready := scale.MachineCounts{Replicas: 3, Ready: 3, Available: 3}
	up, notUp := [2]string{"True", "ScalingUp"}, [2]string{"False", "NotScalingUp"}
	down := [2]string{"True", "ScalingDown"}
	runTransitions(t, []transitionRow{
		{
			name:                "normal 1: 0 of 3, initial creation",
			facts:               newSet(3),
			createdMachineCount: 3,
			counts: scale.MachineCounts{
				Replicas: 3,
			},
			conditions: map[string][2]string{"ScalingUp": up, "MachinesCreated": {"True", "MachinesCreated"}},
		},
		{
			name:                "normal 2: 1 of 3, not ready",
			facts:               newSet(3, runningMembers(1, asPendingMachine)...),
			createdMachineCount: 2,
			counts: scale.MachineCounts{
				Replicas: 3,
			},
			conditions: map[string][2]string{"ScalingUp": up, "MachinesReady": {"False", "NotReady"}},
		},
		{
			name: "normal 2: 3 of 3, not ready: waits", facts: newSet(3, runningMembers(3, asPendingMachine)...),
			counts: scale.MachineCounts{Replicas: 3}, conditions: map[string][2]string{"ScalingUp": up},
			messages: map[string]string{"ScalingUp": "Scaling up to 3 replicas: waiting for 3 machines to become ready"},
		},
		{
			name: "normal 3: 3 of 3, all ready", facts: newSet(3, runningMembers(3)...),
			counts: ready, conditions: map[string][2]string{"ScalingUp": notUp, "MachinesReady": {"True", "Ready"}},
		},
		{
			name: "normal 4: 3, scaled up to 5", facts: newSet(5, runningMembers(3)...), createdMachineCount: 2,
			counts: scale.MachineCounts{Replicas: 5, Ready: 3, Available: 3}, conditions: map[string][2]string{"ScalingUp": up},
		},
		{
			name:         "normal 5: 5, scaled down to 3",
			facts:        newSet(3, runningMembers(5)...),
			deletedNames: []string{"m-5", "m-4"},
			counts: scale.MachineCounts{
				Replicas:  5,
				Ready:     3,
				Available: 3,
			},
			conditions: map[string][2]string{"ScalingDown": down, "ScalingUp": notUp},
			messages:   map[string]string{"ScalingDown": "Scaling down from 5 to 3 replicas"},
		},
		{
			name: "normal 6: the template changed",
			facts: newSet(
				3,
				runningMembers(
					3,
					func(m *scale.Member) { m.UpToDate, m.OutdatedReason = scale.ConditionFalse, "class differs" },
				)...),
			counts:     ready,
			conditions: map[string][2]string{"MachinesUpToDate": {"False", "NotUpToDate"}, "ScalingUp": notUp},
			messages:   map[string]string{"MachinesUpToDate": "* Machines m-1, m-2, m-3: class differs"},
		},
		{
			name:         "normal 7: the health check marks a machine",
			facts:        newSet(3, append(runningMembers(2), newMember("x", day, asUnhealthyMachine, asMarkedMachine))...),
			deletedNames: []string{"x"},
			counts: scale.MachineCounts{
				Replicas:  4,
				Ready:     2,
				Available: 2,
			},
			conditions: map[string][2]string{"Remediating": {"True", "Remediating"}},
		},
	})
}

func TestTransitionsWithPreflightChecks(t *testing.T) {
	settings := preflight.Settings{Checks: []string{preflight.CheckAll}, RequireReplicas: true}
	checked := func(c preflight.ControlPlane, m preflight.MachineFacts) scale.Facts {
		c.Kind, c.Name = "ControlPlane", "cp"
		o := newSet(1)
		o.Preflight = preflight.Facts{ControlPlane: &c, Machines: m, Settings: settings}
		return o
	}
	blocked := map[string][2]string{
		"ScalingUp":       {"True", "ScalingUp"},
		"MachinesCreated": {"False", "PreflightCheckFailed"},
	}
	runTransitions(t, []transitionRow{
		{
			name:       "preflight 1: ControlPlaneIsStable",
			facts:      checked(preflight.ControlPlane{Replicas: 3, Available: 2}, preflight.MachineFacts{}),
			conditions: blocked,
			holdReason: `("ControlPlaneIsStable" preflight check failed)`,
		},
		{
			name: "preflight 2: KubeadmVersionSkew",
			facts: checked(
				preflight.ControlPlane{Version: "v1.31.0"},
				preflight.MachineFacts{Version: "v1.29.0", Kubeadm: true},
			),
			conditions: blocked,
			holdReason: `("KubeadmVersionSkew" preflight check failed)`,
		},
		{
			name:       "preflight 3: KubernetesVersionSkew",
			facts:      checked(preflight.ControlPlane{Version: "v1.31.0"}, preflight.MachineFacts{Version: "v1.32.0"}),
			conditions: blocked,
			holdReason: `("KubernetesVersionSkew" preflight check failed)`,
		},
		{
			name: "preflight 4: all pass",
			facts: checked(
				preflight.ControlPlane{Version: "v1.31.0", Replicas: 3, Available: 3},
				preflight.MachineFacts{Version: "v1.30.0", Kubeadm: true},
			),
			createdMachineCount: 1,
			counts:              scale.MachineCounts{Replicas: 1},
			conditions: map[string][2]string{
				"ScalingUp":       {"True", "ScalingUp"},
				"MachinesCreated": {"True", "MachinesCreated"},
			},
		},
	})
}

func TestTransitionsOfDeletion(t *testing.T) {
	going := map[string][2]string{"Deleting": {"True", "Deleting"}}
	goes := func(o *scale.Facts) { o.Deleting = true }
	done := func(want bool) func(*testing.T, *setSimulation) {
		return func(t *testing.T, w *setSimulation) { require.Equal(t, want, scale.Decide(w.Facts).Done) }
	}
	runTransitions(t, []transitionRow{
		{
			name:         "deletion 1: all owned machines are deleted",
			facts:        withChange(newSet(2, runningMembers(2)...), goes),
			deletedNames: []string{"m-2", "m-1"},
			counts: scale.MachineCounts{
				Replicas: 2,
			},
			conditions: going,
			messages:   map[string]string{"Deleting": "Deleting 2 Machines"},
			extraCheck: done(false),
		},
		{
			name:  "deletion 2: machines are left",
			facts: withChange(newSet(2, runningMembers(1, asDeletingMachine)...), goes),
			counts: scale.MachineCounts{
				Replicas: 1,
			},
			conditions: going,
			messages:   map[string]string{"Deleting": "Deleting 1 Machine"},
			extraCheck: done(false),
		},
		{
			name: "deletion 3: none is left", facts: withChange(newSet(2), goes),
			conditions: going, messages: map[string]string{"Deleting": "Deletion completed"}, extraCheck: done(true),
		},
	})
}

func TestTransitionsAfterErrors(t *testing.T) {
	missing := func(kind string) scale.Facts {
		return withChange(newSet(2), func(o *scale.Facts) { o.MissingObjectKinds = []string{kind} })
	}
	blocked := map[string][2]string{"MachinesCreated": {"False", "TemplateNotFound"}, "ScalingUp": {"True", "ScalingUp"}}
	refused := newSetSimulation(newSet(3))
	refused.refusesCreation = func(nth int) bool { return nth == 2 }
	refused.carryOutDecisions()
	runTransitions(t, []transitionRow{
		{
			name:       "error 1: what infrastructure is made from does not exist",
			facts:      missing("MachineClass"),
			conditions: blocked,
			messages: map[string]string{
				"ScalingUp": "Scaling up from 0 to 2 replicas is blocked because:\n* MachineClass does not exist",
			},
			holdReason: "MachineClass does not exist",
		},
		{
			name: "error 2: what nodes are started with does not exist", facts: missing("Secret"), conditions: blocked,
			messages: map[string]string{"MachinesCreated": "Secret does not exist"}, holdReason: "Secret does not exist",
		},
		{
			name:                "error 3: a creation failed: a part is made, the rest follows",
			facts:               withChange(refused.Facts, func(o *scale.Facts) { o.Now = epochPlus(time.Minute) }),
			createdMachineCount: 1,
			counts:              scale.MachineCounts{Replicas: 3},
			conditions:          map[string][2]string{"MachinesCreated": {"True", "MachinesCreated"}},
		},
	})
	assert.Equal(t, 2, refused.liveMachineCount(), "the others of the batch were made")
	assert.Equal(t, "create machine 2: refused", reportedCondition(t, refused.Facts, "MachinesCreated").Message)
}
