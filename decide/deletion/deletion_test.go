package deletion_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/deletion"
)

// stageOrder lists the stages in their order.
var stageOrder = []deletion.Stage{
	deletion.PreDrainHooks,
	deletion.Drain,
	deletion.Detach,
	deletion.PreTerminateHooks,
	deletion.Instance,
	deletion.Node,
	deletion.Release,
}

func TestTheOrderOfStages(t *testing.T) {
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
	assert.Equal(t, deletion.PreDrainHooks, deletion.NextStage(""), "the first one")
}

// machineWithAllWork returns a machine for which every stage has work to do.
func machineWithAllWork(change ...func(*deletion.Facts)) deletion.Facts {
	f := deletion.Facts{
		NodeName: "n", Node: true, Attached: 2, PreDrainHooks: []string{"pre"}, PreTerminateHooks: []string{"last"},
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

// machineWithoutHooks returns a machine with a node and without hooks.
func machineWithoutHooks(change ...func(*deletion.Facts)) deletion.Facts {
	return machineWithAllWork(
		append(
			[]func(*deletion.Facts){func(f *deletion.Facts) { f.PreDrainHooks, f.PreTerminateHooks = nil, nil }},
			change...)...)
}

func withRecordedStage(s deletion.Stage) func(*deletion.Facts) {
	return func(f *deletion.Facts) { f.Recorded = s }
}

func withDoneStage(s deletion.Stage) func(*deletion.Facts) {
	return func(f *deletion.Facts) { f.Done = s }
}

func withDrainResult(result string) func(*deletion.Facts) {
	return func(f *deletion.Facts) { f.Result = result }
}

func withMCMBehaviour(f *deletion.Facts)  { f.AsMCM = true }
func withForce(f *deletion.Facts)         { f.Force = "label force-deletion is set" }
func withSkippedDrain(f *deletion.Facts)  { f.Skip = "somebody excludes it" }
func withSkippedDetach(f *deletion.Facts) { f.SkipDetach = "somebody excludes it" }
func withoutNode(f *deletion.Facts)       { f.Node, f.Attached = false, 0 }
func withoutNodeName(f *deletion.Facts)   { f.Node, f.NodeName, f.Attached = false, "", 0 }
func withoutVolumes(f *deletion.Facts)    { f.Attached = 0 }

// TestDeletionPassesThroughAllStages executes each step: the test removes the hooks, and marks the work of each stage
// as done.
func TestDeletionPassesThroughAllStages(t *testing.T) {
	f := machineWithAllWork()
	var went []deletion.Stage
	for range stageOrder {
		s := deletion.Decide(f)
		went = append(went, s.Stage)
		assert.Equal(t, s.Stage == deletion.PreDrainHooks, s.Announce, "%s: the node is told at the beginning", s.Stage)
		assert.True(t, s.Record, "%s: and the status before each stage", s.Stage)
		assert.NotEmpty(t, s.Why, s.Stage)
		f.Recorded = s.Stage
		again := deletion.Decide(f)
		assert.Equal(t, s.Stage, again.Stage, "as long as it is not done")
		assert.False(t, again.Record, "%s is recorded", s.Stage)
		assert.Equal(t, s.Stage == deletion.Drain, again.Announce, "and before its pods go")
		switch s.Stage {
		case deletion.PreDrainHooks:
			f.PreDrainHooks = nil
		case deletion.Drain:
			f.Result = "Drained"
		case deletion.Detach:
			f.Attached = 0
		case deletion.PreTerminateHooks:
			f.PreTerminateHooks = nil
		default:
			f.Done = s.Stage
		}
	}
	assert.Equal(t, stageOrder, went)
}

func TestNextStage(t *testing.T) {
	for name, row := range map[string]struct {
		facts deletion.Facts
		stage deletion.Stage
	}{
		"it begins with its hooks":                               {machineWithAllWork(), deletion.PreDrainHooks},
		"without any, with the drain":                            {machineWithoutHooks(), deletion.Drain},
		"the machine is not excluded from the drain":             {machineWithoutHooks(withRecordedStage(deletion.PreDrainHooks)), deletion.Drain},
		"the machine is excluded from the drain":                 {machineWithoutHooks(withSkippedDrain), deletion.Instance},
		"no node name":                                           {machineWithoutHooks(withoutNodeName), deletion.Instance},
		"there is no node":                                       {machineWithoutHooks(withoutNode), deletion.Instance},
		"the instance is gone, and its stage is recorded":        {machineWithoutHooks(withRecordedStage(deletion.Instance), withDoneStage(deletion.Instance)), deletion.Node},
		"the instance is being deleted":                          {machineWithoutHooks(withRecordedStage(deletion.Instance)), deletion.Instance},
		"hooks that hold the instance: it is not drained anew":   {machineWithAllWork(withRecordedStage(deletion.PreTerminateHooks)), deletion.PreTerminateHooks},
		"and no volume is waited for":                            {machineWithAllWork(withRecordedStage(deletion.PreTerminateHooks), withDrainResult("Drained")), deletion.PreTerminateHooks},
		"the instance is gone and the drain had not ended":       {machineWithoutHooks(withRecordedStage(deletion.Node)), deletion.Node},
		"a node that has come back":                              {machineWithoutHooks(withRecordedStage(deletion.Instance), withDrainResult("Skipped")), deletion.Instance},
		"what is recorded is done, whatever else is":             {machineWithoutHooks(withRecordedStage(deletion.Release)), deletion.Release},
		"a drain that goes on":                                   {machineWithoutHooks(withRecordedStage(deletion.Drain)), deletion.Drain},
		"drained, and volumes are attached":                      {machineWithoutHooks(withRecordedStage(deletion.Drain), withDrainResult("Drained")), deletion.Detach},
		"the machine is not excluded from the wait for volumes":  {machineWithoutHooks(withRecordedStage(deletion.Detach), withDrainResult("Drained")), deletion.Detach},
		"drained, and none is":                                   {machineWithoutHooks(withRecordedStage(deletion.Drain), withDrainResult("Drained"), withoutVolumes), deletion.Instance},
		"the machine is excluded from the wait for volumes":      {machineWithoutHooks(withRecordedStage(deletion.Drain), withDrainResult("Drained"), withSkippedDetach), deletion.Instance},
		"by force, with volumes attached":                        {machineWithoutHooks(withRecordedStage(deletion.Drain), withDrainResult("Forced")), deletion.Instance},
		"by force, without volumes":                              {machineWithoutHooks(withRecordedStage(deletion.Drain), withDrainResult("Forced"), withoutVolumes), deletion.Instance},
		"nobody was asked to go, and nothing is detached":        {machineWithoutHooks(withRecordedStage(deletion.Drain), withDrainResult("Skipped")), deletion.Instance},
		"a node that is gone holds no volumes":                   {machineWithAllWork(withRecordedStage(deletion.Detach), withDrainResult("Drained"), withoutNode), deletion.PreTerminateHooks},
		"the wait for volumes is over":                           {machineWithoutHooks(withRecordedStage(deletion.Detach), withDrainResult("Drained"), withDoneStage(deletion.Detach)), deletion.Instance},
		"a node on which nothing stands":                         {machineWithoutHooks(withRecordedStage(deletion.Drain), withDoneStage(deletion.Detach)), deletion.Instance},
		"nothing is known of an instance: the provider is asked": {machineWithoutHooks(withoutNodeName, withRecordedStage(deletion.PreDrainHooks)), deletion.Instance},
		"the instance is gone":                                   {machineWithoutHooks(withDoneStage(deletion.Instance)), deletion.Node},
		"its node is not in the cache":                           {machineWithoutHooks(withoutNode, withDoneStage(deletion.Instance)), deletion.Node},
		"the machine has no node: nothing to remove":             {machineWithoutHooks(withoutNodeName, withRecordedStage(deletion.Instance), withDoneStage(deletion.Instance)), deletion.Release},
		"the node is gone":                                       {machineWithoutHooks(withoutNode, withRecordedStage(deletion.Node), withDoneStage(deletion.Node)), deletion.Release},
		"no target: straight to the instance":                    {deletion.Facts{}, deletion.Instance},
		"no target: no node is touched":                          {deletion.Facts{Recorded: deletion.Instance, Done: deletion.Instance}, deletion.Release},
		"no target any more, but a name: no node is there":       {deletion.Facts{NodeName: "n"}, deletion.Instance},
		"the run knows more than the status":                     {machineWithAllWork(withRecordedStage(deletion.PreDrainHooks), withDoneStage(deletion.Detach)), deletion.PreTerminateHooks},
		"the status knows more than the run":                     {machineWithAllWork(withRecordedStage(deletion.Node), withDoneStage(deletion.PreDrainHooks)), deletion.Node},
		"a hook that comes when it is over":                      {machineWithAllWork(withRecordedStage(deletion.Drain)), deletion.Drain},
		"a hook that comes after the drain, in time":             {machineWithAllWork(withRecordedStage(deletion.Drain), withDrainResult("Drained"), withoutVolumes), deletion.PreTerminateHooks},
		"a hook that comes when the instance goes":               {machineWithAllWork(withRecordedStage(deletion.Instance)), deletion.Instance},
		"a volume that comes when the wait is over":              {machineWithoutHooks(withRecordedStage(deletion.Instance), withDrainResult("Drained")), deletion.Instance},
	} {
		t.Run(name, func(t *testing.T) {
			s := deletion.Decide(row.facts)
			assert.Equal(t, row.stage, s.Stage)
			assert.NotEmpty(t, s.Why)
			assert.Equal(t, row.facts.Recorded != row.stage, s.Record)
		})
	}
}
