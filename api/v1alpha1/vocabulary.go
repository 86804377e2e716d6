package v1alpha1

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"millwright/api/vocabulary"
)

// Finalizers. A finalizer is added before the guarded object or instance is created, and removed after the guarded
// object or instance is gone.
const (
	// FinalizerMachine is on Machine, MachineSet, MachineDeployment and MachineClass.
	FinalizerMachine = "machine.sapcloud.io/machine-controller-manager"
	// FinalizerSecret is on a Secret while a MachineClass refers to it.
	FinalizerSecret = "machine.sapcloud.io/machine-controller"
	// FinalizerNode is on a Node that has a machine.
	FinalizerNode = "node.machine.sapcloud.io/machine-controller"
)

// Labels on Machine, MachineSet and MachineDeployment.
const (
	// LabelNode on a Machine holds the name of the machine's node, if the name is known and is a valid value of a
	// label. The field status.nodeName contains the name even if the name is no valid value of a label.
	LabelNode = "node"
	// LabelName holds the name of the deployment, by Gardener's convention. Millwright never writes the label.
	LabelName = "name"
	// LabelMachineTemplateHash is on MachineSets, in their selectors and on Machines. The label distinguishes the sets
	// of one deployment.
	LabelMachineTemplateHash = "machine-template-hash"
	// LabelFreeze with value True, on MachineSet or MachineDeployment, stops the creation of machines.
	LabelFreeze = vocabulary.LabelFreeze
	// LabelForceDeletion on a Machine makes the deletion not wait for pods, if Go parses the label's value as true.
	LabelForceDeletion = vocabulary.LabelForceDeletion
	// LabelForceDrain on a Machine, with the exact value True, makes drains for an in-place update or a preservation
	// use force.
	LabelForceDrain = "force-drain"
	// LabelScaleUpDisabled on a MachineSet stops the set from creating machines, whatever the label's value. The usual
	// value of the label is true.
	LabelScaleUpDisabled = "node.machine.sapcloud.io/scale-up-disabled"
	// LabelUpdateResult on a Machine, with the value successful, means that the machine was updated in place and moved
	// to the new set. The new set must not delete the machine before the set's replicas include the machine. On a Node,
	// the updating agent writes the label with the value successful or failed.
	LabelUpdateResult = "node.machine.sapcloud.io/update-result"
)

// Labels on Node.
const (
	// LabelMachineName holds the name of the node's machine.
	LabelMachineName = vocabulary.LabelMachineName
	// LabelCandidateForUpdate with value true: the node waits for an in-place update.
	LabelCandidateForUpdate = "node.machine.sapcloud.io/candidate-for-update"
	// LabelSelectedForUpdate with value true: the node is updated next. With orchestrationType Manual, a person sets
	// the label.
	LabelSelectedForUpdate = "node.machine.sapcloud.io/selected-for-update"
)

// Values of labels and annotations.
const (
	// ValueTrue is the value of LabelFreeze, LabelForceDrain and AnnotationPreferNoSchedule.
	ValueTrue = "True"
	// ValueLowerTrue is the value of LabelScaleUpDisabled, of a Node's labels for in-place updates, and of both
	// annotations for the cluster autoscaler.
	ValueLowerTrue = vocabulary.ValueScaleDownDisabled
	// ValueRequired is the value of AnnotationInPlaceUpdates with which a rollout replaces no machine.
	ValueRequired = "required"
	// ValueUpdateSuccessful is a value of LabelUpdateResult.
	ValueUpdateSuccessful = vocabulary.ValueUpdateSuccessful
	// ValueUpdateFailed is a value of LabelUpdateResult, on a Node only.
	ValueUpdateFailed = vocabulary.ValueUpdateFailed
	// ValueNotManaged is the value of AnnotationNotManaged.
	ValueNotManaged = "1"
	// ValuePreserveNow is a value of AnnotationPreserve: the machine is kept from now on.
	ValuePreserveNow = vocabulary.ValuePreserveNow
	// ValuePreserveWhenFailed is a value of AnnotationPreserve: the machine is kept when it fails.
	ValuePreserveWhenFailed = vocabulary.ValuePreserveWhenFailed
	// ValuePreserveAuto is a value of AnnotationPreserve: the machine's set keeps the machine because of
	// autoPreserveFailedMachineMax.
	ValuePreserveAuto = vocabulary.ValuePreserveAuto
	// ValuePreserveFalse is a value of AnnotationPreserve: the machine is not kept.
	ValuePreserveFalse = vocabulary.ValuePreserveFalse
)

