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

// withCurrentStatus returns the set with a finalizer and with the status that PlanSet returns.
func withCurrentStatus(o scale.Facts) scale.Facts {
	o.HasFinalizer, o.Generation, o.ObservedGeneration = true, 2, 2
	o.ReportedStatus = scale.PlanSet(o).Status
	return o
}

// These functions change a set that has all wanted machines and a current status.
func deleteSet(o *scale.Facts)            { o.Deleting = true }
func removeFinalizer(o *scale.Facts)      { o.HasFinalizer = false }
func raiseGeneration(o *scale.Facts)      { o.Generation = 3 }
func raiseReplicas(o *scale.Facts)        { o.Replicas = 4 }
func changeReportedStatus(o *scale.Facts) { o.ReportedStatus.Overshoot = 7 }
func raiseMinReady(o *scale.Facts) {
	o.MinReadyDuration = o.Now.Sub(o.Members[0].ReadySince) + time.Minute
}

func factsAfterEdits(edits ...func(*scale.Facts)) scale.Facts {
	o := withCurrentStatus(newSet(3, runningMembers(3)...))
	for _, edit := range edits {
		edit(&o)
	}
	return o
}

func TestPendingWork(t *testing.T) {
	told := func(o scale.Facts) scale.Facts { o.ReportedStatus = scale.PlanSet(o).Status; return o }
	for _, row := range []struct {
		name string
		o    scale.Facts
		need attention.Need
		why  string
	}{
		{"as many as wanted", factsAfterEdits(), attention.NeedNothing, "3 machines wanted, 3 there"},
		{"what is missing cannot be made now", told(factsAfterEdits(raiseReplicas, func(o *scale.Facts) { o.MCM.Freeze.HasLabel = true })), attention.NeedScaling, "4 wanted, 3 there; none is created: MachineSet is frozen"},
		{"no finalizer", factsAfterEdits(removeFinalizer), attention.NeedScaling, "new: our finalizer is missing"},
		{"no finalizer comes before all else", factsAfterEdits(removeFinalizer, raiseGeneration, raiseReplicas, changeReportedStatus), attention.NeedScaling, "new: our finalizer is missing"},
		{"spec changed", factsAfterEdits(raiseGeneration), attention.NeedScaling, "generation 3 was not seen yet (last seen: 2)"},
		{"status of a spec that was", factsAfterEdits(func(o *scale.Facts) { o.ObservedGeneration = 1 }), attention.NeedScaling, "generation 2 was not seen yet (last seen: 1)"},
		{"spec changed, and that shows", factsAfterEdits(raiseGeneration, raiseReplicas, changeReportedStatus), attention.NeedScaling, "generation 3 was not seen yet (last seen: 2)"},
		{"something to do", factsAfterEdits(raiseReplicas), attention.NeedScaling, "create 1 machine: 4 wanted, 3 there"},
		{"something to do comes before what is to be told", factsAfterEdits(raiseReplicas, changeReportedStatus), attention.NeedScaling, "create 1 machine: 4 wanted, 3 there"},
		{"status late", factsAfterEdits(changeReportedStatus), attention.NeedScaling, "status is out of date"},
		{"status late comes before the clock", factsAfterEdits(raiseMinReady), attention.NeedScaling, "status is out of date"},
		{"the clock will say something else", told(factsAfterEdits(raiseMinReady)), attention.NeedScaling, "3 machines wanted, 3 there; it waits for the time to pass"},
		{"to be deleted", factsAfterEdits(deleteSet), attention.NeedDeletion, "deletion was asked for; 3 machines left"},
		{"to be deleted, whatever else there is", factsAfterEdits(deleteSet, raiseGeneration, raiseReplicas, changeReportedStatus), attention.NeedDeletion, "deletion was asked for; 3 machines left"},
		{"released", factsAfterEdits(deleteSet, removeFinalizer), attention.NeedNothing, "released: the API server removes it"},
		{"released, whatever else there is", factsAfterEdits(deleteSet, removeFinalizer, raiseGeneration, raiseReplicas, changeReportedStatus), attention.NeedNothing, "released: the API server removes it"},
	} {
		t.Run(row.name, func(t *testing.T) {
			plan := scale.PlanSet(row.o)
			assert.Equal(
				t,
				attention.Decision{Need: row.need, Why: row.why},
				attention.Decision{Need: plan.PendingWork.Need, Why: plan.PendingWork.Why},
			)
		})
	}
}

