package preserve_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/preserve"
)

const (
	preservedByUserText     = "condition true: Preserved by user. Machine preserved until 2026-03-05T12:00:00Z."
	undrainedByUserText     = "condition true: Preserved by user. Preserved node is not drained. Machine preserved until 2026-03-05T12:00:00Z."
	undrainedByMCMText      = "condition true: Preserved by MCM. Preserved node is not drained. Machine preserved until 2026-03-05T12:00:00Z."
	preservationStoppedText = "condition false: Preservation stopped. Machine is no longer preserved: "
)

func TestWhenAMachineIsPreserved(t *testing.T) {
	const over = 96 * time.Hour
	for _, row := range []struct {
		name     string
		facts    preserve.Facts
		preserve bool
		then     string
	}{
		{"now", newFacts(withMachineValue("now")), true, "machine=now, for 96h0m0s, disabled by us, " + preservedByUserText},
		{"now, failed", newFacts(withMachineValue("now"), asFailedMachine), true, "machine=now, for 96h0m0s, disabled by us, tainted, " + undrainedByUserText},
		{"now on the node", newFacts(withNodeValue("now"), withMachineValue("false")), true, "node=now, last=now, for 96h0m0s, disabled by us, " + preservedByUserText},
		{"now, time-out", newFacts(withMachineValue("now"), withCompletePreservation(t), afterDuration(over)), false, preservationStoppedText + "its time is over."},
		{"now, failed, time-out", newFacts(withMachineValue("now"), asFailedMachine, withCompletePreservation(t), afterDuration(over)), false, preservationStoppedText + "its time is over."},
		{"now on the node, time-out", newFacts(withNodeValue("now"), asFailedMachine, withCompletePreservation(t), afterDuration(over)), false, preservationStoppedText + "its time is over."},
		{"now, a moment before the time-out", newFacts(withMachineValue("now"), withCompletePreservation(t), afterDuration(over-1)), true, "machine=now, for 96h0m0s, disabled by us, " + preservedByUserText},
		{"now, recovery", newFacts(withMachineValue("now"), asFailedMachine, withCompletePreservation(t), asRecoveredMachine), true, "machine=now, for 96h0m0s, disabled by us, " + preservedByUserText},

		{"when-failed, running", newFacts(withMachineValue("when-failed")), false, "machine=when-failed"},
		{"when-failed, failed", newFacts(withMachineValue("when-failed"), asFailedMachine), true, "machine=when-failed, for 96h0m0s, disabled by us, tainted, " + undrainedByUserText},
		{"when-failed on the node, failed", newFacts(withNodeValue("when-failed"), asFailedMachine), true, "node=when-failed, last=when-failed, for 96h0m0s, disabled by us, tainted, " + undrainedByUserText},
		{"when-failed, recovery: the wish stays", newFacts(withMachineValue("when-failed"), asFailedMachine, withCompletePreservation(t), asRecoveredMachine), false, "machine=when-failed, " + preservationStoppedText + "the machine has not failed."},
		{"when-failed, time-out", newFacts(withMachineValue("when-failed"), asFailedMachine, withCompletePreservation(t), afterDuration(over)), false, preservationStoppedText + "its time is over."},
		{"when-failed, time-out after a recovery", newFacts(withMachineValue("when-failed"), asFailedMachine, withCompletePreservation(t), asRecoveredMachine, afterDuration(over)), false, preservationStoppedText + "its time is over."},
		{"when-failed after now, running", newFacts(withMachineValue("now"), withCompletePreservation(t), withMachineValue("when-failed")), false, "machine=when-failed, " + preservationStoppedText + "the machine has not failed."},

		{"auto-preserved, failed", newFacts(withMachineValue("auto-preserved"), asFailedMachine), true, "machine=auto-preserved, for 96h0m0s, disabled by us, tainted, " + undrainedByMCMText},
		{"auto-preserved, recovery: the wish goes", newFacts(withMachineValue("auto-preserved"), asFailedMachine, withCompletePreservation(t), asRecoveredMachine), false, preservationStoppedText + "the machine has not failed."},
		{"auto-preserved, running", newFacts(withMachineValue("auto-preserved")), false, ""},
		{"auto-preserved on the node, running", newFacts(withNodeValue("auto-preserved")), false, ""},
		{"auto-preserved, time-out", newFacts(withMachineValue("auto-preserved"), asFailedMachine, withCompletePreservation(t), afterDuration(over)), false, preservationStoppedText + "its time is over."},

		{"false, running", newFacts(withMachineValue("false")), false, "machine=false"},
		{"false, failed", newFacts(withMachineValue("false"), asFailedMachine), false, "machine=false"},
		{"false after now: the refusal stays", newFacts(withMachineValue("now"), asFailedMachine, withCompletePreservation(t), withMachineValue("false")), false, "machine=false, " + preservationStoppedText + "the annotation says false."},
		{"false on the node after now on the machine", newFacts(withMachineValue("now"), asFailedMachine, withCompletePreservation(t), withNodeValue("false")), false, "node=false, last=false, " + preservationStoppedText + "the annotation says false."},
		{"false, time-out: the refusal stays", newFacts(withMachineValue("now"), withCompletePreservation(t), withMachineValue("false"), afterDuration(over)), false, "machine=false, " + preservationStoppedText + "the annotation says false."},

		{"false after now on the node, time-out: the refusal stays", newFacts(withNodeValue("now"), withCompletePreservation(t), withoutAnnotations, withMachineValue("false"), afterDuration(over)), false, "machine=false, " + preservationStoppedText + "its time is over."},

		{"no wish", newFacts(), false, ""},
		{"no wish, failed", newFacts(asFailedMachine), false, ""},
		{"the machine's wish is gone", newFacts(withMachineValue("now"), asFailedMachine, withCompletePreservation(t), withoutAnnotations), false, preservationStoppedText + "nobody requests it."},
		{"the machine's wish is one that is not known", newFacts(withMachineValue("now"), withCompletePreservation(t), withMachineValue("forever")), false, "machine=forever, " + preservationStoppedText + "nobody requests it."},
		{"the node's wish is gone", newFacts(withNodeValue("now"), asFailedMachine, withCompletePreservation(t), withoutAnnotations), false, preservationStoppedText + "nobody requests it."},
		{"the node's wish is emptied", newFacts(withNodeValue("when-failed"), asFailedMachine, withCompletePreservation(t), withNodeValue("")), false, "node=, " + preservationStoppedText + "nobody requests it."},

		{"a time-out of zero keeps nothing", newFacts(withMachineValue("now"), asFailedMachine, func(f *preserve.Facts) { f.Timeout = 0 }), false, ""},
		{"a time-out of zero waits for a failure", newFacts(withMachineValue("when-failed"), func(f *preserve.Facts) { f.Timeout = 0 }), false, "machine=when-failed"},
		{"no node", newFacts(withoutNode, withMachineValue("now")), true, "machine=now, for 96h0m0s"},
		{"no node, failed", newFacts(withoutNode, withMachineValue("when-failed"), asFailedMachine), true, "machine=when-failed, for 96h0m0s"},
		{"no node, time-out", newFacts(withoutNode, withMachineValue("now"), withCompletePreservation(t), afterDuration(over)), false, ""},
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
			newFacts(
				withMachineValue("now"),
				withCompletePreservation(t),
				withMachineValue(value),
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
		f := newFacts(withMachineValue("now"), withCompletePreservation(t))
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
			preserve.Decide(newFacts(withMachineValue("now"), func(f *preserve.Facts) { f.Now = now })).Expiry,
		)
	}
}

