package v1alpha1

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"millwright/api/vocabulary"
)

// Finalizers. Each is set before the thing that it guards is created, and removed when that is gone.
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
	// LabelNode holds the name of the machine's node. Written on a Machine when its node is known, if the name is a valid
	// value of a label. The field status.nodeName holds any name.
	LabelNode = "node"
	// LabelName holds the name of the deployment, by Gardener's convention. Millwright never writes it.
	LabelName = "name"
	// LabelMachineTemplateHash distinguishes the sets of one deployment: on MachineSet, its selector, and Machine.
	LabelMachineTemplateHash = "machine-template-hash"
	// LabelFreeze with value True, on MachineSet or MachineDeployment, stops the creation of machines.
	LabelFreeze = vocabulary.LabelFreeze
	// LabelForceDeletion on a Machine, read as a bool: delete without waiting for pods.
	LabelForceDeletion = vocabulary.LabelForceDeletion
	// LabelForceDrain with the exact value True, on a Machine: drain by force for in-place update and preservation.
	LabelForceDrain = "force-drain"
	// LabelScaleUpDisabled on a MachineSet, by its presence: the set makes no machines. Its usual value is true.
	LabelScaleUpDisabled = "node.machine.sapcloud.io/scale-up-disabled"
	// LabelUpdateResult on a Machine, with value successful: the machine was updated in place and handed to the new set,
	// which must not delete it until its replicas have caught up. On a Node, written by the updating agent: successful
	// or failed.
	LabelUpdateResult = "node.machine.sapcloud.io/update-result"
)

// Labels on Node.
const (
	// LabelMachineName holds the name of the node's machine.
	LabelMachineName = vocabulary.LabelMachineName
	// LabelCandidateForUpdate with value true: the node waits for an in-place update.
	LabelCandidateForUpdate = "node.machine.sapcloud.io/candidate-for-update"
	// LabelSelectedForUpdate with value true: the node is next. Set by a person when the orchestration is Manual.
	LabelSelectedForUpdate = "node.machine.sapcloud.io/selected-for-update"
)

// Values of labels and annotations.
const (
	// ValueTrue of LabelFreeze, LabelForceDrain and AnnotationPreferNoSchedule.
	ValueTrue = "True"
	// ValueLowerTrue of LabelScaleUpDisabled, the update labels of a Node and both annotations for the cluster autoscaler.
	ValueLowerTrue = vocabulary.ValueLowerTrue
	// ValueUpdateSuccessful of LabelUpdateResult.
	ValueUpdateSuccessful = vocabulary.UpdateSuccessful
	// ValueUpdateFailed of LabelUpdateResult, on a Node only.
	ValueUpdateFailed = vocabulary.UpdateFailed
	// ValueNotManaged of AnnotationNotManaged.
	ValueNotManaged = "1"
	// ValuePreserveNow of AnnotationPreserve: keep the machine from now on.
	ValuePreserveNow = vocabulary.PreserveNow
	// ValuePreserveWhenFailed of AnnotationPreserve: keep the machine when it fails.
	ValuePreserveWhenFailed = vocabulary.PreserveWhenFailed
	// ValuePreserveAuto of AnnotationPreserve: kept because of autoPreserveFailedMachineMax; written by its set.
	ValuePreserveAuto = vocabulary.PreserveAuto
	// ValuePreserveFalse of AnnotationPreserve: do not keep.
	ValuePreserveFalse = vocabulary.PreserveFalse
)

