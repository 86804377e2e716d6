package v1alpha1

import corev1 "k8s.io/api/core/v1"

// MachineDeploymentConditionType names what a condition of a deployment is about.
type MachineDeploymentConditionType string

// Conditions of a MachineDeployment.
const (
	// MachineDeploymentAvailable: enough machines are available.
	MachineDeploymentAvailable MachineDeploymentConditionType = "Available"
	// MachineDeploymentProgressing: the rollout moves, is done, stands still (False) or is paused (Unknown).
	MachineDeploymentProgressing MachineDeploymentConditionType = "Progressing"
	// MachineDeploymentReplicaFailure: a set could not create or delete a machine. Copied from the set.
	MachineDeploymentReplicaFailure MachineDeploymentConditionType = "ReplicaFailure"
	// MachineDeploymentFrozen: no machine is created, for safety.
	MachineDeploymentFrozen MachineDeploymentConditionType = "Frozen"
	// MachineDeploymentSelectorOverlap: another deployment's selector matches this one's machines. Admission sees one
	// object at a time, so only a controller can tell.
	MachineDeploymentSelectorOverlap MachineDeploymentConditionType = "SelectorOverlap"
	// MachineDeploymentReplacementHeld: machines that failed are not replaced now; the message says why. Absent when none waits.
	MachineDeploymentReplacementHeld MachineDeploymentConditionType = "ReplacementHeld"
)

// ReasonReplacementHeld is the reason of ReplacementHeld, and ReasonReplacementGranted that of the event when a
// replacement is granted.
const (
	ReasonReplacementHeld    = "ReplacementHeld"
	ReasonReplacementGranted = "ReplacementGranted"
)

// MachineSetConditionType names what a condition of a set is about.
type MachineSetConditionType string

// Conditions of a MachineSet.
const (
	// MachineSetReplicaFailure: a machine could not be created or deleted.
	MachineSetReplicaFailure MachineSetConditionType = "ReplicaFailure"
	// MachineSetFrozen: no machine is created, for safety.
	MachineSetFrozen MachineSetConditionType = "Frozen"
	// MachineSetOvershoot: there are more machines than were ever wanted.
	MachineSetOvershoot MachineSetConditionType = "Overshoot"
	// MachineSetMachinesCreated: no machine is missing that could not be made.
	MachineSetMachinesCreated MachineSetConditionType = "MachinesCreated"
	// MachineSetMachinesReady: all machines are ready; the message names those that are not.
	MachineSetMachinesReady MachineSetConditionType = "MachinesReady"
	// MachineSetMachinesUpToDate: all machines are what the current template makes.
	MachineSetMachinesUpToDate MachineSetConditionType = "MachinesUpToDate"
	// MachineSetScalingUp: machines are missing, or have yet to become ready for the first time.
	MachineSetScalingUp MachineSetConditionType = "ScalingUp"
	// MachineSetScalingDown: there are more machines than wanted.
	MachineSetScalingDown MachineSetConditionType = "ScalingDown"
	// MachineSetRemediating: machines are replaced because they failed or are unhealthy.
	MachineSetRemediating MachineSetConditionType = "Remediating"
	// MachineSetDeleting: the set is to go.
	MachineSetDeleting MachineSetConditionType = "Deleting"
	// MachineSetPaused: somebody wants the set to rest.
	MachineSetPaused MachineSetConditionType = "Paused"
)

// Reasons of Available.
const (
	ReasonMinimumReplicasAvailable   = "MinimumReplicasAvailable"
	ReasonMinimumReplicasUnavailable = "MinimumReplicasUnavailable"
)

// Reasons of Progressing. NewMachineSetCreated and FoundNewMachineSet stand until the rollout makes its first progress, is paused, or waits at a stage.
const (
	ReasonNewMachineSetCreated     = "NewMachineSetCreated"
	ReasonFoundNewMachineSet       = "FoundNewMachineSet"
	ReasonMachineSetUpdated        = "MachineSetUpdated"
	ReasonNewMachineSetAvailable   = "NewMachineSetAvailable"
	ReasonProgressDeadlineExceeded = "ProgressDeadlineExceeded"
	ReasonMachineSetCreateError    = "MachineSetCreateError"
	ReasonDeploymentPaused         = "DeploymentPaused"
	ReasonDeploymentResumed        = "DeploymentResumed"
	// ReasonRolloutHeld: somebody cancelled the rollout; it stays where it is.
	ReasonRolloutHeld = "RolloutHeld"
	// ReasonRolloutWaiting: a stage of the rollout has its machines and is not over.
	ReasonRolloutWaiting = "RolloutWaiting"
	// ReasonInvalid: nothing can be done with the deployment as it is.
	ReasonInvalid = "Invalid"
)

// Reasons of ReplicaFailure.
const (
	ReasonFailedCreate = "FailedCreate"
	ReasonFailedDelete = "FailedDelete"
)

// Reasons of Frozen.
const (
	ReasonOverShootingReplicaCount   = "OverShootingReplicaCount"
	ReasonMachineDeploymentStateSync = "MachineDeploymentStateSync"
	ReasonUnfreezeAnnotation         = "UnfreezeAnnotation"
)

// ReasonSelectorOverlap is the reason of SelectorOverlap, and of the event that goes with it.
const ReasonSelectorOverlap = "SelectorOverlap"

