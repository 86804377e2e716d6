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

// This file contains all timeouts and retry policies. A timeout limits each step, but nothing limits the number of
// attempts.

// TaskPriority returns the priority of the tasks of an object's workflow and its children. TaskPriority has an effect
// only when tasks wait for workers. MachineDeployments and MachineSets come first, because they decide for many
// machines. Objects of one deployment share a fairness key, so that a rollout of thousands of machines does not delay
// the tasks of other deployments. Temporal's server uses the fairness key only if fairness is enabled.
func TaskPriority(kind Kind, namespace string, o ParentNames) temporal.Priority {
	p := temporal.Priority{PriorityKey: 3} // Temporal's default priority
	if slices.Contains([]Kind{KindMachineDeployment, KindMachineSet, KindClusterAPIDeployment, KindClusterAPISet}, kind) {
		p.PriorityKey = 2
	}
	sum := sha256.Sum256([]byte(namespace + "/" + cmp.Or(o.MachineDeployment, o.MachineSet, o.Machine)))
	p.FairnessKey = hex.EncodeToString(sum[:8]) // Temporal accepts a key of at most 64 bytes
	return p
}

// idleTimeBeforeEnd is how long a run with nothing left to do waits for more work before it ends. The run waits only if
// it has executed a step and IdleBeforeEnd is set. Source: twice the bridge's debounce interval; ADR 0002 says how much
// work the wait saves.
const idleTimeBeforeEnd = time.Second

// SettledTimeBeforeContinueAsNew is how long a deployment with nothing left to do waits for more work before its run
// continues as new. During a scale-up, machines become ready one after the other. Because of the wait, one run writes
// all these changes to the status. Source: ADR 0002.
const SettledTimeBeforeContinueAsNew = 20 * time.Second

// StuckRecheckInterval is how often a run decides again while it waits for a person. Normally the bridge signals the
// run when an object has changed. StuckRecheckInterval is for changes that no watch has reported. With an interval of
// one hour, a run that waits writes eleven history events per hour.
const StuckRecheckInterval = explain.StuckCallRetryPause

// FirstRefusalWait is how long a run waits before the first retry of a refused write, unless a signal arrives. Quotas
// and webhooks do not report when they would accept a write. Source: a sixth of the bridge's resync interval.
const FirstRefusalWait = explain.RefusedWriteRetryPause

// maxRefusalWait is the longest wait before a refused write is retried. Source: five times the bridge's resync
// interval.
const maxRefusalWait = explain.MaxRefusedWriteRetryPause

// WaitAfterRefusal returns the wait after n consecutive refusals or calls without an answer. The wait is
// FirstRefusalWait for n = 1, and doubles with each further refusal, up to maxRefusalWait.
func WaitAfterRefusal(n int) time.Duration {
	wait := FirstRefusalWait
	for ; n > 1 && wait < maxRefusalWait; n-- {
		wait *= 2
	}
	return min(wait, maxRefusalWait)
}

// localActivityOptions returns the options of local activities for decisions and small idempotent writes: one attempt
// of at most two seconds. If the attempt fails, the caller runs the same activity as a regular activity.
func localActivityOptions(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		Summary:             ShortenSummary(summary),
		StartToCloseTimeout: 2 * time.Second,
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1},
	})
}

// MaxWritesOnOwnQueue is the maximum number of writes of one decision that run as a local activity. An activity that
// must not run as a local activity runs as a regular activity in the workflow's own task queue. Source: on an API
// server that shared two busy CPUs, a write took 60 ms, so 30 writes take almost the two seconds of a local activity.
const MaxWritesOnOwnQueue = 30

// clusterActivityOptions returns activity options for reads and writes of the clusters. An API server answers within
// seconds or is unavailable. Attempts continue until the API server answers.
func clusterActivityOptions(ctx workflow.Context, queue, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           shardOfWorkflow(ctx).TaskQueue(queue),
		Summary:             ShortenSummary(summary),
		StartToCloseTimeout: 20 * time.Second,
		WaitForCancellation: true,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    500 * time.Millisecond,
			BackoffCoefficient: 2,
			MaximumInterval:    15 * time.Second,
		},
	})
}

// MinWritesOnOtherQueue stands for any number of writes above MaxWritesOnOwnQueue.
const MinWritesOnOtherQueue = MaxWritesOnOwnQueue + 1

