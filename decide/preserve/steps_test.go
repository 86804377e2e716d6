package preserve_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/preserve"
)

func TestStepsOfAPreservation(t *testing.T) {
	d := preserve.Decide(facts(onNode("when-failed"), onMachine("now"), failed))
	assert.Equal(t, preserve.Decision{
		Value:        "when-failed",
		Preserve:     true,
		Expiry:       tilNoon,
		StatusChange: true,
		Node: preserve.NodeChanges{
			Annotations: preserve.Edit{Set: texts{disabled: "true", byUs: "true"}},
			Taint:       true,
			Condition: &preserve.Condition{
				True: true, Reason: "Preserved by user.",
				Message: "Preserved node is not drained. Machine preserved until 2026-03-05T12:00:00Z.",
			},
		},
		Machine: preserve.MachineChanges{Annotations: preserve.Edit{Set: texts{last: "when-failed"}, Remove: []string{ask}}},
		Message: "Preserved node is not drained. Machine preserved until 2026-03-05T12:00:00Z.",
		Why: "preserved (when-failed): its end is not recorded, node lacks annotation " + disabled + ", node of a failed machine lacks its taint, " +
			"node has no current condition Preserved, machine and node both have the annotation, machine does not record the annotation of its node",
	}, d)
}

// resumed stops after each write of a decision, decides anew, later, and comes to the same end.
func resumed(t *testing.T, f preserve.Facts) {
	t.Helper()
	want := settled(t, f)
	writes := steps(preserve.Decide(f))
	for done := range len(writes) + 1 {
		g := f
		for _, write := range writes[:done] {
			write(&g)
		}
		if done > 0 && preserve.Decide(f).Preserve { // before the first write the end is not yet fixed
			g.Now = g.Now.Add(time.Hour)
		}
		got := settled(t, g)
		got.Now = want.Now
		assert.Equal(t, told(want), told(got), "after %d writes", done)
		require.Equal(t, want, got)
	}
}

func TestAPreservationResumesAtEachStep(t *testing.T) {
	for name, f := range map[string]preserve.Facts{
		"now on the machine":         facts(onMachine("now")),
		"now on the node":            facts(onNode("now"), onMachine("false"), failed),
		"when-failed on the machine": facts(onMachine("when-failed"), failed),
		"auto-preserved":             facts(onMachine("auto-preserved"), failed),
		"again, after a stop": facts(onNode("now"), failed, func(f *preserve.Facts) {
			f.Condition = &preserve.Condition{Reason: "Preservation stopped.", Message: "before"}
		}),
		"preserved, turns failed": facts(onMachine("now"), kept(t), failed),
		"preserved, recovers":     facts(onMachine("now"), failed, kept(t), recovered),
	} {
		t.Run(name, func(t *testing.T) { resumed(t, f) })
	}
	t.Run("the node joins when its machine is preserved already", func(t *testing.T) {
		f := facts(without, onMachine("now"), kept(t))
		f.NodeExists = true
		assert.Equal(t, "machine=now, for 96h0m0s, disabled by us, "+byUser, told(settled(t, f)))
	})
}

func TestWhatOthersDisabledIsTheirs(t *testing.T) {
	for _, text := range []string{"true", "false", ""} {
		f := facts(onMachine("now"), func(f *preserve.Facts) { f.ScaleDownDisabled = says(text) }, kept(t))
		assert.Equal(t, says(text), f.ScaleDownDisabled)
		assert.False(t, f.DisabledByUs.Present)
		f = settled(t, facts(func(g *preserve.Facts) { *g = f }, silent))
		assert.Equal(t, says(text), f.ScaleDownDisabled, "nor is it removed")
	}
	t.Run("ours is put back when it is taken away", func(t *testing.T) {
		for _, text := range []preserve.Annotation{{}, says("false")} {
			f := facts(onMachine("now"), kept(t))
			f.ScaleDownDisabled = text
			d := preserve.Decide(f)
			assert.Equal(t, preserve.Edit{Set: texts{disabled: "true"}}, d.Node.Annotations)
		}
	})
	t.Run("a mark with another value proves nothing", func(t *testing.T) {
		f := facts(onMachine("now"), disabledByUser, func(f *preserve.Facts) { f.DisabledByUs = says("maybe") }, kept(t))
		f = settled(t, facts(func(g *preserve.Facts) { *g = f }, silent))
		assert.Equal(t, says("true"), f.ScaleDownDisabled)
	})
	t.Run("the marks of a rollout stay where nothing is preserved", func(t *testing.T) {
		for _, f := range []preserve.Facts{
			facts(disabledByUs), facts(disabledByUs, onMachine("when-failed")), facts(disabledByUs, onMachine("false")),
			facts(disabledByUs, func(f *preserve.Facts) { f.Condition = &preserve.Condition{Reason: "Preservation stopped."} }),
		} {
			assert.True(t, preserve.Decide(f).Empty())
		}
	})
}

