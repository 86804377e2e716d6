package deletion_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/api/vocabulary"
	"millwright/decide/deletion"
)

func TestHooksHoldADeletion(t *testing.T) {
	two := []string{"hook/b", "hook/a"}
	for name, row := range map[string]struct {
		facts     deletion.Facts
		stage     deletion.Stage
		blockedBy []string
		why       string
	}{
		"before the drain": {
			machineWithWorkInEveryStage(), deletion.StagePreDrainHooks, []string{"pre"}, "waits until these pre-drain hooks are removed: pre",
		},
		"several, in the order of their names": {
			machineWithWorkInEveryStage(func(f *deletion.Facts) { f.PreDrainHooks = two }), deletion.StagePreDrainHooks,
			[]string{"hook/a", "hook/b"},
			"waits until these pre-drain hooks are removed: hook/a, hook/b",
		},
		"also a node that is not drained": {
			machineWithWorkInEveryStage(withSkippedDrain), deletion.StagePreDrainHooks, []string{"pre"}, "waits until these pre-drain hooks are removed: pre",
		},
		"without a node nothing is drained, and nobody waits": {
			machineWithWorkInEveryStage(withoutNode), deletion.StagePreTerminateHooks, []string{"last"}, "waits until these pre-terminate hooks are removed: last",
		},
		"a machine that never had one is still held before its instance goes": {
			machineWithWorkInEveryStage(withoutNodeName), deletion.StagePreTerminateHooks, []string{"last"}, "waits until these pre-terminate hooks are removed: last",
		},
		"none is in the way": {machineWithoutHooks(), deletion.StageDrain, nil, "node n is to be drained"},
	} {
		t.Run(name, func(t *testing.T) {
			s := deletion.Decide(row.facts)
			assert.Equal(t, deletion.Step{
				Stage:     row.stage,
				Record:    true,
				Announce:  row.facts.HasNode && row.stage != deletion.StageDrain,
				BlockedBy: row.blockedBy,
				Why:       row.why,
				Skipped:   s.Skipped,
				Hurry:     row.facts.SkipDrainReason != "",
			}, s)
		})
	}
	assert.Equal(t, []string{"hook/b", "hook/a"}, two, "the facts stay as they are")
}

// Step.BlockedBy names the first hooks. Step.Why counts the other hooks.
func TestManyHooksAreCounted(t *testing.T) {
	var forty []string
	for i := range 40 {
		forty = append(forty, fmt.Sprintf("pre-drain.delete.hook.machine.cluster.x-k8s.io/%063d", i))
	}
	for name, facts := range map[string]deletion.Facts{
		"pre-drain":     machineWithWorkInEveryStage(func(f *deletion.Facts) { f.PreDrainHooks = forty }),
		"pre-terminate": machineWithWorkInEveryStage(withRecordedStage(deletion.StagePreTerminateHooks), func(f *deletion.Facts) { f.PreTerminateHooks = forty }),
	} {
		s := deletion.Decide(facts)
		assert.Equal(t, forty[:5], s.BlockedBy, name)
		assert.Equal(
			t,
			"waits until these "+name+" hooks are removed: "+strings.Join(forty[:5], ", ")+" and 35 more",
			s.Why,
		)
	}
}

func TestReasonOfEachStage(t *testing.T) {
	for _, row := range []struct {
		facts deletion.Facts
		want  string
	}{
		{machineWithoutHooks(), "node n is to be drained"},
		{machineWithoutHooks(withDrainResult("Drained")), "waits until the volumes of node n are detached"},
		{machineWithoutHooks(withSkippedDrain), "the instance is to be deleted"},
		{machineWithoutHooks(withCompletedStage(deletion.StageDeleteInstance)), "the instance is gone; node n is to be deleted"},
		{machineWithoutHooks(withCompletedStage(deletion.StageDeleteNode)), "instance and node are gone; our finalizer is to be removed"},
	} {
		assert.Equal(t, row.want, deletion.Decide(row.facts).Why)
	}
}

// Before the instance is deleted, a deletion with Force does not wait for the target cluster. After the instance is
// deleted, the deletion waits for the removal of the node.
func TestForceEndsTheWaitsBeforeTheInstanceIsDeleted(t *testing.T) {
	for stage, want := range map[deletion.Stage]bool{
		deletion.StagePreDrainHooks: true, deletion.StageDrain: true, deletion.StageDetachVolumes: true, deletion.StagePreTerminateHooks: true,
		deletion.StageDeleteInstance: false, deletion.StageDeleteNode: false, deletion.StageRemoveFinalizer: false,
	} {
		at := machineWithWorkInEveryStage(withRecordedStage(stage), withForceReason)
		if stage != deletion.StagePreDrainHooks {
			at.PreDrainHooks = nil
		}
		if deletion.LaterStage(stage, deletion.StageDetachVolumes) == stage {
			at.DrainResult = "Drained"
		}
		if deletion.LaterStage(stage, deletion.StageDeleteInstance) == stage {
			at.PreTerminateHooks = nil
		}
		s := deletion.Decide(at)
		assert.Equal(t, stage, s.Stage)
		assert.Equal(t, want, s.Force, stage)
	}
}

