package preserve_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/preserve"
)

const (
	byUser   = "condition true: Preserved by user. Machine preserved until 2026-03-05T12:00:00Z."
	byUserNo = "condition true: Preserved by user. Preserved node is not drained. Machine preserved until 2026-03-05T12:00:00Z."
	byMCMNo  = "condition true: Preserved by MCM. Preserved node is not drained. Machine preserved until 2026-03-05T12:00:00Z."
	stopped  = "condition false: Preservation stopped. Machine is no longer preserved: "
)

func TestWhatPreservesAMachineAndWhatEndsIt(t *testing.T) {
	const over = 96 * time.Hour
	for _, row := range []struct {
		name     string
		facts    preserve.Facts
		preserve bool
		then     string
	}{
		{"now", facts(onMachine("now")), true, "machine=now, for 96h0m0s, disabled by us, " + byUser},
		{"now, failed", facts(onMachine("now"), failed), true, "machine=now, for 96h0m0s, disabled by us, tainted, " + byUserNo},
		{"now on the node", facts(onNode("now"), onMachine("false")), true, "node=now, last=now, for 96h0m0s, disabled by us, " + byUser},
		{"now, time-out", facts(onMachine("now"), kept(t), after(over)), false, stopped + "its time is over."},
		{"now, failed, time-out", facts(onMachine("now"), failed, kept(t), after(over)), false, stopped + "its time is over."},
		{"now on the node, time-out", facts(onNode("now"), failed, kept(t), after(over)), false, stopped + "its time is over."},
		{"now, a moment before the time-out", facts(onMachine("now"), kept(t), after(over-1)), true, "machine=now, for 96h0m0s, disabled by us, " + byUser},
		{"now, recovery", facts(onMachine("now"), failed, kept(t), recovered), true, "machine=now, for 96h0m0s, disabled by us, " + byUser},

		{"when-failed, running", facts(onMachine("when-failed")), false, "machine=when-failed"},
		{"when-failed, failed", facts(onMachine("when-failed"), failed), true, "machine=when-failed, for 96h0m0s, disabled by us, tainted, " + byUserNo},
		{"when-failed on the node, failed", facts(onNode("when-failed"), failed), true, "node=when-failed, last=when-failed, for 96h0m0s, disabled by us, tainted, " + byUserNo},
		{"when-failed, recovery: the wish stays", facts(onMachine("when-failed"), failed, kept(t), recovered), false, "machine=when-failed, " + stopped + "the machine has not failed."},
		{"when-failed, time-out", facts(onMachine("when-failed"), failed, kept(t), after(over)), false, stopped + "its time is over."},
		{"when-failed, time-out after a recovery", facts(onMachine("when-failed"), failed, kept(t), recovered, after(over)), false, stopped + "its time is over."},
		{"when-failed after now, running", facts(onMachine("now"), kept(t), onMachine("when-failed")), false, "machine=when-failed, " + stopped + "the machine has not failed."},

		{"auto-preserved, failed", facts(onMachine("auto-preserved"), failed), true, "machine=auto-preserved, for 96h0m0s, disabled by us, tainted, " + byMCMNo},
		{"auto-preserved, recovery: the wish goes", facts(onMachine("auto-preserved"), failed, kept(t), recovered), false, stopped + "the machine has not failed."},
		{"auto-preserved, running", facts(onMachine("auto-preserved")), false, ""},
		{"auto-preserved on the node, running", facts(onNode("auto-preserved")), false, ""},
		{"auto-preserved, time-out", facts(onMachine("auto-preserved"), failed, kept(t), after(over)), false, stopped + "its time is over."},

		{"false, running", facts(onMachine("false")), false, "machine=false"},
		{"false, failed", facts(onMachine("false"), failed), false, "machine=false"},
		{"false after now: the refusal stays", facts(onMachine("now"), failed, kept(t), onMachine("false")), false, "machine=false, " + stopped + "the annotation says false."},
		{"false on the node after now on the machine", facts(onMachine("now"), failed, kept(t), onNode("false")), false, "node=false, last=false, " + stopped + "the annotation says false."},
		{"false, time-out: the refusal stays", facts(onMachine("now"), kept(t), onMachine("false"), after(over)), false, "machine=false, " + stopped + "the annotation says false."},

		{"false after now on the node, time-out: the refusal stays", facts(onNode("now"), kept(t), silent, onMachine("false"), after(over)), false, "machine=false, " + stopped + "its time is over."},

		{"no wish", facts(), false, ""},
		{"no wish, failed", facts(failed), false, ""},
		{"the machine's wish is gone", facts(onMachine("now"), failed, kept(t), silent), false, stopped + "nobody requests it."},
		{"the machine's wish is one that is not known", facts(onMachine("now"), kept(t), onMachine("forever")), false, "machine=forever, " + stopped + "nobody requests it."},
		{"the node's wish is gone", facts(onNode("now"), failed, kept(t), silent), false, stopped + "nobody requests it."},
		{"the node's wish is emptied", facts(onNode("when-failed"), failed, kept(t), onNode("")), false, "node=, " + stopped + "nobody requests it."},

		{"a time-out of zero keeps nothing", facts(onMachine("now"), failed, func(f *preserve.Facts) { f.Timeout = 0 }), false, ""},
		{"a time-out of zero waits for a failure", facts(onMachine("when-failed"), func(f *preserve.Facts) { f.Timeout = 0 }), false, "machine=when-failed"},
		{"no node", facts(without, onMachine("now")), true, "machine=now, for 96h0m0s"},
		{"no node, failed", facts(without, onMachine("when-failed"), failed), true, "machine=when-failed, for 96h0m0s"},
		{"no node, time-out", facts(without, onMachine("now"), kept(t), after(over)), false, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := preserve.Decide(row.facts)
			assert.Equal(t, row.preserve, d.Preserve)
			if row.preserve {
				assert.Equal(t, tilNoon, d.Expiry)
			} else {
				assert.Zero(t, d.Expiry)
			}
			assert.Equal(t, row.then, told(settled(t, row.facts)))
		})
	}
}

