package vocabulary

// Reasons of Machine conditions, and of events about these conditions.
const (
	ReasonClassFound            = "ClassFound"            // ClassReady is True
	ReasonClassNotFound         = "ClassNotFound"         // the class does not exist
	ReasonClassInvalid          = "ClassInvalid"          // the class cannot be used
	ReasonSecretNotFound        = "SecretNotFound"        // a Secret of the class does not exist
	ReasonSecretInvalid         = "SecretInvalid"         // a Secret of the class cannot be used
	ReasonSecretNotAllowed      = "SecretNotAllowed"      // a Secret of another namespace does not allow the class
	ReasonCreating              = "Creating"              // the instance is being created
	ReasonInstanceCreated       = "InstanceCreated"       // InstanceReady is True
	ReasonCreationTimeout       = "CreationTimeout"       // the creation timeout has ended
	ReasonHealthTimeout         = "HealthTimeout"         // the health timeout has ended
	ReasonHealthTimeoutExtended = "HealthTimeoutExtended" // the health timeout was extended
	ReasonInstanceGone          = "InstanceGone"          // the provider has no instance of the machine any more
	ReasonNodeDeleted           = "NodeDeleted"           // the Node object was deleted
	ReasonStaleNode             = "StaleNode"             // the name of the node belongs to another instance
	ReasonRecovered             = "Recovered"             // the node became healthy before the health timeout
	ReasonReplacementGranted    = "ReplacementGranted"    // the deployment granted the replacement
	ReasonGrantedByPerson       = "RequestedByPerson"     // a person granted the replacement
	ReasonDraining              = "Draining"              // pods are being evicted
	ReasonBlocked               = "Blocked"               // something blocks evictions
	ReasonForcing               = "Forcing"               // pods are deleted or killed
)

// ReasonWorkerPolls is the reason of the condition Served if a worker polls for the class's provider.
const ReasonWorkerPolls = "WorkerPolls"

// Reasons of events on a Machine.
const (
	ReasonJoined                 = "Joined"            // the node has joined
	ReasonRejoined               = "Rejoined"          // the node is healthy again
	ReasonDeletionHeld           = "DeletionHeld"      // an operator holds the deletion
	ReasonInstanceAbandoned      = "InstanceAbandoned" // an operator kept the instance
	ReasonInstanceOfOtherMachine = "InstanceAnothers"  // the instance belongs to another Machine and was not deleted
	ReasonDrainForced            = "DrainForced"       // the drain deletes or kills pods
	ReasonCannotEvict            = "CannotEvict"       // the drain deletes pods in order, because the cluster cannot evict
	ReasonDrainBlocked           = "DrainBlocked"      // the blockers of the drain have changed
	ReasonDrainUnblocked         = "DrainMoves"        // nothing blocks the drain any more
)

// ReasonAnotherController is the reason of an event: Millwright does not reconcile the object, because
// machine-controller-manager runs in its namespace.
const ReasonAnotherController = "AnotherController"

// ReasonNamespaceHeld is the reason of an event: Millwright does not reconcile the object, because the Deployment of
// the autoscaler guard in its namespace is scaled to 0.
const ReasonNamespaceHeld = "NamespaceHeld"

// Reasons of the node condition Terminating.
const (
	ReasonUnhealthy = "Unhealthy" // the machine had failed; also the reason of the event when a node becomes unhealthy
	ReasonScaleDown = "ScaleDown" // the machine was healthy
)

// Reasons of the node condition InPlaceUpdate, in the order of the steps.
const (
	ReasonCandidateForUpdate = "CandidateForUpdate" // the node waits to be selected
	ReasonSelectedForUpdate  = "SelectedForUpdate"  // the node waits to be drained
	ReasonDrainSuccessful    = "DrainSuccessful"    // the node is empty
	ReasonReadyForUpdate     = "ReadyForUpdate"     // the agent may update the node
	ReasonUpdateSuccessful   = "UpdateSuccessful"   // the agent has updated the node
	ReasonUpdateFailed       = "UpdateFailed"       // the agent has failed
)

// Reasons and messages of the node condition Preserved, as machine-controller-manager writes them.
const (
	ReasonPreservedByMCM      = "Preserved by MCM."     // the machine's set requested the preservation
	ReasonPreservedByUser     = "Preserved by user."    // an operator requested the preservation
	ReasonPreservationStopped = "Preservation stopped." // the condition is False

	MessagePreservedNodeDrained    = "Preserved node drained successfully." // message: the node is empty
	MessagePreservedNodeNotDrained = "Preserved node could not be drained." // message: the node was not drained completely
)