// Conditions of a Machine that tell about the machine itself. Their types are reserved: copying the node's conditions
// keeps them, and health ignores them.
const (
	// MachineClassReady: the class and its secrets are there and can be used.
	MachineClassReady corev1.NodeConditionType = "ClassReady"
	// MachineInstanceReady: the provider has made the instance. While it has not, the reason is Creating or the name of
	// the provider's code, such as ResourceExhausted.
	MachineInstanceReady corev1.NodeConditionType = "InstanceReady"
	// MachineReplacementDue: patience with the machine has ended. It is replaced as soon as its deployment's replacement
	// budget allows; the message says what it waits for.
	MachineReplacementDue corev1.NodeConditionType = "ReplacementDue"
	// MachineDrained: the pods of the node of a machine that is to go are gone. While they are not, the reason is Draining,
	// Blocked or Forcing, and the message says what the drain waits for.
	MachineDrained corev1.NodeConditionType = "Drained"
	// MachineHealthCheckSucceeded and MachineOwnerRemediated are a health check's, as Cluster API has them: False both times
	// asks the machine's set to replace it. Who writes them also takes them back.
	MachineHealthCheckSucceeded corev1.NodeConditionType = "HealthCheckSucceeded"
	MachineOwnerRemediated      corev1.NodeConditionType = "OwnerRemediated"
)

// Reasons of Drained.
const (
	ReasonDraining = "Draining" // pods go, or are about to
	ReasonBlocked  = "Blocked"  // something keeps pods from going
	ReasonForcing  = "Forcing"  // the deadline has passed, or force was asked for: pods are deleted
	ReasonDrained  = "Drained"  // True: all pods are gone
	ReasonForced   = "Forced"   // True: pods were deleted by force; the message names those that were left behind
	ReasonSkipped  = "Skipped"  // True: nobody was asked to go
)

// Reasons of ReplacementDue.
const (
	ReasonCreationTimeout = "CreationTimeout"
	ReasonHealthTimeout   = "HealthTimeout"
	ReasonInstanceGone    = "InstanceGone"
	ReasonNodeDeleted     = "NodeDeleted"
	ReasonStaleNode       = "StaleNode"
	// ReasonPatienceExtended: the health timeout was made longer, or taken away; ReplacementDue is False.
	ReasonPatienceExtended = "PatienceExtended"
	// ReasonRecovered: the node became healthy in time; ReplacementDue is False.
	ReasonRecovered = "Recovered"
)

// Reasons of ClassReady.
const (
	ReasonClassFound     = "ClassFound"
	ReasonClassNotFound  = "ClassNotFound"
	ReasonClassInvalid   = "ClassInvalid"
	ReasonSecretNotFound = "SecretNotFound"
	ReasonSecretInvalid  = "SecretInvalid"
)

// Reasons of InstanceReady; besides these, the names of the provider's codes.
const (
	ReasonInstanceCreated = "InstanceCreated"
	ReasonCreating        = "Creating"
)

// Reasons of events on a MachineClass, about instances that no Machine claims.
const (
	ReasonOrphansCollected  = "OrphansCollected"  // they were deleted
	ReasonOrphansHeld       = "OrphansHeld"       // suspiciously many: nothing was deleted
	ReasonOrphanSweepFailed = "OrphanSweepFailed" // cloud or API server did not answer: nothing was deleted
	ReasonInstancesUnclear  = "InstancesUnclear"  // they are left alone, and a person should look at them
)

// IsReservedConditionType tells whether a condition of a Machine with this type tells about the machine itself and was
// not copied from its node.
func IsReservedConditionType(conditionType corev1.NodeConditionType) bool {
	switch conditionType {
	case MachineClassReady, MachineInstanceReady, MachineReplacementDue, MachineDrained, MachineHealthCheckSucceeded, MachineOwnerRemediated:
		return true
	default:
		return false
	}
}

// Conditions that are written on nodes.
const (
	// NodeInPlaceUpdate tells how far the in-place update of the node is; always True, its reason is the step.
	NodeInPlaceUpdate corev1.NodeConditionType = "InPlaceUpdate"
	// NodePreserved: the node is kept although its machine failed or might be deleted.
	NodePreserved corev1.NodeConditionType = "Preserved"
	// NodeTerminating: the node's machine is being deleted.
	NodeTerminating corev1.NodeConditionType = "Terminating"
)

// Reasons of NodeInPlaceUpdate, in the order of the steps. After ReadyForUpdate it is an agent on the node that acts.
const (
	ReasonCandidateForUpdate = "CandidateForUpdate"
	ReasonSelectedForUpdate  = "SelectedForUpdate"
	ReasonDrainSuccessful    = "DrainSuccessful"
	ReasonReadyForUpdate     = "ReadyForUpdate"
	ReasonUpdateSuccessful   = "UpdateSuccessful"
	ReasonUpdateFailed       = "UpdateFailed"
)

// Reasons of NodePreserved. They contain spaces and a full stop, as MCM writes them.
const (
	ReasonPreservedByMCM      = "Preserved by MCM."
	ReasonPreservedByUser     = "Preserved by user."
	ReasonPreservationStopped = "Preservation stopped."
)

// Beginnings of the message of NodePreserved.
const (
	MessagePreservedNodeDrained    = "Preserved node drained successfully."
	MessagePreservedNodeNotDrained = "Preserved node could not be drained."
)

// Reasons of NodeTerminating, with the message that goes with each.
const (
	ReasonUnhealthy = "Unhealthy"
	ReasonScaleDown = "ScaleDown"

	MessageTerminatingUnhealthy = "Machine Controller is terminating failed machine"
	MessageTerminatingScaleDown = "Machine Controller is scaling down machine"
)
