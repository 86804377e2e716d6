// Package run contains the code that the workflows of all kinds share: run loop, signals, requests, activities,
// search attributes, IDs and policies.
package run

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"millwright/activities/kube"
)

// Input is the input of one run of an object's workflow. The bridge creates the input for a new run. A run that
// continues as new creates the input for the next run. Fields may be added. Fields must not be renamed or retyped.
type Input struct {
	Ref       kube.Ref
	Versions  kube.MinVersions // resource versions that the caches must have reached before the first decision
	Continued bool             // true after continue-as-new: the versions are complete, and no live read is needed
}

// Result is the result of a run.
type Result struct {
	Outcome string // CalmResult or GoneResult
	Why     string
}

// The outcomes of a run.
const (
	OutcomeCalm = "Calm" // nothing to do; the next change starts another run
	OutcomeGone = "Gone" // the object no longer exists
)

// MayContinue reports whether the run ended because no work was left.
func (r Result) MayContinue() bool { return r.Outcome == OutcomeCalm }

// CalmResult returns the result of a run that has nothing left to do.
func CalmResult(why string) (*Result, error) { return &Result{OutcomeCalm, why}, nil }

// GoneResult returns the result of a run whose object no longer exists.
func GoneResult(why string) (*Result, error) { return &Result{OutcomeGone, why}, nil }

// WorkflowState is the state that the workflows of all objects share: minimum versions, timers, and the step shown in
// Temporal.
type WorkflowState struct {
	ID             string
	kind           Kind
	resource       kube.Resource // the cache of the kind's objects
	Ref            kube.Ref
	Versions       kube.MinVersions
	Live           bool // if true, the next decision reads from the API server
	ContinuesAsNew bool // if true, a run that has nothing left to do continues as new instead of ending
	// if true, a run that has executed a step and has nothing left to do waits idleTimeBeforeEnd before it ends
	IdleBeforeEnd bool
	Changed       workflow.ReceiveChannel
	// signals with requests of operators; nil if the kind accepts no requests
	requestSignals   workflow.ReceiveChannel
	isWritingRequest bool // true while a request that arrived as a signal is being written
	// for a rollout: ID of the workflow to signal when the rollout ends; may be empty
	Tell string
	// for a deployment: ID of the last rollout that has reported its end; may be empty
	Ended                   string
	shardNumber             *int // number of the shard of the object's namespace; nil: no signal contained it
	Timers                  map[string]*timer
	usedActivityIDs         map[string]int // by activity name: number of IDs that this run cannot use again
	consecutiveRefusalCount int            // consecutive writes that the API server refused
	firstRefusalTime        time.Time      // time of the first of the consecutive refusals; zero if there is none
	Shown                   Step
	publishedStep           Step // the step in the search attributes
}

// NewWorkflowState returns the state of an object's workflow at the start of a run. resource is the cache of the kind's
// objects.
func NewWorkflowState(ctx workflow.Context, kind Kind, resource kube.Resource, in Input) *WorkflowState {
	o := &WorkflowState{
		ID:       InstallationOfWorkflow(ctx).ID(kind, in.Ref),
		kind:     kind,
		resource: resource,
		Ref:      in.Ref,
		Versions: kube.MinVersions{},
		Changed: workflow.GetSignalChannelWithOptions(ctx, SignalChanged, workflow.SignalChannelOptions{
			Description: "the object, or something that it depends on, changed: look again",
		}),
		Timers:          map[string]*timer{},
		usedActivityIDs: map[string]int{},
	}
	o.RaiseMinVersions(in.Versions)
	return o
}

// BaseState returns o, so that each type that embeds WorkflowState implements this part of Procedure.
func (o *WorkflowState) BaseState() *WorkflowState { return o }

// FinishOpenWork implements Procedure for kinds without work that must complete before the end of a run.
func (o *WorkflowState) FinishOpenWork(workflow.Context, bool) {}

// NextInput returns the input for the run that continues this run. A kind that passes more than the versions to the
// next run has its own NextInput.
func (o *WorkflowState) NextInput() any {
	return Input{Ref: o.Ref, Versions: o.Versions, Continued: true}
}

// NewReadInput returns the minimum versions for the next read, and the workflow time for decisions and writes of
// activities; see kube.ReadInput. The map of versions is a copy, because a local activity gets its input without
// serialization and may still read the map after the workflow has continued.
func (o *WorkflowState) NewReadInput(ctx workflow.Context) kube.ReadInput {
	return kube.ReadInput{Ref: o.Ref, Versions: maps.Clone(o.Versions), Live: o.Live, At: workflow.Now(ctx)}
}

// RequireWrittenVersion makes later decisions wait until the cache contains the version that this run wrote.
func (o *WorkflowState) RequireWrittenVersion(version string) {
	o.RaiseMinVersions(kube.MinVersions{o.resource: version})
}

// RaiseMinVersions makes later decisions wait until the caches contain at least these versions.
func (o *WorkflowState) RaiseMinVersions(versions kube.MinVersions) {
	for _, resource := range workflow.DeterministicKeys(versions) {
		o.Versions.RaiseVersion(resource, versions[resource])
	}
}

// ReceiveSignals reads all signals that have arrived. ReceiveSignals does not yield, so no signal is lost if the caller
// returns at once.
func (o *WorkflowState) ReceiveSignals() (received bool) {
	var c ChangeSignal
	for o.Changed.ReceiveAsync(&c) {
		o.RaiseMinVersions(c.Versions)
		// read live, because a signal that could not be decrypted may have contained versions to wait for
		o.Live = o.Live || c.undecryptable
		o.Tell, o.Ended = cmp.Or(c.Tell, o.Tell), cmp.Or(c.Ended, o.Ended)
		o.shardNumber = cmp.Or(c.Shard, o.shardNumber)
		received = true
	}
	return received
}

// NewChangeSignal returns a signal about the object to another workflow of the object's namespace.
func (o *WorkflowState) NewChangeSignal() ChangeSignal {
	return ChangeSignal{UID: o.Ref.UID, Versions: o.Versions, Shard: o.shardNumber}
}

// withCurrentShard makes a run that continues as new use the task queues of the shard to which the object's namespace
// belongs now.
func (o *WorkflowState) withCurrentShard(ctx workflow.Context) workflow.Context {
	shard := shardOfWorkflow(ctx)
	if o.shardNumber == nil || *o.shardNumber == shard.Number {
		return ctx
	}
	shard.Number = *o.shardNumber
	return workflow.WithWorkflowTaskQueue(ctx, shard.TaskQueue(QueueMachines))
}

// AwaitChange waits until a signal has arrived or a future is ready.
func (o *WorkflowState) AwaitChange(ctx workflow.Context, futures ...workflow.Future) error {
	over := func() bool { return o.Changed.Len() > 0 || slices.ContainsFunc(futures, workflow.Future.IsReady) }
	if !over() {
		if err := o.SetSearchAttributes(ctx); err != nil {
			return err
		}
	}
	return workflow.Await(ctx, over)
}
