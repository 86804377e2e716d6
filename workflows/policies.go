package workflows

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
)

// Every timeout and retry policy stands in this file. Time bounds, never counts, say when a step is given up.

// Priority is in which order Temporal gives out the tasks of an object's workflow, and of its children, when workers are behind. The
// few that decide for many go first. Objects of one deployment share a fairness key, so that a rollout of thousands takes turns with
// others; a server heeds that only where its fairness is switched on.
func Priority(kind Kind, namespace string, o Owner) temporal.Priority {
	p := temporal.Priority{PriorityKey: 3} // the server's default
	if kind == KindMachineDeployment || kind == KindMachineSet {
		p.PriorityKey = 2
	}
	sum := sha256.Sum256([]byte(namespace + "/" + cmp.Or(o.MachineDeployment, o.MachineSet, o.Machine)))
	p.FairnessKey = hex.EncodeToString(sum[:8]) // the server takes 64 bytes
	return p
}

// linger is how long a calm run waits for more to do before it ends, so that a burst of changes shares a run.
// Source: ADR 0002.
const linger = 20 * time.Second

// recheckStuck is when a run that waits for a person looks again by itself. The bridge wakes it at once when what it waits
// for changes; this is for the change that nobody saw. An hour costs a stuck run eleven events.
const recheckStuck = time.Hour

// refusedAgain is when a batch of a set is tried again that the API server refused, if nothing changes before. Quotas and
// webhooks tell nobody when they would take it. Source: a sixth of what the bridge's resync would take.
const refusedAgain = 10 * time.Second

// quickly is for decisions and small idempotent writes: one short local attempt, and the same activity as a regular one
// when that fails.
func quickly(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		Summary:             brief(summary),
		StartToCloseTimeout: 2 * time.Second,
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1},
	})
}

// fewWrites is how many writes of one decision are tried as a local activity where that is allowed, or else done on the queue of the workflow
// itself. Source: a tenth of what the default rate of requests allows in the two seconds of a local activity.
const fewWrites = 30

// cluster is for reads and writes of the clusters: the API server answers within seconds or is away, and then we wait for
// it as long as it takes.
func cluster(ctx workflow.Context, queue, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           queue,
		Summary:             brief(summary),
		StartToCloseTimeout: 20 * time.Second,
		WaitForCancellation: true,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    500 * time.Millisecond,
			BackoffCoefficient: 2,
			MaximumInterval:    15 * time.Second,
		},
	})
}

// manyWrites stands for any number of writes that is not few.
const manyWrites = fewWrites + 1

// queueOf is where so many writes are done. A few go to the queue of the workflow itself: the server hands such an activity to the
// worker that asks for it, with the answer to its workflow task.
func queueOf(writes int) string {
	if writes <= fewWrites {
		return QueueMachines
	}
	return QueueKubernetes
}

// batch is cluster for n writes of objects after one decision: past a minute the decision is too old, and another one
// is made.
func batch(ctx workflow.Context, summary string, n int) workflow.Context {
	options := workflow.GetActivityOptions(cluster(ctx, queueOf(n), summary))
	options.ScheduleToCloseTimeout = time.Minute
	return workflow.WithActivityOptions(ctx, options)
}

// soon is batch for writes that must not hold up others: what does not go within a few seconds, those of a local attempt before it
// not counted, is decided again.
func soon(ctx workflow.Context, summary string, n int) workflow.Context {
	options := workflow.GetActivityOptions(cluster(ctx, queueOf(n), summary))
	options.ScheduleToCloseTimeout = 5 * time.Second
	return workflow.WithActivityOptions(ctx, options)
}

// cloud is for calls of a provider that are made until they succeed. How long the step may take in all is the workflow's
// business, whose timer fires on time: a schedule-to-close timeout would end with the last back-off that does not fit in. A
// worker that dies is noticed by its heartbeat: ten seconds, not the usual thirty, since that long a machine waits for it.
func cloud(ctx workflow.Context, provider, id, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           ProviderQueue(provider),
		ActivityID:          id,
		Summary:             brief(summary),
		StartToCloseTimeout: 10 * time.Minute,
		HeartbeatTimeout:    10 * time.Second,
		WaitForCancellation: true,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    2 * time.Second,
			BackoffCoefficient: 2,
			MaximumInterval:    2 * time.Minute,
		},
	})
}

