package v1alpha1

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Finalizers. Each is on before the thing it guards is made, and goes when that is gone.
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
	// LabelNode holds the name of the machine's node. Written on a Machine when its node is known.
	LabelNode = "node"
	// LabelName holds the name of the deployment, by Gardener's convention. Millwright never writes it.
	LabelName = "name"
	// LabelMachineTemplateHash tells the sets of one deployment apart: on MachineSet, its selector, and Machine.
	LabelMachineTemplateHash = "machine-template-hash"
	// LabelFreeze with value True, on MachineSet or MachineDeployment, stops the creation of machines.
	LabelFreeze = "freeze"
	// LabelForceDeletion on a Machine, read as a bool: delete without waiting for pods.
	LabelForceDeletion = "force-deletion"
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
	LabelMachineName = "node.gardener.cloud/machine-name"
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
	ValueLowerTrue = "true"
	// ValueUpdateSuccessful of LabelUpdateResult.
	ValueUpdateSuccessful = "successful"
	// ValueUpdateFailed of LabelUpdateResult, on a Node only.
	ValueUpdateFailed = "failed"
	// ValueNotManaged of AnnotationNotManaged.
	ValueNotManaged = "1"
	// ValuePreserveNow of AnnotationPreserve: keep the machine from now on.
	ValuePreserveNow = "now"
	// ValuePreserveWhenFailed of AnnotationPreserve: keep the machine when it fails.
	ValuePreserveWhenFailed = "when-failed"
	// ValuePreserveAuto of AnnotationPreserve: kept because of autoPreserveFailedMachineMax; written by its set.
	ValuePreserveAuto = "auto-preserved"
	// ValuePreserveFalse of AnnotationPreserve: do not keep.
	ValuePreserveFalse = "false"
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
	// AnnotationMachinePriority on a Machine holds an integer; lower goes first. See the Priority constants.
	AnnotationMachinePriority = "machinepriority.machine.sapcloud.io"
	// AnnotationTriggerDeletion on a MachineDeployment names the machines that a scale-down shall take, as
	// name~time,name~time with RFC 3339 times, or in the old form name,name. Written by the cluster autoscaler.
	AnnotationTriggerDeletion = "node.machine.sapcloud.io/trigger-deletion-by-mcm"
	// AnnotationMarkedForDeletionTime on a Machine holds the time from AnnotationTriggerDeletion.
	AnnotationMarkedForDeletionTime = "machine.sapcloud.io/marked-for-deletion-time"
	// AnnotationLastScalerChange on a MachineDeployment, copied to its MachineSet, holds the RFC 3339 time at which the
	// cluster autoscaler last changed the replicas.
	AnnotationLastScalerChange = "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time"
	// AnnotationPreserve on Machine or Node asks to keep a machine; see the ValuePreserve constants.
	AnnotationPreserve = "node.machine.sapcloud.io/preserve"
	// AnnotationLastAppliedPreserve on a Machine remembers the value that was last honoured on its node.
	AnnotationLastAppliedPreserve = "node.machine.sapcloud.io/last-applied-node-preserve-value"
	// AnnotationAutoPreserved on a Machine: its set asked once for its preservation, at that RFC 3339 time, and does not ask
	// again when that was refused or is over.
	AnnotationAutoPreserved = "machine.sapcloud.io/auto-preserved-at"
	// AnnotationEffectiveCreationTimeout on a MachineSet, copied to its machines, overrides spec.creationTimeout. Written
	// by the dependency-watchdog. A Go duration.
	AnnotationEffectiveCreationTimeout = "node.machine.sapcloud.io/effective-creation-timeout"
	// AnnotationMachineJoinDuration on a Machine holds how long its node took to join. A Go duration.
	AnnotationMachineJoinDuration = "node.machine.sapcloud.io/machine-join-duration"
	// AnnotationReplacementGranted on a Machine: its deployment agreed that it is replaced, within the replacement budget.
	// Its value is the RFC 3339 time of the grant. A person who sets it replaces the machine outside the budget.
	AnnotationReplacementGranted = "machine.sapcloud.io/replacement-granted"
)

