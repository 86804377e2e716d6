package preserve_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/preserve"
)

const (
	preservedByUserText          = "condition true: Preserved by user. Machine preserved until 2026-03-05T12:00:00Z."
	preservedByUserUndrainedText = "condition true: Preserved by user. Preserved node is not drained. Machine preserved until 2026-03-05T12:00:00Z."
	preservedByMCMUndrainedText  = "condition true: Preserved by MCM. Preserved node is not drained. Machine preserved until 2026-03-05T12:00:00Z."
	preservationStoppedText      = "condition false: Preservation stopped. Machine is no longer preserved: "
)

func TestWhenAMachineIsPreserved(t *testing.T) {
	const over = 96 * time.Hour
	for _, row := range []struct {
		name     string
		facts    preserve.Facts
		preserve bool
		then     string
	}{
		{"now", runningMachineFacts(withMachineAnnotation("now")), true, "machine=now, for 96h0m0s, disabled by us, " + preservedByUserText},
		{"now, failed", runningMachineFacts(withMachineAnnotation("now"), asFailedMachine), true, "machine=now, for 96h0m0s, disabled by us, tainted, " + preservedByUserUndrainedText},
		{"now on the node", runningMachineFacts(withNodeAnnotation("now"), withMachineAnnotation("false")), true, "node=now, last=now, for 96h0m0s, disabled by us, " + preservedByUserText},
		{"now, time-out", runningMachineFacts(withMachineAnnotation("now"), withCompletePreservation(t), afterDuration(over)), false, preservationStoppedText + "its time is over."},
		{"now, failed, time-out", runningMachineFacts(withMachineAnnotation("now"), asFailedMachine, withCompletePreservation(t), afterDuration(over)), false, preservationStoppedText + "its time is over."},
		{"now on the node, time-out", runningMachineFacts(withNodeAnnotation("now"), asFailedMachine, withCompletePreservation(t), afterDuration(over)), false, preservationStoppedText + "its time is over."},
		{"now, a moment before the time-out", runningMachineFacts(withMachineAnnotation("now"), withCompletePreservation(t), afterDuration(over-1)), true, "machine=now, for 96h0m0s, disabled by us, " + preservedByUserText},
		{"now, recovery", runningMachineFacts(withMachineAnnotation("now"), asFailedMachine, withCompletePreservation(t), asRecoveredMachine), true, "machine=now, for 96h0m0s, disabled by us, " + preservedByUserText},

		{"when-failed, running", runningMachineFacts(withMachineAnnotation("when-failed")), false, "machine=when-failed"},
		{"when-failed, failed", runningMachineFacts(withMachineAnnotation("when-failed"), asFailedMachine), true, "machine=when-failed, for 96h0m0s, disabled by us, tainted, " + preservedByUserUndrainedText},
		{"when-failed on the node, failed", runningMachineFacts(withNodeAnnotation("when-failed"), asFailedMachine), true, "node=when-failed, last=when-failed, for 96h0m0s, disabled by us, tainted, " + preservedByUserUndrainedText},
		{"when-failed, recovery: the wish stays", runningMachineFacts(withMachineAnnotation("when-failed"), asFailedMachine, withCompletePreservation(t), asRecoveredMachine), false, "machine=when-failed, " + preservationStoppedText + "the machine has not failed."},
		{"when-failed, time-out", runningMachineFacts(withMachineAnnotation("when-failed"), asFailedMachine, withCompletePreservation(t), afterDuration(over)), false, preservationStoppedText + "its time is over."},
		{"when-failed, time-out after a recovery", runningMachineFacts(withMachineAnnotation("when-failed"), asFailedMachine, withCompletePreservation(t), asRecoveredMachine, afterDuration(over)), false, preservationStoppedText + "its time is over."},
		{"when-failed after now, running", runningMachineFacts(withMachineAnnotation("now"), withCompletePreservation(t), withMachineAnnotation("when-failed")), false, "machine=when-failed, " + preservationStoppedText + "the machine has not failed."},

		{"auto-preserved, failed", runningMachineFacts(withMachineAnnotation("auto-preserved"), asFailedMachine), true, "machine=auto-preserved, for 96h0m0s, disabled by us, tainted, " + preservedByMCMUndrainedText},
		{"auto-preserved, recovery: the wish goes", runningMachineFacts(withMachineAnnotation("auto-preserved"), asFailedMachine, withCompletePreservation(t), asRecoveredMachine), false, preservationStoppedText + "the machine has not failed."},
		{"auto-preserved, running", runningMachineFacts(withMachineAnnotation("auto-preserved")), false, ""},
		{"auto-preserved on the node, running", runningMachineFacts(withNodeAnnotation("auto-preserved")), false, ""},
		{"auto-preserved, time-out", runningMachineFacts(withMachineAnnotation("auto-preserved"), asFailedMachine, withCompletePreservation(t), afterDuration(over)), false, preservationStoppedText + "its time is over."},

		{"false, running", runningMachineFacts(withMachineAnnotation("false")), false, "machine=false"},
		{"false, failed", runningMachineFacts(withMachineAnnotation("false"), asFailedMachine), false, "machine=false"},
		{"false after now: the refusal stays", runningMachineFacts(withMachineAnnotation("now"), asFailedMachine, withCompletePreservation(t), withMachineAnnotation("false")), false, "machine=false, " + preservationStoppedText + "the annotation says false."},
		{"false on the node after now on the machine", runningMachineFacts(withMachineAnnotation("now"), asFailedMachine, withCompletePreservation(t), withNodeAnnotation("false")), false, "node=false, last=false, " + preservationStoppedText + "the annotation says false."},
		{"false, time-out: the refusal stays", runningMachineFacts(withMachineAnnotation("now"), withCompletePreservation(t), withMachineAnnotation("false"), afterDuration(over)), false, "machine=false, " + preservationStoppedText + "the annotation says false."},

		{"false after now on the node, time-out: the refusal stays", runningMachineFacts(withNodeAnnotation("now"), withCompletePreservation(t), withoutAnnotations, withMachineAnnotation("false"), afterDuration(over)), false, "machine=false, " + preservationStoppedText + "its time is over."},

		{"no wish", runningMachineFacts(), false, ""},
		{"no wish, failed", runningMachineFacts(asFailedMachine), false, ""},
		{"the machine's wish is gone", runningMachineFacts(withMachineAnnotation("now"), asFailedMachine, withCompletePreservation(t), withoutAnnotations), false, preservationStoppedText + "nobody requests it."},
		{"the machine's wish is one that is not known", runningMachineFacts(withMachineAnnotation("now"), withCompletePreservation(t), withMachineAnnotation("forever")), false, "machine=forever, " + preservationStoppedText + "nobody requests it."},
		{"the node's wish is gone", runningMachineFacts(withNodeAnnotation("now"), asFailedMachine, withCompletePreservation(t), withoutAnnotations), false, preservationStoppedText + "nobody requests it."},
		{"the node's wish is emptied", runningMachineFacts(withNodeAnnotation("when-failed"), asFailedMachine, withCompletePreservation(t), withNodeAnnotation("")), false, "node=, " + preservationStoppedText + "nobody requests it."},

		{"a time-out of zero keeps nothing", runningMachineFacts(withMachineAnnotation("now"), asFailedMachine, func(f *preserve.Facts) { f.Timeout = 0 }), false, ""},
		{"a time-out of zero waits for a failure", runningMachineFacts(withMachineAnnotation("when-failed"), func(f *preserve.Facts) { f.Timeout = 0 }), false, "machine=when-failed"},
		{"no node", runningMachineFacts(withoutNode, withMachineAnnotation("now")), true, "machine=now, for 96h0m0s"},
		{"no node, failed", runningMachineFacts(withoutNode, withMachineAnnotation("when-failed"), asFailedMachine), true, "machine=when-failed, for 96h0m0s"},
		{"no node, time-out", runningMachineFacts(withoutNode, withMachineAnnotation("now"), withCompletePreservation(t), afterDuration(over)), false, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := preserve.Decide(row.facts)
			assert.Equal(t, row.preserve, d.IsPreserved)
			if row.preserve {
				assert.Equal(t, noonPlus96h, d.Expiry)
			} else {
				assert.Zero(t, d.Expiry)
			}
			assert.Equal(t, row.then, renderFacts(applyAllChanges(t, row.facts)))
		})
	}
}

