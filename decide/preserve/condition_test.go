package preserve_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/preserve"
)

func TestConditionOfAPreservedNode(t *testing.T) {
	const (
		running   = "Machine preserved until 2026-03-05T12:00:00Z."
		undrained = "Preserved node is not drained. " + running
		byHand    = "Preserved by user."
		byMCM     = "Preserved by MCM."
		stop      = "Preservation stopped."
	)
	is := func(yes bool, reason, message string) *preserve.Condition {
		return &preserve.Condition{True: yes, Reason: reason, Message: message}
	}
	for _, row := range []struct {
		name  string
		facts preserve.Facts
		was   *preserve.Condition
		want  *preserve.Condition // expected condition; nil: the condition is not changed
	}{
		{"none yet, running", runningMachineFacts(withMachineAnnotation("now")), nil, is(true, byHand, running)},
		{"none yet, failed", runningMachineFacts(withMachineAnnotation("when-failed"), asFailedMachine), nil, is(true, byHand, undrained)},
		{"none yet, preserved by its set", runningMachineFacts(withMachineAnnotation("auto-preserved"), asFailedMachine), nil, is(true, byMCM, undrained)},
		{"right already", runningMachineFacts(withMachineAnnotation("now"), asFailedMachine), is(true, byHand, undrained), nil},
		{"right already, as machine-controller-manager writes it", runningMachineFacts(withMachineAnnotation("now")), is(true, byHand, "Machine preserved until 2026-03-05 12:00:00 +0000 UTC."), nil},
		{
			"so, and another time is meant", runningMachineFacts(withMachineAnnotation("now")), is(true, byHand, "Machine preserved until 2026-03-04 12:00:00 +0000 UTC."), is(true, byHand, running),
		},
		{
			"a drain succeeded", runningMachineFacts(withMachineAnnotation("now"), asFailedMachine, withDrainResult("Drained")),
			is(true, byHand, undrained), is(true, byHand, "Preserved node drained successfully. "+running),
		},
		{
			"a drain failed: that stays, whoever asks now and until whenever", runningMachineFacts(withMachineAnnotation("auto-preserved"), asFailedMachine, withDrainResult("Forced")),
			is(true, byHand, "Preserved node could not be drained. Machine preserved until 2026-03-04T12:00:00Z."),
			is(true, byMCM, "Preserved node could not be drained. "+running),
		},
		{
			"a drain of a former preservation is none of this one", runningMachineFacts(withMachineAnnotation("now"), asFailedMachine),
			is(false, stop, "Preserved node drained successfully. "+running), is(true, byHand, undrained),
		},
		{"recovered", runningMachineFacts(withMachineAnnotation("now")), is(true, byHand, "Preserved node drained successfully. "+running), is(true, byHand, running)},
		{"of another user", runningMachineFacts(withMachineAnnotation("now")), is(true, byMCM, running), is(true, byHand, running)},
		{"unknown", runningMachineFacts(withMachineAnnotation("now")), is(false, "NodeStatusUnknown", ""), is(true, byHand, running)},
		{
			"stopped", runningMachineFacts(), is(true, byHand, running),
			is(false, stop, "Machine is no longer preserved: nobody requests it."),
		},
		{"stopped while it was unknown", runningMachineFacts(withTaint), is(false, "NodeStatusUnknown", ""), is(false, stop, "Machine is no longer preserved: nobody requests it.")},
		{"stopped already", runningMachineFacts(withTaint), is(false, stop, "long ago"), nil},
		{"stopped, and there never was one", runningMachineFacts(withTaint), nil, nil},
		{"not preserved, and no business of ours", runningMachineFacts(), is(false, "SomethingElse", ""), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.facts.OnMachine.Present {
				row.facts.Expiry = noonPlus96h
			}
			row.facts.Condition = row.was
			assert.Equal(t, row.want, preserve.Decide(row.facts).Node.Condition)
		})
	}
}

func TestMessagesOfPreservations(t *testing.T) {
	assert.Equal(
		t,
		"Machine preserved until 2026-03-05T12:00:00Z.",
		preserve.Decide(runningMachineFacts(withoutNode, asFailedMachine, withMachineAnnotation("now"))).Message,
		"without a node there is nothing to drain",
	)
	assert.Empty(t, preserve.Decide(runningMachineFacts(withMachineAnnotation("when-failed"))).Message)

	elsewhere := runningMachineFacts(withMachineAnnotation("now"), withCompletePreservation(t))
	elsewhere.Expiry = elsewhere.Expiry.In(time.FixedZone("elsewhere", 3600))
	assert.True(t, preserve.Decide(elsewhere).IsEmpty(), "the same moment, whatever the worker's clock calls it")
}
