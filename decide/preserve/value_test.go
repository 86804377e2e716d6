package preserve_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/preserve"
)

func TestPrecedenceOfNodeAndMachineAnnotations(t *testing.T) {
	for _, row := range []struct {
		name  string
		facts preserve.Facts
		value string
		then  string // the annotations after all changes
	}{
		{"no node: that of the machine", runningMachineFacts(withoutNode, withMachineAnnotation("when-failed")), "when-failed", "machine=when-failed"},
		{"no node: one of the machine that is not known counts as none", runningMachineFacts(withoutNode, withMachineAnnotation("forever")), "", "machine=forever"},
		{"no node, and none on the machine", runningMachineFacts(withoutNode), "", ""},
		{"that of the node goes before that of the machine, which goes", runningMachineFacts(withNodeAnnotation("when-failed"), withMachineAnnotation("now")), "when-failed", "node=when-failed, last=when-failed"},
		{"none on the node, but the machine remembers one: stopped there", runningMachineFacts(withLastAppliedAnnotation("now")), "", ""},
		{"none on the node, nor remembered: that of the machine", runningMachineFacts(withMachineAnnotation("when-failed")), "when-failed", "machine=when-failed"},
		{"one of the node that is not known: nothing is done", runningMachineFacts(withNodeAnnotation("forever"), withMachineAnnotation("now")), "", "machine=now, node=forever"},

		{"one of the node that is not known, and the machine remembers another: nothing is done", runningMachineFacts(withNodeAnnotation("forever"), withLastAppliedAnnotation("now")), "", "node=forever, last=now"},
		{"false on the node goes before that of the machine", runningMachineFacts(withNodeAnnotation("false"), withMachineAnnotation("now")), "false", "node=false, last=false"},
		{"one that is not known on the machine makes way for that of the node", runningMachineFacts(withNodeAnnotation("false"), withMachineAnnotation("forever")), "false", "node=false, last=false"},
		{"false on the machine", runningMachineFacts(withMachineAnnotation("false")), "false", "machine=false"},
		{"an empty one on the node was never a wish", runningMachineFacts(withNodeAnnotation(""), withMachineAnnotation("when-failed")), "when-failed", "machine=when-failed, node="},
		{"emptied on the node: stopped there", runningMachineFacts(withNodeAnnotation(""), withLastAppliedAnnotation("when-failed")), "", "node="},
		{"the node has another one than the machine remembers", runningMachineFacts(withNodeAnnotation("when-failed"), withLastAppliedAnnotation("now")), "when-failed", "node=when-failed, last=when-failed"},
		{"no node, and the machine remembers one: its own", runningMachineFacts(withoutNode, withMachineAnnotation("when-failed"), withLastAppliedAnnotation("false")), "when-failed", "machine=when-failed"},
		{"values are exact", runningMachineFacts(withMachineAnnotation("Now")), "", "machine=Now"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := preserve.Decide(row.facts)
			assert.Equal(t, row.value, d.RequestedValue)
			assert.False(t, d.IsPreserved)
			assert.Equal(t, row.then, renderFacts(applyAllChanges(t, row.facts)))
		})
	}
}

func TestMachineAnnotationAppliesAfterNodeAnnotationIsRemoved(t *testing.T) {
	f := runningMachineFacts(
		withLastAppliedAnnotation("now"),
		withMachineAnnotation("now"),
		asFailedMachine,
	) // a person moved the annotation from the node to the machine
	d := preserve.Decide(f)
	assert.False(t, d.IsPreserved, "the node's was stopped")
	f = applyDecision(f, d)
	assert.Equal(t, "machine=now", renderFacts(f))
	assert.True(t, preserve.PreventsReplacement(f), "nobody takes it in between")
	assert.True(t, preserve.Decide(f).IsPreserved)
}

func TestAnUnknownNodeAnnotationValueChangesNothing(t *testing.T) {
	whole := runningMachineFacts(withNodeAnnotation("now"), asFailedMachine, withCompletePreservation(t))
	for name, f := range map[string]preserve.Facts{
		"preserved":                whole,
		"preserved, half":          runningMachineFacts(withNodeAnnotation("now"), asFailedMachine, func(f *preserve.Facts) { f.Expiry = noonPlus96h }),
		"preserved, for attention": runningMachineFacts(withoutCurrentTime, func(f *preserve.Facts) { f.Expiry = noonPlus96h }),
	} {
		t.Run(name, func(t *testing.T) {
			f.OnNode = annotationWithText("forever")
			assert.Equal(
				t,
				preserve.Decision{IsPreserved: true, Expiry: noonPlus96h},
				preserve.Decide(f),
				"its end stands, and nothing changes",
			)
		})
	}
	for name, f := range map[string]preserve.Facts{
		"not preserved":        runningMachineFacts(withMachineAnnotation("now"), asFailedMachine),
		"tainted by who knows": runningMachineFacts(withTaint),
	} {
		t.Run(name, func(t *testing.T) {
			f.OnNode = annotationWithText("forever")
			require.Equal(t, preserve.Decision{}, preserve.Decide(f))
			assert.False(t, preserve.PreventsReplacement(f))
		})
	}
	t.Run("but its end, which nobody can read away", func(t *testing.T) {
		f := preserve.Facts{NodeExists: true, OnNode: annotationWithText("forever"), Expiry: noon, Now: noon, Tainted: true}
		d := preserve.Decide(f)
		assert.False(t, d.IsPreserved)
		assert.True(t, d.ChangesStatus)
		assert.Zero(t, d.Expiry)
		assert.True(t, d.Node.RemovesTaint)
	})
}