// Annotations on Machine, MachineSet and MachineDeployment.
const (
	// AnnotationRevision holds the number of the template's revision: on MachineDeployment and MachineSet.
	AnnotationRevision = "deployment.kubernetes.io/revision"
	// AnnotationRevisionHistory on a MachineSet lists its former revisions, separated by commas.
	AnnotationRevisionHistory = "deployment.kubernetes.io/revision-history"
	// AnnotationDesiredReplicas on a MachineSet holds the deployment's replicas when it was last scaled.
	AnnotationDesiredReplicas = "deployment.kubernetes.io/desired-replicas"
	// AnnotationMaxReplicas on a MachineSet holds replicas plus surge when it was last scaled.
	AnnotationMaxReplicas = "deployment.kubernetes.io/max-replicas"
	// AnnotationPreferNoSchedule on a MachineSet, with value True: its nodes carry the taint of the same name.
	AnnotationPreferNoSchedule = "deployment.machine.sapcloud.io/prefer-no-schedule"
	// AnnotationUnfreeze on MachineDeployment or MachineSet, by its presence: end a freeze.
	AnnotationUnfreeze = "safety.machine.sapcloud.io/unfreeze"
	// AnnotationMachinePriority on a Machine holds an integer; machines with a lower one are deleted first. Default 3; the
	// cluster autoscaler's choice has 1.
	AnnotationMachinePriority = "machinepriority.machine.sapcloud.io"
	// AnnotationTriggerDeletion on a MachineDeployment names the machines to delete first at a scale-down, as
	// name~time,name~time with RFC 3339 times, or in the old form name,name. Written by the cluster autoscaler.
	AnnotationTriggerDeletion = "node.machine.sapcloud.io/trigger-deletion-by-mcm"
	// AnnotationMarkedForDeletionTime on a Machine holds the time from AnnotationTriggerDeletion.
	AnnotationMarkedForDeletionTime = "machine.sapcloud.io/marked-for-deletion-time"
	// AnnotationLastScalerChange on a MachineDeployment, copied to its MachineSet, holds the RFC 3339 time at which the
	// cluster autoscaler last changed the replicas.
	AnnotationLastScalerChange = "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time"
	// AnnotationPreserve on Machine or Node requests preservation. Its values are in the table above.
	AnnotationPreserve = vocabulary.AnnotationPreserve
	// AnnotationLastAppliedPreserve on a Machine holds the value of the node's annotation that was applied last.
	AnnotationLastAppliedPreserve = vocabulary.AnnotationLastAppliedPreserve
	// AnnotationAutoPreserved on a Machine: its set requested its preservation at that RFC 3339 time, and does not request
	// it again after it was refused or has ended.
	AnnotationAutoPreserved = "machine.sapcloud.io/auto-preserved-at"
	// AnnotationEffectiveCreationTimeout on a MachineSet, copied to its machines, overrides spec.creationTimeout. Written
	// by the dependency-watchdog. A Go duration.
	AnnotationEffectiveCreationTimeout = "node.machine.sapcloud.io/effective-creation-timeout"
	// AnnotationMachineJoinDuration on a Machine says that its node has joined, and how long that took: a Go duration. It
	// is read alone: status.joinedAt records the join.
	AnnotationMachineJoinDuration = "node.machine.sapcloud.io/machine-join-duration"
	// AnnotationReplacementGranted on a Machine: its deployment has granted its replacement, within the replacement
	// budget. Its value is the RFC 3339 time of the grant. A person who sets it replaces the machine outside the budget.
	AnnotationReplacementGranted = "machine.sapcloud.io/replacement-granted"
)

// Annotations of the Lease that the workers renew while they are at work.
const (
	// LeaseWorkers is the name of the Lease that the workers of an installation renew while they are at work.
	LeaseWorkers = "millwright-worker"
	// AnnotationInstallation names the installation whose workers renew the Lease LeaseWorkers.
	AnnotationInstallation = "machine.sapcloud.io/installation"
	// AnnotationScope says on which namespaces the installation acts: JSON with the lists "namespaces" and
	// "exceptNamespaces" and the text "namespaceSelector"; what is missing limits nothing.
	AnnotationScope = "machine.sapcloud.io/namespaces"
	// AnnotationAbsences holds the times in which no worker was at work: JSON, a list of "from" and "to".
	AnnotationAbsences = "machine.sapcloud.io/absences"
	// AnnotationAbsentSince is the RFC 3339 time at which a possible absence began. It is removed when the absence is
	// recorded.
	AnnotationAbsentSince = "machine.sapcloud.io/absent-since"
)

