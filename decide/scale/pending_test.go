package scale_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/attention"
	"millwright/decide/scale"
)

// reported is a set that is cared for, and whose status says all that there is to say.
func reported(o scale.Observed) scale.Observed {
	o.Finalizer, o.Generation, o.ObservedGeneration = true, 2, 2
	o.Reported = scale.Plan(o).Status
	return o
}

// The edits of a set that has what it wants, and says so.
func goes(o *scale.Observed)      { o.Deleting = true }
func bare(o *scale.Observed)      { o.Finalizer = false }
func unseen(o *scale.Observed)    { o.Generation = 3 }
func busy(o *scale.Observed)      { o.Replicas = 4 }
func unwritten(o *scale.Observed) { o.Reported.Overshoot = 7 }
func rechecked(o *scale.Observed) { o.MinReady = o.Now.Sub(o.Members[0].ReadyFrom) + time.Minute }

func pendingOf(edits ...func(*scale.Observed)) scale.Observed {
	o := reported(set(3, running(3)...))
	for _, edit := range edits {
		edit(&o)
	}
	return o
}

func TestPending(t *testing.T) {
	told := func(o scale.Observed) scale.Observed { o.Reported = scale.Plan(o).Status; return o }
	for _, row := range []struct {
		name string
		o    scale.Observed
		need attention.Need
		why  string
	}{
		{"as many as wanted", pendingOf(), attention.Nothing, "3 machines wanted, 3 there"},
		{"what is missing cannot be made now", told(pendingOf(busy, func(o *scale.Observed) { o.MCM.Freeze.Label = true })), attention.Scale, "4 wanted, 3 there; none is created: MachineSet is frozen"},
		{"no finalizer", pendingOf(bare), attention.Scale, "new: our finalizer is missing"},
		{"no finalizer comes before all else", pendingOf(bare, unseen, busy, unwritten), attention.Scale, "new: our finalizer is missing"},
		{"spec changed", pendingOf(unseen), attention.Scale, "generation 3 was not seen yet (last seen: 2)"},
		{"status of a spec that was", pendingOf(func(o *scale.Observed) { o.ObservedGeneration = 1 }), attention.Scale, "generation 2 was not seen yet (last seen: 1)"},
		{"spec changed, and that shows", pendingOf(unseen, busy, unwritten), attention.Scale, "generation 3 was not seen yet (last seen: 2)"},
		{"something to do", pendingOf(busy), attention.Scale, "create 1 machine: 4 wanted, 3 there"},
		{"something to do comes before what is to be told", pendingOf(busy, unwritten), attention.Scale, "create 1 machine: 4 wanted, 3 there"},
		{"status late", pendingOf(unwritten), attention.Scale, "status is out of date"},
		{"status late comes before the clock", pendingOf(rechecked), attention.Scale, "status is out of date"},
		{"the clock will say something else", told(pendingOf(rechecked)), attention.Scale, "3 machines wanted, 3 there; it waits for the time to pass"},
		{"to be deleted", pendingOf(goes), attention.Deletion, "deletion was asked for; 3 machines left"},
		{"to be deleted, whatever else there is", pendingOf(goes, unseen, busy, unwritten), attention.Deletion, "deletion was asked for; 3 machines left"},
		{"released", pendingOf(goes, bare), attention.Nothing, "released: the API server removes it"},
		{"released, whatever else there is", pendingOf(goes, bare, unseen, busy, unwritten), attention.Nothing, "released: the API server removes it"},
	} {
		t.Run(row.name, func(t *testing.T) {
			plan := scale.Plan(row.o)
			assert.Equal(
				t,
				attention.Decision{Need: row.need, Why: row.why},
				attention.Decision{Need: plan.Pending.Need, Why: plan.Pending.Why},
			)
		})
	}
}

// What is only a matter of writing the status, or of the time, is not what people wait for.
func TestWhatASetSaysThatItWaitsFor(t *testing.T) {
	going := func(o *scale.Observed) {
		o.Members[0].Deleting, o.Members[0].DeletingSince, o.Replicas = true, o.Now, 2
	}
	for _, row := range []struct {
		name string
		o    scale.Observed
		says string
	}{
		{"its status is late", pendingOf(unwritten), "3 machines wanted, 3 there"},
		{"its generation was not seen", pendingOf(unseen), "3 machines wanted, 3 there"},
		{"its generation was not seen, and a machine is missing", pendingOf(unseen, busy), "create 1 machine: 4 wanted, 3 there"},
		{"a machine is being deleted", pendingOf(going), "1 machine is being deleted: m-1"},
		{"machines are not ready for long enough", pendingOf(rechecked), "3 machines are not available yet: m-1, m-2, m-3"},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.says, scale.Plan(row.o).Pending.WaitsFor())
			row.o.Reported = scale.Plan(row.o).Status
			assert.Equal(t, row.says, scale.Plan(row.o).Pending.WaitsFor(), "once that is written")
		})
	}
}

func TestOnlyASetThatIsAsItShouldBeIsCalm(t *testing.T) {
	edits := []func(*scale.Observed){goes, bare, unseen, busy, unwritten, rechecked}
	for bits := range 1 << len(edits) {
		var chosen []func(*scale.Observed)
		for i, e := range edits {
			if bits>>i&1 == 1 {
				chosen = append(chosen, e)
			}
		}
		o := pendingOf(chosen...)
		plan := scale.Plan(o)
		gone := o.Deleting && !o.Finalizer
		require.Equal(t, bits == 0 || gone, plan.Pending.Calm(), "%+v", o)
		require.Equal(t, o.Deleting && o.Finalizer, plan.Pending.Need == attention.Deletion, "%+v", o)
		require.NotEmpty(t, plan.Pending.Why, "%+v", o)
		o.Reported, o.ObservedGeneration = plan.Status, o.Generation
		require.Equal(t, scale.Plan(o).Pending.Calm(), plan.Calm, "once the status is written: %+v", o)
	}
}

// A message that is too long for a condition is cut, and not written again and again.
func TestALongMessageIsReportedOnce(t *testing.T) {
	o := set(3, running(2)...)
	o.LastFailure = scale.Failure{Message: strings.Repeat("é", 900)}
	o = reported(o)
	assert.False(t, scale.Plan(o).Unreported)
	for _, c := range o.Reported.Conditions {
		assert.LessOrEqual(t, len(c.Message), 1003)
	}
}

// Which of many machines is named changes all the time, and is no news; why they get no instance is.
func TestReplicaFailureKeepsItsSentence(t *testing.T) {
	o := set(1, running(1)...)
	says := func(reason, message string) (text string, news bool) {
		o.Members[0].MCM.Blocked = scale.Problem{Reason: reason, Message: message}
		plan := scale.Plan(o)
		news, o.Reported = plan.Unreported, plan.Status
		for _, c := range plan.Status.Conditions {
			if c.Type == "ReplicaFailure" {
				text = c.Message
			}
		}
		require.False(t, scale.Plan(o).Unreported)
		return text, news
	}
	expect := func(text string, news bool) func(string, bool) {
		return func(is string, told bool) { t.Helper(); assert.Equal(t, []any{text, news}, []any{is, told}) }
	}
	const of = "machines get no instance; machine m-1: "
	expect(of+"no", true)(says("ResourceExhausted", "no"))
	expect(of+"no", false)(says("ResourceExhausted", "never"))
	expect(of+"odd", true)(says("Internal", "odd"))
	expect("", true)(says("", ""))
	expect(of+"strange", true)(says("Internal", "strange"))
}
