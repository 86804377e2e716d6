package deletion_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/deletion"
)

// order is that of the stages.
var order = []deletion.Stage{
	deletion.PreDrainHooks,
	deletion.Drain,
	deletion.Detach,
	deletion.PreTerminateHooks,
	deletion.Instance,
	deletion.Node,
	deletion.Release,
}

func TestTheOrderOfStages(t *testing.T) {
	for i, stage := range order {
		assert.Equal(t, order[min(i+1, len(order)-1)], deletion.After(stage), "after %s", stage)
		assert.Equal(t, stage, deletion.Later(stage, stage))
		assert.Equal(t, stage, deletion.Later("", stage), "nothing comes before all")
		assert.Equal(t, stage, deletion.Later(stage, ""))
		assert.Equal(t, stage, deletion.Later("Unheard", stage), "and so does what is not known")
		assert.Equal(t, stage, deletion.Later(stage, "Unheard"))
		for _, before := range order[:i] {
			assert.Equal(t, stage, deletion.Later(before, stage))
			assert.Equal(t, stage, deletion.Later(stage, before))
		}
	}
	assert.Equal(t, deletion.PreDrainHooks, deletion.After(""), "the first one")
}

// full is a machine with everything that keeps each stage busy.
func full(change ...func(*deletion.Facts)) deletion.Facts {
	f := deletion.Facts{
		NodeName: "n", Node: true, Attached: 2, PreDrainHooks: []string{"pre"}, PreTerminateHooks: []string{"last"},
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

// busy is one with a node, and nothing in its way.
func busy(change ...func(*deletion.Facts)) deletion.Facts {
	return full(
		append(
			[]func(*deletion.Facts){func(f *deletion.Facts) { f.PreDrainHooks, f.PreTerminateHooks = nil, nil }},
			change...)...)
}

func recorded(s deletion.Stage) func(*deletion.Facts) {
	return func(f *deletion.Facts) { f.Recorded = s }
}

func done(s deletion.Stage) func(*deletion.Facts) {
	return func(f *deletion.Facts) { f.Done = s }
}

func ended(result string) func(*deletion.Facts) {
	return func(f *deletion.Facts) { f.Result = result }
}

func asMCM(f *deletion.Facts)          { f.AsMCM = true }
func forced(f *deletion.Facts)         { f.Force = "label force-deletion is set" }
func excluded(f *deletion.Facts)       { f.Skip = "somebody excludes it" }
func detachExcluded(f *deletion.Facts) { f.SkipDetach = "somebody excludes it" }
func lostNode(f *deletion.Facts)       { f.Node, f.Attached = false, 0 }
func nodeless(f *deletion.Facts)       { f.Node, f.NodeName, f.Attached = false, "", 0 }
func detached(f *deletion.Facts)       { f.Attached = 0 }

// TestADeletionFromBeginningToEnd takes each step as it comes: somebody takes the hooks off, and what a stage does is
// done.
func TestADeletionFromBeginningToEnd(t *testing.T) {
	f := full()
	var went []deletion.Stage
	for range order {
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
	assert.Equal(t, order, went)
}

func TestWhatComesNext(t *testing.T) {
	for name, row := range map[string]struct {
		facts deletion.Facts
		stage deletion.Stage
	}{
		"it begins with its hooks":                               {full(), deletion.PreDrainHooks},
		"without any, with the drain":                            {busy(), deletion.Drain},
		"the machine is not excluded from the drain":             {busy(recorded(deletion.PreDrainHooks)), deletion.Drain},
		"the machine is excluded from the drain":                 {busy(excluded), deletion.Instance},
		"no node name":                                           {busy(nodeless), deletion.Instance},
		"there is no node":                                       {busy(lostNode), deletion.Instance},
		"the instance is gone, and its stage is recorded":        {busy(recorded(deletion.Instance), done(deletion.Instance)), deletion.Node},
		"the instance is being deleted":                          {busy(recorded(deletion.Instance)), deletion.Instance},
		"hooks that hold the instance: it is not drained anew":   {full(recorded(deletion.PreTerminateHooks)), deletion.PreTerminateHooks},
		"and no volume is waited for":                            {full(recorded(deletion.PreTerminateHooks), ended("Drained")), deletion.PreTerminateHooks},
		"the instance is gone and the drain had not ended":       {busy(recorded(deletion.Node)), deletion.Node},
		"a node that has come back":                              {busy(recorded(deletion.Instance), ended("Skipped")), deletion.Instance},
		"what is recorded is done, whatever else is":             {busy(recorded(deletion.Release)), deletion.Release},
		"a drain that goes on":                                   {busy(recorded(deletion.Drain)), deletion.Drain},
		"drained, and volumes are attached":                      {busy(recorded(deletion.Drain), ended("Drained")), deletion.Detach},
		"the machine is not excluded from the wait for volumes":  {busy(recorded(deletion.Detach), ended("Drained")), deletion.Detach},
		"drained, and none is":                                   {busy(recorded(deletion.Drain), ended("Drained"), detached), deletion.Instance},
		"the machine is excluded from the wait for volumes":      {busy(recorded(deletion.Drain), ended("Drained"), detachExcluded), deletion.Instance},
		"by force, with volumes attached":                        {busy(recorded(deletion.Drain), ended("Forced")), deletion.Instance},
		"by force, without volumes":                              {busy(recorded(deletion.Drain), ended("Forced"), detached), deletion.Instance},
		"nobody was asked to go, and nothing is detached":        {busy(recorded(deletion.Drain), ended("Skipped")), deletion.Instance},
		"a node that is gone holds no volumes":                   {full(recorded(deletion.Detach), ended("Drained"), lostNode), deletion.PreTerminateHooks},
		"the wait for volumes is over":                           {busy(recorded(deletion.Detach), ended("Drained"), done(deletion.Detach)), deletion.Instance},
		"a node on which nothing stands":                         {busy(recorded(deletion.Drain), done(deletion.Detach)), deletion.Instance},
		"nothing is known of an instance: the provider is asked": {busy(nodeless, recorded(deletion.PreDrainHooks)), deletion.Instance},
		"the instance is gone":                                   {busy(done(deletion.Instance)), deletion.Node},
		"its node is not in the cache":                           {busy(lostNode, done(deletion.Instance)), deletion.Node},
		"the machine has no node: nothing to remove":             {busy(nodeless, recorded(deletion.Instance), done(deletion.Instance)), deletion.Release},
		"the node is gone":                                       {busy(lostNode, recorded(deletion.Node), done(deletion.Node)), deletion.Release},
		"no target: straight to the instance":                    {deletion.Facts{}, deletion.Instance},
		"no target: no node is touched":                          {deletion.Facts{Recorded: deletion.Instance, Done: deletion.Instance}, deletion.Release},
		"no target any more, but a name: no node is there":       {deletion.Facts{NodeName: "n"}, deletion.Instance},
		"the run knows more than the status":                     {full(recorded(deletion.PreDrainHooks), done(deletion.Detach)), deletion.PreTerminateHooks},
		"the status knows more than the run":                     {full(recorded(deletion.Node), done(deletion.PreDrainHooks)), deletion.Node},
		"a hook that comes when it is over":                      {full(recorded(deletion.Drain)), deletion.Drain},
		"a hook that comes after the drain, in time":             {full(recorded(deletion.Drain), ended("Drained"), detached), deletion.PreTerminateHooks},
		"a hook that comes when the instance goes":               {full(recorded(deletion.Instance)), deletion.Instance},
		"a volume that comes when the wait is over":              {busy(recorded(deletion.Instance), ended("Drained")), deletion.Instance},
	} {
		t.Run(name, func(t *testing.T) {
			s := deletion.Decide(row.facts)
			assert.Equal(t, row.stage, s.Stage)
			assert.NotEmpty(t, s.Why)
			assert.Equal(t, row.facts.Recorded != row.stage, s.Record)
		})
	}
}
