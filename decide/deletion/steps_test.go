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
			full(), deletion.PreDrainHooks, []string{"pre"}, "waits until these pre-drain hooks are removed: pre",
		},
		"several, in the order of their names": {
			full(func(f *deletion.Facts) { f.PreDrainHooks = two }), deletion.PreDrainHooks,
			[]string{"hook/a", "hook/b"},
			"waits until these pre-drain hooks are removed: hook/a, hook/b",
		},
		"also a node that is not drained": {
			full(excluded), deletion.PreDrainHooks, []string{"pre"}, "waits until these pre-drain hooks are removed: pre",
		},
		"without a node nothing is drained, and nobody waits": {
			full(lostNode), deletion.PreTerminateHooks, []string{"last"}, "waits until these pre-terminate hooks are removed: last",
		},
		"a machine that never had one is still held before its instance goes": {
			full(nodeless), deletion.PreTerminateHooks, []string{"last"}, "waits until these pre-terminate hooks are removed: last",
		},
		"none is in the way": {busy(), deletion.Drain, nil, "node n is to be drained"},
	} {
		t.Run(name, func(t *testing.T) {
			s := deletion.Decide(row.facts)
			assert.Equal(t, deletion.Step{
				Stage:     row.stage,
				Record:    true,
				Announce:  row.facts.Node && row.stage != deletion.Drain,
				BlockedBy: row.blockedBy,
				Why:       row.why,
				Skipped:   s.Skipped,
				Hurry:     row.facts.Skip != "",
			}, s)
		})
	}
	assert.Equal(t, []string{"hook/b", "hook/a"}, two, "the facts stay as they are")
}

// A status and a search attribute name the first hooks, and the sentence counts the others.
func TestManyHooksAreCounted(t *testing.T) {
	var forty []string
	for i := range 40 {
		forty = append(forty, fmt.Sprintf("pre-drain.delete.hook.machine.cluster.x-k8s.io/%063d", i))
	}
	for name, facts := range map[string]deletion.Facts{
		"pre-drain":     full(func(f *deletion.Facts) { f.PreDrainHooks = forty }),
		"pre-terminate": full(recorded(deletion.PreTerminateHooks), func(f *deletion.Facts) { f.PreTerminateHooks = forty }),
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

func TestWhatEachStageSays(t *testing.T) {
	for _, row := range []struct {
		facts deletion.Facts
		want  string
	}{
		{busy(), "node n is to be drained"},
		{busy(ended("Drained")), "waits until the volumes of node n are detached"},
		{busy(excluded), "the instance is to be deleted"},
		{busy(done(deletion.Instance)), "the instance is gone; node n is to be deleted"},
		{busy(done(deletion.Node)), "instance and node are gone; our finalizer is to be removed"},
	} {
		assert.Equal(t, row.want, deletion.Decide(row.facts).Why)
	}
}

// Force waits for no cluster as long as the instance is there, and waits for the removal of the node.
func TestForceEndsTheWaitsBeforeTheInstanceIsDeleted(t *testing.T) {
	for stage, want := range map[deletion.Stage]bool{
		deletion.PreDrainHooks: true, deletion.Drain: true, deletion.Detach: true, deletion.PreTerminateHooks: true,
		deletion.Instance: false, deletion.Node: false, deletion.Release: false,
	} {
		at := full(recorded(stage), forced)
		if stage != deletion.PreDrainHooks {
			at.PreDrainHooks = nil
		}
		if deletion.Later(stage, deletion.Detach) == stage {
			at.Result = "Drained"
		}
		if deletion.Later(stage, deletion.Instance) == stage {
			at.PreTerminateHooks = nil
		}
		s := deletion.Decide(at)
		assert.Equal(t, stage, s.Stage)
		assert.Equal(t, want, s.Force, stage)
	}
}

func TestANodeIsToldAtTheBeginning(t *testing.T) {
	for name, row := range map[string]struct {
		facts deletion.Facts
		told  bool
	}{
		"hooks hold it":                          {full(), true},
		"it is not drained":                      {busy(excluded), true},
		"its drain is on record":                 {busy(recorded(deletion.Drain)), true},
		"it may have no pod":                     {busy(), false},
		"it may have no pod, as in MCM":          {busy(asMCM), true},
		"it has none":                            {busy(done(deletion.Drain)), false},
		"its drain is over":                      {busy(recorded(deletion.Drain), ended("Drained")), false},
		"a later stage is recorded: it was told": {busy(recorded(deletion.Instance)), false},
		"a machine without a node":               {busy(nodeless), false},
		"a node that is gone, or another's":      {busy(lostNode), false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, row.told, deletion.Decide(row.facts).Announce)
		})
	}
}

