package vocabulary

// Statuses of a condition.
const (
	StatusTrue    = "True"    // the condition holds
	StatusFalse   = "False"   // the condition does not hold
	StatusUnknown = "Unknown" // it is not known whether the condition holds
)

// ConditionBlocked is a condition of a Machine, MachineSet or MachineDeployment: something blocks the object or one of
// its machines. The condition exists only while its status is True. The message is the sentence that `millwright
// explain` prints.
const ConditionBlocked = "Blocked"

// ConditionServed is a condition of a MachineClass: a worker serves the class's provider.
const ConditionServed = "Served"

// Condition types of a Machine, in addition to the types of its node's conditions.
const (
	ConditionClassReady    = "ClassReady"    // the class and its Secrets can be used
	ConditionInstanceReady = "InstanceReady" // the provider has made the instance
	// the health timeout or the creation timeout has expired, or the instance or the node is gone
	ConditionReplacementDue = "ReplacementDue"
	ConditionDrained        = "Drained" // the pods of the node are gone
)

// Condition types of a Node.
const (
	ConditionReady         = "Ready"         // the kubelet reports that the node is ready
	ConditionInPlaceUpdate = "InPlaceUpdate" // the step of the in-place update
	ConditionPreserved     = "Preserved"     // the node is kept
	ConditionTerminating   = "Terminating"   // the machine is being deleted
)

// Condition types of a MachineSet, of a MachineDeployment, or of both.
const (
	ConditionAvailable        = "Available"        // enough machines are available
	ConditionProgressing      = "Progressing"      // the state of the rollout
	ConditionReplicaFailure   = "ReplicaFailure"   // a machine could not be created or deleted
	ConditionFrozen           = "Frozen"           // no machine is created, for safety
	ConditionOvershoot        = "Overshoot"        // the set has more machines than were ever desired
	ConditionMachinesCreated  = "MachinesCreated"  // False while machines are missing because they could not be created
	ConditionMachinesReady    = "MachinesReady"    // all machines are ready
	ConditionMachinesUpToDate = "MachinesUpToDate" // all machines match the current template
	ConditionRollingOut       = "RollingOut"       // machines do not match the current template
	ConditionScalingUp        = "ScalingUp"        // machines are missing, or were never ready
	ConditionScalingDown      = "ScalingDown"      // the set has more machines than desired
	ConditionRemediating      = "Remediating"      // machines are replaced because they failed or are unhealthy
	ConditionDeleting         = "Deleting"         // the set is being deleted
	ConditionPaused           = "Paused"           // an operator paused the set
	ConditionSelectorOverlap  = "SelectorOverlap"  // two deployments select the same machines
	ConditionClassKindIgnored = "ClassKindIgnored" // the kind of the class has no effect
	ConditionReplacementHeld  = "ReplacementHeld"  // failed machines are not replaced now
)

// Condition types of a MachineDeployment of either family, and, except Degraded, of a MachineSet of Cluster API. Each of
// these conditions exists only while its status is True.
const (
	ConditionDegraded    = "Degraded"    // the deployment stays on an earlier revision
	ConditionReconciling = "Reconciling" // the machines do not match the spec yet; never present together with Stalled
	ConditionStalled     = "Stalled"     // the machines will not match the spec unless a person acts
)