// Annotations on Machine, MachineSet and MachineDeployment.
const (
	// AnnotationRevision on MachineDeployment and MachineSet is the number of the template's revision.
	AnnotationRevision = "deployment.kubernetes.io/revision"
	// AnnotationRevisionHistory on a MachineSet lists its former revisions, separated by commas.
	AnnotationRevisionHistory = "deployment.kubernetes.io/revision-history"
	// AnnotationDesiredReplicas on a MachineSet holds the deployment's replicas at the last scaling of the set.
	AnnotationDesiredReplicas = "deployment.kubernetes.io/desired-replicas"
	// AnnotationMaxReplicas on a MachineSet holds the deployment's replicas plus surge at the last scaling of the set.
	AnnotationMaxReplicas = "deployment.kubernetes.io/max-replicas"
	// AnnotationPreferNoSchedule on a MachineSet, with value True: the set's nodes carry the taint
	// deployment.machine.sapcloud.io/prefer-no-schedule.
	AnnotationPreferNoSchedule = "deployment.machine.sapcloud.io/prefer-no-schedule"
	// AnnotationUnfreeze on a MachineDeployment or MachineSet ends the freeze, whatever the annotation's value.
	AnnotationUnfreeze = "safety.machine.sapcloud.io/unfreeze"
	// AnnotationMachinePriority on a Machine holds its priority, an integer: machines with a lower priority are deleted
	// first. The default priority is 3; machines that the cluster autoscaler chooses get priority 1.
	AnnotationMachinePriority = "machinepriority.machine.sapcloud.io"
	// AnnotationTriggerDeletion on a MachineDeployment names the machines to delete first at a scale-down, as
	// name~time,name~time with RFC 3339 times, or in the old form name,name. The cluster autoscaler writes the
	// annotation.
	AnnotationTriggerDeletion = "node.machine.sapcloud.io/trigger-deletion-by-mcm"
	// AnnotationMarkedForDeletionTime on a Machine holds the time from AnnotationTriggerDeletion.
	AnnotationMarkedForDeletionTime = "machine.sapcloud.io/marked-for-deletion-time"
	// AnnotationLastScalerChange on a MachineDeployment, copied to its MachineSet, holds the RFC 3339 time at which the
	// cluster autoscaler last changed the replicas.
	AnnotationLastScalerChange = "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time"
	// AnnotationPreserve on Machine or Node requests preservation, with a value such as ValuePreserveNow.
	AnnotationPreserve = vocabulary.AnnotationPreserve
	// AnnotationLastAppliedPreserve on a Machine holds the value of the node's annotation that was applied last.
	AnnotationLastAppliedPreserve = vocabulary.AnnotationLastAppliedPreserve
	// AnnotationAutoPreserved on a Machine holds the RFC 3339 time at which its set requested the machine's
	// preservation. The set does not request the preservation again after the preservation was refused or has ended.
	AnnotationAutoPreserved = "machine.sapcloud.io/auto-preserved-at"
	// AnnotationEffectiveCreationTimeout on a MachineSet, copied to its machines, overrides spec.creationTimeout by a
	// Go duration. The dependency-watchdog writes the annotation.
	AnnotationEffectiveCreationTimeout = "node.machine.sapcloud.io/effective-creation-timeout"
	// AnnotationMachineJoinDuration on a Machine is the time that the machine's node took to join, as a Go duration.
	// Millwright only reads the annotation, and records the join in status.joinedAt.
	AnnotationMachineJoinDuration = "node.machine.sapcloud.io/machine-join-duration"
	// AnnotationReplacementGranted on a Machine holds the RFC 3339 time at which the machine's deployment granted the
	// replacement within the replacement budget. If a person sets the annotation, the machine is replaced outside the
	// budget.
	AnnotationReplacementGranted = "machine.sapcloud.io/replacement-granted"
)

