package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"

	"millwright/api/vocabulary"
)

// MachineDeploymentConditionType is the type of a condition of a deployment.
type MachineDeploymentConditionType string

// Conditions of a MachineDeployment.
const (
	// MachineDeploymentAvailable: enough machines are available.
	MachineDeploymentAvailable MachineDeploymentConditionType = vocabulary.ConditionAvailable
	// MachineDeploymentProgressing: the rollout progresses, is complete, made no progress in time (False) or is paused
	// (Unknown).
	MachineDeploymentProgressing MachineDeploymentConditionType = vocabulary.ConditionProgressing
	// MachineDeploymentBlocked: something blocks the deployment, one of its sets or one of its machines. The condition
	// exists only while its status is True. The transition time is the time at which the oldest cause began.
	MachineDeploymentBlocked MachineDeploymentConditionType = vocabulary.ConditionBlocked
	// MachineDeploymentReplicaFailure: a set could not create or delete a machine. The condition is copied from the
	// set.
	MachineDeploymentReplicaFailure MachineDeploymentConditionType = vocabulary.ConditionReplicaFailure
	// MachineDeploymentFrozen: no machine is created, for safety.
	MachineDeploymentFrozen MachineDeploymentConditionType = vocabulary.ConditionFrozen
	// MachineDeploymentDegraded: the machines stay on a former revision. MachineDeploymentReconciling: the machines do
	// not match the spec yet. MachineDeploymentStalled: the machines will not match the spec unless a person acts.
	// Tools such as kstatus read Reconciling and Stalled. At most one of Reconciling and Stalled exists. Degraded,
	// Reconciling and Stalled exist only while they are True.
	MachineDeploymentDegraded    MachineDeploymentConditionType = vocabulary.ConditionDegraded
	MachineDeploymentReconciling MachineDeploymentConditionType = vocabulary.ConditionReconciling
	MachineDeploymentStalled     MachineDeploymentConditionType = vocabulary.ConditionStalled
	// MachineDeploymentSelectorOverlap: another deployment's selector matches machines of this deployment. Admission
	// sees one object at a time and cannot detect an overlap.
	MachineDeploymentSelectorOverlap MachineDeploymentConditionType = vocabulary.ConditionSelectorOverlap
	// MachineDeploymentClassKindIgnored: class.kind of the template is not MachineClass, and has no effect.
	MachineDeploymentClassKindIgnored MachineDeploymentConditionType = vocabulary.ConditionClassKindIgnored
	// MachineDeploymentReplacementHeld: failed machines are not replaced now; the message says why. The condition is
	// absent if no machine waits for its replacement.
	MachineDeploymentReplacementHeld MachineDeploymentConditionType = vocabulary.ConditionReplacementHeld
)

// ReasonReplacementHeld is the reason of the condition ReplacementHeld. ReasonReplacementGranted is the reason of the
// event when a replacement is granted.
const (
	ReasonReplacementHeld    = "ReplacementHeld"
	ReasonReplacementGranted = vocabulary.ReasonReplacementGranted
)

// MachineSetConditionType is the type of a condition of a set.
type MachineSetConditionType string

// Conditions of a MachineSet.
const (
	// MachineSetBlocked: something blocks the set or one of its machines. The condition exists only while its status is
	// True. The transition time is the time at which the oldest cause began.
	MachineSetBlocked MachineSetConditionType = vocabulary.ConditionBlocked
	// MachineSetReplicaFailure: a machine could not be created or deleted.
	MachineSetReplicaFailure MachineSetConditionType = vocabulary.ConditionReplicaFailure
	// MachineSetReplacementHeld: failed machines are not replaced now; the message says why.
	MachineSetReplacementHeld MachineSetConditionType = vocabulary.ConditionReplacementHeld
	// MachineSetFrozen: no machine is created, for safety.
	MachineSetFrozen MachineSetConditionType = vocabulary.ConditionFrozen
	// MachineSetOvershoot: the set has more machines than were ever desired.
	MachineSetOvershoot MachineSetConditionType = vocabulary.ConditionOvershoot
	// MachineSetMachinesCreated: False while machines are missing because they could not be created.
	MachineSetMachinesCreated MachineSetConditionType = vocabulary.ConditionMachinesCreated
	// MachineSetMachinesReady: all machines are ready; the message names the machines that are not ready.
	MachineSetMachinesReady MachineSetConditionType = vocabulary.ConditionMachinesReady
	// MachineSetMachinesUpToDate: all machines match the current template.
	MachineSetMachinesUpToDate MachineSetConditionType = vocabulary.ConditionMachinesUpToDate
	// MachineSetScalingUp: machines are missing, or were never ready.
	MachineSetScalingUp MachineSetConditionType = vocabulary.ConditionScalingUp
	// MachineSetScalingDown: the set has more machines than desired.
	MachineSetScalingDown MachineSetConditionType = vocabulary.ConditionScalingDown
	// MachineSetRemediating: machines are replaced because they failed or are unhealthy.
	MachineSetRemediating MachineSetConditionType = vocabulary.ConditionRemediating
	// MachineSetDeleting: the set is being deleted.
	MachineSetDeleting MachineSetConditionType = vocabulary.ConditionDeleting
	// MachineSetPaused: an operator paused the set.
	MachineSetPaused MachineSetConditionType = vocabulary.ConditionPaused
)

