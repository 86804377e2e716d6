package steer_test

import (
	"slices"
	"time"

	"millwright/decide/steer"
	"millwright/decide/verb"
)

// now is when all verbs are given. It is not in whole seconds, as a workflow's time is not.
var now = time.Date(2026, 11, 21, 14, 6, 7, 500_000_000, time.UTC)

// calm is a deployment of revision 7 whose rollout is complete.
func calm(change ...func(*steer.Facts)) steer.Facts {
	f := steer.Facts{Deployment: "shop/d", UID: "u-1", Now: now, Revision: 7, Revisions: []int64{3, 6, 5}}
	for _, c := range change {
		c(&f)
	}
	return f
}

// rolling is one on its way to revision 7, which has three stages and waits at the second.
func rolling(change ...func(*steer.Facts)) steer.Facts {
	f := calm(func(f *steer.Facts) { f.Rolling, f.Stages, f.Gate = true, 3, &steer.Gate{Step: 1, Of: 3} })
	for _, c := range change {
		c(&f)
	}
	return f
}

func paused(f *steer.Facts)   { f.Paused = true }
func deleting(f *steer.Facts) { f.Deleting = true }
func invalid(f *steer.Facts)  { f.Invalid = "the selector is empty" }
func onDelete(f *steer.Facts) { f.OnDelete = true }
func gateless(f *steer.Facts) { f.Gate = nil }
func alone(f *steer.Facts)    { f.Revisions = nil }
func unmade(f *steer.Facts)   { f.Revision, f.Revisions = 0, []int64{6, 7} }
func held(by string) func(*steer.Facts) {
	return func(f *steer.Facts) { f.Held = by }
}

func returning(to int64) func(*steer.Facts) {
	return func(f *steer.Facts) { f.RollbackTo = &to }
}

func approved(n int) func(*steer.Facts) { return func(f *steer.Facts) { f.Approved = n } }

// order is what ann wants, because of a reason.
func order(v steer.Verb, change ...func(*steer.Order)) steer.Order {
	o := steer.Order{Verb: v, Actor: "ann", Reason: "why"}
	for _, c := range change {
		c(&o)
	}
	return o
}

func revision(n int64) func(*steer.Order) { return func(o *steer.Order) { o.Revision = &n } }
func stages(n int) func(*steer.Order)     { return func(o *steer.Order) { o.Stages = n } }
func back(o *steer.Order)                 { o.Back = true }
func asked(o *steer.Order)                { o.Asked = now }
func nameless(o *steer.Order)             { o.Actor, o.Reason = "", "" }
func flags(o *steer.Order)                { o.Door = verb.CommandLine }

// writes reports whether a decision writes anything.
func writes(d steer.Decision) bool {
	return d.PauseTo != nil || d.RollbackTo != nil || d.Hold != nil || d.Approve != nil || d.RestartedAt != nil || d.Cause != nil || d.Last != ""
}

// carriedOut is the deployment after a decision was written, and after what it asked for has come about where done says so.
func carriedOut(f steer.Facts, o steer.Order, d steer.Decision, done bool) steer.Facts {
	f.Last = d.Last
	if d.PauseTo != nil {
		f.Paused = *d.PauseTo
	}
	if d.Hold != nil {
		f.Held = ""
		if *d.Hold != "" {
			f.Held = (*d.Hold)[2:]
		}
	}
	if d.RestartedAt != nil {
		f.RestartedAt, f.Revision = *d.RestartedAt, 0
	}
	if o.Verb == steer.Approve {
		f.Approved = o.Stages
	}
	f.RollbackTo = d.RollbackTo
	if !done {
		return f
	}
	f.Gate, f.Rolling = nil, false
	if to := f.RollbackTo; to != nil {
		f.Revisions = append(slices.DeleteFunc(slices.Clone(f.Revisions), func(r int64) bool { return r == *to }), 7)
		f.Revision, f.RollbackTo, f.Held = 8, nil, ""
	}
	return f
}