// Annotations of the Lease that the workers renew while they run.
const (
	// LeaseWorkers is the name of the Lease that the workers of an installation renew while they run.
	LeaseWorkers = "millwright-worker"
	// AnnotationInstallation names the installation whose workers renew the Lease LeaseWorkers.
	AnnotationInstallation = "machine.sapcloud.io/installation"
	// AnnotationScope contains the namespaces on which the installation acts, as JSON with the lists "namespaces" and
	// "exceptNamespaces" and the text "namespaceSelector". A missing field of the JSON limits nothing.
	AnnotationScope = "machine.sapcloud.io/namespaces"
	// AnnotationShards is the number of shards of the installation. The annotation is absent if the installation has one
	// shard. On the Lease of a single process, it is the number of shards that this process knows.
	AnnotationShards = "machine.sapcloud.io/shards"
	// AnnotationAbsences contains the periods in which no worker ran, as a JSON list of "from" and "to".
	AnnotationAbsences = "machine.sapcloud.io/absences"
	// AnnotationAbsentSince is the RFC 3339 time at which a possible absence of all workers began. The annotation is
	// removed when the absence is recorded.
	AnnotationAbsentSince = "machine.sapcloud.io/absent-since"
	// AnnotationProblems on the Leases of the workers and of the bridges lists what these processes are not permitted
	// or not able to do. The value is a JSON list with an entry for each process that has problems.
	AnnotationProblems = "machine.sapcloud.io/problems"
	// AnnotationVersion on the Leases of the workers and of the bridges is the build of the process that wrote the Lease
	// last, such as "v0.1.0, commit c5bb2f16d1aa of 2026-11-30, go1.26.8".
	AnnotationVersion = "machine.sapcloud.io/version"
)

// Annotations of operator requests for the rollout of a MachineDeployment. The text after the revision names the
// requester and the reason.
const (
	// AnnotationRolloutHold stops the rollout of one revision. Example: "7 ann: the new image is bad". The hold ends
	// when another revision is rolled out.
	AnnotationRolloutHold = "rollout.machine.sapcloud.io/hold"
	// AnnotationRolloutApprove approves a number of steps of one revision, from the first on: "7/2 ann: looks well"
	// approves two steps of revision 7.
	AnnotationRolloutApprove = "rollout.machine.sapcloud.io/approve"
	// AnnotationRolloutPausedBy names the person who paused the deployment, and the reason. Example: "ann: lunch". The
	// annotation is removed when the deployment is resumed. The annotation has no effect of its own: the field
	// spec.paused pauses the deployment.
	AnnotationRolloutPausedBy = "rollout.machine.sapcloud.io/paused-by"
	// AnnotationLastRequest is the time, the actor and the reason of the last operator request. Example:
	// "2026-11-21T14:06:07Z ann requested pause: lunch". Some commands leave no other record. By this annotation,
	// Millwright recognises a request that is carried out twice.
	AnnotationLastRequest = "rollout.machine.sapcloud.io/last-request"
	// AnnotationRolloutRetry requests a retry of a revision that was pinned to a former revision: "8/1 ann: quota is
	// raised" is the first request for revision 8.
	AnnotationRolloutRetry = "rollout.machine.sapcloud.io/retry"
	// AnnotationRolloutPin keeps the machines on a former revision: "8/7 ann: v8 is slow" keeps the machines on
	// revision 7 while the deployment has the template of revision 8.
	AnnotationRolloutPin = "rollout.machine.sapcloud.io/pin"
	// AnnotationRolloutUndoBy names the person who requested the return to a revision, and the reason. Example: "7 ann:
	// v8 is slow". The text becomes the change cause of the restored revision.
	AnnotationRolloutUndoBy = "rollout.machine.sapcloud.io/undo-by"
	// AnnotationRolloutFailed on a MachineSet says why the set's revision was pinned to an earlier revision, and since
	// when. The annotation is removed when a rollout of the revision is complete.
	AnnotationRolloutFailed = "rollout.machine.sapcloud.io/failed"
	// AnnotationRestartedAt in the template of a MachineDeployment is an RFC 3339 time. A new time starts a rollout
	// that replaces all machines, without any other change.
	AnnotationRestartedAt = "rollout.machine.sapcloud.io/restarted-at"
	// AnnotationChangeCause on MachineDeployment and MachineSet says why a revision was made, as for Deployments.
	AnnotationChangeCause = "kubernetes.io/change-cause"
)

