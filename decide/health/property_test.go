package health_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/decide/health"
)

var machinePhases = []string{
	"",
	"Pending",
	"Available",
	"Running",
	"Unknown",
	"Failed",
	"Terminating",
	"CrashLoopBackOff",
	"InPlaceUpdating",
}

// forAllFacts calls check with every combination of facts. The times are on both sides of each limit.
func forAllFacts(check func(health.Facts)) {
	flags := []func(*health.Facts) *bool{
		func(f *health.Facts) *bool { return &f.NoTargetCluster },
		func(f *health.Facts) *bool { return &f.Instance },
		func(f *health.Facts) *bool { return &f.Healthy },
		func(f *health.Facts) *bool { return &f.NodeDeleting },
		func(f *health.Facts) *bool { return &f.NoTimeout },
		func(f *health.Facts) *bool { return &f.Due },
		func(f *health.Facts) *bool { return &f.Granted },
		func(f *health.Facts) *bool { return &f.Alone },
	}
	minute := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Minute) }
	var sets [][]factsEdit
	for _, flag := range flags {
		sets = append(
			sets,
			[]factsEdit{func(f *health.Facts) { *flag(f) = false }, func(f *health.Facts) { *flag(f) = true }},
		)
	}
	sets = append(
		sets,
		[]factsEdit{
			func(f *health.Facts) { f.NodeWaits = "" },
			func(f *health.Facts) { f.NodeWaits = "its parts are not ready" },
		},
		[]factsEdit{func(f *health.Facts) { f.Breaker = "" }, withOpenBreaker},
		[]factsEdit{func(f *health.Facts) { f.Timeout = 0 }, func(f *health.Facts) { f.Timeout = 10 * time.Minute }},
		[]factsEdit{func(f *health.Facts) { f.InstanceGoneAt = time.Time{} }, withInstanceGone},
		editsWithTimes(func(f *health.Facts, at time.Time) { f.CreateBy = at }, time.Time{}, noon, minute(1)),
		editsWithTimes(func(f *health.Facts, at time.Time) { f.UnhealthySince = at }, time.Time{}, minute(-10), minute(-9)),
		editsWithTimes(func(f *health.Facts, at time.Time) { f.RecoveredAt = at }, time.Time{}, minute(-5)),
		editsWithTimes(func(f *health.Facts, at time.Time) { f.BadSince = at }, time.Time{}, minute(-2)),
	)
	for _, phase := range machinePhases {
		forAllCombinations(newFacts(phase), sets, check)
	}
}

func editsWithTimes(set func(*health.Facts, time.Time), times ...time.Time) []factsEdit {
	var edits []factsEdit
	for _, at := range times {
		edits = append(edits, func(f *health.Facts) { set(f, at) })
	}
	return edits
}

func forAllCombinations(f health.Facts, sets [][]factsEdit, check func(health.Facts)) {
	if len(sets) == 0 {
		check(f)
		return
	}
	for _, e := range sets[0] {
		e(&f)
		forAllCombinations(f, sets[1:], check)
	}
}

// hasTimedOut reports whether the health timeout of a machine has ended. Unlike HasTimedOut, hasTimedOut does not use
// the package's functions.
func hasTimedOut(f health.Facts) bool {
	since := f.UnhealthySince
	if since.IsZero() {
		since = f.Since
	}
	return f.NodeDeleting || !f.InstanceGoneAt.IsZero() || (!f.NoTimeout && f.Now.Sub(since) >= f.Timeout)
}

func TestInvariantsOfVerdicts(t *testing.T) {
	checked := 0
	forAllFacts(func(f health.Facts) {
		checked++
		v := health.Decide(f)
		for _, broken := range []string{
			checkVerdictIsRepeatable(f, v), checkFailedMachineStays(f, v), checkFailureReason(f, v), checkTimeoutsEnd(f, v), checkVerdictConsistency(v),
		} {
			if broken != "" {
				require.Fail(t, broken, "%+v\n%s", f, formatVerdict(v))
			}
		}
	})
	require.Equal(t, 1_327_104, checked)
}

