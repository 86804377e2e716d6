package scale_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/scale"
)

// A deployment goes by the size that its sets have seen: it is told when nothing is under way for it.
func TestWhichSizeASetHasSeen(t *testing.T) {
	refused := func(deleting bool) func(*scale.Observed) {
		return func(o *scale.Observed) { o.LastFailure = scale.Failure{Deleting: deleting, Message: "quota"} }
	}
	for _, row := range []struct {
		name string
		o    scale.Observed
		seen bool
	}{
		{"all there", set(3, running(3)...), true},
		{"they need not be ready", set(3, running(3, pending)...), true},
		{"machines to make", set(3, running(2)...), false},
		{"the last of them goes: another is to be made", set(1, running(1, deleting)...), false},
		{"machines to delete", set(3, running(4)...), false},
		{"they go", set(3, append(running(3), member("z", day, deleting))...), true},
		{"one that failed is to be replaced", set(3, append(running(2), member("z", day, failed))...), false},
		{"a deployment has not agreed to that yet", set(3, append(running(2), member("z", day, failed, notGranted))...), true},
		{"one is to be remediated", set(3, append(running(2), member("z", day, unhealthy, marked))...), false},
		{"more than wanted were handed over: the size follows", set(2, running(3, updated)...), true},
		{"scaled to none, and none is left", set(0), true},

		{"frozen, one is missing", with(set(3, running(2)...), func(o *scale.Observed) { o.MCM.Freeze.Label = true }), true},
		{"frozen, one is too many", with(set(3, running(4)...), func(o *scale.Observed) { o.MCM.Freeze.Label = true }), false},
		{"closed", with(set(3), notToScaleUp), true},
		{"preflight fails", with(set(3), func(o *scale.Observed) { o.Preflight = upgrading() }), true},
		{"its class is missing", with(set(3), func(o *scale.Observed) { o.Missing = []string{"MachineClass"} }), true},
		{"paused", with(set(3, running(4)...), paused), true},
		{"invalid", with(set(3, running(4)...), func(o *scale.Observed) { o.Invalid = "the selector is empty" }), true},
		{"the next generation waits", with(set(1, member("z", 0, stillborn)), func(o *scale.Observed) {
			o.Remediation.Backoff, o.MCM.Generations = day, scale.Generations{Failed: 1, Last: at(-time.Hour)}
		}), true},

		{"a creation was refused, and is tried again later", with(set(3), refused(false)), true},
		{"a deletion was refused", with(set(0, running(1)...), refused(true)), true},

		{"what is adopted or released may change what follows", with(set(1, running(1)...), func(o *scale.Observed) { o.Orphans = []scale.Orphan{orphan("o")} }), false},
		{"one is to be released", set(1, append(running(1), member("z", day, stray))...), false},
		{"one is to be kept", with(set(1, running(1, failed)...), func(o *scale.Observed) { o.MCM.Keep = 1 }), false},
		{"a mark is to be taken off", set(1, running(1, checked, marked)...), false},
		{"what is copied in place changes no number", set(1, running(1, drift("labels"))...), true},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.o.Reported.ActedOn = 7
			want := 7
			if row.seen {
				want = row.o.Replicas
			}
			plan := scale.Plan(row.o)
			assert.Equal(t, want, plan.Status.ActedOn, plan.Decision.Why)
			assert.Equal(t, scale.Decide(row.o), plan.Decision)
		})
	}
	t.Run("no size is below zero", func(t *testing.T) {
		assert.Zero(t, scale.Plan(set(-1)).Status.ActedOn)
	})
}

// While machines are made in batches the size before is the one that was seen.
func TestASizeIsSeenWhenTheLastBatchIsDone(t *testing.T) {
	w := newWorld(set(2*scale.MaxCreate + 50))
	for _, alive := range []int{scale.MaxCreate, 2 * scale.MaxCreate, 2*scale.MaxCreate + 50} {
		require.Zero(t, w.Reported.ActedOn)
		w.carryOut(scale.Decide(w.Observed))
		w.report()
		require.Equal(t, alive, w.alive())
	}
	assert.Equal(t, 2*scale.MaxCreate+50, w.Reported.ActedOn)
}