// Annotations on a MachineDeployment of Cluster API, whose schema has no fields for them.
const (
	// AnnotationRollbackTo requests the template of a former revision: its number, or 0 for the previous revision. The
	// annotation is removed when the deployment has the template, or cannot get the template.
	AnnotationRollbackTo = "rollout.machine.sapcloud.io/rollback-to"
	// AnnotationRevisionHistoryLimit is how many former MachineSets without machines are kept for rollbacks. The
	// default is 10; 0 keeps none of these sets, as in Cluster API.
	AnnotationRevisionHistoryLimit = "rollout.machine.sapcloud.io/revision-history-limit"
	// AnnotationProgressDeadline is how many seconds a rollout may make no progress before the condition Progressing
	// becomes False and an automatic rollback may begin. The default is 600; 0 means no limit.
	AnnotationProgressDeadline = "rollout.machine.sapcloud.io/progress-deadline-seconds"
	// AnnotationRolloutProgress is the JSON form of status.rollout of a MachineDeployment of machine.sapcloud.io. The
	// value contains the revision, the current step, all steps (at most 20), and the names of the new machines that
	// failed (at most one more than maxFailedMachines of the policy).
	AnnotationRolloutProgress = "rollout.machine.sapcloud.io/progress"
	// AnnotationOperation is the JSON form of status.currentOperation of a MachineDeployment of machine.sapcloud.io.
	// The value contains the workflow, its step, and the blockers of the step. The annotation is absent while the
	// deployment is idle.
	AnnotationOperation = "rollout.machine.sapcloud.io/operation"
	// AnnotationFormerReplicas on a MachineSet of Cluster API is the last size that the set has acted on before its
	// size was changed. The set may still create or delete machines for this size until its status has observed the new
	// generation.
	AnnotationFormerReplicas = "rollout.machine.sapcloud.io/former-replicas"
	// AnnotationCreatedFor on a MachineSet of Cluster API is the time in the deployment's spec.rollout.after for which
	// the set was created. The set counts as created after this time, even if the clock of the API server is slow.
	AnnotationCreatedFor = "rollout.machine.sapcloud.io/created-for"
	// AnnotationReplacedByRevision in the template of a former MachineSet of Cluster API, and on its machines, is the
	// revision that replaces the machines. When this revision changes, Cluster API's core compares each machine with
	// the deployment's template again.
	AnnotationReplacedByRevision = "rollout.machine.sapcloud.io/replaced-by-revision"
	// AnnotationInPlaceUpdates on a MachineDeployment of Cluster API, with the value "true": a rollout updates a
	// machine in place if a runtime extension can do so, and replaces the other machines. With the value "required", a
	// rollout replaces no machine: it stops if the extension cannot update the machines of a set. With any other value,
	// or without the annotation, a rollout replaces all machines.
	AnnotationInPlaceUpdates = vocabulary.AnnotationInPlaceUpdates
	// AnnotationInPlaceAnswer on a former MachineSet of Cluster API holds as JSON the answer of the runtime extension
	// for the set's machines. The answer has the set of the new template, whether the extension can update the machines
	// to this set in place, the reason if it cannot, and the time of the answer. If the annotation is removed, the next
	// decision calls the extension again.
	AnnotationInPlaceAnswer = "rollout.machine.sapcloud.io/in-place-answer"
	// AnnotationFailedGenerations on a MachineSet of Cluster API is the JSON form of status.failedGenerations of a
	// MachineSet of machine.sapcloud.io: how many generations of machines failed in a row before they joined. Without a
	// back-off and a maxRetry in the RolloutPolicy, the annotation is not written.
	AnnotationFailedGenerations = "rollout.machine.sapcloud.io/failed-generations"
)