// Annotations of operator requests for the rollout of a MachineDeployment. The text after the revision says who and
// why.
const (
	// AnnotationRolloutHold holds the rollout of one revision: "7 ann: the new image is bad". It ends with the revision.
	AnnotationRolloutHold = "rollout.machine.sapcloud.io/hold"
	// AnnotationRolloutApprove approves the steps of one revision up to a number of them: "7/2 ann: looks well".
	AnnotationRolloutApprove = "rollout.machine.sapcloud.io/approve"
	// AnnotationRolloutPausedBy says who paused the deployment, and why: "ann: lunch". It is removed when the deployment
	// is resumed, and has no effect of its own: the field spec.paused pauses.
	AnnotationRolloutPausedBy = "rollout.machine.sapcloud.io/paused-by"
	// AnnotationLastRequest is the last operator request: when, by whom and why: "2026-11-21T14:06:07Z ann requested
	// pause: lunch". Some commands leave no other record. It also identifies a request that is carried out twice.
	AnnotationLastRequest = "rollout.machine.sapcloud.io/last-request"
	// AnnotationAutomaticRollbackTo on a MachineDeployment: an automatic rollback restored the template of the set with
	// this UID. While that is the current set, there is no other automatic rollback. It is written together with the
	// template, and removed when another set becomes the current one or a person requests a rollback.
	AnnotationAutomaticRollbackTo = "rollout.machine.sapcloud.io/automatic-rollback-to"
	// AnnotationRestartedAt in the template of a MachineDeployment makes a rollout replace all machines without any other
	// change: an RFC 3339 time.
	AnnotationRestartedAt = "rollout.machine.sapcloud.io/restarted-at"
	// AnnotationChangeCause on MachineDeployment and MachineSet says why a revision was made, as in kubectl.
	AnnotationChangeCause = "kubernetes.io/change-cause"
)

// Annotations on a MachineDeployment of Cluster API, whose schema has no fields for them.
const (
	// AnnotationRollbackTo asks for the template of a former revision: its number, or 0 for the one before. It is removed
	// when the template has returned, or cannot.
	AnnotationRollbackTo = "rollout.machine.sapcloud.io/rollback-to"
	// AnnotationRevisionHistoryLimit is how many former MachineSets without machines are kept, so that their templates can
	// return. Default 10; 0: none, as in Cluster API.
	AnnotationRevisionHistoryLimit = "rollout.machine.sapcloud.io/revision-history-limit"
	// AnnotationProgressDeadline is how long a rollout may make no progress, in seconds, until the condition Progressing
	// is False and an automatic rollback may begin. Default 600; 0: for ever.
	AnnotationProgressDeadline = "rollout.machine.sapcloud.io/progress-deadline-seconds"
	// AnnotationRolloutProgress holds what status.rollout holds on a MachineDeployment of machine.sapcloud.io, as JSON:
	// the revision, the step, its steps and the new machines that failed. At most 20 steps, and one name more than
	// maxFailedMachines of the policy.
	AnnotationRolloutProgress = "rollout.machine.sapcloud.io/progress"
	// AnnotationOperation holds what status.currentOperation holds on a MachineDeployment of machine.sapcloud.io, as JSON:
	// the workflow, its step, and what blocks it. Absent while the deployment is calm.
	AnnotationOperation = "rollout.machine.sapcloud.io/operation"
	// AnnotationFormerReplicas on a MachineSet of Cluster API is the size that it had when it last acted on its size,
	// before it was changed. Until its status shows its generation, it may still create or delete machines for that size.
	AnnotationFormerReplicas = "rollout.machine.sapcloud.io/former-replicas"
	// AnnotationCreatedFor on a MachineSet of Cluster API is the time in spec.rollout.after because of which it was
	// created. The set counts as created after that time, also if the clock of the API server is late.
	AnnotationCreatedFor = "rollout.machine.sapcloud.io/created-for"
	// AnnotationReplacedByRevision in the template of a former MachineSet of Cluster API, and on its machines, is the
	// revision that replaces them. When it changes, Cluster API's core compares the machine with the deployment's template
	// again.
	AnnotationReplacedByRevision = "rollout.machine.sapcloud.io/replaced-by-revision"
	// AnnotationInPlaceUpdates on a MachineDeployment of Cluster API, with the value "true": a rollout changes machines in
	// place where a runtime extension can do that, and replaces the others. Any other value, or none: all are replaced.
	AnnotationInPlaceUpdates = "rollout.machine.sapcloud.io/in-place-updates"
	// AnnotationInPlaceAnswer on a former MachineSet of Cluster API holds what the runtime extension said about its
	// machines, as JSON: the set of the new template, whether the extension can bring the machines to it in place, why
	// not, and when it was asked. If it is removed, the next decision asks again.
	AnnotationInPlaceAnswer = "rollout.machine.sapcloud.io/in-place-answer"
)

