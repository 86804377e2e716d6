package run

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/kube"
	"millwright/api/vocabulary"
	"millwright/decide/explain"
	"millwright/decide/phrase"
)

// Every timeout and retry policy is in this file. A step is given up after a time, never after a number of attempts.

// Priority is the order in which Temporal dispatches the tasks of an object's workflow and of its children when workers
// are behind. MachineDeployments and MachineSets, which decide for many machines, go first. Objects of one deployment
// share a fairness key, so that a rollout of thousands of machines alternates with other work; servers use that key
// only if fairness is switched on.
func Priority(kind Kind, namespace string, o Owner) temporal.Priority {
	p := temporal.Priority{PriorityKey: 3} // the server's default
	if slices.Contains([]Kind{KindMachineDeployment, KindMachineSet, KindClusterAPIDeployment, KindClusterAPISet}, kind) {
		p.PriorityKey = 2
	}
	sum := sha256.Sum256([]byte(namespace + "/" + cmp.Or(o.MachineDeployment, o.MachineSet, o.Machine)))
	p.FairnessKey = hex.EncodeToString(sum[:8]) // the server accepts at most 64 bytes
	return p
}

// calmAfter is how long a calm run of a kind that rests waits for more work before it ends, if it has done something.
// Source: twice the bridge's debounce interval; ADR 0002 has what the wait saves.
const calmAfter = time.Second

// SettledAfter is how long a calm deployment waits for more work before its run continues as new, so that the status
// writes of one scale-up, whose machines become ready one after the other, share a run. Source: ADR 0002.
const SettledAfter = 20 * time.Second

// RecheckStuck is when a run that waits for a person decides again by itself. The bridge signals it at once when the
// awaited object changes; this covers a change that no watch has reported. With one hour a stuck run costs eleven
// events an hour.
const RecheckStuck = explain.RecheckStuck

// RefusedAgain is when a write that the API server refused is tried again, if no signal arrives earlier. Quotas and
// webhooks do not report when they would accept it. Source: a sixth of the bridge's resync interval.
const RefusedAgain = explain.RefusedAgain

// refusedMost is the longest wait before a refused write is tried again. Source: five times the bridge's resync
// interval.
const refusedMost = explain.RefusedMost

// Again is the wait after n refused writes in a row, or n questions without an answer: RefusedAgain for the first, then
// twice as long each time, five minutes at most.
func Again(n int) time.Duration {
	wait := RefusedAgain
	for ; n > 1 && wait < refusedMost; n-- {
		wait *= 2
	}
	return min(wait, refusedMost)
}

// quickly is for decisions and small idempotent writes: one local attempt of at most two seconds. If it fails, the
// caller runs the same activity as a regular one.
func quickly(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		Summary:             Brief(summary),
		StartToCloseTimeout: 2 * time.Second,
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1},
	})
}

// FewWrites is the largest number of writes of one decision that run as a local activity where that is allowed, or else
// on the workflow's own queue. Source: a write took 60 ms where the API server shared two busy processors, so 30 writes
// need nearly the two seconds of a local activity.
const FewWrites = 30

// cluster is for reads and writes of the clusters: the API server answers within seconds or is unavailable. Attempts
// continue until it answers.
func cluster(ctx workflow.Context, queue, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           InstallationOf(ctx).Queue(queue),
		Summary:             Brief(summary),
		StartToCloseTimeout: 20 * time.Second,
		WaitForCancellation: true,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    500 * time.Millisecond,
			BackoffCoefficient: 2,
			MaximumInterval:    15 * time.Second,
		},
	})
}

// ManyWrites is any number of writes above FewWrites.
const ManyWrites = FewWrites + 1

// queueOf returns the queue for that number of writes. Few writes use the workflow's own queue: with its answer to the
// workflow task, the server can hand such an activity to the worker that scheduled it.
func queueOf(writes int) string {
	if writes <= FewWrites {
		return QueueMachines
	}
	return QueueKubernetes
}

// Batch is cluster for n writes of objects after one decision. After a minute the decision is too old, and the workflow
// decides again.
func Batch(ctx workflow.Context, summary string, n int) workflow.Context {
	return within(cluster(ctx, queueOf(n), summary), time.Minute)
}

// Question is Batch for a question to a runtime extension of Cluster API, which may take 30 seconds to answer.
func Question(ctx workflow.Context, summary string) workflow.Context {
	options := workflow.GetActivityOptions(Batch(ctx, summary, 1))
	options.StartToCloseTimeout = 40 * time.Second
	return workflow.WithActivityOptions(ctx, options)
}

// within bounds the time of all attempts of an activity.
func within(ctx workflow.Context, d time.Duration) workflow.Context {
	options := workflow.GetActivityOptions(ctx)
	options.ScheduleToCloseTimeout = d
	return workflow.WithActivityOptions(ctx, options)
}

// Soon is Batch for writes that must not delay others: if they are not done within five seconds, not counting a local
// attempt before, the workflow decides again.
func Soon(ctx workflow.Context, summary string, n int) workflow.Context {
	return within(cluster(ctx, queueOf(n), summary), 5*time.Second)
}