// Reasons of Available.
const (
	ReasonMinimumReplicasAvailable   = vocabulary.ReasonMinimumReplicasAvailable
	ReasonMinimumReplicasUnavailable = vocabulary.ReasonMinimumReplicasUnavailable
)

// Reasons of Progressing. NewMachineSetCreated and FoundNewMachineSet remain until the rollout makes its first
// progress, is paused, or waits at a pause point.
const (
	ReasonNewMachineSetCreated     = vocabulary.ReasonNewMachineSetCreated
	ReasonFoundNewMachineSet       = vocabulary.ReasonFoundNewMachineSet
	ReasonMachineSetUpdated        = vocabulary.ReasonMachineSetUpdated
	ReasonNewMachineSetAvailable   = vocabulary.ReasonNewMachineSetAvailable
	ReasonProgressDeadlineExceeded = vocabulary.ReasonProgressDeadlineExceeded
	ReasonMachineSetCreateError    = vocabulary.ReasonMachineSetCreateError
	ReasonDeploymentPaused         = vocabulary.ReasonDeploymentPaused
	ReasonDeploymentResumed        = vocabulary.ReasonDeploymentResumed
	// ReasonRolloutHeld: an operator cancelled the rollout; the machines stay as they are.
	ReasonRolloutHeld = vocabulary.ReasonRolloutHeld
	// ReasonRolloutWaiting: the rollout waits at a pause point, because a step has reached its number of machines and
	// has not ended.
	ReasonRolloutWaiting = vocabulary.ReasonRolloutWaiting
	// ReasonInvalid: the deployment is invalid and must be corrected.
	ReasonInvalid = vocabulary.ReasonInvalid
)

// Reasons of ReplicaFailure.
const (
	ReasonFailedCreate = vocabulary.ReasonFailedCreate
	ReasonFailedDelete = vocabulary.ReasonFailedDelete
)

// Reasons of Frozen.
const (
	ReasonOverShootingReplicaCount   = vocabulary.ReasonOverShootingReplicaCount
	ReasonMachineDeploymentStateSync = vocabulary.ReasonMachineDeploymentStateSync
	ReasonUnfreezeAnnotation         = "UnfreezeAnnotation"
)

// ReasonSelectorOverlap is the reason of the condition SelectorOverlap and of its event.
const ReasonSelectorOverlap = "SelectorOverlap"

// ReasonClassKindIgnored is the reason of the condition ClassKindIgnored and of its event.
const ReasonClassKindIgnored = "ClassKindIgnored"

// Conditions of a Machine itself. These types are reserved: the conditions stay when the node's conditions are copied,
// and health checks ignore them.
const (
	// MachineClassReady: the class and its Secrets exist and are valid. The message also says if class.kind has no
	// effect.
	MachineClassReady corev1.NodeConditionType = vocabulary.ConditionClassReady
	// MachineInstanceReady: the provider has created the instance. Before the creation, the reason is Creating or the
	// name of a code of the provider, such as ResourceExhausted.
	MachineInstanceReady corev1.NodeConditionType = vocabulary.ConditionInstanceReady
	// MachineReplacementDue: a timeout has ended, or the instance or the node is permanently gone. The machine is
	// replaced as soon as the deployment's replacement budget allows the replacement; the message says what the
	// replacement waits for.
	MachineReplacementDue corev1.NodeConditionType = vocabulary.ConditionReplacementDue
	// MachineBlocked: something blocks the machine. The condition exists only while its status is True. The transition
	// time is the time at which the present step began.
	MachineBlocked corev1.NodeConditionType = vocabulary.ConditionBlocked
	// MachineDrained: all pods have left the node of a machine that is being deleted. While pods are left, the reason
	// is Draining, Blocked or Forcing, and the message says what the drain waits for.
	MachineDrained corev1.NodeConditionType = vocabulary.ConditionDrained
	// A health check that is not part of Millwright writes and removes MachineHealthCheckSucceeded and
	// MachineOwnerRemediated, as in Cluster API. If both conditions are False, the machine's set replaces the machine.
	MachineHealthCheckSucceeded corev1.NodeConditionType = "HealthCheckSucceeded"
	MachineOwnerRemediated      corev1.NodeConditionType = "OwnerRemediated"
)

// Reasons of Drained.
const (
	ReasonDraining = vocabulary.ReasonDraining     // pods are being evicted, or will be evicted next
	ReasonBlocked  = vocabulary.ReasonBlocked      // something blocks evictions
	ReasonForcing  = vocabulary.ReasonForcing      // the deadline has passed or force was requested, so pods are deleted
	ReasonDrained  = vocabulary.DrainResultDrained // the status is True: all pods are gone
	// the status is True: pods were deleted by force; the message names the pods that were left behind
	ReasonForced  = vocabulary.DrainResultForced
	ReasonSkipped = vocabulary.DrainResultSkipped // no pod was evicted
)