// Annotations that control sets and their machines, as in Cluster API. Each counts by its presence.
const (
	// AnnotationPaused on a MachineSet, or on its MachineDeployment: the set creates and deletes no machines.
	AnnotationPaused = vocabulary.AnnotationPaused
	// AnnotationSkipPreflightChecks on a MachineSet names the preflight checks that it skips, separated by commas; All
	// skips all.
	AnnotationSkipPreflightChecks = vocabulary.AnnotationSkipPreflightChecks
	// AnnotationDeleteMachine on a Machine: it is deleted first when there are too many.
	AnnotationDeleteMachine = "cluster.x-k8s.io/delete-machine"
	// AnnotationRemediateMachine on a Machine: its set replaces it.
	AnnotationRemediateMachine = "cluster.x-k8s.io/remediate-machine"
)

// Annotations in the template of a set that preflight checks read.
const (
	// AnnotationKubernetesVersion holds the version of Kubernetes that the machines run, such as v1.31.2. Without it no
	// version is compared.
	AnnotationKubernetesVersion = "machine.sapcloud.io/kubernetes-version"
	// AnnotationJoinsBy with the value kubeadm: the machines join by kubeadm, whose version must be compatible, too.
	AnnotationJoinsBy = "machine.sapcloud.io/joins-by"
	// ValueKubeadm of AnnotationJoinsBy.
	ValueKubeadm = "kubeadm"
)

// AnnotationReleasedBy on a Machine holds the UID of the set that controlled it until its labels no longer matched.
const AnnotationReleasedBy = "machine.sapcloud.io/released-by"

// Annotations on Machine that control its deletion, as in Cluster API. A hook counts by its presence: its key is the
// prefix, or the prefix with a slash and a name. Its writer removes it.
const (
	// AnnotationPreDrainHook begins the keys of hooks that must be removed before the node is drained.
	AnnotationPreDrainHook = "pre-drain.delete.hook.machine.cluster.x-k8s.io"
	// AnnotationPreTerminateHook begins the keys of hooks that must be removed before the instance is deleted.
	AnnotationPreTerminateHook = "pre-terminate.delete.hook.machine.cluster.x-k8s.io"
	// AnnotationExcludeDraining by its presence: the node is not drained.
	AnnotationExcludeDraining = "machine.cluster.x-k8s.io/exclude-node-draining"
	// AnnotationExcludeDetach by its presence: the deletion does not wait until the node's volumes are detached.
	AnnotationExcludeDetach = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach"
)