// queueForWrites returns the task queue for a number of writes. A few writes use the workflow's own task queue, because
// the server can then start the activity eagerly on the worker that has scheduled it.
func queueForWrites(writes int) string {
	if writes <= MaxWritesOnOwnQueue {
		return QueueMachines
	}
	return QueueKubernetes
}

// BatchOptions returns the options of an activity that makes n writes of one decision. After a minute the decision is
// too old, and the workflow decides again.
func BatchOptions(ctx workflow.Context, summary string, n int) workflow.Context {
	return withTotalTimeout(clusterActivityOptions(ctx, queueForWrites(n), summary), time.Minute)
}

// ExtensionCallOptions is like BatchOptions, but for a call of a Cluster API runtime extension, which may take 30
// seconds to answer.
func ExtensionCallOptions(ctx workflow.Context, summary string) workflow.Context {
	options := workflow.GetActivityOptions(BatchOptions(ctx, summary, 1))
	options.StartToCloseTimeout = 40 * time.Second
	return workflow.WithActivityOptions(ctx, options)
}

// withTotalTimeout limits the total time of all attempts of an activity (schedule-to-close timeout).
func withTotalTimeout(ctx workflow.Context, d time.Duration) workflow.Context {
	options := workflow.GetActivityOptions(ctx)
	options.ScheduleToCloseTimeout = d
	return workflow.WithActivityOptions(ctx, options)
}

// QuickBatchOptions returns BatchOptions for writes that must not delay other work. If the writes take more than five
// seconds, the workflow decides again. An earlier local attempt is not part of the five seconds.
func QuickBatchOptions(ctx workflow.Context, summary string, n int) workflow.Context {
	return withTotalTimeout(clusterActivityOptions(ctx, queueForWrites(n), summary), 5*time.Second)
}

// CloudCallOptions returns activity options for provider calls that are retried until they succeed. The workflow limits
// the total time with a timer, which fires on time. A schedule-to-close timeout would end the activity too early,
// before the first back-off that exceeds the timeout. The heartbeat timeout detects a dead worker. The timeout is 10 s
// instead of the usual 30 s, because the machine must wait until the dead worker is detected.
func CloudCallOptions(ctx workflow.Context, provider, id, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           shardOfWorkflow(ctx).ProviderTaskQueue(provider),
		ActivityID:          id,
		Summary:             ShortenSummary(summary),
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

// ShortCloudCallOptions returns the options of a short provider call: at most 30 seconds per attempt and one minute in
// total. If no worker has started the activity after 20 seconds, probably no worker serves the provider's task queue.
func ShortCloudCallOptions(ctx workflow.Context, provider, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              shardOfWorkflow(ctx).ProviderTaskQueue(provider),
		Summary:                ShortenSummary(summary),
		ScheduleToStartTimeout: 20 * time.Second,
		StartToCloseTimeout:    30 * time.Second,
		ScheduleToCloseTimeout: time.Minute,
		HeartbeatTimeout:       10 * time.Second,
		WaitForCancellation:    true,
	})
}

// WithLowerPriority lowers the priority of an activity. If calls wait for a free worker, the calls of other sets then
// start first. A huge rollout then does not starve other sets. Temporal's server uses the priority key by default.
func WithLowerPriority(ctx workflow.Context) workflow.Context {
	options := workflow.GetActivityOptions(ctx)
	// The priority key 4 is the lowest in use. The activity inherits all other priority fields from the workflow.
	options.Priority = temporal.Priority{PriorityKey: 4}
	return workflow.WithActivityOptions(ctx, options)
}

// nodeWaitOptions returns the options of activities that wait long for the pods or volumes of a node. These activities
// have a separate task queue. The heartbeat timeout detects a dead worker. The activity limits its total time itself,
// from its input.
func nodeWaitOptions(ctx workflow.Context, id, summary string) workflow.Context {
	options := workflow.GetActivityOptions(clusterActivityOptions(ctx, QueueDrains, summary))
	options.ActivityID, options.StartToCloseTimeout, options.HeartbeatTimeout = id, 24*time.Hour, 10*time.Second
	return workflow.WithActivityOptions(ctx, options)
}