// Annotations that control sets and their machines, as in Cluster API. Except for AnnotationSkipPreflightChecks, only
// the presence of the annotation counts, not the value.
const (
	// AnnotationPaused on a MachineSet, or on its MachineDeployment: the set creates and deletes no machines.
	AnnotationPaused = vocabulary.AnnotationPaused
	// AnnotationSkipPreflightChecks on a MachineSet names the preflight checks that the set skips, separated by commas;
	// the value All skips all checks.
	AnnotationSkipPreflightChecks = vocabulary.AnnotationSkipPreflightChecks
	// AnnotationDeleteMachine on a Machine: the machine is deleted first if its set has too many machines.
	AnnotationDeleteMachine = "cluster.x-k8s.io/delete-machine"
	// AnnotationRemediateMachine on a Machine: the machine's set replaces the machine. If the machine never joined, the set
	// counts failed generations of machines from the beginning.
	AnnotationRemediateMachine = vocabulary.AnnotationRemediateMachine
)

// Annotations in the template of a set that preflight checks read.
const (
	// AnnotationKubernetesVersion holds the version of Kubernetes on the machines, such as v1.31.2. Without the
	// annotation, no versions are compared.
	AnnotationKubernetesVersion = "machine.sapcloud.io/kubernetes-version"
	// AnnotationJoinsBy with the value kubeadm: the machines join by kubeadm, so the version of kubeadm must be
	// compatible, too.
	AnnotationJoinsBy = "machine.sapcloud.io/joins-by"
	// ValueKubeadm is the value of AnnotationJoinsBy.
	ValueKubeadm = "kubeadm"
)

// AnnotationReleasedBy on a Machine holds the UID of the set that controlled the machine until the machine's labels no
// longer matched.
const AnnotationReleasedBy = "machine.sapcloud.io/released-by"

// Annotations on Machine that control its deletion, as in Cluster API. The key of a hook is the prefix, or the prefix
// with a slash and a name; the value of a hook is ignored. The writer of a hook removes the hook.
const (
	// AnnotationPreDrainHook is the prefix of the keys of hooks that must be removed before the node is drained.
	AnnotationPreDrainHook = "pre-drain.delete.hook.machine.cluster.x-k8s.io"
	// AnnotationPreTerminateHook is the prefix of the keys of hooks that must be removed before the instance is
	// deleted.
	AnnotationPreTerminateHook = "pre-terminate.delete.hook.machine.cluster.x-k8s.io"
	// AnnotationExcludeDraining with any value: the node is not drained.
	AnnotationExcludeDraining = "machine.cluster.x-k8s.io/exclude-node-draining"
	// AnnotationExcludeDetach with any value: the deletion does not wait until the node's volumes are detached.
	AnnotationExcludeDetach = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach"
)

// Annotations of operator requests for the deletion of a Machine. A request lasts until its annotation is removed. The
// value names the requester and the reason; messages about the request's effect repeat the value. The value of a
// request may be empty.
const (
	// AnnotationForce: pods are deleted without a grace period, now. The annotation has the effect of
	// LabelForceDeletion, and also names a reason.
	AnnotationForce = "drain.machine.sapcloud.io/force"
	// AnnotationSkipDrain: the node is not drained, or its drain ends.
	AnnotationSkipDrain = "drain.machine.sapcloud.io/skip"
	// AnnotationHold: the deletion stays in its present stage. A drain stops; the node stays cordoned.
	AnnotationHold = "drain.machine.sapcloud.io/hold"
	// AnnotationExtend holds the RFC 3339 time until which pods are evicted, regardless of drainTimeout. The text after
	// the time and a space is the reason. The annotation never makes the time shorter.
	AnnotationExtend = "drain.machine.sapcloud.io/extend-until"
	// AnnotationRetry: after each new value, the drain tries all evictions again at once, and a waiting provider call
	// starts again.
	AnnotationRetry = "drain.machine.sapcloud.io/retry"
	// AnnotationAbandonInstance: the Machine object is removed without a request to the provider to delete the
	// instance. Whoever sets the annotation must delete the instance.
	AnnotationAbandonInstance = "machine.sapcloud.io/abandon-instance"
)