func formatVerdict(v health.Verdict) string {
	return fmt.Sprintf("%+v change %+v clock %+v due %+v", v, v.Change, v.Clock, v.Due)
}

func checkVerdictIsRepeatable(f health.Facts, v health.Verdict) string {
	if !equalVerdicts(v, health.Decide(f)) {
		return "the same facts got another verdict"
	}
	return ""
}

// equalVerdicts compares two verdicts by value: pointers are dereferenced.
func equalVerdicts(v, w health.Verdict) bool {
	return equalPointerValues(v.Change, w.Change) && equalPointerValues(v.Clock, w.Clock) &&
		equalPointerValues(v.Due, w.Due) &&
		v.Why == w.Why &&
		v.Look == w.Look &&
		v.Deadline.Equal(w.Deadline)
}

func equalPointerValues[T comparable](a, b *T) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

func checkFailedMachineStays(f health.Facts, v health.Verdict) string {
	if f.Phase == "Failed" && v != (health.Verdict{}) {
		return "a Failed machine is left alone"
	}
	return ""
}

// checkFailureReason returns an error text if a machine became Failed without a reason.
func checkFailureReason(f health.Facts, v health.Verdict) string {
	making := !f.Instance || f.Phase == "" || f.Phase == "Pending" || f.Phase == "Available" ||
		f.Phase == "CrashLoopBackOff"
	tooLate := making && !f.CreateBy.IsZero() && !f.Now.Before(f.CreateBy)
	unhealthy := f.Phase == "Unknown" && !f.NoTargetCluster && (!f.Healthy || f.NodeDeleting)
	replaced := unhealthy && hasTimedOut(f) && f.Alone && f.Breaker == ""
	if phaseOfVerdict(v) == "Failed" && !f.Granted && !tooLate && !replaced {
		return "it failed for no reason"
	}
	return ""
}

// checkTimeoutsEnd returns an error text if a machine that has to fail did not fail, or if nothing happens at the
// Deadline.
func checkTimeoutsEnd(f health.Facts, v health.Verdict) string {
	unhealthy := f.Phase == "Unknown" && f.Instance && !f.NoTargetCluster && (!f.Healthy || f.NodeDeleting)
	switch {
	case f.Phase != "Failed" && f.Granted && phaseOfVerdict(v) != "Failed":
		return "it was granted and has not failed"
	case unhealthy && hasTimedOut(f) && f.Alone && f.Breaker == "" && phaseOfVerdict(v) != "Failed":
		return "the timeout has ended and it has not failed"
	case unhealthy && hasTimedOut(f) && !f.Granted && (v.Due == nil || !v.Due.True):
		return "the timeout has ended and it is not due"
	case v.Deadline.IsZero():
		return ""
	case !f.Now.Before(v.Deadline):
		return "the deadline has passed already"
	}
	f.Now = v.Deadline
	if w := health.Decide(f); phaseOfVerdict(w) != "Failed" && (w.Due == nil || !w.Due.True) {
		return "nothing happens at the deadline"
	}
	return ""
}

// checkVerdictConsistency returns an error text if parts of a verdict contradict each other.
func checkVerdictConsistency(v health.Verdict) string {
	switch {
	case v.Change != nil && !v.Deadline.IsZero():
		return "a change waits for nothing"
	case v.Change != nil && (v.Change.Phase == "" || v.Change.Operation == "" || v.Change.State == "" || v.Change.Reason == "" || v.Change.Message == ""):
		return "a change says everything"
	case v.Due != nil && (v.Due.Reason == "" || v.Due.Message == ""):
		return "a condition says everything"
	case v.Due != nil && v.Due.True && phaseOfVerdict(v) != "" && phaseOfVerdict(v) != "Failed":
		return "a machine that goes on is not due"
	case v.Clock != nil && phaseOfVerdict(v) != "Unknown" && phaseOfVerdict(v) != "Running":
		return "the clock moves with the node's health only"
	case (phaseOfVerdict(v) == "Unknown") != (v.Clock != nil && v.Clock.RecoveredAt.IsZero()):
		return "with Unknown, and only then, the clock runs"
	default:
		return ""
	}
}