func TestADrainThatIsSkippedSaysWhy(t *testing.T) {
	for name, row := range map[string]struct {
		facts   deletion.Facts
		skipped string
	}{
		"no node name":                                {busy(nodeless), "the machine never had a node"},
		"the node is gone":                            {busy(lostNode), "there is no node n"},
		"somebody excludes it":                        {busy(excluded), "somebody excludes it"},
		"that there is no node is said first":         {busy(nodeless, excluded), "the machine never had a node"},
		"the node goes while hooks hold the drain":    {busy(lostNode, recorded(deletion.PreDrainHooks)), "there is no node n"},
		"it is excluded while it is drained":          {busy(excluded, recorded(deletion.Drain)), "somebody excludes it"},
		"hooks hold the instance":                     {full(excluded, recorded(deletion.Drain)), "somebody excludes it"},
		"not before it is over: hooks hold the drain": {full(excluded), ""},
		"it runs":                        {busy(recorded(deletion.Drain)), ""},
		"it ran":                         {busy(recorded(deletion.Drain), ended("Drained")), ""},
		"it ran, and then the node went": {busy(lostNode, recorded(deletion.Drain), ended("Forced")), ""},
		"nothing stood on the node":      {busy(recorded(deletion.Drain), done(deletion.Detach)), ""},
		"it is said once":                {busy(nodeless, recorded(deletion.Instance), ended("Skipped")), ""},
		// Nothing stood on it, so that no drain ran; when the instance goes, its node goes with it.
		"nothing stood on the node, and by now it is gone": {busy(lostNode, recorded(deletion.Instance), done(deletion.Instance)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, row.skipped, deletion.Decide(row.facts).Skipped)
		})
	}
}

func TestANodeOnWhichNothingStoodCountsAsDrained(t *testing.T) {
	for name, row := range map[string]struct {
		facts deletion.Facts
		empty bool
	}{
		"the run has just looked":                {busy(recorded(deletion.Drain), done(deletion.Detach)), true},
		"and hooks hold the instance":            {full(recorded(deletion.Drain), done(deletion.Detach)), true},
		"and the node went at that moment":       {busy(lostNode, recorded(deletion.Drain), done(deletion.Detach)), true},
		"the status says so":                     {busy(recorded(deletion.Instance), done(deletion.Detach), ended("Drained")), false},
		"the run has done what comes before":     {busy(done(deletion.PreDrainHooks)), false},
		"the run has done nothing":               {busy(recorded(deletion.Instance)), false},
		"it was drained, and volumes were freed": {busy(recorded(deletion.Detach), done(deletion.Detach), ended("Drained")), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := deletion.Decide(row.facts)
			assert.Equal(t, row.empty, s.Empty)
			assert.Empty(t, s.Skipped)
		})
	}
}

func TestPeopleHoldADeletionWhereItIs(t *testing.T) {
	held := func(f *deletion.Facts) { f.Hold = "alice: she looks" }
	for _, stage := range order {
		f := busy(recorded(stage), held)
		f.Result = "Drained"
		s := deletion.Decide(f)
		assert.Equal(t, []string{vocabulary.BlockedHold}, s.BlockedBy, stage)
		assert.Equal(t, "held by alice (she looks)", s.Why, stage)
	}
	s := deletion.Decide(full(held))
	assert.Equal(t, []string{vocabulary.BlockedHold}, s.BlockedBy, "also one that hooks hold")
	assert.Equal(t, deletion.PreDrainHooks, s.Stage)
}

func TestPeopleReleaseAMachineWithoutItsProvider(t *testing.T) {
	release := func(f *deletion.Facts) { f.Abandon = "alice has seen to it" }
	for name, row := range map[string]struct {
		facts    deletion.Facts
		stage    deletion.Stage
		released string
	}{
		"its node is drained all the same":           {busy(release), deletion.Drain, ""},
		"and hooks are waited for":                   {full(release, recorded(deletion.Drain), ended("Drained"), detached), deletion.PreTerminateHooks, ""},
		"then the instance is passed over":           {busy(release, recorded(deletion.Drain), ended("Forced")), deletion.Node, "alice has seen to it"},
		"also one whose deletion is under way":       {busy(release, recorded(deletion.Instance)), deletion.Node, "alice has seen to it"},
		"one without a node goes at once":            {busy(nodeless, release, recorded(deletion.Instance)), deletion.Release, "alice has seen to it"},
		"it is said once":                            {busy(release, recorded(deletion.Node)), deletion.Node, ""},
		"not of an instance that is gone":            {busy(release, recorded(deletion.Instance), done(deletion.Instance)), deletion.Node, ""},
		"nor when everything is gone but the object": {busy(release, recorded(deletion.Node), done(deletion.Node)), deletion.Release, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := deletion.Decide(row.facts)
			assert.Equal(t, row.stage, s.Stage)
			assert.Equal(t, row.released, s.Abandoned)
		})
	}
}
