package vocabulary

// Steps of a Machine's workflow, in status.currentOperation.step.
const (
	StepCreateInstance       = "create-instance"     // the provider creates the instance
	StepInitialiseInstance   = "initialise-instance" // the provider finishes the instance
	StepGetInstanceStatus    = "instance-status"     // the provider is asked whether the instance exists
	StepAwaitNode            = "await-node"          // the machine waits for its node to join
	StepAwaitRecovery        = "await-recovery"      // the machine waits for its node to be healthy again
	StepAwaitUpdate          = "await-update"        // the machine waits for the agent that updates the node
	StepAwaitReplacement     = "await-replacement"   // the machine waits until the deployment grants the replacement
	StepSyncNode             = "sync-node"           // the node is brought up to date with the Machine
	StepPrepareInPlaceUpdate = "update-in-place"     // the node is prepared for its in-place update
	StepWritePreservation    = "preserve"            // a preservation is written
	StepAwaitPreservationEnd = "preserved"           // the machine waits for the end of its preservation
)

// Steps of a deletion and of a drain, in status.currentOperation.step.
const (
	StepAnnounceTermination = "announce"        // the node gets the condition Terminating
	StepQueuedForDrain      = "queued"          // the machine waits for its turn to be drained
	StepDrain               = "drain"           // the workflow Drain drains the node
	StepEvictPods           = "evict-pods"      // pods are evicted
	StepDeleteInOrder       = "delete-in-order" // pods are deleted in order, because the cluster cannot evict
	StepDeletePods          = "delete-pods"     // pods are deleted, all at once
	StepKillPods            = "kill-pods"       // pods are deleted without a grace period, all at once
	StepDrained             = "drained"         // all pods are gone
	StepDrainForced         = "forced"          // pods were deleted by force
	StepAwaitHooks          = "await-hooks"     // the deletion waits until all hook annotations are removed
	StepAwaitDetach         = "await-detach"    // the deletion waits until the node's volumes are detached
	StepDeleteInstance      = "delete-instance" // the provider deletes the instance
	StepDeleteNode          = "delete-node"     // the Node object is deleted
	StepHeldByOperator      = "held"            // an operator holds the deletion or the drain
)

// Steps of the workflow of a MachineSet, of a MachineDeployment, of a Rollout or of a MachineClass.
const (
	StepCreateMachines         = "create-machines"      // machines are created
	StepDeleteMachines         = "delete-machines"      // machines are deleted
	StepAdoptOrReleaseMachines = "change-machines"      // machines are adopted or released
	StepRequestPreservation    = "request-preservation" // failed machines are marked for preservation
	StepAwaitMachines          = "await-machines"       // the workflow waits for machines
	StepCreateSet              = "create-set"           // the set of a template is created
	StepResizeSets             = "resize-set"           // sets are resized
	StepRollout                = "rollout"              // the workflow Rollout runs
	StepReplaceMachines        = "roll"                 // machines of other templates are replaced
	StepAwaitSets              = "await-sets"           // the workflow waits for sets
	StepAwaitReplacements      = "await-replacements"   // the workflow waits for machines that are being replaced
	StepAwaitApproval          = "await-approval"       // the workflow waits for an operator
	StepAwaitPausePoint        = "await-step"           // the rollout waits at a pause point
	StepAwaitTurn              = "await-turn"           // other deployments of the policy are rolled out first
	StepDeploymentPaused       = "paused"               // an operator paused the deployment
	StepDeploymentInvalid      = "invalid"              // the deployment is invalid and must be corrected
	StepGuardSecrets           = "guard-secrets"        // finalizers are set on Secrets
	StepReleaseSecrets         = "release-secrets"      // finalizers are removed from Secrets
)

// Steps of the workflow that collects orphans.
const (
	StepFindOrphans    = "find-orphans"    // the provider lists the instances
	StepCollectOrphans = "collect-orphans" // instances without a Machine are deleted
)

// StepWriteRefused is the step of every workflow while the API server refuses a write.
const StepWriteRefused = "refused"
