package request_test

import (
	"slices"
	"time"

	"millwright/decide/deletion"
	"millwright/decide/drain"
	"millwright/decide/request"
)

// now is when all requests are made. It is not in whole seconds, as a workflow's time is not.
var now = time.Date(2026, 11, 21, 14, 6, 7, 500_000_000, time.UTC)

func in(d time.Duration) time.Time { return now.Add(d) }

// order returns an order of ann with a reason.
func order(c request.Command, change ...func(*request.Order)) request.Order {
	return with(request.Order{Command: c, Actor: "ann", Reason: "why"}, change)
}

func with[T any](v T, change []func(*T)) T {
	for _, c := range change {
		c(&v)
	}
	return v
}

func by(d string) func(*request.Order)         { return func(o *request.Order) { o.For = d } }
func until(t string) func(*request.Order)      { return func(o *request.Order) { o.Until = t } }
func uid(text string) func(*request.Order)     { return func(o *request.Order) { o.UID = text } }
func revision(n int64) func(*request.Order)    { return func(o *request.Order) { o.Revision = &n } }
func stepsOf(n int) func(*request.Order)       { return func(o *request.Order) { o.Steps = n } }
func because(text string) func(*request.Order) { return func(o *request.Order) { o.Reason = text } }
func back(o *request.Order)                    { o.Back = true }
func inAdvance(o *request.Order)               { o.InAdvance = true }
func asked(o *request.Order)                   { o.Asked = now }
func nameless(o *request.Order)                { o.Actor, o.Reason = "", "" }
func flags(o *request.Order)                   { o.Flags = true }

// going describes a machine that is being deleted, running one that is not.
func going(change ...func(*request.MachineFacts)) request.MachineFacts {
	f := running()
	f.Phase, f.Deleting, f.Stage = "Terminating", true, deletion.Drain
	return with(f, change)
}

func running(change ...func(*request.MachineFacts)) request.MachineFacts {
	return with(request.MachineFacts{
		Name: "shop/m-1", UID: "u-1", Phase: "Running", Annotation: "key", Now: now, Keeps: 96 * time.Hour, Node: "n-1",
	}, change)
}

// emptied changes the facts to a machine that stays and whose node is being drained.
func emptied(f *request.MachineFacts) { f.Emptying, f.Means = true, drain.Evict }

// says gives the annotation of the command a value.
func says(text string) func(*request.MachineFacts) {
	return func(f *request.MachineFacts) { f.Value = &text }
}

func deadline(t time.Time) func(*request.MachineFacts) {
	return func(f *request.MachineFacts) { f.Deadlines.Recorded, f.Means = t, drain.Evict }
}

func means(m drain.Means) func(*request.MachineFacts) {
	return func(f *request.MachineFacts) { f.Means = m }
}

func drained(stage deletion.Stage) func(*request.MachineFacts) {
	return func(f *request.MachineFacts) { f.Stage, f.DrainOver = stage, true }
}

// wrote is the decision to write a value on a machine, over another one or none.
func wrote(value string, before ...string) request.Decision {
	d := request.Decision{Annotation: &value, Says: `wrote key: "` + value + `"`}
	for _, b := range before {
		d.Says += `; before: "` + b + `"`
	}
	return d
}

func already(value string) request.Decision {
	return request.Decision{Same: true, Says: `key is already set: "` + value + `"`}
}

func removed(before string) request.Decision {
	return request.Decision{Annotation: new(""), Says: `removed key: "` + before + `"`}
}

// calm is a deployment of revision 7 whose rollout is complete.
func calm(change ...func(*request.DeploymentFacts)) request.DeploymentFacts {
	return with(
		request.DeploymentFacts{Name: "shop/d", UID: "u-1", Now: now, Revision: 7, Revisions: []int64{3, 6, 5}},
		change,
	)
}

// rolling is one on its way to revision 7, which has three steps and waits at the second.
func rolling(change ...func(*request.DeploymentFacts)) request.DeploymentFacts {
	return with(calm(func(f *request.DeploymentFacts) { f.Rolling, f.Steps, f.WaitsAt = true, 3, 2 }), change)
}

func paused(f *request.DeploymentFacts)   { f.Paused = true }
func deleting(f *request.DeploymentFacts) { f.Deleting = true }
func invalid(f *request.DeploymentFacts)  { f.Invalid = "the selector is empty" }
func onDelete(f *request.DeploymentFacts) { f.OnDelete = true }
func waitless(f *request.DeploymentFacts) { f.WaitsAt = 0 }
func alone(f *request.DeploymentFacts)    { f.Revisions = nil }
func unmade(f *request.DeploymentFacts)   { f.Revision, f.Revisions = 0, []int64{6, 7} }

func held(by string) func(*request.DeploymentFacts) {
	return func(f *request.DeploymentFacts) { f.Held = by }
}

func returning(to int64) func(*request.DeploymentFacts) {
	return func(f *request.DeploymentFacts) { f.RollbackTo = &to }
}

func approved(n int) func(*request.DeploymentFacts) {
	return func(f *request.DeploymentFacts) { f.Approved = n }
}

// writes reports whether a decision writes anything.
func writes(d request.Decision) bool {
	return d.Paused != nil || d.RollbackTo != nil || d.Annotation != nil || d.RestartedAt != nil || d.Record != ""
}

// rolledOn is the deployment after a decision was written, and after what it asked for has come about where done says
// so.
func rolledOn(f request.DeploymentFacts, o request.Order, d request.Decision, done bool) request.DeploymentFacts {
	f.Last = d.Record
	if d.Paused != nil {
		f.Paused = *d.Paused
	}
	if d.RestartedAt != nil {
		f.RestartedAt, f.Revision = *d.RestartedAt, 0
	} else if d.Annotation != nil && o.Command != request.Approve {
		f.Held = ""
		if *d.Annotation != "" {
			f.Held = (*d.Annotation)[2:]
		}
	}
	if o.Command == request.Approve {
		f.Approved = o.Steps
	}
	f.RollbackTo = d.RollbackTo
	if !done {
		return f
	}
	f.WaitsAt, f.Rolling = 0, false
	if to := f.RollbackTo; to != nil {
		f.Revisions = append(slices.DeleteFunc(slices.Clone(f.Revisions), func(r int64) bool { return r == *to }), 7)
		f.Revision, f.RollbackTo, f.Held = 8, nil, ""
	}
	return f
}