// Annotations of operator requests for the deletion of a Machine: each stays until it is removed. The value says who
// and why, in words that are repeated where the command takes effect. An empty value also counts.
const (
	// AnnotationForce: pods are deleted without a grace period, now. Like LabelForceDeletion, with a reason.
	AnnotationForce = "drain.machine.sapcloud.io/force"
	// AnnotationSkipDrain: the node is not drained, or its drain ends.
	AnnotationSkipDrain = "drain.machine.sapcloud.io/skip"
	// AnnotationHold: the deletion stays in its present stage. A drain stops; the node stays cordoned.
	AnnotationHold = "drain.machine.sapcloud.io/hold"
	// AnnotationExtend holds the RFC 3339 time until which pods are evicted, regardless of drainTimeout; the text after a
	// blank says why. It never shortens the time.
	AnnotationExtend = "drain.machine.sapcloud.io/extend-until"
	// AnnotationRetry: each new value makes the drain try all evictions again at once, and repeats a call of the provider
	// that backs off.
	AnnotationRetry = "drain.machine.sapcloud.io/retry"
	// AnnotationAbandonInstance: the Machine object is removed although the provider was not, or cannot be, asked to
	// delete the instance. Who sets it has to delete the instance.
	AnnotationAbandonInstance = "machine.sapcloud.io/abandon-instance"
)

// Annotations of the drain of the nodes of Cluster API's Machines.
const (
	// AnnotationClusterAPIDrain on a MachineSet of Cluster API, its MachineDeployment or its Cluster, with the value
	// "true": Millwright drains the nodes of the Machines of Millwright's MachineSets. The nearest that has the annotation
	// decides: first the set, then the deployment, then the Cluster.
	AnnotationClusterAPIDrain = "drain.machine.sapcloud.io/cluster-api"
	// AnnotationDrainStatus on a Machine of Cluster API holds how far Millwright's drain of its node is, as JSON.
	AnnotationDrainStatus = "drain.machine.sapcloud.io/status"
)

// AnnotationCollectOrphans on a MachineClass holds how many of its instances without a Machine one sweep may delete, at
// most 25, and until when, at most 24 hours ahead: "5 until 2026-11-24T12:00:00Z". Until then it replaces the limits of
// the sweep, including the one that stops all deletions if suspiciously many instances have no Machine. 0 keeps all of
// them, and needs no end.
const AnnotationCollectOrphans = "machine.sapcloud.io/collect-orphans"

// AnnotationAllowedClassNamespaces on a Secret holds the namespaces, separated by commas, whose MachineClasses may use the
// Secret although it is in another namespace; * allows all. Without it only the classes of the Secret's own namespace may.
// The owner of the Secret writes it.
const AnnotationAllowedClassNamespaces = vocabulary.AnnotationAllowedClassNamespaces

// Labels and annotations of pods that a drain obeys.
const (
	// LabelDrain with value skip: the pod stays; with wait-completed: the drain waits for its end and does not evict it.
	// Upper and lower case are equal, as in Cluster API.
	LabelDrain = "cluster.x-k8s.io/drain"
	// AnnotationDoNotDisrupt with value true, or with how long since the pod's start, as a Go duration: the pod is not
	// evicted before that, or before the deadline of the drain. As in Karpenter.
	AnnotationDoNotDisrupt = "karpenter.sh/do-not-disrupt"
)

// Label and annotation of the Secret with a machine's bootstrap token, in the target cluster.
const (
	// LabelMachineUID holds the UID of the machine that the token is for.
	LabelMachineUID = "machine.sapcloud.io/machine-uid"
	// AnnotationAttempt is the attempt to create an instance for which the token was issued.
	AnnotationAttempt = "machine.sapcloud.io/creation-attempt"
)

