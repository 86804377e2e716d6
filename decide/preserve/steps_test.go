package preserve_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/preserve"
)

func TestPreservationSteps(t *testing.T) {
	d := preserve.Decide(
		runningMachineFacts(withNodeAnnotation("when-failed"), withMachineAnnotation("now"), asFailedMachine),
	)
	assert.Equal(t, preserve.Decision{
		RequestedValue: "when-failed",
		IsPreserved:    true,
		Expiry:         noonPlus96h,
		ChangesStatus:  true,
		Node: preserve.NodeChanges{
			Annotations: preserve.MapEdit{Set: annotationMap{scaleDownDisabledKey: "true", scaleDownDisabledByMCMKey: "true"}},
			AddsTaint:   true,
			Condition: &preserve.Condition{
				True: true, Reason: "Preserved by user.",
				Message: "Preserved node is not drained. Machine preserved until 2026-03-05T12:00:00Z.",
			},
		},
		Machine: preserve.MachineChanges{
			Annotations: preserve.MapEdit{Set: annotationMap{lastAppliedKey: "when-failed"}, Remove: []string{preserveKey}},
		},
		Message: "Preserved node is not drained. Machine preserved until 2026-03-05T12:00:00Z.",
		Why: "preserved (when-failed): its end is not recorded, node lacks annotation " + scaleDownDisabledKey + ", node of a failed machine lacks its taint, " +
			"node has no current condition Preserved, machine and node both have the annotation, machine does not record the annotation of its node",
	}, d)
}

// checkResumptionAfterEachWrite executes the writes of a decision one by one, with a new call of Decide one hour after
// each write. The result must be the same as without interruptions.
func checkResumptionAfterEachWrite(t *testing.T, f preserve.Facts) {
	t.Helper()
	want := applyAllChanges(t, f)
	writes := writesOfDecision(preserve.Decide(f))
	for done := range len(writes) + 1 {
		g := f
		for _, write := range writes[:done] {
			write(&g)
		}
		if done > 0 && preserve.Decide(f).IsPreserved { // before the first write the end is not recorded
			g.Now = g.Now.Add(time.Hour)
		}
		got := applyAllChanges(t, g)
		got.Now = want.Now
		assert.Equal(t, renderFacts(want), renderFacts(got), "after %d writes", done)
		require.Equal(t, want, got)
	}
}

func TestAPreservationResumesAtEachStep(t *testing.T) {
	for name, f := range map[string]preserve.Facts{
		"now on the machine":         runningMachineFacts(withMachineAnnotation("now")),
		"now on the node":            runningMachineFacts(withNodeAnnotation("now"), withMachineAnnotation("false"), asFailedMachine),
		"when-failed on the machine": runningMachineFacts(withMachineAnnotation("when-failed"), asFailedMachine),
		"auto-preserved":             runningMachineFacts(withMachineAnnotation("auto-preserved"), asFailedMachine),
		"again, after a stop": runningMachineFacts(withNodeAnnotation("now"), asFailedMachine, func(f *preserve.Facts) {
			f.Condition = &preserve.Condition{Reason: "Preservation stopped.", Message: "before"}
		}),
		"preserved, turns failed": runningMachineFacts(withMachineAnnotation("now"), withCompletePreservation(t), asFailedMachine),
		"preserved, recovers":     runningMachineFacts(withMachineAnnotation("now"), asFailedMachine, withCompletePreservation(t), asRecoveredMachine),
	} {
		t.Run(name, func(t *testing.T) { checkResumptionAfterEachWrite(t, f) })
	}
	t.Run("the node joins when its machine is preserved already", func(t *testing.T) {
		f := runningMachineFacts(withoutNode, withMachineAnnotation("now"), withCompletePreservation(t))
		f.NodeExists = true
		assert.Equal(t, "machine=now, for 96h0m0s, disabled by us, "+preservedByUserText, renderFacts(applyAllChanges(t, f)))
	})
}