// Annotations by which people steer the rollout of a MachineDeployment. The words after the revision tell who and why.
const (
	// AnnotationRolloutHold holds the rollout of one revision where it is: "7 ann: the new image is bad". It ends with the
	// revision.
	AnnotationRolloutHold = "rollout.machine.sapcloud.io/hold"
	// AnnotationRolloutApprove passes the stages of one revision up to a number of them: "7/2 ann: looks well".
	AnnotationRolloutApprove = "rollout.machine.sapcloud.io/approve"
	// AnnotationRolloutVerb tells which verb was given last, when, by whom and why: "2026-11-21T14:06:07Z ann wants pause: lunch".
	// Some verbs leave no other trace of that. An order that is carried out twice is known by it.
	AnnotationRolloutVerb = "rollout.machine.sapcloud.io/last-verb"
	// AnnotationRestartedAt in the template of a MachineDeployment is how all machines are made anew without any other change:
	// an RFC 3339 time.
	AnnotationRestartedAt = "rollout.machine.sapcloud.io/restarted-at"
	// AnnotationChangeCause on MachineDeployment and MachineSet tells people why a revision was made, as in kubectl.
	AnnotationChangeCause = "kubernetes.io/change-cause"
)

// Annotations that steer sets and their machines, as Cluster API has them. Each counts by its presence.
const (
	// AnnotationPaused on a MachineSet, or on the MachineDeployment above it: the set makes and deletes nothing.
	AnnotationPaused = "cluster.x-k8s.io/paused"
	// AnnotationSkipPreflightChecks on a MachineSet names the preflight checks that it skips, separated by commas; All skips all.
	AnnotationSkipPreflightChecks = "machineset.cluster.x-k8s.io/skip-preflight-checks"
	// AnnotationDeleteMachine on a Machine: it goes first when there are too many.
	AnnotationDeleteMachine = "cluster.x-k8s.io/delete-machine"
	// AnnotationRemediateMachine on a Machine: its set replaces it.
	AnnotationRemediateMachine = "cluster.x-k8s.io/remediate-machine"
)

// Annotations in the template of a set that preflight checks look at.
const (
	// AnnotationKubernetesVersion holds the version of Kubernetes that the machines run, such as v1.31.2. Without it no
	// version is compared.
	AnnotationKubernetesVersion = "machine.sapcloud.io/kubernetes-version"
	// AnnotationJoinsBy with the value kubeadm: the machines join by kubeadm, whose versions have to go together, too.
	AnnotationJoinsBy = "machine.sapcloud.io/joins-by"
	// ValueKubeadm of AnnotationJoinsBy.
	ValueKubeadm = "kubeadm"
)

// AnnotationReleasedBy on a Machine holds the UID of the set that owned it until its labels no longer matched.
const AnnotationReleasedBy = "machine.sapcloud.io/released-by"

// Annotations on Machine that steer its deletion, as Cluster API has them. A hook counts by its presence: its key is the
// prefix, or the prefix with a slash and a name, and whoever set it takes it off.
const (
	// AnnotationPreDrainHook begins the keys of hooks that have to go before the node is drained.
	AnnotationPreDrainHook = "pre-drain.delete.hook.machine.cluster.x-k8s.io"
	// AnnotationPreTerminateHook begins the keys of hooks that have to go before the instance is deleted.
	AnnotationPreTerminateHook = "pre-terminate.delete.hook.machine.cluster.x-k8s.io"
	// AnnotationExcludeDraining by its presence: the node is not drained.
	AnnotationExcludeDraining = "machine.cluster.x-k8s.io/exclude-node-draining"
	// AnnotationExcludeDetach by its presence: nobody waits until the node's volumes are detached.
	AnnotationExcludeDetach = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach"
)

// Annotations on Machine by which people steer its deletion: each is a verb that stays until somebody takes it off. The
// value says who wants it and why, in words; it is told wherever the verb acts. An empty value counts, too.
const (
	// AnnotationForce: pods are deleted without a grace period, now. Like LabelForceDeletion, with a reason.
	AnnotationForce = "drain.machine.sapcloud.io/force"
	// AnnotationSkipDrain: the node is not drained, or not any more.
	AnnotationSkipDrain = "drain.machine.sapcloud.io/skip"
	// AnnotationHold: the deletion stays in the stage in which it is. A drain stops; the node stays cordoned.
	AnnotationHold = "drain.machine.sapcloud.io/hold"
	// AnnotationExtend holds the RFC 3339 time until which pods are evicted, whatever drainTimeout says; later words tell
	// why, behind a blank. It never shortens.
	AnnotationExtend = "drain.machine.sapcloud.io/extend-until"
	// AnnotationRetry: each new value makes the drain ask every pod again at once.
	AnnotationRetry = "drain.machine.sapcloud.io/retry"
	// AnnotationRelease: the machine object goes although the provider was not, or cannot be, asked to delete the instance.
	// Whoever sets it has seen to the instance.
	AnnotationRelease = "machine.sapcloud.io/release"
)

