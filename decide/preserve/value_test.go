package preserve_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/preserve"
)

func TestWhichValueOfMachineAndNodeCounts(t *testing.T) {
	for _, row := range []struct {
		name  string
		facts preserve.Facts
		value string
		then  string // what the machine says in the end
	}{
		{"no node: that of the machine", facts(without, onMachine("when-failed")), "when-failed", "machine=when-failed"},
		{"no node: one of the machine that is not known counts as none", facts(without, onMachine("forever")), "", "machine=forever"},
		{"no node, and none on the machine", facts(without), "", ""},
		{"that of the node goes before that of the machine, which goes", facts(onNode("when-failed"), onMachine("now")), "when-failed", "node=when-failed, last=when-failed"},
		{"none on the node, but the machine remembers one: stopped there", facts(lastApplied("now")), "", ""},
		{"none on the node, nor remembered: that of the machine", facts(onMachine("when-failed")), "when-failed", "machine=when-failed"},
		{"one of the node that is not known: nothing is done", facts(onNode("forever"), onMachine("now")), "", "machine=now, node=forever"},

		{"one of the node that is not known, and the machine remembers another: nothing is done", facts(onNode("forever"), lastApplied("now")), "", "node=forever, last=now"},
		{"false on the node goes before that of the machine", facts(onNode("false"), onMachine("now")), "false", "node=false, last=false"},
		{"one that is not known on the machine makes way for that of the node", facts(onNode("false"), onMachine("forever")), "false", "node=false, last=false"},
		{"false on the machine", facts(onMachine("false")), "false", "machine=false"},
		{"an empty one on the node was never a wish", facts(onNode(""), onMachine("when-failed")), "when-failed", "machine=when-failed, node="},
		{"emptied on the node: stopped there", facts(onNode(""), lastApplied("when-failed")), "", "node="},
		{"the node has another one than the machine remembers", facts(onNode("when-failed"), lastApplied("now")), "when-failed", "node=when-failed, last=when-failed"},
		{"no node, and the machine remembers one: its own", facts(without, onMachine("when-failed"), lastApplied("false")), "when-failed", "machine=when-failed"},
		{"values are exact", facts(onMachine("Now")), "", "machine=Now"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := preserve.Decide(row.facts)
			assert.Equal(t, row.value, d.Value)
			assert.False(t, d.Preserve)
			assert.Equal(t, row.then, told(settled(t, row.facts)))
		})
	}
}

func TestAWishOfTheMachineThatFollowsThatOfItsNodeIsNotLost(t *testing.T) {
	f := facts(lastApplied("now"), onMachine("now"), failed) // gone from the node, and written on the machine meanwhile
	d := preserve.Decide(f)
	assert.False(t, d.Preserve, "the node's was stopped")
	f = acted(f, d)
	assert.Equal(t, "machine=now", told(f))
	assert.True(t, preserve.Protected(f), "nobody takes it in between")
	assert.True(t, preserve.Decide(f).Preserve)
}

func TestAValueOfTheNodeThatIsNotKnownStopsEverything(t *testing.T) {
	whole := facts(onNode("now"), failed, kept(t))
	for name, f := range map[string]preserve.Facts{
		"preserved":                whole,
		"preserved, half":          facts(onNode("now"), failed, func(f *preserve.Facts) { f.Expiry = tilNoon }),
		"preserved, for attention": facts(timeless, func(f *preserve.Facts) { f.Expiry = tilNoon }),
	} {
		t.Run(name, func(t *testing.T) {
			f.OnNode = says("forever")
			assert.Equal(
				t,
				preserve.Decision{Preserve: true, Expiry: tilNoon},
				preserve.Decide(f),
				"its end stands, and nothing changes",
			)
		})
	}
	for name, f := range map[string]preserve.Facts{
		"not preserved":        facts(onMachine("now"), failed),
		"tainted by who knows": facts(tainted),
	} {
		t.Run(name, func(t *testing.T) {
			f.OnNode = says("forever")
			require.Equal(t, preserve.Decision{}, preserve.Decide(f))
			assert.False(t, preserve.Protected(f))
		})
	}
	t.Run("but its end, which nobody can read away", func(t *testing.T) {
		f := preserve.Facts{NodeExists: true, OnNode: says("forever"), Expiry: noon, Now: noon, Tainted: true}
		d := preserve.Decide(f)
		assert.False(t, d.Preserve)
		assert.True(t, d.StatusChange)
		assert.Zero(t, d.Expiry)
		assert.True(t, d.Node.Untaint)
	})
}
