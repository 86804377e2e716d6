package deletion_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/deletion"
)

// stageOrder lists the stages in their order.
var stageOrder = []deletion.Stage{
	deletion.StagePreDrainHooks,
	deletion.StageDrain,
	deletion.StageDetachVolumes,
	deletion.StagePreTerminateHooks,
	deletion.StageDeleteInstance,
	deletion.StageDeleteNode,
	deletion.StageRemoveFinalizer,
}

func TestLaterStageAndNextStageFollowTheOrder(t *testing.T) {
	for i, stage := range stageOrder {
		assert.Equal(t, stageOrder[min(i+1, len(stageOrder)-1)], deletion.NextStage(stage), "after %s", stage)
		assert.Equal(t, stage, deletion.LaterStage(stage, stage))
		assert.Equal(t, stage, deletion.LaterStage("", stage), "nothing comes before all")
		assert.Equal(t, stage, deletion.LaterStage(stage, ""))
		assert.Equal(t, stage, deletion.LaterStage("Unheard", stage), "and so does what is not known")
		assert.Equal(t, stage, deletion.LaterStage(stage, "Unheard"))
		for _, before := range stageOrder[:i] {
			assert.Equal(t, stage, deletion.LaterStage(before, stage))
			assert.Equal(t, stage, deletion.LaterStage(stage, before))
		}
	}
	assert.Equal(t, deletion.StagePreDrainHooks, deletion.NextStage(""), "the first one")
}