// AnnotationCollectOrphans on a MachineClass holds how many of its instances without a Machine one sweep may delete, at most 25.
// As long as it stands it takes the place of the sweep's own limits, those included that keep it from deleting anything when
// suspiciously many have none. 0 keeps all of them.
const AnnotationCollectOrphans = "machine.sapcloud.io/collect-orphans"

// Marks on pods that a drain honours.
const (
	// LabelDrain with value skip: the pod stays; with wait-completed: it is waited for, and not evicted. In any case of
	// letters, as in Cluster API.
	LabelDrain = "cluster.x-k8s.io/drain"
	// AnnotationDoNotDisrupt with value true, or with how long since the pod's start, as a Go duration: the pod is not
	// evicted before that, or before the deadline of the drain. As in Karpenter.
	AnnotationDoNotDisrupt = "karpenter.sh/do-not-disrupt"
)

// Marks on the Secret that holds a machine's bootstrap token, in the target cluster.
const (
	// LabelMachineUID holds the UID of the machine that the token is for.
	LabelMachineUID = "machine.sapcloud.io/machine-uid"
	// AnnotationAttempt names the attempt to create an instance that the token was made for.
	AnnotationAttempt = "machine.sapcloud.io/creation-attempt"
)

// Annotations on Node.
const (
	// AnnotationLastAppliedTemplate holds, as JSON, the annotations, labels and taints last applied from nodeTemplate.
	AnnotationLastAppliedTemplate = "node.machine.sapcloud.io/last-applied-anno-labels-taints"
	// AnnotationLastAppliedVirtualCapacity holds, as JSON, the virtual capacity last applied from the class.
	AnnotationLastAppliedVirtualCapacity = "node.machine.sapcloud.io/last-applied-virtual-capacity"
	// AnnotationNotManaged with value 1: the node has no machine and is left alone.
	AnnotationNotManaged = "node.machine.sapcloud.io/not-managed-by-mcm"
	// AnnotationUpdateFailedReason tells why an in-place update failed. Written by the updating agent.
	AnnotationUpdateFailedReason = "node.machine.sapcloud.io/update-failed-reason"
	// AnnotationScaleDownDisabled with value true: the cluster autoscaler must not remove the node.
	AnnotationScaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	// AnnotationScaleDownDisabledByMCM with value true is the proof that AnnotationScaleDownDisabled was not set by a
	// user; only then may it be removed.
	AnnotationScaleDownDisabledByMCM = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm"
)

// Priorities, as AnnotationMachinePriority holds them. Source: MCM.
const (
	// PriorityDefault is that of a machine without the annotation, or with one that is no integer.
	PriorityDefault = 3
	// PriorityChosen is that of a machine that the cluster autoscaler chose.
	PriorityChosen = 1
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
	TaintCriticalComponentsNotReady       = "node.gardener.cloud/critical-components-not-ready"
	TaintCriticalComponentsNotReadyEffect = corev1.TaintEffectNoSchedule
)

// ownMetadataKeys are the keys that only Millwright writes and that are no wish to anybody.
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
	AnnotationRolloutVerb:                true,
	AnnotationLastAppliedTemplate:        true,
	AnnotationLastAppliedVirtualCapacity: true,
	AnnotationNotManaged:                 true,
	AnnotationScaleDownDisabledByMCM:     true,
}

// IsOwnMetadataKey tells whether a label or annotation with this key, on any of our objects or on a Node, is Millwright's
// own note. A change of it need not wake the object that carries it. Keys that anybody else writes too, or that one of our
// objects writes to be heard by another (a priority, a freeze, scale-up-disabled, preserve, what the autoscaler writes,
// the labels of in-place updates), are wishes and not in the list: one wake too many is harmless, one too few is not.
// Who decides by labels alone, as a set about its machines, must look at all of them.
func IsOwnMetadataKey(key string) bool {
	return ownMetadataKeys[key]
}

// OwnMetadataKeys returns all keys for which IsOwnMetadataKey holds, sorted.
func OwnMetadataKeys() []string {
	return slices.Sorted(maps.Keys(ownMetadataKeys))
}