// Cloud is for calls of a provider that are repeated until they succeed. The workflow limits the total time with a
// timer, which fires on time; a schedule-to-close timeout would end before the first back-off that does not fit in. The
// heartbeat timeout detects a dead worker: ten seconds instead of the usual thirty, because a machine waits that long
// for it.
func Cloud(ctx workflow.Context, provider, id, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           InstallationOf(ctx).ProviderQueue(provider),
		ActivityID:          id,
		Summary:             Brief(summary),
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

// Briefly is for a question to a provider: its answer is waited for at most a minute. One attempt may take 30 seconds. If
// no worker has taken the question after 20 seconds, probably none serves the provider's queue, and the wait ends.
func Briefly(ctx workflow.Context, provider, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              InstallationOf(ctx).ProviderQueue(provider),
		Summary:                Brief(summary),
		ScheduleToStartTimeout: 20 * time.Second,
		StartToCloseTimeout:    30 * time.Second,
		ScheduleToCloseTimeout: time.Minute,
		HeartbeatTimeout:       10 * time.Second,
		WaitForCancellation:    true,
	})
}

// Yielding makes calls of other sets go first while calls wait for a free worker, so that a huge rollout does not
// starve the others. Temporal's server uses this key by default.
func Yielding(ctx workflow.Context) workflow.Context {
	options := workflow.GetActivityOptions(ctx)
	// after all others; the remaining fields are those of the workflow
	options.Priority = temporal.Priority{PriorityKey: 4}
	return workflow.WithActivityOptions(ctx, options)
}

// draining is for long waits for the pods or volumes of one node, on a queue of their own. The heartbeat timeout
// detects a dead worker. The activity itself limits its total time, which its input contains.
func draining(ctx workflow.Context, id, summary string) workflow.Context {
	options := workflow.GetActivityOptions(cluster(ctx, QueueDrains, summary))
	options.ActivityID, options.StartToCloseTimeout, options.HeartbeatTimeout = id, 24*time.Hour, 10*time.Second
	return workflow.WithActivityOptions(ctx, options)
}

// DrainHandover is how long a machine waits before it starts a drain again while an earlier one is still ending: long
// enough for an activity to learn of its cancellation by its next heartbeat.
const DrainHandover = 5 * time.Second

// DrainOptions are those of the drain of a machine's node. When the parent run ends, the drain is cancelled, and ends
// after its clean-up.
func DrainOptions(ctx workflow.Context, machine kube.Ref, node string, purpose string) workflow.Context {
	why := "the machine is deleted: its node must be empty first"
	switch purpose {
	case vocabulary.DrainForUpdate:
		why = "the node is updated in place: it must be empty first"
	case vocabulary.DrainForPreservation:
		why = "the machine has failed and is preserved: its node must be empty"
	}
	id, summary := InstallationOf(ctx).ID(KindDrain, machine), fmt.Sprintf("Drain %s of machine %s", node, machine.Key())
	return child(ctx, id, enumspb.PARENT_CLOSE_POLICY_REQUEST_CANCEL, summary, why)
}

// RolloutOptions are those of a deployment's rollout; its kind says of which API. When the parent run is terminated the
// rollout continues, and the next run of the deployment's workflow finds it open. When the parent is cancelled, so is
// the rollout.
func RolloutOptions(ctx workflow.Context, kind Kind, deployment kube.Ref, revision int64, why string) workflow.Context {
	id := InstallationOf(ctx).ID(kind, deployment, revision)
	summary := fmt.Sprintf("Rollout of %s to revision %d", deployment.Key(), revision)
	return child(ctx, id, enumspb.PARENT_CLOSE_POLICY_ABANDON, summary, "started because: "+why)
}

// child returns the options of a child workflow. Closing says what happens to the child when the parent run is closed.
func child(
	ctx workflow.Context,
	id string,
	closing enumspb.ParentClosePolicy,
	summary, details string,
) workflow.Context {
	return workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:            id,
		TaskQueue:             InstallationOf(ctx).Queue(QueueMachines),
		WaitForCancellation:   true,
		ParentClosePolicy:     closing,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		TypedSearchAttributes: inherited(ctx),
		StaticSummary:         summary,
		StaticDetails:         details,
	})
}

// RecheckRollout is how long after a due time a deployment checks whether the rollout that an earlier run started is
// still open. Source: the bridge's resync interval.
const RecheckRollout = time.Minute

// HoldWritten is how long a cancelled deployment waits for such a rollout to write the hold. Source: how long a batch
// of writes is tried.
const HoldWritten = time.Minute

// ReportEach is the least time between two status writes of a rollout in which only counts and conditions change.
// Source: users see no difference, and 10 machines that are deleted in this time change the counts 30 times.
const ReportEach = time.Second

// RolloutAgain is how long a deployment waits before it starts a rollout again that was terminated or has failed.
const RolloutAgain = 5 * time.Second

// Glance is for a question to a provider whose answer is useful but not needed: half a minute at most.
func Glance(ctx workflow.Context, provider, id, summary string) workflow.Context {
	return within(Cloud(ctx, provider, id, summary), 30*time.Second)
}

// Sweeping is for one step of a sweep for orphans: five minutes in all, a third of the interval between sweeps. The
// next sweep repeats a step that did not succeed.
func Sweeping(ctx workflow.Context, provider, id, summary string) workflow.Context {
	return within(Cloud(ctx, provider, id, summary), 5*time.Minute)
}

// maxSummary is the longest summary, in bytes, that Temporal accepts; a longer one fails the workflow task. Source:
// limit.userMetadataSummary of Temporal's server.
const maxSummary = 400

// Brief cuts a summary to maxSummary bytes.
func Brief(summary string) string { return phrase.Cut(summary, maxSummary) }