// Reasons of ReplacementDue.
const (
	ReasonCreationTimeout = vocabulary.ReasonCreationTimeout
	ReasonHealthTimeout   = vocabulary.ReasonHealthTimeout
	ReasonInstanceGone    = vocabulary.ReasonInstanceGone
	ReasonNodeDeleted     = vocabulary.ReasonNodeDeleted
	ReasonStaleNode       = vocabulary.ReasonStaleNode
	// ReasonHealthTimeoutExtended: the health timeout was made longer or disabled; ReplacementDue is False.
	ReasonHealthTimeoutExtended = vocabulary.ReasonHealthTimeoutExtended
	// ReasonRecovered: the node became healthy in time; ReplacementDue is False.
	ReasonRecovered = vocabulary.ReasonRecovered
)

// Reasons of ClassReady.
const (
	ReasonClassFound     = vocabulary.ReasonClassFound
	ReasonClassNotFound  = vocabulary.ReasonClassNotFound
	ReasonClassInvalid   = vocabulary.ReasonClassInvalid
	ReasonSecretNotFound = vocabulary.ReasonSecretNotFound
	ReasonSecretInvalid  = vocabulary.ReasonSecretInvalid
	// ReasonSecretNotAllowed: a Secret of another namespace lacks AnnotationAllowedClassNamespaces for the class.
	ReasonSecretNotAllowed = vocabulary.ReasonSecretNotAllowed
)

// Reasons of InstanceReady. The names of the provider's codes are reasons of InstanceReady, too.
const (
	ReasonInstanceCreated = vocabulary.ReasonInstanceCreated
	ReasonCreating        = vocabulary.ReasonCreating
)

// ClassServed is a condition of a MachineClass: a worker polls the task queue of the class's provider. While the
// condition is False, no instance is created or deleted. The condition is absent while Millwright does not know whether
// a worker polls.
const ClassServed = vocabulary.ConditionServed

// Reasons of events on a MachineClass, about instances that no Machine claims.
const (
	ReasonOrphansCollected = "OrphansCollected" // a sweep has deleted instances
	// suspiciously many instances have no Machine, so the sweep has deleted no instance
	ReasonOrphansHeld = "OrphansHeld"
	// the cloud or the API server did not answer, so no instance was deleted
	ReasonOrphanSweepFailed = "OrphanSweepFailed"
	ReasonInstancesUnclear  = "InstancesUnclear" // no sweep deletes these instances, so a person must look at them
)

// IsReservedConditionType reports whether conditions of a Machine with this type are about the machine itself, and not
// copies of its node's conditions.
func IsReservedConditionType(conditionType corev1.NodeConditionType) bool {
	switch conditionType {
	case MachineBlocked,
		MachineClassReady,
		MachineInstanceReady,
		MachineReplacementDue,
		MachineDrained,
		MachineHealthCheckSucceeded,
		MachineOwnerRemediated:
		return true
	default:
		return false
	}
}

// Conditions that are written on nodes.
const (
	// NodeInPlaceUpdate is the progress of the node's in-place update. The status is always True; the reason is the
	// step.
	NodeInPlaceUpdate corev1.NodeConditionType = vocabulary.ConditionInPlaceUpdate
	// NodePreserved: the node is kept although the node's machine failed or might be deleted.
	NodePreserved corev1.NodeConditionType = vocabulary.ConditionPreserved
	// NodeTerminating: the node's machine is being deleted.
	NodeTerminating corev1.NodeConditionType = vocabulary.ConditionTerminating
)

// Reasons of NodeInPlaceUpdate, in the order of the steps. After ReadyForUpdate an agent on the node continues.
const (
	ReasonCandidateForUpdate = vocabulary.ReasonCandidateForUpdate
	ReasonSelectedForUpdate  = vocabulary.ReasonSelectedForUpdate
	ReasonDrainSuccessful    = vocabulary.ReasonDrainSuccessful
	ReasonReadyForUpdate     = vocabulary.ReasonReadyForUpdate
	ReasonUpdateSuccessful   = vocabulary.ReasonUpdateSuccessful
	ReasonUpdateFailed       = vocabulary.ReasonUpdateFailed
)

// Reasons of NodePreserved, with spaces and a full stop, as in MCM.
const (
	ReasonPreservedByMCM      = vocabulary.ReasonPreservedByMCM
	ReasonPreservedByUser     = vocabulary.ReasonPreservedByUser
	ReasonPreservationStopped = vocabulary.ReasonPreservationStopped
)

// Beginnings of the message of NodePreserved.
const (
	MessagePreservedNodeDrained    = vocabulary.MessagePreservedNodeDrained
	MessagePreservedNodeNotDrained = vocabulary.MessagePreservedNodeNotDrained
)

// Reasons of NodeTerminating, and the message for each reason.
const (
	ReasonUnhealthy = vocabulary.ReasonUnhealthy
	ReasonScaleDown = vocabulary.ReasonScaleDown

	MessageTerminatingUnhealthy = "Machine Controller is terminating failed machine"
	MessageTerminatingScaleDown = "Machine Controller is scaling down machine"
)