// Reasons of conditions of MachineSets and MachineDeployments, and of events about these conditions.
const (
	ReasonMinimumReplicasAvailable   = "MinimumReplicasAvailable"   // Available is True
	ReasonMinimumReplicasUnavailable = "MinimumReplicasUnavailable" // Available is False
	ReasonNewMachineSetCreated       = "NewMachineSetCreated"       // the set of the template was created
	ReasonFoundNewMachineSet         = "FoundNewMachineSet"         // a set with the template existed already
	ReasonMachineSetUpdated          = "MachineSetUpdated"          // the rollout progresses
	ReasonNewMachineSetAvailable     = "NewMachineSetAvailable"     // the rollout is complete
	ReasonProgressDeadlineExceeded   = "ProgressDeadlineExceeded"   // the rollout makes no progress
	ReasonMachineSetCreateError      = "MachineSetCreateError"      // the set could not be created
	ReasonDeploymentPaused           = "DeploymentPaused"           // an operator paused the deployment
	ReasonDeploymentResumed          = "DeploymentResumed"          // an operator resumed the deployment
	ReasonRolloutHeld                = "RolloutHeld"                // an operator cancelled the rollout
	ReasonRolloutWaiting             = "RolloutWaiting"             // the rollout waits at a pause point
	ReasonWaitingForTurn             = "WaitingForTurn"             // other deployments of the policy are rolled out first
	ReasonInvalid                    = "Invalid"                    // the deployment is invalid and must be corrected
	ReasonDeploymentRollback         = "DeploymentRollback"         // the deployment returns to an earlier revision
	// Degraded: the deployment was rolled back automatically
	ReasonRolledBack     = "RolledBack"
	ReasonPinned         = "Pinned"                // Degraded: a person pinned an earlier revision
	ReasonPolicyInvalid  = "PolicyInvalid"         // the policy cannot apply to the deployment
	ReasonScaling        = "Scaling"               // Reconciling: machines are missing outside of a rollout
	ReasonNotAvailable   = "NotAvailable"          // too few machines are available
	ReasonNotRollingOut  = "NotRollingOut"         // all machines match the template
	ReasonReplicasNotSet = "WaitingForReplicasSet" // the number of machines is not set yet
	// an object to which the template of a set refers does not exist
	ReasonTemplateNotFound           = "TemplateNotFound"
	ReasonPreflightCheckFailed       = "PreflightCheckFailed"       // the control plane is not ready for more machines
	ReasonFailedCreate               = "FailedCreate"               // a machine could not be created
	ReasonFailedDelete               = "FailedDelete"               // a machine could not be deleted
	ReasonOverShootingReplicaCount   = "OverShootingReplicaCount"   // the set has too many machines
	ReasonMachineDeploymentStateSync = "MachineDeploymentStateSync" // a set of the deployment is frozen
	// a runtime extension does not report whether it can update machines in place
	ReasonExtensionFailed = "ExtensionFailed"
	// a runtime extension cannot update the machines of a set, or gave no answer
	ReasonNotUpdatedInPlace = "NotUpdatedInPlace"
	ReasonScalingMachineSet = "ScalingMachineSet" // a set was created or resized
	ReasonSuccessfulAdopt   = "SuccessfulAdopt"   // a machine without a controller was adopted
	ReasonSuccessfulCreate  = "SuccessfulCreate"  // a machine, or a set of Cluster API, was created
	ReasonSuccessfulDelete  = "SuccessfulDelete"  // a machine, or a set of Cluster API, was deleted
	ReasonSuccessfulRelease = "SuccessfulRelease" // a machine or a set that the selector does not match was released
	ReasonSuccessfulScale   = "SuccessfulScale"   // a set of Cluster API was resized
)

// ReasonDeploymentRollbackTemplateNotFound is the reason of the event and of the condition Degraded if a rollback is
// impossible, because an object that the earlier template references no longer exists.
const ReasonDeploymentRollbackTemplateNotFound = "DeploymentRollbackTemplateNotFound"

