package workflows

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
)

// Input is what a run of an object's workflow starts with; the bridge fills it, and a run that continues as new hands it
// on. Fields may be added, never renamed or retyped.
type Input struct {
	Ref       activities.Ref
	Gate      activities.Gate // versions that the first decision must have seen
	Continued bool            // continued as new: the gate is complete, nothing has to be read live
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

// core and cloudCalls name activities, as core().DecideMachine: the editor jumps there, and a method that is gone fails the
// build. They hold nothing; nothing is ever called on them.
func core() *activities.Activities     { return nil }
func cloudCalls() *activities.Provider { return nil }

// object is the state that every object's workflow has: what woke it, how fresh its next facts must be, and what it shows.
type object struct {
	id      string
	kind    Kind
	ref     activities.Ref
	gate    activities.Gate
	live    bool // the next decision reads from the API server
	changed workflow.ReceiveChannel
	verbs   workflow.ReceiveChannel // of the kinds that hear them
	giving  bool                    // a verb that came by signal is being written
	tell    string                  // of a rollout: who wants to hear of its end; empty: nobody
	ended   string                  // of a deployment: the rollout that told its end last; empty: none did
	timers  map[string]*timer
	spent   map[string]int // by name of an activity: how many of its IDs the run cannot use again
	shown   step
	search  step // what the search attributes say
}

// timer is a durable timer that is armed once and looked at often.
type timer struct {
	at     time.Time
	future workflow.Future
	cancel workflow.CancelFunc
}

// step is what an object's workflow is doing, for people.
type step struct {
	name      string    // Stage
	why       string    // one sentence
	phase     string    // of a machine
	node      string    // of a machine
	blockedBy string    // empty when nothing blocks; several names are separated by commas
	stuck     bool      // nothing moves until somebody changes something, or a deadline comes
	table     string    // markdown below the sentence
	deadline  time.Time // zero means none
	since     time.Time // start of this name
}

func newObject(ctx workflow.Context, kind Kind, in Input) *object {
	o := &object{
		id:   ID(kind, in.Ref),
		kind: kind,
		ref:  in.Ref,
		gate: activities.Gate{},
		changed: workflow.GetSignalChannelWithOptions(ctx, SignalChanged, workflow.SignalChannelOptions{
			Description: "the object, or something that it depends on, changed: look again",
		}),
		timers: map[string]*timer{},
		spent:  map[string]int{},
	}
	o.raise(in.Gate)
	return o
}

// activityID is the ID by which the next activity of a name runs: its name, as long as that may be used.
func (o *object) activityID(name string) string {
	if n := o.spent[name]; n > 0 {
		return fmt.Sprintf("%s-%d", name, n+1)
	}
	return name
}

// givenUp takes in how an activity ended that was cancelled. One that ended by itself all the same keeps its ID: for the rest
// of the run the SDK takes another one of that ID for a mistake, and fails each workflow task (TMPRL1100).
func (o *object) givenUp(name string, end error) {
	if !temporal.IsCanceledError(end) {
		o.spent[name]++
	}
}

// read says how fresh the next facts must be. The gate is copied: a local activity gets its input as it is, and may still
// look at it when the workflow has gone on without it.
func (o *object) read() activities.Read {
	return activities.Read{Ref: o.ref, Gate: maps.Clone(o.gate), Live: o.live}
}

// wrote makes later decisions wait for what we wrote to the object itself.
func (o *object) wrote(version string) {
	o.raise(activities.Gate{resourceOf(o.kind): version})
}

// resourceOf names the cache that holds the objects of a kind.
func resourceOf(kind Kind) activities.Resource {
	switch kind {
	case KindMachine, KindDrain:
		return activities.MachinesResource
	case KindMachineSet:
		return activities.SetsResource
	case KindMachineClass:
		return activities.ClassesResource
	default:
		return activities.DeploymentsResource
	}
}

// write runs an activity that changes the object, and makes later decisions wait for what it wrote.
func (o *object) write(ctx workflow.Context, summary string, activity, input any) error {
	var version string
	if err := o.quick(ctx, summary, activity, input, &version); err != nil {
		return err
	}
	o.wrote(version)
	return nil
}

// raise makes later decisions wait for these versions.
func (o *object) raise(versions activities.Gate) {
	for _, resource := range workflow.DeterministicKeys(versions) {
		o.gate.Raise(resource, versions[resource])
	}
}

// receive takes every signal that has arrived. It does not yield, so that nothing can arrive between it and a return.
func (o *object) receive() (received bool) {
	var c Changed
	for o.changed.ReceiveAsync(&c) {
		o.raise(c.Versions)
		o.tell, o.ended = cmp.Or(c.Tell, o.tell), cmp.Or(c.Ended, o.ended)
		received = true
	}
	return received
}

// awaken waits until a signal has arrived or one of the futures is ready.
func (o *object) awaken(ctx workflow.Context, futures ...workflow.Future) error {
	over := func() bool {
		for _, f := range futures {
			if f.IsReady() {
				return true
			}
		}
		return o.changed.Len() > 0
	}
	if !over() {
		if err := o.publish(ctx); err != nil {
			return err
		}
	}
	return workflow.Await(ctx, over)
}

// timer returns the timer of that name, armed for that time. It is armed anew only when the time changes. The summary, of
// when it was armed, stands beside it in the timeline.
func (o *object) timer(ctx workflow.Context, name, summary string, at time.Time) workflow.Future {
	if t := o.timers[name]; t != nil {
		if t.at.Equal(at) {
			return t.future
		}
		t.cancel()
	}
	ctx, cancel := workflow.WithCancel(ctx)
	after := max(at.Sub(workflow.Now(ctx)), 0)
	t := &timer{at: at, cancel: cancel, future: workflow.NewTimerWithOptions(ctx, after, workflow.TimerOptions{Summary: brief(summary)})}
	o.timers[name] = t
	return t.future
}

// disarm takes a timer back. One that has fired, or was never armed, stays as it is.
func (o *object) disarm(name string) {
	if t := o.timers[name]; t != nil {
		t.cancel()
		delete(o.timers, name)
	}
}

// lingered waits for more to do, and reports whether there was none. One timer serves all calls until it fires.
func (o *object) lingered(ctx workflow.Context) (bool, error) {
	t := o.timers["linger"]
	if t == nil || t.future.IsReady() {
		o.timer(ctx, "linger", "calm: a change within this time is taken up at once, then the run ends", workflow.Now(ctx).Add(linger))
		t = o.timers["linger"]
	}
	if err := o.awaken(ctx, t.future); err != nil {
		return false, err
	}
	return o.changed.Len() == 0, nil
}

// show says what the workflow is doing, as current details for the UI. What it still does when it has to wait, it publishes.
func (o *object) show(ctx workflow.Context, s step) {
	s.since = workflow.Now(ctx)
	if s.name == o.shown.name {
		s.since = o.shown.since
	}
	o.shown = s
	workflow.SetCurrentDetails(ctx, s.markdown())
}

// publish makes the search attributes say what was shown last, where they differ. Call it before what may take longer than a moment:
// each call that changes something costs the server as much as a signal.
func (o *object) publish(ctx workflow.Context) error {
	updates := o.shown.updates(o.search)
	o.search = o.shown
	if len(updates) == 0 {
		return nil
	}
	return workflow.UpsertTypedSearchAttributes(ctx, updates...)
}

// close publishes what a run shows that ends: what is over is shown no more. The run that continues this one begins with the search
// attributes of an object that is calm, as it supposes. It returns how the run ended.
func (o *object) close(ctx workflow.Context, err error) error {
	if workflow.IsContinueAsNewError(err) {
		o.shown = step{}
	}
	if failed := o.publish(ctx); err == nil {
		return failed
	}
	return err
}

// markdown is what people read at the top of the workflow's page.
func (s step) markdown() string {
	name := s.name
	if name == "" {
		name = "calm"
	}
	text := fmt.Sprintf("**%s** since %s\n\n%s", name, s.since.UTC().Format(time.TimeOnly+" MST"), s.why)
	if s.table != "" {
		text += "\n\n" + s.table
	}
	if s.blockedBy != "" {
		text += fmt.Sprintf("\n\nblocked by **%s**", strings.ReplaceAll(s.blockedBy, ",", "**, **"))
	}
	if s.stuck && s.deadline.IsZero() {
		text += "\n\n**stuck**: nothing moves until somebody changes what blocks it"
	}
	if !s.deadline.IsZero() {
		text += "\n\ngiven up at " + s.deadline.UTC().Format(time.DateTime+" MST")
	}
	return text
}

// updates returns the search attributes that differ from what was shown before.
func (s step) updates(before step) []temporal.SearchAttributeUpdate {
	var updates []temporal.SearchAttributeUpdate
	for _, a := range []struct{ name, from, to string }{
		{"Stage", before.name, s.name}, {"Phase", before.phase, s.phase}, {"Node", before.node, s.node},
	} {
		if a.from != a.to {
			updates = append(updates, keyword(a.name).ValueSet(a.to))
		}
	}
	if s.blockedBy != before.blockedBy {
		blockedBy := []string{}
		if s.blockedBy != "" {
			blockedBy = strings.Split(s.blockedBy, ",")
		}
		updates = append(updates, temporal.NewSearchAttributeKeyKeywordList("BlockedBy").ValueSet(blockedBy))
	}
	if s.stuck != before.stuck {
		updates = append(updates, temporal.NewSearchAttributeKeyBool("Stuck").ValueSet(s.stuck))
	}
	if !s.deadline.Equal(before.deadline) {
		key := temporal.NewSearchAttributeKeyTime("Deadline")
		if s.deadline.IsZero() {
			updates = append(updates, key.ValueUnset())
		} else {
			updates = append(updates, key.ValueSet(s.deadline))
		}
	}
	return updates
}

// report returns the step as the object's status shows it.
func (o *object) report() *activities.Step {
	return &activities.Step{WorkflowID: o.id, Name: o.shown.name, Since: o.shown.since, Deadline: o.shown.deadline, LastError: o.shown.blockedBy}
}

// quick runs a decision or a small idempotent write as a local activity, and as a regular one when that did not work. The
// summary stands beside it in the timeline.
func (o *object) quick(ctx workflow.Context, summary string, activity, input, result any) error {
	return o.startQuick(ctx, cluster(ctx, QueueMachines, summary), summary, true, activity, input)(ctx, result)
}

// writing waits for the end of an activity that is under way, and reads what it tells.
type writing func(ctx workflow.Context, result any) error

// startQuick starts an activity: as a local one where that is asked for, for few writes that may be decided a second time; and as a regular
// one with the options where it is not, or did not work.
func (o *object) startQuick(ctx, options workflow.Context, summary string, local bool, activity, input any) writing {
	if !local {
		return workflow.ExecuteActivity(options, activity, input).Get
	}
	first := workflow.ExecuteLocalActivity(quickly(ctx, summary), activity, input)
	return func(ctx workflow.Context, result any) error {
		err := first.Get(ctx, result)
		if err == nil || final(err) || ctx.Err() != nil {
			return err
		}
		if err := o.publish(ctx); err != nil { // it takes longer
			return err
		}
		return workflow.ExecuteActivity(options, activity, input).Get(ctx, result)
	}
}

// unlessChanged is quick for what may take long because another cluster is away: it gives up when something changes, or when
// one of the futures is ready, and reports whether it was done.
func (o *object) unlessChanged(ctx workflow.Context, summary string, activity, input, result any, futures ...workflow.Future) (done bool, err error) {
	err = workflow.ExecuteLocalActivity(quickly(ctx, summary), activity, input).Get(ctx, result)
	if err == nil || final(err) || ctx.Err() != nil {
		return err == nil, err
	}
	return o.patiently(ctx, summary, activity, input, result, futures...)
}

// patiently is the second half of unlessChanged: the same activity as a regular one.
func (o *object) patiently(ctx workflow.Context, summary string, activity, input, result any, futures ...workflow.Future) (done bool, err error) {
	options, cancel := workflow.WithCancel(cluster(ctx, QueueMachines, summary))
	defer cancel()
	future := workflow.ExecuteActivity(options, activity, input)
	if err := o.awaken(ctx, append(futures, future)...); err != nil || !future.IsReady() {
		o.live = true // whatever ended the wait is looked at as it is now
		return false, err
	}
	err = future.Get(ctx, result)
	return err == nil, err
}

// final reports whether doing the same again cannot help.
func final(err error) bool {
	var application *temporal.ApplicationError
	return errors.As(err, &application) && application.NonRetryable()
}

// failedWith reports whether an activity failed with one of our types.
func failedWith(err error, failure string) bool {
	var application *temporal.ApplicationError
	return errors.As(err, &application) && application.Type() == failure
}

// timedOut reports whether an activity was given up because its time was over: while it ran, or because another attempt
// would have come too late.
func timedOut(err error) bool {
	var timeout *temporal.TimeoutError
	var activity *temporal.ActivityError
	return errors.As(err, &timeout) || (errors.As(err, &activity) && activity.RetryState() == enumspb.RETRY_STATE_TIMEOUT)
}