// WaitsFor mentions neither a pending write of the status nor a wait for a point in time.
func TestWaitTextOfASetIgnoresPendingStatusWrite(t *testing.T) {
	going := func(o *scale.Facts) {
		o.Members[0].Deleting, o.Members[0].DeletingSince, o.Replicas = true, o.Now, 2
	}
	for _, row := range []struct {
		name string
		o    scale.Facts
		says string
	}{
		{"its status is late", factsAfterEdits(changeReportedStatus), "3 machines wanted, 3 there"},
		{"its generation was not seen", factsAfterEdits(raiseGeneration), "3 machines wanted, 3 there"},
		{"its generation was not seen, and a machine is missing", factsAfterEdits(raiseGeneration, raiseReplicas), "create 1 machine: 4 wanted, 3 there"},
		{"a machine is being deleted", factsAfterEdits(going), "1 machine is being deleted: m-1"},
		{"machines are not ready for long enough", factsAfterEdits(raiseMinReady), "3 machines are not available yet: m-1, m-2, m-3"},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.says, scale.PlanSet(row.o).PendingWork.WaitText())
			row.o.ReportedStatus = scale.PlanSet(row.o).Status
			assert.Equal(t, row.says, scale.PlanSet(row.o).PendingWork.WaitText(), "once that is written")
		})
	}
}

func TestSetWithoutPendingWorkNeedsNothing(t *testing.T) {
	edits := []func(*scale.Facts){
		deleteSet,
		removeFinalizer,
		raiseGeneration,
		raiseReplicas,
		changeReportedStatus,
		raiseMinReady,
	}
	for bits := range 1 << len(edits) {
		var chosen []func(*scale.Facts)
		for i, e := range edits {
			if bits>>i&1 == 1 {
				chosen = append(chosen, e)
			}
		}
		o := factsAfterEdits(chosen...)
		plan := scale.PlanSet(o)
		gone := o.Deleting && !o.HasFinalizer
		require.Equal(t, bits == 0 || gone, plan.PendingWork.NeedsNothing(), "%+v", o)
		require.Equal(t, o.Deleting && o.HasFinalizer, plan.PendingWork.Need == attention.NeedDeletion, "%+v", o)
		require.NotEmpty(t, plan.PendingWork.Why, "%+v", o)
		o.ReportedStatus, o.ObservedGeneration = plan.Status, o.Generation
		require.Equal(
			t,
			scale.PlanSet(o).PendingWork.NeedsNothing(),
			plan.SettledAfterStatusWrite,
			"once the status is written: %+v",
			o,
		)
	}
}

// A message that is too long for a condition is cut. The cut message does not cause another write of the status.
func TestALongMessageIsReportedOnce(t *testing.T) {
	o := newSet(3, runningMembers(2)...)
	o.LastWriteFailure = scale.WriteFailure{Message: strings.Repeat("é", 900)}
	o = withCurrentStatus(o)
	assert.False(t, scale.PlanSet(o).NeedsStatusWrite)
	for _, c := range o.ReportedStatus.Conditions {
		assert.LessOrEqual(t, len(c.Message), 1003)
	}
}

// The machine names in the message change often. A change of the names alone does not cause a write of the status. A
// new reason of the condition causes a write of the status.
func TestReplicaFailureKeepsItsMessage(t *testing.T) {
	o := newSet(1, runningMembers(1)...)
	says := func(reason, message string) (text string, news bool) {
		o.Members[0].MCM.CreationProblem = scale.Problem{Reason: reason, Message: message}
		plan := scale.PlanSet(o)
		news, o.ReportedStatus = plan.NeedsStatusWrite, plan.Status
		for _, c := range plan.Status.Conditions {
			if c.Type == "ReplicaFailure" {
				text = c.Message
			}
		}
		require.False(t, scale.PlanSet(o).NeedsStatusWrite)
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