func TestDecideWithoutCurrentTime(t *testing.T) {
	t.Run("sees that an end is missing", func(t *testing.T) {
		d := preserve.Decide(newFacts(withoutCurrentTime, withMachineValue("now")))
		assert.True(t, d.ChangesStatus)
		assert.Zero(t, d.Expiry)
		assert.Nil(t, d.Node.Condition, "it cannot say until when")
	})
	t.Run("judges no end", func(t *testing.T) {
		f := newFacts(withMachineValue("now"), withCompletePreservation(t), withoutCurrentTime)
		assert.True(t, preserve.Decide(f).IsEmpty())
		assert.Equal(t, noonPlus96h, preserve.Decide(f).Expiry)
		assert.True(t, preserve.IsProtected(f))
	})
	t.Run("sees a stop that was interrupted", func(t *testing.T) {
		f := newFacts(withMachineValue("now"), withCompletePreservation(t), afterDuration(96*time.Hour))
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
		{"no wish", newFacts(), false},
		{"its end is to come, whatever the wish is now", newFacts(expiring(noon.Add(1)), withMachineValue("false")), true},
		{"its end has come", newFacts(expiring(noon), withMachineValue("now")), false},
		{"its end is not judged", newFacts(withoutCurrentTime, expiring(noon)), true},
		{"now on the machine", newFacts(withMachineValue("now")), true},
		{"when-failed on the machine", newFacts(withMachineValue("when-failed")), true},
		{"when-failed on the node", newFacts(withNodeValue("when-failed")), true},
		{"auto-preserved", newFacts(withMachineValue("auto-preserved")), true},
		{"false on the machine", newFacts(withMachineValue("false")), false},
		{"false on the node", newFacts(withNodeValue("false"), withMachineValue("now")), false},
		{"gone from the node", newFacts(withLastAppliedValue("now")), false},
		{"not known on the machine", newFacts(withMachineValue("forever")), false},
		{"a time-out of zero", newFacts(withMachineValue("now"), func(f *preserve.Facts) { f.Timeout = 0 }), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, preserve.IsProtected(row.facts))
			row.facts.Failed = true
			assert.Equal(t, row.want, preserve.IsProtected(row.facts), "asked before it fails or after: the same answer")
		})
	}
}

func TestADeletedMachineIsNotPreserved(t *testing.T) {
	for _, f := range []preserve.Facts{
		newFacts(withMachineValue("now")), newFacts(withMachineValue("now"), asFailedMachine, withCompletePreservation(t)), newFacts(withNodeValue("forever"), func(f *preserve.Facts) { f.Expiry = noonPlus96h }),
		newFacts(withMachineValue("now"), withCompletePreservation(t), afterDuration(97*time.Hour)),
	} {
		f.Deleting = true
		assert.Equal(t, preserve.Decision{}, preserve.Decide(f))
	}
}