// yielding is for a call that lets those of other sets pass, as long as calls wait for a free worker: so a huge rollout does not starve
// the others. The server heeds this key by default.
func yielding(ctx workflow.Context) workflow.Context {
	options := workflow.GetActivityOptions(ctx)
	options.Priority = temporal.Priority{PriorityKey: 4} // after all others; the rest is the workflow's
	return workflow.WithActivityOptions(ctx, options)
}

// draining is for what waits long for the pods or volumes of one node, on a queue of its own. Its heartbeat tells a worker
// that died; how long it may take in all is its own business, since it is given the time.
func draining(ctx workflow.Context, id, summary string) workflow.Context {
	options := workflow.GetActivityOptions(cluster(ctx, QueueDrains, summary))
	options.ActivityID, options.StartToCloseTimeout, options.HeartbeatTimeout = id, 24*time.Hour, 10*time.Second
	return workflow.WithActivityOptions(ctx, options)
}

// drainHandover is how long a machine waits before it starts a drain again while an earlier one is still ending: long enough
// for an activity to hear of its cancellation by its next heartbeat.
const drainHandover = 5 * time.Second

// drainOptions are those of the drain of a machine's node. It ends with the run that started it, after its own clean-up.
func drainOptions(ctx workflow.Context, machine activities.Ref, node string, purpose activities.Purpose) workflow.Context {
	why := "the machine is to go: its node has to be empty first"
	switch purpose {
	case activities.ForUpdate:
		why = "the node is to be updated in place: it has to be empty first"
	case activities.ForPreservation:
		why = "the machine has failed and is kept: its node has to be empty"
	}
	return workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:            ID(KindDrain, machine),
		TaskQueue:             QueueMachines,
		WaitForCancellation:   true,
		ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		TypedSearchAttributes: inherited(ctx),
		StaticSummary:         fmt.Sprintf("Drain %s of machine %s", node, machine.Key()),
		StaticDetails:         why,
	})
}

// rolloutOptions are those of a deployment's rollout. One that loses its parent goes on: the next run of the deployment's
// workflow finds it open. To cancel the parent is to cancel it, too.
func rolloutOptions(ctx workflow.Context, deployment activities.Ref, revision int64, why string) workflow.Context {
	return workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:            ID(KindRollout, deployment, revision),
		TaskQueue:             QueueMachines,
		WaitForCancellation:   true,
		ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_ABANDON,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		TypedSearchAttributes: inherited(ctx),
		StaticSummary:         fmt.Sprintf("Rollout of %s to revision %d", deployment.Key(), revision),
		StaticDetails:         "started because: " + why,
	})
}

// recheckRollout is how long after a moment at which something is due a deployment looks whether the rollout is still open that a former
// run started. Source: the bridge's resync.
const recheckRollout = time.Minute

// holdWritten is how long a deployment that was cancelled waits for such a rollout to write the hold. Source: as long as a batch of writes
// is tried.
const holdWritten = time.Minute

// reportEach is how long a rollout gathers what changes of its counts and conditions before it writes them again. Source: people see no
// difference, and 10 machines that go in this time change the counts 30 times.
const reportEach = time.Second

// rolloutAgain is when a rollout is started again that came to no end by itself: somebody terminated it, or it failed.
const rolloutAgain = 5 * time.Second

// glance is for a question to a provider whose answer is welcome and not needed: half a minute at the most.
func glance(ctx workflow.Context, provider, id, summary string) workflow.Context {
	options := workflow.GetActivityOptions(cloud(ctx, provider, id, summary))
	options.ScheduleToCloseTimeout = 30 * time.Second
	return workflow.WithActivityOptions(ctx, options)
}

// sweeping is for one step of a sweep for orphans: five minutes in all, a third of the time to the next sweep, which does what this
// one could not.
func sweeping(ctx workflow.Context, provider, id, summary string) workflow.Context {
	options := workflow.GetActivityOptions(cloud(ctx, provider, id, summary))
	options.ScheduleToCloseTimeout = 5 * time.Minute
	return workflow.WithActivityOptions(ctx, options)
}

// maxSummary is the longest summary, in bytes, that Temporal takes; a longer one fails the workflow task.
// Source: limit.userMetadataSummary of Temporal's server.
const maxSummary = 400

// brief cuts a summary to what Temporal takes.
func brief(summary string) string { return cut(summary, maxSummary) }

// cut shortens a text to so many bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}