func TestOnlyAPreservedFailedMachineIsTainted(t *testing.T) {
	for _, row := range []struct {
		name           string
		facts          preserve.Facts
		taint, untaint bool
	}{
		{"failed", facts(onMachine("now"), failed), true, false},
		{"failed, and tainted already", facts(onMachine("now"), failed, tainted), false, false},
		{"running", facts(onMachine("now")), false, false},
		{"running again", facts(onMachine("now"), tainted), false, true},
		{"not preserved", facts(failed), false, false},
		{"not preserved any more", facts(failed, tainted), false, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := preserve.Decide(row.facts).Node
			assert.Equal(t, row.taint, c.Taint)
			assert.Equal(t, row.untaint, c.Untaint)
		})
	}
}

func TestStepsOfTheEndOfAPreservation(t *testing.T) {
	gone := preserve.NodeChanges{
		Annotations: preserve.Edit{Remove: []string{disabled, byUs}},
		Untaint:     true,
		Condition: &preserve.Condition{
			Reason:  "Preservation stopped.",
			Message: "Machine is no longer preserved: nobody requests it.",
		},
	}
	asked := gone
	asked.Annotations = preserve.Edit{Remove: []string{disabled, byUs, ask}}
	asked.Condition = &preserve.Condition{
		Reason:  "Preservation stopped.",
		Message: "Machine is no longer preserved: its time is over.",
	}
	for _, row := range []struct {
		name    string
		facts   preserve.Facts
		node    preserve.NodeChanges
		machine preserve.Edit
		status  bool
		why     string
	}{
		{
			"asked for on the machine no more", facts(onMachine("now"), failed, kept(t), silent), gone,
			preserve.Edit{},
			true,
			"no longer preserved, as nobody requests it: node has the condition of a preserved machine, node still has our annotations against the autoscaler, " +
				"node has the taint of a preserved failed machine, its end is still recorded",
		},
		{
			"asked for on the node no more", facts(onNode("now"), failed, kept(t), silent), gone,
			preserve.Edit{Remove: []string{last}},
			true,
			"no longer preserved, as nobody requests it: node has the condition of a preserved machine, node still has our annotations against the autoscaler, " +
				"node has the taint of a preserved failed machine, machine records an annotation that its node no longer has, its end is still recorded",
		},
		{
			"time-out, asked for on the node", facts(onNode("now"), failed, kept(t), after(96*time.Hour)), asked,
			preserve.Edit{Remove: []string{last}},
			true,
			"no longer preserved, as its time is over: node has the condition of a preserved machine, node still has our annotations against the autoscaler, " +
				"node has the taint of a preserved failed machine, node still requests it, machine records an annotation that its node no longer has, its end is still recorded",
		},
		{
			"time-out, asked for on the machine", facts(without, onMachine("now"), failed, kept(t), after(96*time.Hour)),
			preserve.NodeChanges{},
			preserve.Edit{Remove: []string{ask}},
			true,
			"no longer preserved, as its time is over: machine still requests it, its end is still recorded",
		},
		{
			"never preserved", facts(failed), preserve.NodeChanges{}, preserve.Edit{}, false, "",
		},
		{
			"its end was lost by another controller", facts(onMachine("now"), failed, kept(t), silent, func(f *preserve.Facts) { f.Expiry = time.Time{} }), gone,
			preserve.Edit{},
			false,
			"no longer preserved, as nobody requests it: node has the condition of a preserved machine, node still has our annotations against the autoscaler, " +
				"node has the taint of a preserved failed machine",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := preserve.Decide(row.facts)
			assert.Equal(t, row.node, d.Node)
			assert.Equal(t, row.machine, d.Machine.Annotations)
			assert.Equal(t, row.status, d.StatusChange)
			assert.Equal(t, row.why, d.Why)
			assert.False(t, d.Preserve)
			assert.Zero(t, d.Expiry)
		})
	}
}

func TestTheEndOfAPreservationResumesAtEachStep(t *testing.T) {
	for name, f := range map[string]preserve.Facts{
		"asked for on the machine no more":   facts(onMachine("now"), failed, kept(t), silent),
		"asked for on the node no more":      facts(onNode("now"), failed, kept(t), silent),
		"refused":                            facts(onNode("now"), failed, kept(t), onNode("false")),
		"time-out, asked for on the machine": facts(onMachine("when-failed"), failed, kept(t), after(96*time.Hour)),
		"time-out, asked for on the node":    facts(onNode("when-failed"), failed, kept(t), after(96*time.Hour)),
		"time-out, asked for on both":        facts(onNode("now"), failed, kept(t), onMachine("now"), after(96*time.Hour)),
		"recovery":                           facts(onMachine("when-failed"), failed, kept(t), recovered),
		"recovery of an auto-preserved one":  facts(onMachine("auto-preserved"), failed, kept(t), recovered),
	} {
		t.Run(name, func(t *testing.T) { resumed(t, f) })
	}
}

func TestTheReasonIsToldAsItWasWritten(t *testing.T) {
	f := facts(onMachine("auto-preserved"), failed, kept(t), recovered)
	writes := steps(preserve.Decide(f))
	for _, write := range writes[:3] { // the wish is gone, the end is still on record
		write(&f)
	}
	d := preserve.Decide(f)
	assert.Equal(t, "Machine is no longer preserved: the machine has not failed.", d.Message)
	assert.Nil(t, d.Node.Condition)

	f.Condition.Message = "" // another controller gave none
	assert.Equal(t, "Machine is no longer preserved: nobody requests it.", preserve.Decide(f).Message)
}