// DrainRestartDelay is how long a machine waits before it starts a drain again while an earlier drain is still ending.
// A cancelled activity learns of its cancellation from its next heartbeat, so this time must be longer than the
// heartbeat interval.
const DrainRestartDelay = 5 * time.Second

// DrainOptions returns the child workflow options for the drain of a machine's node. If the parent run ends, Temporal
// cancels the drain, and the drain cleans up before it ends.
func DrainOptions(ctx workflow.Context, machine kube.Ref, node string, purpose string) workflow.Context {
	why := "the machine is deleted: its node must be empty first"
	switch purpose {
	case vocabulary.DrainForInPlaceUpdate:
		why = "the node is updated in place: it must be empty first"
	case vocabulary.DrainForPreservation:
		why = "the machine has failed and is preserved: its node must be empty"
	}
	id, summary := InstallationOfWorkflow(
		ctx,
	).ID(KindDrain, machine),
		fmt.Sprintf(
			"Drain %s of machine %s",
			node,
			machine.Key(),
		)
	return childWorkflowOptions(ctx, id, enumspb.PARENT_CLOSE_POLICY_REQUEST_CANCEL, summary, why)
}

// RolloutOptions returns the child workflow options for a deployment's rollout of the given kind. If the parent run is
// terminated, the rollout continues, and the next run of the deployment's workflow finds the open rollout. If the
// parent run is cancelled, the rollout is cancelled as well.
func RolloutOptions(ctx workflow.Context, kind Kind, deployment kube.Ref, revision int64, why string) workflow.Context {
	id := InstallationOfWorkflow(ctx).ID(kind, deployment, revision)
	summary := fmt.Sprintf("Rollout of %s to revision %d", deployment.Key(), revision)
	return childWorkflowOptions(ctx, id, enumspb.PARENT_CLOSE_POLICY_ABANDON, summary, "started because: "+why)
}

// childWorkflowOptions returns the options of a child workflow. closing is the parent close policy.
func childWorkflowOptions(
	ctx workflow.Context,
	id string,
	closing enumspb.ParentClosePolicy,
	summary, details string,
) workflow.Context {
	return workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:            id,
		TaskQueue:             shardOfWorkflow(ctx).TaskQueue(QueueMachines),
		WaitForCancellation:   true,
		ParentClosePolicy:     closing,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		TypedSearchAttributes: inheritedAttributes(ctx),
		StaticSummary:         summary,
		StaticDetails:         details,
	})
}

// RolloutRecheckInterval is how long a deployment waits after a due time before it checks whether a rollout of an
// earlier run is still open. Source: the bridge's resync interval.
const RolloutRecheckInterval = time.Minute

// HoldWriteTimeout is how long a cancelled deployment waits until its rollout has written the hold. Source: the maximum
// time of a batch of writes (see BatchOptions).
const HoldWriteTimeout = time.Minute

// MinReportInterval is the minimum time between two status writes of a rollout in which only counts and conditions
// change. Source: users see no difference, and 10 machines that are deleted within a second change the counts 30 times.
const MinReportInterval = time.Second

// RolloutRestartDelay is how long a deployment waits before it restarts a rollout that was terminated or has failed.
const RolloutRestartDelay = 5 * time.Second

// OptionalCloudCallOptions is like CloudCallOptions, but for a provider call that is not necessary: at most 30 seconds
// in total.
func OptionalCloudCallOptions(ctx workflow.Context, provider, id, summary string) workflow.Context {
	return withTotalTimeout(CloudCallOptions(ctx, provider, id, summary), 30*time.Second)
}

// OrphanSweepOptions returns CloudCallOptions for one step of an orphan sweep: at most five minutes in total, a third
// of the interval between sweeps. The next sweep repeats a failed step.
func OrphanSweepOptions(ctx workflow.Context, provider, id, summary string) workflow.Context {
	return withTotalTimeout(CloudCallOptions(ctx, provider, id, summary), 5*time.Minute)
}

// maxSummaryBytes is the maximum size of a summary in bytes. Temporal's server fails the workflow task if a summary is
// longer. Source: limit.userMetadataSummary of Temporal's server.
const maxSummaryBytes = 400

// ShortenSummary cuts a summary to maxSummaryBytes bytes.
func ShortenSummary(summary string) string { return phrase.TruncateText(summary, maxSummaryBytes) }