// A node that is unknown, because its target cluster is not connected, is not gone.
func TestAnUnknownNodeIsDrainedAndItsVolumesDetached(t *testing.T) {
	unknown := func(f *deletion.Facts) { f.HasNode, f.NodeUnknown = false, true }
	nameless := func(f *deletion.Facts) { f.NodeName = "" }
	for name, row := range map[string]struct {
		facts deletion.Facts
		stage deletion.Stage
		why   string
	}{
		"it is to be drained": {machineWithoutHooks(unknown), deletion.StageDrain, "node n is to be drained"},
		"only the provider ID identifies it": {
			machineWithoutHooks(unknown, nameless), deletion.StageDrain, "the node with its provider ID is to be drained",
		},
		"it was drained": {
			machineWithoutHooks(unknown, withDrainResult("Drained")), deletion.StageDetachVolumes,
			"waits until the volumes of node n are detached",
		},
		"somebody excludes it": {machineWithoutHooks(unknown, withSkippedDrain), deletion.StageDeleteInstance, "the instance is to be deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			s := deletion.Decide(row.facts)
			assert.Equal(t, row.stage, s.Stage)
			assert.Equal(t, row.why, s.Why)
			assert.False(t, s.Announce, "nothing can be written to it")
		})
	}
}

func TestWhichStepsSetTheTerminatingCondition(t *testing.T) {
	for name, row := range map[string]struct {
		facts deletion.Facts
		told  bool
	}{
		"hooks hold it":                          {machineWithWorkInEveryStage(), true},
		"it is not drained":                      {machineWithoutHooks(withSkippedDrain), true},
		"its drain is on record":                 {machineWithoutHooks(withRecordedStage(deletion.StageDrain)), true},
		"it may have no pod":                     {machineWithoutHooks(), false},
		"it may have no pod, as in MCM":          {machineWithoutHooks(withMCMBehaviour), true},
		"it has none":                            {machineWithoutHooks(withCompletedStage(deletion.StageDrain)), false},
		"its drain is over":                      {machineWithoutHooks(withRecordedStage(deletion.StageDrain), withDrainResult("Drained")), false},
		"a later stage is recorded: it was told": {machineWithoutHooks(withRecordedStage(deletion.StageDeleteInstance)), false},
		"a machine without a node":               {machineWithoutHooks(withoutNodeName), false},
		"a node that is gone, or another's":      {machineWithoutHooks(withoutNode), false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, row.told, deletion.Decide(row.facts).Announce)
		})
	}
}

func TestSkippedDrainHasAReason(t *testing.T) {
	for name, row := range map[string]struct {
		facts   deletion.Facts
		skipped string
	}{
		"no node name":                                {machineWithoutHooks(withoutNodeName), "the machine never had a node"},
		"the node is gone":                            {machineWithoutHooks(withoutNode), "there is no node n"},
		"somebody excludes it":                        {machineWithoutHooks(withSkippedDrain), "somebody excludes it"},
		"that there is no node is said first":         {machineWithoutHooks(withoutNodeName, withSkippedDrain), "the machine never had a node"},
		"the node goes while hooks hold the drain":    {machineWithoutHooks(withoutNode, withRecordedStage(deletion.StagePreDrainHooks)), "there is no node n"},
		"it is excluded while it is drained":          {machineWithoutHooks(withSkippedDrain, withRecordedStage(deletion.StageDrain)), "somebody excludes it"},
		"hooks hold the instance":                     {machineWithWorkInEveryStage(withSkippedDrain, withRecordedStage(deletion.StageDrain)), "somebody excludes it"},
		"not before it is over: hooks hold the drain": {machineWithWorkInEveryStage(withSkippedDrain), ""},
		"it runs":                        {machineWithoutHooks(withRecordedStage(deletion.StageDrain)), ""},
		"it ran":                         {machineWithoutHooks(withRecordedStage(deletion.StageDrain), withDrainResult("Drained")), ""},
		"it ran, and then the node went": {machineWithoutHooks(withoutNode, withRecordedStage(deletion.StageDrain), withDrainResult("Forced")), ""},
		"nothing stood on the node":      {machineWithoutHooks(withRecordedStage(deletion.StageDrain), withCompletedStage(deletion.StageDetachVolumes)), ""},
		"it is said once":                {machineWithoutHooks(withoutNodeName, withRecordedStage(deletion.StageDeleteInstance), withDrainResult("Skipped")), ""},
		// The node had no pods and was not drained. The node disappeared together with the instance.
		"nothing stood on the node, and by now it is gone": {machineWithoutHooks(withoutNode, withRecordedStage(deletion.StageDeleteInstance), withCompletedStage(deletion.StageDeleteInstance)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, row.skipped, deletion.Decide(row.facts).Skipped)
		})
	}
}