func TestTurningFailedKeepsTheEnd(t *testing.T) {
	for _, value := range []string{"now", "when-failed", "auto-preserved"} {
		f := settled(t, facts(onMachine("now"), kept(t), onMachine(value), failed, after(50*time.Hour)))
		assert.Equal(t, tilNoon, f.Expiry, value)
		assert.True(t, f.Tainted)
	}
}

func TestAnotherTimeoutMovesNoEndOnRecord(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Hour, 1000 * time.Hour} {
		f := facts(onMachine("now"), kept(t))
		f.Timeout = timeout
		assert.Equal(t, preserve.Decision{
			Value: "now", Preserve: true, Expiry: tilNoon, Message: "Machine preserved until 2026-03-05T12:00:00Z.",
		}, preserve.Decide(f), "%s", timeout)
	}
}

func TestTheEndIsInWholeSecondsAndNeverTooEarly(t *testing.T) {
	for now, want := range map[time.Time]time.Time{
		noon:                               tilNoon,
		noon.Add(1):                        tilNoon.Add(time.Second),
		noon.Add(999 * time.Millisecond):   tilNoon.Add(time.Second),
		noon.In(time.FixedZone("x", 3600)): tilNoon,
	} {
		assert.Equal(t, want, preserve.Decide(facts(onMachine("now"), func(f *preserve.Facts) { f.Now = now })).Expiry)
	}
}

func TestDecideWithoutNow(t *testing.T) {
	t.Run("sees that an end is missing", func(t *testing.T) {
		d := preserve.Decide(facts(timeless, onMachine("now")))
		assert.True(t, d.StatusChange)
		assert.Zero(t, d.Expiry)
		assert.Nil(t, d.Node.Condition, "it cannot say until when")
	})
	t.Run("judges no end", func(t *testing.T) {
		f := facts(onMachine("now"), kept(t), timeless)
		assert.True(t, preserve.Decide(f).Empty())
		assert.Equal(t, tilNoon, preserve.Decide(f).Expiry)
		assert.True(t, preserve.Protected(f))
	})
	t.Run("sees a stop that was interrupted", func(t *testing.T) {
		f := facts(onMachine("now"), kept(t), after(96*time.Hour))
		writes := steps(preserve.Decide(f))
		for i, write := range writes {
			write(&f)
			attention := f
			attention.Now = time.Time{}
			assert.Equal(t, i == len(writes)-1, preserve.Decide(attention).Empty(), "after %d writes", i+1)
		}
	})
}

func TestProtected(t *testing.T) {
	expiring := func(at time.Time) change { return func(f *preserve.Facts) { f.Expiry = at } }
	for _, row := range []struct {
		name  string
		facts preserve.Facts
		want  bool
	}{
		{"no wish", facts(), false},
		{"its end is to come, whatever the wish is now", facts(expiring(noon.Add(1)), onMachine("false")), true},
		{"its end has come", facts(expiring(noon), onMachine("now")), false},
		{"its end is not judged", facts(timeless, expiring(noon)), true},
		{"now on the machine", facts(onMachine("now")), true},
		{"when-failed on the machine", facts(onMachine("when-failed")), true},
		{"when-failed on the node", facts(onNode("when-failed")), true},
		{"auto-preserved", facts(onMachine("auto-preserved")), true},
		{"false on the machine", facts(onMachine("false")), false},
		{"false on the node", facts(onNode("false"), onMachine("now")), false},
		{"gone from the node", facts(lastApplied("now")), false},
		{"not known on the machine", facts(onMachine("forever")), false},
		{"a time-out of zero", facts(onMachine("now"), func(f *preserve.Facts) { f.Timeout = 0 }), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, preserve.Protected(row.facts))
			row.facts.Failed = true
			assert.Equal(t, row.want, preserve.Protected(row.facts), "asked before it fails or after: the same answer")
		})
	}
}

func TestAMachineThatIsToGoIsNotPreserved(t *testing.T) {
	for _, f := range []preserve.Facts{
		facts(onMachine("now")), facts(onMachine("now"), failed, kept(t)), facts(onNode("forever"), func(f *preserve.Facts) { f.Expiry = tilNoon }),
		facts(onMachine("now"), kept(t), after(97*time.Hour)),
	} {
		f.Deleting = true
		assert.Equal(t, preserve.Decision{}, preserve.Decide(f))
	}
}