func TestForeignScaleDownAnnotationIsNotChanged(t *testing.T) {
	for _, text := range []string{"true", "false", ""} {
		f := runningMachineFacts(
			withMachineAnnotation("now"),
			func(f *preserve.Facts) { f.ScaleDownDisabled = annotationWithText(text) },
			withCompletePreservation(t),
		)
		assert.Equal(t, annotationWithText(text), f.ScaleDownDisabled)
		assert.False(t, f.DisabledByUs.Present)
		f = applyAllChanges(t, runningMachineFacts(func(g *preserve.Facts) { *g = f }, withoutAnnotations))
		assert.Equal(t, annotationWithText(text), f.ScaleDownDisabled, "nor is it removed")
	}
	t.Run("ours is put back when it is taken away", func(t *testing.T) {
		for _, text := range []preserve.Annotation{{}, annotationWithText("false")} {
			f := runningMachineFacts(withMachineAnnotation("now"), withCompletePreservation(t))
			f.ScaleDownDisabled = text
			d := preserve.Decide(f)
			assert.Equal(t, preserve.MapEdit{Set: annotationMap{scaleDownDisabledKey: "true"}}, d.Node.Annotations)
		}
	})
	t.Run("a mark with another value proves nothing", func(t *testing.T) {
		f := runningMachineFacts(
			withMachineAnnotation("now"),
			withScaleDownDisabledByUser,
			func(f *preserve.Facts) { f.DisabledByUs = annotationWithText("maybe") },
			withCompletePreservation(t),
		)
		f = applyAllChanges(t, runningMachineFacts(func(g *preserve.Facts) { *g = f }, withoutAnnotations))
		assert.Equal(t, annotationWithText("true"), f.ScaleDownDisabled)
	})
	t.Run("the marks of a rollout stay where nothing is preserved", func(t *testing.T) {
		for _, f := range []preserve.Facts{
			runningMachineFacts(withScaleDownDisabledByMillwright), runningMachineFacts(withScaleDownDisabledByMillwright, withMachineAnnotation("when-failed")), runningMachineFacts(withScaleDownDisabledByMillwright, withMachineAnnotation("false")),
			runningMachineFacts(withScaleDownDisabledByMillwright, func(f *preserve.Facts) { f.Condition = &preserve.Condition{Reason: "Preservation stopped."} }),
		} {
			assert.True(t, preserve.Decide(f).IsEmpty())
		}
	})
}

func TestOnlyAPreservedFailedMachineIsTainted(t *testing.T) {
	for _, row := range []struct {
		name           string
		facts          preserve.Facts
		taint, untaint bool
	}{
		{"failed", runningMachineFacts(withMachineAnnotation("now"), asFailedMachine), true, false},
		{"failed, and tainted already", runningMachineFacts(withMachineAnnotation("now"), asFailedMachine, withTaint), false, false},
		{"running", runningMachineFacts(withMachineAnnotation("now")), false, false},
		{"running again", runningMachineFacts(withMachineAnnotation("now"), withTaint), false, true},
		{"not preserved", runningMachineFacts(asFailedMachine), false, false},
		{"not preserved any more", runningMachineFacts(asFailedMachine, withTaint), false, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := preserve.Decide(row.facts).Node
			assert.Equal(t, row.taint, c.AddsTaint)
			assert.Equal(t, row.untaint, c.RemovesTaint)
		})
	}
}