func TestANodeWithoutPodsCountsAsDrained(t *testing.T) {
	for name, row := range map[string]struct {
		facts deletion.Facts
		empty bool
	}{
		"the run has just looked":                {machineWithoutHooks(withRecordedStage(deletion.StageDrain), withCompletedStage(deletion.StageDetachVolumes)), true},
		"and hooks hold the instance":            {machineWithWorkInEveryStage(withRecordedStage(deletion.StageDrain), withCompletedStage(deletion.StageDetachVolumes)), true},
		"and the node went at that moment":       {machineWithoutHooks(withoutNode, withRecordedStage(deletion.StageDrain), withCompletedStage(deletion.StageDetachVolumes)), true},
		"the status says so":                     {machineWithoutHooks(withRecordedStage(deletion.StageDeleteInstance), withCompletedStage(deletion.StageDetachVolumes), withDrainResult("Drained")), false},
		"the run has done what comes before":     {machineWithoutHooks(withCompletedStage(deletion.StagePreDrainHooks)), false},
		"the run has done nothing":               {machineWithoutHooks(withRecordedStage(deletion.StageDeleteInstance)), false},
		"it was drained, and volumes were freed": {machineWithoutHooks(withRecordedStage(deletion.StageDetachVolumes), withCompletedStage(deletion.StageDetachVolumes), withDrainResult("Drained")), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := deletion.Decide(row.facts)
			assert.Equal(t, row.empty, s.Empty)
			assert.Empty(t, s.Skipped)
		})
	}
}

func TestAHoldKeepsTheDeletionInItsStage(t *testing.T) {
	held := func(f *deletion.Facts) { f.HoldReason = "alice: she looks" }
	for _, stage := range stageOrder {
		f := machineWithoutHooks(withRecordedStage(stage), held)
		f.DrainResult = "Drained"
		s := deletion.Decide(f)
		assert.Equal(t, []string{vocabulary.BlockedByHold}, s.BlockedBy, stage)
		assert.Equal(t, "held by alice (she looks)", s.Why, stage)
	}
	s := deletion.Decide(machineWithWorkInEveryStage(held))
	assert.Equal(t, []string{vocabulary.BlockedByHold}, s.BlockedBy, "also one that hooks hold")
	assert.Equal(t, deletion.StagePreDrainHooks, s.Stage)
}

func TestAbandonInstanceReleasesAMachineWithoutTheProvider(t *testing.T) {
	release := func(f *deletion.Facts) { f.AbandonReason = "alice has seen to it" }
	for name, row := range map[string]struct {
		facts    deletion.Facts
		stage    deletion.Stage
		released string
	}{
		"its node is drained all the same":           {machineWithoutHooks(release), deletion.StageDrain, ""},
		"and hooks are waited for":                   {machineWithWorkInEveryStage(release, withRecordedStage(deletion.StageDrain), withDrainResult("Drained"), withoutVolumes), deletion.StagePreTerminateHooks, ""},
		"then the instance is passed over":           {machineWithoutHooks(release, withRecordedStage(deletion.StageDrain), withDrainResult("Forced")), deletion.StageDeleteNode, "alice has seen to it"},
		"also one whose deletion is under way":       {machineWithoutHooks(release, withRecordedStage(deletion.StageDeleteInstance)), deletion.StageDeleteNode, "alice has seen to it"},
		"one without a node goes at once":            {machineWithoutHooks(withoutNodeName, release, withRecordedStage(deletion.StageDeleteInstance)), deletion.StageRemoveFinalizer, "alice has seen to it"},
		"it is said once":                            {machineWithoutHooks(release, withRecordedStage(deletion.StageDeleteNode)), deletion.StageDeleteNode, ""},
		"not of an instance that is gone":            {machineWithoutHooks(release, withRecordedStage(deletion.StageDeleteInstance), withCompletedStage(deletion.StageDeleteInstance)), deletion.StageDeleteNode, ""},
		"nor when everything is gone but the object": {machineWithoutHooks(release, withRecordedStage(deletion.StageDeleteNode), withCompletedStage(deletion.StageDeleteNode)), deletion.StageRemoveFinalizer, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := deletion.Decide(row.facts)
			assert.Equal(t, row.stage, s.Stage)
			assert.Equal(t, row.released, s.Abandoned)
		})
	}
}
