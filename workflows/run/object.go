// Package run has what the workflows of all kinds share: run loop, signals, requests, activities, search attributes,
// IDs and policies.
package run

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"millwright/activities/kube"
)

// Input is the input of a run of an object's workflow. The bridge fills it, and so does a run that continues as new.
// Fields may be added, never renamed or retyped.
type Input struct {
	Ref       kube.Ref
	Versions  kube.MinVersions // resource versions that the caches must have reached before the first decision
	Continued bool             // continued as new: the versions are complete, and no live read is needed
}

// Result is how a run ended.
type Result struct {
	Outcome string // Calm or Gone
	Why     string
}

// The outcomes of a run.
const (
	OutcomeCalm = "Calm" // nothing to do; the next change starts another run
	OutcomeGone = "Gone" // the object does not exist any more
)

// Calm reports whether the run found nothing left to do.
func (r Result) Calm() bool { return r.Outcome == OutcomeCalm }

// Calm ends a run that found nothing left to do.
func Calm(why string) (*Result, error) { return &Result{OutcomeCalm, why}, nil }

// Gone ends the run of an object that does not exist any more.
func Gone(why string) (*Result, error) { return &Result{OutcomeGone, why}, nil }

// Object is the state that the workflows of all objects share: minimum versions, timers, and the step that it shows.
type Object struct {
	ID             string
	kind           Kind
	resource       kube.Resource // the cache that holds the objects of the kind
	Ref            kube.Ref
	Versions       kube.MinVersions
	Live           bool // the next decision reads from the API server
	ContinuesAsNew bool // a calm run continues as new instead of ending
	IdleBeforeEnd  bool // a calm run that has done something waits calmAfter for more work before it ends
	Changed        workflow.ReceiveChannel
	orders         workflow.ReceiveChannel // requests by signal; nil for kinds without requests
	writing        bool                    // a request that came by signal is being written
	Tell           string                  // of a rollout: ID of the workflow to signal at its end; empty: none
	Ended          string                  // of a deployment: ID of the rollout that last reported its end; empty: none
	Timers         map[string]*timer
	spent          map[string]int // by name of an activity: how many of its IDs this run cannot use again
	refusals       int            // writes in a row that the API server refused
	refusedAt      time.Time      // when it refused the first of them; zero: none
	Shown          Step
	search         Step // the step that the search attributes show
}

// timer is a durable timer that is started once and checked often.
type timer struct {
	at     time.Time
	Future workflow.Future
	cancel workflow.CancelFunc
}

// NewObject returns the state of an object's workflow at the start of a run. The resource is the cache that holds the
// objects of the kind.
func NewObject(ctx workflow.Context, kind Kind, resource kube.Resource, in Input) *Object {
	o := &Object{
		ID:       InstallationOf(ctx).ID(kind, in.Ref),
		kind:     kind,
		resource: resource,
		Ref:      in.Ref,
		Versions: kube.MinVersions{},
		Changed: workflow.GetSignalChannelWithOptions(ctx, SignalChanged, workflow.SignalChannelOptions{
			Description: "the object, or something that it depends on, changed: look again",
		}),
		Timers: map[string]*timer{},
		spent:  map[string]int{},
	}
	o.RaiseMinVersions(in.Versions)
	return o
}

// Base returns the object itself, for the run loop.
func (o *Object) Base() *Object { return o }

// Settle implements Procedure for kinds that wait for nothing before their runs end.
func (o *Object) Settle(workflow.Context, bool) {}

// Next returns the input of the run that continues this one, for kinds that keep nothing but the versions.
func (o *Object) Next() any { return Input{Ref: o.Ref, Versions: o.Versions, Continued: true} }

// Read says how fresh the next facts must be, and the time for which activities decide and write; see kube.Read. The
// map is copied: a local activity gets its input without serialization, and may still read it after the workflow has
// continued.
func (o *Object) Read(ctx workflow.Context) kube.Read {
	return kube.Read{Ref: o.Ref, Versions: maps.Clone(o.Versions), Live: o.Live, At: workflow.Now(ctx)}
}

// Wrote makes later decisions wait until the cache has the version that this run wrote to the object.
func (o *Object) Wrote(version string) {
	o.RaiseMinVersions(kube.MinVersions{o.resource: version})
}

// RaiseMinVersions makes later decisions wait until the caches have these versions.
func (o *Object) RaiseMinVersions(versions kube.MinVersions) {
	for _, resource := range workflow.DeterministicKeys(versions) {
		o.Versions.Raise(resource, versions[resource])
	}
}

// Receive takes every signal that has arrived. It does not yield, so that no signal can arrive between it and a return.
func (o *Object) Receive() (received bool) {
	var c Changed
	for o.Changed.ReceiveAsync(&c) {
		o.RaiseMinVersions(c.Versions)
		o.Live = o.Live || c.unread // it may have had versions to wait for
		o.Tell, o.Ended = cmp.Or(c.Tell, o.Tell), cmp.Or(c.Ended, o.Ended)
		received = true
	}
	return received
}

// AwaitChange waits until a signal has arrived or one of the futures is ready.
func (o *Object) AwaitChange(ctx workflow.Context, futures ...workflow.Future) error {
	over := func() bool { return o.Changed.Len() > 0 || slices.ContainsFunc(futures, workflow.Future.IsReady) }
	if !over() {
		if err := o.SetSearchAttributes(ctx); err != nil {
			return err
		}
	}
	return workflow.Await(ctx, over)
}

// Timer returns the timer of that name, which fires at that time. It is restarted only when the time changes. The
// timeline shows the summary of the call that started it.
func (o *Object) Timer(ctx workflow.Context, name, summary string, at time.Time) workflow.Future {
	if t := o.Timers[name]; t != nil {
		if t.at.Equal(at) {
			return t.Future
		}
		t.cancel()
	}
	ctx, cancel := workflow.WithCancel(ctx)
	after := max(at.Sub(workflow.Now(ctx)), 0)
	t := &timer{
		at:     at,
		cancel: cancel,
		Future: workflow.NewTimerWithOptions(ctx, after, workflow.TimerOptions{Summary: Brief(summary)}),
	}
	o.Timers[name] = t
	return t.Future
}

// CancelTimer cancels and forgets a timer. It does nothing if there is none of that name.
func (o *Object) CancelTimer(name string) {
	if t := o.Timers[name]; t != nil {
		t.cancel()
		delete(o.Timers, name)
	}
}