// Annotations of the drain of the nodes of Cluster API's Machines.
const (
	// AnnotationClusterAPIDrain on a MachineSet of Cluster API, its MachineDeployment or its Cluster, with the value
	// "true": Millwright drains the nodes of the set's Machines, if Millwright reconciles the set. The first object
	// with the annotation decides: the set, then the deployment, then the Cluster.
	AnnotationClusterAPIDrain = "drain.machine.sapcloud.io/cluster-api"
	// AnnotationDrainStatus on a Machine of Cluster API is the progress of Millwright's drain of the machine's node, as
	// JSON.
	AnnotationDrainStatus = "drain.machine.sapcloud.io/status"
)

// AnnotationCollectOrphans on a MachineClass sets how many of the class's instances without a Machine one sweep may
// delete, and until when. Example: "5 until 2026-11-24T12:00:00Z". The maximum is 25 instances and 24 hours. Until this
// time, the annotation replaces the limits of the sweep, including the limit that stops all deletions if suspiciously
// many instances have no Machine. If the number is 0, no instance is deleted, and no time is needed.
const AnnotationCollectOrphans = "machine.sapcloud.io/collect-orphans"

// AnnotationAllowedClassNamespaces on a Secret lists the other namespaces, separated by commas, whose MachineClasses
// may use the Secret; * allows all namespaces. Without the annotation, only classes in the Secret's own namespace may
// use the Secret. The owner of the Secret writes the annotation.
const AnnotationAllowedClassNamespaces = vocabulary.AnnotationAllowedClassNamespaces

// Labels and annotations of pods that a drain obeys.
const (
	// LabelDrain with value skip: the pod stays. With the value wait-completed, the drain waits until the pod ends, and
	// does not evict the pod. As in Cluster API, the values may have upper case letters.
	LabelDrain = "cluster.x-k8s.io/drain"
	// AnnotationDoNotDisrupt with value true: the pod is not evicted before the deadline of the drain. If the value is
	// a Go duration, the pod is not evicted until this time has passed since the pod's start, or until the deadline.
	// The annotation is Karpenter's.
	AnnotationDoNotDisrupt = "karpenter.sh/do-not-disrupt"
)

// Label and annotation of the Secret with a machine's bootstrap token, in the target cluster.
const (
	// LabelMachineUID holds the UID of the machine for which the token was issued.
	LabelMachineUID = "machine.sapcloud.io/machine-uid"
	// AnnotationAttempt is the attempt to create an instance for which the token was issued.
	AnnotationAttempt = "machine.sapcloud.io/creation-attempt"
)

// Annotations on Node.
const (
	// AnnotationMachineUID holds the UID of the Node's Machine, after the ownership was proven; see docs/ownership.md.
	AnnotationMachineUID = vocabulary.AnnotationMachineUID
	// AnnotationLastAppliedTemplate holds, as JSON, the annotations, labels and taints last applied from nodeTemplate.
	AnnotationLastAppliedTemplate = vocabulary.AnnotationLastAppliedTemplate
	// AnnotationLastAppliedVirtualCapacity holds, as JSON, the virtual capacity last applied from the class.
	AnnotationLastAppliedVirtualCapacity = vocabulary.AnnotationLastAppliedVirtualCapacity
	// AnnotationNotManaged with value 1: the node has no machine, and Millwright does not change the node.
	AnnotationNotManaged = vocabulary.AnnotationNotManaged
	// AnnotationUpdateFailedReason says why an in-place update failed. The updating agent writes the annotation.
	AnnotationUpdateFailedReason = "node.machine.sapcloud.io/update-failed-reason"
	// AnnotationScaleDownDisabled with value true: the cluster autoscaler must not remove the node.
	AnnotationScaleDownDisabled = vocabulary.AnnotationScaleDownDisabled
	// AnnotationScaleDownDisabledByMCM with value true proves that no user has set AnnotationScaleDownDisabled, so that
	// Millwright may remove AnnotationScaleDownDisabled.
	AnnotationScaleDownDisabledByMCM = vocabulary.AnnotationScaleDownDisabledByMCM
)