// machineWithWorkInEveryStage returns a machine for which every stage has work to do.
func machineWithWorkInEveryStage(change ...func(*deletion.Facts)) deletion.Facts {
	f := deletion.Facts{
		NodeName:            "n",
		HasNode:             true,
		AttachedVolumeCount: 2,
		PreDrainHooks:       []string{"pre"},
		PreTerminateHooks:   []string{"last"},
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

// machineWithoutHooks returns a machine with a node and without hooks.
func machineWithoutHooks(change ...func(*deletion.Facts)) deletion.Facts {
	return machineWithWorkInEveryStage(
		append(
			[]func(*deletion.Facts){func(f *deletion.Facts) { f.PreDrainHooks, f.PreTerminateHooks = nil, nil }},
			change...)...)
}

func withRecordedStage(s deletion.Stage) func(*deletion.Facts) {
	return func(f *deletion.Facts) { f.RecordedStage = s }
}

func withCompletedStage(s deletion.Stage) func(*deletion.Facts) {
	return func(f *deletion.Facts) { f.CompletedStage = s }
}

func withDrainResult(result string) func(*deletion.Facts) {
	return func(f *deletion.Facts) { f.DrainResult = result }
}

func withMCMBehaviour(f *deletion.Facts)  { f.BehavesAsMCM = true }
func withForceReason(f *deletion.Facts)   { f.ForceReason = "label force-deletion is set" }
func withSkippedDrain(f *deletion.Facts)  { f.SkipDrainReason = "somebody excludes it" }
func withSkippedDetach(f *deletion.Facts) { f.SkipDetachReason = "somebody excludes it" }
func withoutNode(f *deletion.Facts)       { f.HasNode, f.AttachedVolumeCount = false, 0 }
func withoutNodeName(f *deletion.Facts)   { f.HasNode, f.NodeName, f.AttachedVolumeCount = false, "", 0 }
func withoutVolumes(f *deletion.Facts)    { f.AttachedVolumeCount = 0 }

// TestDeletionPassesThroughAllStages executes each step: the test removes the hooks, and marks the work of each stage
// as done.
func TestDeletionPassesThroughAllStages(t *testing.T) {
	f := machineWithWorkInEveryStage()
	var went []deletion.Stage
	for range stageOrder {
		s := deletion.Decide(f)
		went = append(went, s.Stage)
		assert.Equal(t, s.Stage == deletion.StagePreDrainHooks, s.Announce, "%s: the node is told at the beginning", s.Stage)
		assert.True(t, s.Record, "%s: and the status before each stage", s.Stage)
		assert.NotEmpty(t, s.Why, s.Stage)
		f.RecordedStage = s.Stage
		again := deletion.Decide(f)
		assert.Equal(t, s.Stage, again.Stage, "as long as it is not done")
		assert.False(t, again.Record, "%s is recorded", s.Stage)
		assert.Equal(t, s.Stage == deletion.StageDrain, again.Announce, "and before its pods go")
		switch s.Stage {
		case deletion.StagePreDrainHooks:
			f.PreDrainHooks = nil
		case deletion.StageDrain:
			f.DrainResult = "Drained"
		case deletion.StageDetachVolumes:
			f.AttachedVolumeCount = 0
		case deletion.StagePreTerminateHooks:
			f.PreTerminateHooks = nil
		default:
			f.CompletedStage = s.Stage
		}
	}
	assert.Equal(t, stageOrder, went)
}

func TestNextStage(t *testing.T) {
	for name, row := range map[string]struct {
		facts deletion.Facts
		stage deletion.Stage
	}{
		"it begins with its hooks":                               {machineWithWorkInEveryStage(), deletion.StagePreDrainHooks},
		"without any, with the drain":                            {machineWithoutHooks(), deletion.StageDrain},
		"the machine is not excluded from the drain":             {machineWithoutHooks(withRecordedStage(deletion.StagePreDrainHooks)), deletion.StageDrain},
		"the machine is excluded from the drain":                 {machineWithoutHooks(withSkippedDrain), deletion.StageDeleteInstance},
		"no node name":                                           {machineWithoutHooks(withoutNodeName), deletion.StageDeleteInstance},
		"there is no node":                                       {machineWithoutHooks(withoutNode), deletion.StageDeleteInstance},
		"the instance is gone, and its stage is recorded":        {machineWithoutHooks(withRecordedStage(deletion.StageDeleteInstance), withCompletedStage(deletion.StageDeleteInstance)), deletion.StageDeleteNode},
		"the instance is being deleted":                          {machineWithoutHooks(withRecordedStage(deletion.StageDeleteInstance)), deletion.StageDeleteInstance},
		"hooks that hold the instance: it is not drained anew":   {machineWithWorkInEveryStage(withRecordedStage(deletion.StagePreTerminateHooks)), deletion.StagePreTerminateHooks},
		"and no volume is waited for":                            {machineWithWorkInEveryStage(withRecordedStage(deletion.StagePreTerminateHooks), withDrainResult("Drained")), deletion.StagePreTerminateHooks},
		"the instance is gone and the drain had not ended":       {machineWithoutHooks(withRecordedStage(deletion.StageDeleteNode)), deletion.StageDeleteNode},
		"a node that has come back":                              {machineWithoutHooks(withRecordedStage(deletion.StageDeleteInstance), withDrainResult("Skipped")), deletion.StageDeleteInstance},
		"what is recorded is done, whatever else is":             {machineWithoutHooks(withRecordedStage(deletion.StageRemoveFinalizer)), deletion.StageRemoveFinalizer},
		"a drain that goes on":                                   {machineWithoutHooks(withRecordedStage(deletion.StageDrain)), deletion.StageDrain},
		"drained, and volumes are attached":                      {machineWithoutHooks(withRecordedStage(deletion.StageDrain), withDrainResult("Drained")), deletion.StageDetachVolumes},
		"the machine is not excluded from the wait for volumes":  {machineWithoutHooks(withRecordedStage(deletion.StageDetachVolumes), withDrainResult("Drained")), deletion.StageDetachVolumes},
		"drained, and none is":                                   {machineWithoutHooks(withRecordedStage(deletion.StageDrain), withDrainResult("Drained"), withoutVolumes), deletion.StageDeleteInstance},
		"the machine is excluded from the wait for volumes":      {machineWithoutHooks(withRecordedStage(deletion.StageDrain), withDrainResult("Drained"), withSkippedDetach), deletion.StageDeleteInstance},
		"by force, with volumes attached":                        {machineWithoutHooks(withRecordedStage(deletion.StageDrain), withDrainResult("Forced")), deletion.StageDeleteInstance},
		"by force, without volumes":                              {machineWithoutHooks(withRecordedStage(deletion.StageDrain), withDrainResult("Forced"), withoutVolumes), deletion.StageDeleteInstance},
		"nobody was asked to go, and nothing is detached":        {machineWithoutHooks(withRecordedStage(deletion.StageDrain), withDrainResult("Skipped")), deletion.StageDeleteInstance},
		"a node that is gone holds no volumes":                   {machineWithWorkInEveryStage(withRecordedStage(deletion.StageDetachVolumes), withDrainResult("Drained"), withoutNode), deletion.StagePreTerminateHooks},
		"the wait for volumes is over":                           {machineWithoutHooks(withRecordedStage(deletion.StageDetachVolumes), withDrainResult("Drained"), withCompletedStage(deletion.StageDetachVolumes)), deletion.StageDeleteInstance},
		"a node on which nothing stands":                         {machineWithoutHooks(withRecordedStage(deletion.StageDrain), withCompletedStage(deletion.StageDetachVolumes)), deletion.StageDeleteInstance},
		"nothing is known of an instance: the provider is asked": {machineWithoutHooks(withoutNodeName, withRecordedStage(deletion.StagePreDrainHooks)), deletion.StageDeleteInstance},
		"the instance is gone":                                   {machineWithoutHooks(withCompletedStage(deletion.StageDeleteInstance)), deletion.StageDeleteNode},
		"its node is not in the cache":                           {machineWithoutHooks(withoutNode, withCompletedStage(deletion.StageDeleteInstance)), deletion.StageDeleteNode},
		"the machine has no node: nothing to remove":             {machineWithoutHooks(withoutNodeName, withRecordedStage(deletion.StageDeleteInstance), withCompletedStage(deletion.StageDeleteInstance)), deletion.StageRemoveFinalizer},
		"the node is gone":                                       {machineWithoutHooks(withoutNode, withRecordedStage(deletion.StageDeleteNode), withCompletedStage(deletion.StageDeleteNode)), deletion.StageRemoveFinalizer},
		"no target: straight to the instance":                    {deletion.Facts{}, deletion.StageDeleteInstance},
		"no target: no node is touched":                          {deletion.Facts{RecordedStage: deletion.StageDeleteInstance, CompletedStage: deletion.StageDeleteInstance}, deletion.StageRemoveFinalizer},
		"no target any more, but a name: no node is there":       {deletion.Facts{NodeName: "n"}, deletion.StageDeleteInstance},
		"the run knows more than the status":                     {machineWithWorkInEveryStage(withRecordedStage(deletion.StagePreDrainHooks), withCompletedStage(deletion.StageDetachVolumes)), deletion.StagePreTerminateHooks},
		"the status knows more than the run":                     {machineWithWorkInEveryStage(withRecordedStage(deletion.StageDeleteNode), withCompletedStage(deletion.StagePreDrainHooks)), deletion.StageDeleteNode},
		"a hook that comes when it is over":                      {machineWithWorkInEveryStage(withRecordedStage(deletion.StageDrain)), deletion.StageDrain},
		"a hook that comes after the drain, in time":             {machineWithWorkInEveryStage(withRecordedStage(deletion.StageDrain), withDrainResult("Drained"), withoutVolumes), deletion.StagePreTerminateHooks},
		"a hook that comes when the instance goes":               {machineWithWorkInEveryStage(withRecordedStage(deletion.StageDeleteInstance)), deletion.StageDeleteInstance},
		"a volume that comes when the wait is over":              {machineWithoutHooks(withRecordedStage(deletion.StageDeleteInstance), withDrainResult("Drained")), deletion.StageDeleteInstance},
	} {
		t.Run(name, func(t *testing.T) {
			s := deletion.Decide(row.facts)
			assert.Equal(t, row.stage, s.Stage)
			assert.NotEmpty(t, s.Why)
			assert.Equal(t, row.facts.RecordedStage != row.stage, s.Record)
		})
	}
}