func TestExpiryStaysWhenTheMachineFails(t *testing.T) {
	for _, value := range []string{"now", "when-failed", "auto-preserved"} {
		f := applyAllChanges(
			t,
			runningMachineFacts(
				withMachineAnnotation("now"),
				withCompletePreservation(t),
				withMachineAnnotation(value),
				asFailedMachine,
				afterDuration(50*time.Hour),
			),
		)
		assert.Equal(t, noonPlus96h, f.Expiry, value)
		assert.True(t, f.Tainted)
	}
}

func TestChangedTimeoutDoesNotMoveTheExpiry(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Hour, 1000 * time.Hour} {
		f := runningMachineFacts(withMachineAnnotation("now"), withCompletePreservation(t))
		f.Timeout = timeout
		assert.Equal(t, preserve.Decision{
			RequestedValue: "now",
			IsPreserved:    true,
			Expiry:         noonPlus96h,
			Message:        "Machine preserved until 2026-03-05T12:00:00Z.",
		}, preserve.Decide(f), "%s", timeout)
	}
}

func TestExpiryIsInWholeSecondsAndNeverTooEarly(t *testing.T) {
	for now, want := range map[time.Time]time.Time{
		noon:                               noonPlus96h,
		noon.Add(1):                        noonPlus96h.Add(time.Second),
		noon.Add(999 * time.Millisecond):   noonPlus96h.Add(time.Second),
		noon.In(time.FixedZone("x", 3600)): noonPlus96h,
	} {
		assert.Equal(
			t,
			want,
			preserve.Decide(runningMachineFacts(withMachineAnnotation("now"), func(f *preserve.Facts) { f.Now = now })).Expiry,
		)
	}
}

