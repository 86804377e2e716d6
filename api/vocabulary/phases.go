// Package vocabulary defines the names of phases, conditions, reasons, events and workflow steps, for all other
// packages. The constants are untyped strings, so that each package can give them its own type. The package imports
// nothing.
package vocabulary

// Phases of a Machine, in status.currentStatus.phase.
const (
	PhasePending     = "Pending"     // the instance exists, but its node has not joined
	PhaseAvailable   = "Available"   // the instance exists, and there is no target cluster
	PhaseRunning     = "Running"     // the node is healthy
	PhaseTerminating = "Terminating" // the machine is being deleted
	PhaseUnknown     = "Unknown"     // the node is unhealthy, missing or being deleted
	// a timeout has ended, or the instance or the node is permanently gone
	PhaseFailed                  = "Failed"
	PhaseCrashLoopBackOff        = "CrashLoopBackOff"        // the provider refused to make the instance
	PhaseInPlaceUpdating         = "InPlaceUpdating"         // an agent updates the node
	PhaseInPlaceUpdateSuccessful = "InPlaceUpdateSuccessful" // the agent has updated the node
	PhaseInPlaceUpdateFailed     = "InPlaceUpdateFailed"     // the agent failed, or took too long
)

// Types of the last operation of a Machine, in status.lastOperation.type.
const (
	OperationCreate        = "Create"        // the creation of the instance
	OperationInPlaceUpdate = "InPlaceUpdate" // the in-place update of the node
	OperationHealthCheck   = "HealthCheck"   // the health check of the node
	OperationDelete        = "Delete"        // the deletion of the machine
)

// States of the last operation of a Machine, in status.lastOperation.state.
const (
	StateProcessing = "Processing" // the operation continues
	StateFailed     = "Failed"     // the operation has failed
	StateSuccessful = "Successful" // the operation has succeeded
)

// Stages of a deletion in their order, in status.deletion.stage.
const (
	StagePreDrainHooks     = "PreDrainHooks"     // the deletion waits until the pre-drain hook annotations are removed
	StageDrain             = "Drain"             // the node is drained
	StageDetachVolumes     = "Detach"            // the deletion waits until the node's volumes are detached
	StagePreTerminateHooks = "PreTerminateHooks" // the deletion waits until the pre-terminate hook annotations are removed
	StageDeleteInstance    = "Instance"          // the provider deletes the instance
	StageDeleteNode        = "Node"              // the Node object is deleted
	StageRemoveFinalizer   = "Release"           // the finalizer is removed
)

// Purposes of a drain without a deletion of the machine, in status.drain.purpose.
const (
	DrainForInPlaceUpdate = "InPlaceUpdate" // an agent will update the node
	DrainForPreservation  = "Preservation"  // the machine has failed and is preserved
)

// Results of a drain, in status.deletion.drain.result and status.drain.result, and reasons of the condition Drained.
const (
	DrainResultDrained = "Drained" // all pods are gone
	DrainResultForced  = "Forced"  // pods were deleted by force
	DrainResultSkipped = "Skipped" // no pod was evicted
)

// Results of an in-place update, as the agent writes them into the node's label update-result.
const (
	ValueUpdateSuccessful = "successful" // the node is updated
	ValueUpdateFailed     = "failed"     // the annotation update-failed-reason says why
)