// Annotations on Node.
const (
	// AnnotationMachineUID holds the UID of the Machine that is proven to be the Node's; see docs/ownership.md.
	AnnotationMachineUID = vocabulary.AnnotationMachineUID
	// AnnotationLastAppliedTemplate holds, as JSON, the annotations, labels and taints last applied from nodeTemplate.
	AnnotationLastAppliedTemplate = vocabulary.AnnotationLastAppliedTemplate
	// AnnotationLastAppliedVirtualCapacity holds, as JSON, the virtual capacity last applied from the class.
	AnnotationLastAppliedVirtualCapacity = vocabulary.AnnotationLastAppliedVirtualCapacity
	// AnnotationNotManaged with value 1: the node has no machine and is left alone.
	AnnotationNotManaged = vocabulary.AnnotationNotManaged
	// AnnotationUpdateFailedReason says why an in-place update failed. Written by the updating agent.
	AnnotationUpdateFailedReason = "node.machine.sapcloud.io/update-failed-reason"
	// AnnotationScaleDownDisabled with value true: the cluster autoscaler must not remove the node.
	AnnotationScaleDownDisabled = vocabulary.AnnotationScaleDownDisabled
	// AnnotationScaleDownDisabledByMCM with value true is the proof that AnnotationScaleDownDisabled was not set by a
	// user; only then may it be removed.
	AnnotationScaleDownDisabledByMCM = vocabulary.AnnotationScaleDownDisabledByMCM
)

// Priorities, as AnnotationMachinePriority holds them. Source: MCM.
const (
	// PriorityDefault is that of a machine without the annotation, or with one that is no integer.
	PriorityDefault = vocabulary.PriorityDefault
	// PriorityChosen is that of a machine that the cluster autoscaler chose.
	PriorityChosen = vocabulary.PriorityChosen
)

// Taints on Node: their keys, and the effect that goes with each.
const (
	// TaintPreferNoSchedule keeps new pods off nodes that a rollout is about to remove. Its value is True.
	TaintPreferNoSchedule       = "deployment.machine.sapcloud.io/prefer-no-schedule"
	TaintPreferNoScheduleEffect = corev1.TaintEffectPreferNoSchedule
	// TaintPreserved keeps new pods off a failed node that is preserved. It carries timeAdded.
	TaintPreserved       = "node.machine.sapcloud.io/preserved"
	TaintPreservedEffect = corev1.TaintEffectNoSchedule
	// TaintCriticalComponentsNotReady keeps pods off a node until its critical components run; others remove it.
	TaintCriticalComponentsNotReady       = vocabulary.TaintCriticalComponentsNotReady
	TaintCriticalComponentsNotReadyEffect = corev1.TaintEffectNoSchedule

	// TaintUninitialized is on a node that registered with an external cloud provider, until the cloud controller manager
	// has initialised it.
	TaintUninitialized = vocabulary.TaintUninitialized
)

// ownMetadataKeys are the keys that only Millwright writes and that request nothing from another object.
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
	AnnotationAutomaticRollbackTo:        true,
	AnnotationRolloutProgress:            true,
	AnnotationOperation:                  true,
	AnnotationFormerReplicas:             true,
	AnnotationCreatedFor:                 true,
	AnnotationReplacedByRevision:         true,
	AnnotationInPlaceAnswer:              true,
	AnnotationMachineUID:                 true,
	AnnotationLastAppliedTemplate:        true,
	AnnotationLastAppliedVirtualCapacity: true,
	AnnotationNotManaged:                 true,
	AnnotationScaleDownDisabledByMCM:     true,
	AnnotationDrainStatus:                true,
}

// IsOwnMetadataKey reports whether only Millwright writes labels and annotations with this key, on its objects or on a
// Node, for its own use. A change of such a key need not signal the object's workflow. Keys that others write too, or
// that one object writes for another (priority, freeze, scale-up-disabled, preserve, those of the autoscaler, the
// labels of in-place updates), are requests and not in the list: an unnecessary signal is harmless, a missing one is
// not. A reader that decides by labels alone, as a set about its machines, must compare all of them.
func IsOwnMetadataKey(key string) bool {
	return ownMetadataKeys[key]
}

// OwnMetadataKeys returns all keys for which IsOwnMetadataKey holds, sorted.
func OwnMetadataKeys() []string {
	return slices.Sorted(maps.Keys(ownMetadataKeys))
}