func TestDecideWithoutCurrentTime(t *testing.T) {
	t.Run("sees that an end is missing", func(t *testing.T) {
		d := preserve.Decide(runningMachineFacts(withoutCurrentTime, withMachineAnnotation("now")))
		assert.True(t, d.ChangesStatus)
		assert.Zero(t, d.Expiry)
		assert.Nil(t, d.Node.Condition, "it cannot say until when")
	})
	t.Run("judges no end", func(t *testing.T) {
		f := runningMachineFacts(withMachineAnnotation("now"), withCompletePreservation(t), withoutCurrentTime)
		assert.True(t, preserve.Decide(f).IsEmpty())
		assert.Equal(t, noonPlus96h, preserve.Decide(f).Expiry)
		assert.True(t, preserve.PreventsReplacement(f))
	})
	t.Run("sees a stop that was interrupted", func(t *testing.T) {
		f := runningMachineFacts(withMachineAnnotation("now"), withCompletePreservation(t), afterDuration(96*time.Hour))
		writes := writesOfDecision(preserve.Decide(f))
		for i, write := range writes {
			write(&f)
			attention := f
			attention.Now = time.Time{}
			assert.Equal(t, i == len(writes)-1, preserve.Decide(attention).IsEmpty(), "after %d writes", i+1)
		}
	})
}

func TestIsProtected(t *testing.T) {
	expiring := func(at time.Time) factsChange { return func(f *preserve.Facts) { f.Expiry = at } }
	for _, row := range []struct {
		name  string
		facts preserve.Facts
		want  bool
	}{
		{"no wish", runningMachineFacts(), false},
		{"its end is to come, whatever the wish is now", runningMachineFacts(expiring(noon.Add(1)), withMachineAnnotation("false")), true},
		{"its end has come", runningMachineFacts(expiring(noon), withMachineAnnotation("now")), false},
		{"its end is not judged", runningMachineFacts(withoutCurrentTime, expiring(noon)), true},
		{"now on the machine", runningMachineFacts(withMachineAnnotation("now")), true},
		{"when-failed on the machine", runningMachineFacts(withMachineAnnotation("when-failed")), true},
		{"when-failed on the node", runningMachineFacts(withNodeAnnotation("when-failed")), true},
		{"auto-preserved", runningMachineFacts(withMachineAnnotation("auto-preserved")), true},
		{"false on the machine", runningMachineFacts(withMachineAnnotation("false")), false},
		{"false on the node", runningMachineFacts(withNodeAnnotation("false"), withMachineAnnotation("now")), false},
		{"gone from the node", runningMachineFacts(withLastAppliedAnnotation("now")), false},
		{"not known on the machine", runningMachineFacts(withMachineAnnotation("forever")), false},
		{"a time-out of zero", runningMachineFacts(withMachineAnnotation("now"), func(f *preserve.Facts) { f.Timeout = 0 }), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, preserve.PreventsReplacement(row.facts))
			row.facts.Failed = true
			assert.Equal(t, row.want, preserve.PreventsReplacement(row.facts), "asked before it fails or after: the same answer")
		})
	}
}

func TestADeletedMachineIsNotPreserved(t *testing.T) {
	for _, f := range []preserve.Facts{
		runningMachineFacts(withMachineAnnotation("now")), runningMachineFacts(withMachineAnnotation("now"), asFailedMachine, withCompletePreservation(t)), runningMachineFacts(withNodeAnnotation("forever"), func(f *preserve.Facts) { f.Expiry = noonPlus96h }),
		runningMachineFacts(withMachineAnnotation("now"), withCompletePreservation(t), afterDuration(97*time.Hour)),
	} {
		f.Deleting = true
		assert.Equal(t, preserve.Decision{}, preserve.Decide(f))
	}
}