// Reasons of conditions of a MachineSet. For other conditions that are True, the reason is the type of the condition.
const (
	ReasonReady        = "Ready"        // MachinesReady is True
	ReasonNotReady     = "NotReady"     // some machines are not ready
	ReasonReadyUnknown = "ReadyUnknown" // it is not known whether some machines are ready
	ReasonUpToDate     = "UpToDate"     // MachinesUpToDate is True
	ReasonNotUpToDate  = "NotUpToDate"  // some machines do not match the template
	// it is not known whether some machines match the template
	ReasonUpToDateUnknown       = "UpToDateUnknown"
	ReasonNoReplicas            = "NoReplicas"            // the set has no machines
	ReasonScaleUpStopped        = "ScaleUpStopped"        // machines are missing, and the set must not create machines now
	ReasonMachineSetInvalid     = "MachineSetInvalid"     // the set is invalid and must be corrected
	ReasonMachineCreationFailed = "MachineCreationFailed" // the API server refuses to create a machine
	ReasonNotScalingUp          = "NotScalingUp"          // ScalingUp is False
	ReasonNotScalingDown        = "NotScalingDown"        // ScalingDown is False
	ReasonNotRemediating        = "NotRemediating"        // Remediating is False
	ReasonRemediationBackoff    = "RemediationBackoff"    // new machines failed before they joined, and the back-off has not ended
	ReasonMaxRetryReached       = "MaxRetryReached"       // new machines failed before they joined, and the last retry failed, too
	ReasonNotDeleting           = "NotDeleting"           // Deleting is False
	ReasonNotPaused             = "NotPaused"             // Paused is False
	ReasonFreezeLabel           = "FreezeLabel"           // Frozen is True because of the label freeze
	ReasonInternalError         = "InternalError"         // the machines of the set could not be listed
)

// Values of status.currentOperation.blockedBy that are not reasons of a condition.
const (
	BlockedByMissingApproval   = "Approval"          // an operator has to approve a step of the rollout
	BlockedByProviderCall      = "ProviderCall"      // a call of the provider has not ended for a long time
	BlockedByHold              = "Hold"              // an operator holds the deletion, the drain or the rollout
	BlockedByRefusedWrite      = "Refused"           // the API server refuses a write
	BlockedByUnhealthyNode     = "NodeNotHealthy"    // the node is not healthy, or is gone
	BlockedByRefusedNodeWrite  = "NodeRefused"       // the API server refuses a write to the Node
	BlockedByMissingWorker     = "NoWorker"          // no worker serves the provider; also a reason of the condition Served
	BlockedByOwnershipDoubt    = "OwnershipInDoubt"  // it is not certain to which Machine the node belongs
	BlockedByPause             = "Paused"            // an operator paused the object
	BlockedByStoppedScaleUp    = "ScaleUpBlocked"    // the set must not create machines now
	BlockedByRolloutStep       = "Step"              // a step of the rollout lasts for a while
	BlockedByTurn              = "Turn"              // other deployments of the policy are rolled out first
	BlockedByUnavailableTarget = "TargetUnavailable" // the target cluster does not answer
)

// Reasons why a Cluster API Machine waits, in the condition Blocked of its set. If a hook blocks the Machine, the
// reason is the annotation key of the hook.
const (
	BlockedByUnhandledMachine       = "NotHandled"             // no controller of Cluster API has reconciled the machine
	BlockedByBootstrapNotReady      = "BootstrapNotReady"      // the machine's bootstrap data do not exist
	BlockedByInfrastructureNotReady = "InfrastructureNotReady" // the machine's instance does not exist
	BlockedByNodeNotJoined          = "NodeNotJoined"          // the machine's node has not joined
	// an extension has not finished the machine's in-place update
	BlockedByInPlaceUpdate            = "InPlaceUpdate"
	BlockedByNodeDrain                = "NodeDrain"                // Cluster API drains the machine's node
	BlockedByVolumeDetach             = "VolumeDetach"             // volumes are attached to the machine's node
	BlockedByInfrastructureNotDeleted = "InfrastructureNotDeleted" // the machine's instance is not deleted yet
	BlockedByBootstrapNotDeleted      = "BootstrapNotDeleted"      // the bootstrap configuration is not deleted yet
	BlockedByNodeNotDeleted           = "NodeNotDeleted"           // the machine's Node object is not deleted yet
	BlockedByMachineNotDeleted        = "MachineNotDeleted"        // the deletion does not end, for an unknown reason
)

// Reasons of the condition Blocked of MachineSets and MachineDeployments of Cluster API.
const (
	BlockedByHandOver = "HandOver" // the object has Millwright's label, and Cluster API's controller may still change it
)