func TestPreservationEndSteps(t *testing.T) {
	gone := preserve.NodeChanges{
		Annotations:  preserve.MapEdit{Remove: []string{scaleDownDisabledKey, scaleDownDisabledByMCMKey}},
		RemovesTaint: true,
		Condition: &preserve.Condition{
			Reason:  "Preservation stopped.",
			Message: "Machine is no longer preserved: nobody requests it.",
		},
	}
	asked := gone
	asked.Annotations = preserve.MapEdit{Remove: []string{scaleDownDisabledKey, scaleDownDisabledByMCMKey, preserveKey}}
	asked.Condition = &preserve.Condition{
		Reason:  "Preservation stopped.",
		Message: "Machine is no longer preserved: its time is over.",
	}
	for _, row := range []struct {
		name    string
		facts   preserve.Facts
		node    preserve.NodeChanges
		machine preserve.MapEdit
		status  bool
		why     string
	}{
		{
			"asked for on the machine no more", runningMachineFacts(withMachineAnnotation("now"), asFailedMachine, withCompletePreservation(t), withoutAnnotations), gone,
			preserve.MapEdit{},
			true,
			"no longer preserved, as nobody requests it: node has the condition of a preserved machine, node still has our annotations against the autoscaler, " +
				"node has the taint of a preserved failed machine, its end is still recorded",
		},
		{
			"asked for on the node no more", runningMachineFacts(withNodeAnnotation("now"), asFailedMachine, withCompletePreservation(t), withoutAnnotations), gone,
			preserve.MapEdit{Remove: []string{lastAppliedKey}},
			true,
			"no longer preserved, as nobody requests it: node has the condition of a preserved machine, node still has our annotations against the autoscaler, " +
				"node has the taint of a preserved failed machine, machine records an annotation that its node no longer has, its end is still recorded",
		},
		{
			"time-out, asked for on the node", runningMachineFacts(withNodeAnnotation("now"), asFailedMachine, withCompletePreservation(t), afterDuration(96*time.Hour)), asked,
			preserve.MapEdit{Remove: []string{lastAppliedKey}},
			true,
			"no longer preserved, as its time is over: node has the condition of a preserved machine, node still has our annotations against the autoscaler, " +
				"node has the taint of a preserved failed machine, node still requests it, machine records an annotation that its node no longer has, its end is still recorded",
		},
		{
			"time-out, asked for on the machine", runningMachineFacts(withoutNode, withMachineAnnotation("now"), asFailedMachine, withCompletePreservation(t), afterDuration(96*time.Hour)),
			preserve.NodeChanges{},
			preserve.MapEdit{Remove: []string{preserveKey}},
			true,
			"no longer preserved, as its time is over: machine still requests it, its end is still recorded",
		},
		{
			"never preserved", runningMachineFacts(asFailedMachine), preserve.NodeChanges{}, preserve.MapEdit{}, false, "",
		},
		{
			"its end was lost by another controller", runningMachineFacts(withMachineAnnotation("now"), asFailedMachine, withCompletePreservation(t), withoutAnnotations, func(f *preserve.Facts) { f.Expiry = time.Time{} }), gone,
			preserve.MapEdit{},
			false,
			"no longer preserved, as nobody requests it: node has the condition of a preserved machine, node still has our annotations against the autoscaler, " +
				"node has the taint of a preserved failed machine",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := preserve.Decide(row.facts)
			assert.Equal(t, row.node, d.Node)
			assert.Equal(t, row.machine, d.Machine.Annotations)
			assert.Equal(t, row.status, d.ChangesStatus)
			assert.Equal(t, row.why, d.Why)
			assert.False(t, d.IsPreserved)
			assert.Zero(t, d.Expiry)
		})
	}
}

func TestAnEndingPreservationResumesAtEachStep(t *testing.T) {
	for name, f := range map[string]preserve.Facts{
		"asked for on the machine no more":   runningMachineFacts(withMachineAnnotation("now"), asFailedMachine, withCompletePreservation(t), withoutAnnotations),
		"asked for on the node no more":      runningMachineFacts(withNodeAnnotation("now"), asFailedMachine, withCompletePreservation(t), withoutAnnotations),
		"refused":                            runningMachineFacts(withNodeAnnotation("now"), asFailedMachine, withCompletePreservation(t), withNodeAnnotation("false")),
		"time-out, asked for on the machine": runningMachineFacts(withMachineAnnotation("when-failed"), asFailedMachine, withCompletePreservation(t), afterDuration(96*time.Hour)),
		"time-out, asked for on the node":    runningMachineFacts(withNodeAnnotation("when-failed"), asFailedMachine, withCompletePreservation(t), afterDuration(96*time.Hour)),
		"time-out, asked for on both":        runningMachineFacts(withNodeAnnotation("now"), asFailedMachine, withCompletePreservation(t), withMachineAnnotation("now"), afterDuration(96*time.Hour)),
		"recovery":                           runningMachineFacts(withMachineAnnotation("when-failed"), asFailedMachine, withCompletePreservation(t), asRecoveredMachine),
		"recovery of an auto-preserved one":  runningMachineFacts(withMachineAnnotation("auto-preserved"), asFailedMachine, withCompletePreservation(t), asRecoveredMachine),
	} {
		t.Run(name, func(t *testing.T) { checkResumptionAfterEachWrite(t, f) })
	}
}

func TestInterruptedPreservationEndKeepsItsMessage(t *testing.T) {
	f := runningMachineFacts(
		withMachineAnnotation("auto-preserved"),
		asFailedMachine,
		withCompletePreservation(t),
		asRecoveredMachine,
	)
	writes := writesOfDecision(preserve.Decide(f))
	for _, write := range writes[:3] { // no annotation requests preservation any more; the end is still recorded
		write(&f)
	}
	d := preserve.Decide(f)
	assert.Equal(t, "Machine is no longer preserved: the machine has not failed.", d.Message)
	assert.Nil(t, d.Node.Condition)

	f.Condition.Message = "" // another controller wrote no message
	assert.Equal(t, "Machine is no longer preserved: nobody requests it.", preserve.Decide(f).Message)
}