// Values of AnnotationMachinePriority. Source: MCM.
const (
	// PriorityDefault is the priority of a machine without the annotation, or with a value that is not an integer.
	PriorityDefault = vocabulary.PriorityDefault
	// PriorityChosen is the priority of a machine that the cluster autoscaler has chosen.
	PriorityChosen = vocabulary.PriorityChosenByAutoscaler
)

// Keys and effects of the taints on Node.
const (
	// TaintPreferNoSchedule keeps new pods off nodes that a rollout will remove soon; the value of the taint is True.
	TaintPreferNoSchedule       = "deployment.machine.sapcloud.io/prefer-no-schedule"
	TaintPreferNoScheduleEffect = corev1.TaintEffectPreferNoSchedule
	// TaintPreserved keeps new pods off the node of a failed machine that is preserved; the taint has a timeAdded.
	TaintPreserved       = "node.machine.sapcloud.io/preserved"
	TaintPreservedEffect = corev1.TaintEffectNoSchedule
	// TaintCriticalComponentsNotReady keeps pods off a node until the node's critical components run. Other controllers
	// remove the taint.
	TaintCriticalComponentsNotReady       = vocabulary.TaintCriticalComponentsNotReady
	TaintCriticalComponentsNotReadyEffect = corev1.TaintEffectNoSchedule

	// TaintUninitialized is on a node whose kubelet has an external cloud provider, until the cloud controller manager
	// has initialised the node.
	TaintUninitialized = vocabulary.TaintUninitialized
)

// ownMetadataKeys are the keys for which IsOwnMetadataKey returns true.
var ownMetadataKeys = map[string]bool{
	LabelNode:                            true,
	LabelMachineTemplateHash:             true,
	LabelMachineName:                     true,
	AnnotationRevision:                   true,
	AnnotationRevisionHistory:            true,
	AnnotationDesiredReplicas:            true,
	AnnotationMaxReplicas:                true,
	AnnotationPreferNoSchedule:           true,
	AnnotationMarkedForDeletionTime:      true,
	AnnotationLastAppliedPreserve:        true,
	AnnotationMachineJoinDuration:        true,
	AnnotationLastRequest:                true,
	AnnotationRolloutProgress:            true,
	AnnotationOperation:                  true,
	AnnotationFormerReplicas:             true,
	AnnotationCreatedFor:                 true,
	AnnotationReplacedByRevision:         true,
	AnnotationInPlaceAnswer:              true,
	AnnotationFailedGenerations:          true,
	AnnotationMachineUID:                 true,
	AnnotationLastAppliedTemplate:        true,
	AnnotationLastAppliedVirtualCapacity: true,
	AnnotationNotManaged:                 true,
	AnnotationScaleDownDisabledByMCM:     true,
	AnnotationDrainStatus:                true,
}

// IsOwnMetadataKey reports whether only Millwright or MCM writes labels and annotations with this key, on its objects
// or on a Node, for its own use. If only keys of this kind have changed, the object's workflow need not be signalled.
// Other keys are requests by users, other controllers or other objects of Millwright. Examples are priority, freeze,
// scale-up-disabled, preserve, the keys of the autoscaler and the labels of in-place updates. If it is unclear whether
// a key belongs to the list, the key is left out: an unnecessary signal is harmless, but a missing signal delays a
// request. A reader that selects by labels, as a set selects its machines, must compare all labels.
func IsOwnMetadataKey(key string) bool {
	return ownMetadataKeys[key]
}

// OwnMetadataKeys returns all keys for which IsOwnMetadataKey returns true, sorted.
func OwnMetadataKeys() []string {
	return slices.Sorted(maps.Keys(ownMetadataKeys))
}
