package health_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/decide/health"
)

var phases = []string{
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

// each calls check with every combination of facts, times at both sides of what they are compared with included.
func each(check func(health.Facts)) {
	flags := []func(*health.Facts) *bool{
		func(f *health.Facts) *bool { return &f.NoTarget },
		func(f *health.Facts) *bool { return &f.Instance },
		func(f *health.Facts) *bool { return &f.Healthy },
		func(f *health.Facts) *bool { return &f.NodeDeleting },
		func(f *health.Facts) *bool { return &f.NoTimeout },
		func(f *health.Facts) *bool { return &f.Due },
		func(f *health.Facts) *bool { return &f.Granted },
		func(f *health.Facts) *bool { return &f.Alone },
	}
	minute := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Minute) }
	var sets [][]edit
	for _, flag := range flags {
		sets = append(sets, []edit{func(f *health.Facts) { *flag(f) = false }, func(f *health.Facts) { *flag(f) = true }})
	}
	sets = append(
		sets,
		[]edit{func(f *health.Facts) { f.NodeWaits = "" }, func(f *health.Facts) { f.NodeWaits = "its parts are not ready" }},
		[]edit{func(f *health.Facts) { f.Breaker = "" }, breaker},
		[]edit{func(f *health.Facts) { f.Timeout = 0 }, func(f *health.Facts) { f.Timeout = 10 * time.Minute }},
		[]edit{func(f *health.Facts) { f.InstanceGoneAt = time.Time{} }, gone},
		moments(func(f *health.Facts, at time.Time) { f.CreateBy = at }, time.Time{}, noon, minute(1)),
		moments(func(f *health.Facts, at time.Time) { f.UnhealthySince = at }, time.Time{}, minute(-10), minute(-9)),
		moments(func(f *health.Facts, at time.Time) { f.RecoveredAt = at }, time.Time{}, minute(-5)),
		moments(func(f *health.Facts, at time.Time) { f.BadSince = at }, time.Time{}, minute(-2)),
	)
	for _, phase := range phases {
		combine(facts(phase), sets, check)
	}
}

func moments(set func(*health.Facts, time.Time), times ...time.Time) []edit {
	var edits []edit
	for _, at := range times {
		edits = append(edits, func(f *health.Facts) { set(f, at) })
	}
	return edits
}

func combine(f health.Facts, sets [][]edit, check func(health.Facts)) {
	if len(sets) == 0 {
		check(f)
		return
	}
	for _, e := range sets[0] {
		e(&f)
		combine(f, sets[1:], check)
	}
}

// over says whether the health timeout of a machine has ended, in another way than the package does.
func over(f health.Facts) bool {
	since := f.UnhealthySince
	if since.IsZero() {
		since = f.Since
	}
	return f.NodeDeleting || !f.InstanceGoneAt.IsZero() || (!f.NoTimeout && f.Now.Sub(since) >= f.Timeout)
}

func TestWhatHoldsForAllFacts(t *testing.T) {
	checked := 0
	each(func(f health.Facts) {
		checked++
		v := health.Decide(f)
		for _, broken := range []string{
			pure(f, v), neverTakenBack(f, v), failsForAReason(f, v), firesInTime(f, v), consistent(v),
		} {
			if broken != "" {
				require.Fail(t, broken, "%+v\n%s", f, tell(v))
			}
		}
	})
	require.Equal(t, 1_327_104, checked)
}

func tell(v health.Verdict) string {
	return fmt.Sprintf("%+v change %+v clock %+v due %+v", v, v.Change, v.Clock, v.Due)
}

func pure(f health.Facts, v health.Verdict) string {
	if !same(v, health.Decide(f)) {
		return "the same facts got another verdict"
	}
	return ""
}

// same compares what the pointers of two verdicts point at.
func same(v, w health.Verdict) bool {
	return equal(v.Change, w.Change) && equal(v.Clock, w.Clock) && equal(v.Due, w.Due) &&
		v.Why == w.Why && v.Look == w.Look && v.Deadline.Equal(w.Deadline)
}

func equal[T comparable](a, b *T) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

func neverTakenBack(f health.Facts, v health.Verdict) string {
	if f.Phase == "Failed" && v != (health.Verdict{}) {
		return "a Failed machine is left alone"
	}
	return ""
}

// failsForAReason says who may fail.
func failsForAReason(f health.Facts, v health.Verdict) string {
	making := !f.Instance || f.Phase == "" || f.Phase == "Pending" || f.Phase == "Available" ||
		f.Phase == "CrashLoopBackOff"
	tooLate := making && !f.CreateBy.IsZero() && !f.Now.Before(f.CreateBy)
	unhealthy := f.Phase == "Unknown" && !f.NoTarget && (!f.Healthy || f.NodeDeleting)
	replaced := unhealthy && over(f) && f.Alone && f.Breaker == ""
	if to(v) == "Failed" && !f.Granted && !tooLate && !replaced {
		return "it failed for no reason"
	}
	return ""
}

// firesInTime says who must fail, and that a deadline that is told is kept.
func firesInTime(f health.Facts, v health.Verdict) string {
	unhealthy := f.Phase == "Unknown" && f.Instance && !f.NoTarget && (!f.Healthy || f.NodeDeleting)
	switch {
	case f.Phase != "Failed" && f.Granted && to(v) != "Failed":
		return "it was granted and has not failed"
	case unhealthy && over(f) && f.Alone && f.Breaker == "" && to(v) != "Failed":
		return "the timeout has ended and it has not failed"
	case unhealthy && over(f) && !f.Granted && (v.Due == nil || !v.Due.True):
		return "the timeout has ended and it is not due"
	case v.Deadline.IsZero():
		return ""
	case !f.Now.Before(v.Deadline):
		return "the deadline has passed already"
	}
	f.Now = v.Deadline
	if w := health.Decide(f); to(w) != "Failed" && (w.Due == nil || !w.Due.True) {
		return "nothing happens at the deadline"
	}
	return ""
}

// consistent says what all parts of a verdict say together.
func consistent(v health.Verdict) string {
	switch {
	case v.Change != nil && !v.Deadline.IsZero():
		return "a change waits for nothing"
	case v.Change != nil && (v.Change.Phase == "" || v.Change.Operation == "" || v.Change.State == "" || v.Change.Reason == "" || v.Change.Message == ""):
		return "a change says everything"
	case v.Due != nil && (v.Due.Reason == "" || v.Due.Message == ""):
		return "a condition says everything"
	case v.Due != nil && v.Due.True && to(v) != "" && to(v) != "Failed":
		return "a machine that goes on is not due"
	case v.Clock != nil && to(v) != "Unknown" && to(v) != "Running":
		return "the clock moves with the node's health only"
	case (to(v) == "Unknown") != (v.Clock != nil && v.Clock.RecoveredAt.IsZero()):
		return "with Unknown, and only then, the clock runs"
	default:
		return ""
	}
}
