package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/vocabulary"
)

// ClassSpec names the MachineClass of a machine. The class is in the machine's namespace.
type ClassSpec struct {
	// API group of the class, kept for compatibility; empty means machine.sapcloud.io.
	// +optional
	APIGroup string `json:"apiGroup,omitempty"`
	// Kind of the class: MachineClass. The field is kept for compatibility: for any kind, the MachineClass with the
	// given name is used.
	// +optional
	Kind string `json:"kind,omitempty"`
	// Name of the class.
	// +optional
	Name string `json:"name,omitempty"`
}

// MachineTemplateSpec is the template of the machines of a set.
type MachineTemplateSpec struct {
	// Labels, annotations and finalizers for the machines. Other fields of the metadata are accepted and ignored.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// Spec of the machines.
	// +required
	Spec MachineSpec `json:"spec"`
}

// NodeTemplateSpec has the labels, annotations and taints of the machine's node. Keys that were applied earlier and are
// no longer in the template are removed from the node; keys of other writers stay. A change of the node template never
// replaces a machine.
type NodeTemplateSpec struct {
	// Labels and annotations for the node. Other fields of the metadata are accepted and ignored.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// Spec for the node; only the taints are used.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec corev1.NodeSpec `json:"spec,omitempty,omitzero"`
}

// MachineConfiguration has the timeouts of a machine. Fields that are left out have the defaults in defaults.go. A
// change of these timeouts never replaces a machine.
type MachineConfiguration struct {
	// How long a drain may take before pods are deleted by force, as a Go duration; 2h by default, and zero means at
	// once.
	// +optional
	// +nullable
	MachineDrainTimeout *metav1.Duration `json:"drainTimeout,omitempty"`
	// How long a node may be unhealthy before its machine becomes Failed and is replaced; 10m by default, and zero
	// means at once.
	// +optional
	// +nullable
	MachineHealthTimeout *metav1.Duration `json:"healthTimeout,omitempty"`
	// How long after its creation a machine may wait for its node to join; then the machine becomes Failed. 20m by
	// default, and zero means at once. The annotation node.machine.sapcloud.io/effective-creation-timeout overrides
	// creationTimeout.
	// +optional
	// +nullable
	MachineCreationTimeout *metav1.Duration `json:"creationTimeout,omitempty"`
	// How long an in-place update of a node may take before the update counts as failed; 20m by default, and zero means
	// at once.
	// +optional
	// +nullable
	MachineInPlaceUpdateTimeout *metav1.Duration `json:"inPlaceUpdateTimeout,omitempty"`
	// How long a preserved machine is kept; 96h by default, and zero means that the machine is not kept.
	// +optional
	// +nullable
	MachinePreserveTimeout *metav1.Duration `json:"machinePreserveTimeout,omitempty"`
	// If true, an unhealthy machine, or a machine whose in-place update failed, never becomes Failed because of a
	// timeout.
	// +optional
	DisableHealthTimeout *bool `json:"disableHealthTimeout,omitempty"`
	// How often the eviction of a pod may be refused, at intervals of 20 seconds, before the pod is deleted; no limit
	// by default, and zero means at once. This limit is a deadline in addition to drainTimeout.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxEvictRetries *int32 `json:"maxEvictRetries,omitempty"`
	// Types of node conditions that make a machine unhealthy when True: a comma-separated list, case-sensitive, without
	// spaces. The default is KernelDeadlock,ReadonlyFilesystem,DiskPressure,NetworkUnavailable.
	// +optional
	NodeConditions *string `json:"nodeConditions,omitempty"`
}

// LastOperation reports the last attempted operation of the object and the operation's state. Millwright reads the type
// only on a machine without status.creationIntent, because another controller may have made a create call for the
// machine.
type LastOperation struct {
	// Description of the operation, as a sentence.
	// +optional
	Description string `json:"description,omitempty"`
	// Name of the provider's code when the operation failed, such as ResourceExhausted.
	// +optional
	ErrorCode string `json:"errorCode,omitempty"`
	// When this report of the operation last changed.
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty,omitzero"`
	// Processing: the operation continues. Failed: the description says why the operation failed. Successful: the
	// operation has ended.
	// +optional
	State MachineState `json:"state,omitempty"`
	// Create: creation of the instance. InPlaceUpdate: in-place update of the node. HealthCheck: health check of the
	// node. Delete: deletion of the machine. Update and DrainNode are never written.
	// +optional
	Type MachineOperationType `json:"type,omitempty"`
}

// Operation is the current operation of an object; absent while the object is idle.
type Operation struct {
	// ID of the Temporal workflow that runs the step.
	// +optional
	WorkflowID string `json:"workflowID,omitempty"`
	// UID of the deployment if the workflow is a rollout; absent for other workflows.
	// +optional
	RolloutOf types.UID `json:"rolloutOf,omitempty"`
	// Name of the step. Steps of a machine: create-instance, initialise-instance, instance-status, await-node,
	// await-recovery, await-update, await-replacement, sync-node, update-in-place, preserve or preserved. Steps of a
	// machine's deletion or of the drain of its node: announce, queued, drain, evict-pods, delete-in-order,
	// delete-pods, kill-pods, drained, forced, await-hooks, await-detach, delete-instance, delete-node or held. Steps
	// of a set: create-machines, delete-machines, change-machines, request-preservation or await-machines. Steps of a
	// deployment or its rollout: create-set, resize-set, rollout, roll, await-sets, await-replacements, await-approval,
	// await-step, await-turn, paused, invalid, or a step of a set. Steps of a class: guard-secrets or release-secrets. Every object
	// has the step refused while the API server refuses a write.
	// +optional
	Step string `json:"step,omitempty"`
	// When the current step began.
	// +optional
	Since metav1.Time `json:"since,omitempty,omitzero"`
	// When the step times out, or the next, more forceful step begins; absent if the step has no deadline.
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`
	// The first five blockers of the step; empty if nothing blocks the step. Each entry is a reason of a condition, the
	// code of a provider such as ResourceExhausted, the key of a hook, or one of: Approval, HandOver, Hold,
	// NodeNotHealthy, NodeRefused, NoWorker, OwnershipInDoubt, Paused, ProviderCall, Refused, ScaleUpBlocked, Step,
	// TargetUnavailable, Turn.
	// A drain is blocked by PodDisruptionBudget, DoNotDisrupt, WaitCompleted, Volume, Terminating, Namespace or Error,
	// mostly followed by the name of the object.
	// +optional
	// +listType=atomic
	BlockedBy []string `json:"blockedBy,omitempty"`
	// Why the step takes time, as a clause without the name of the object.
	// +optional
	Cause string `json:"cause,omitempty"`
	// One sentence: what the object waits for, since when, what happens and when if nobody acts, and the command that
	// ends the wait. While the object is blocked, the message of the condition Blocked is this sentence.
	// +optional
	WaitsFor string `json:"waitsFor,omitempty"`
	// The cause and the next event of waitsFor in at most 60 characters, for tables. For several causes, the most important
	// cause, and "+N" for N other causes.
	// +optional
	Summary string `json:"summary,omitempty"`
	// The waits that waitsFor describes, in the same order and in their parts, at most three. A program that groups
	// objects by what they wait for reads waits, and needs no sentence.
	// +optional
	// +listType=atomic
	Waits []Wait `json:"waits,omitempty"`
}

// Wait is one wait of an object, or of several machines of a set or deployment, in its parts.
type Wait struct {
	// What blocks the object or the machines, as in blockedBy; empty if nothing blocks them.
	// +optional
	// +listType=atomic
	BlockedBy []string `json:"blockedBy,omitempty"`
	// Why they wait, as a clause without a time and without a command.
	// +optional
	Cause string `json:"cause,omitempty"`
	// Number of machines that wait; absent if the object itself waits.
	// +optional
	Machines int32 `json:"machines,omitempty"`
	// When the wait began; for several machines, when the first of their waits began.
	// +optional
	Since metav1.Time `json:"since,omitempty,omitzero"`
	// What happens if nobody acts, as a clause without its time; absent if nothing happens.
	// +optional
	Next string `json:"next,omitempty"`
	// When next happens; for several machines, when it happens to the first machine. Absent if the time is not known.
	// +optional
	NextAt *metav1.Time `json:"nextAt,omitempty"`
	// Command that ends the wait or shows more; for several machines, that of the first machine by name.
	// +optional
	Command string `json:"command,omitempty"`
}

// MachineSummary describes a failed machine in the status of its set and deployment.
type MachineSummary struct {
	// Name of the machine.
	// +optional
	Name string `json:"name,omitempty"`
	// Provider ID of the machine's instance; empty if there is no instance.
	// +optional
	ProviderID string `json:"providerID,omitempty"`
	// The operation that failed.
	// +optional
	LastOperation LastOperation `json:"lastOperation,omitempty,omitzero"`
	// Name of the machine set that controls the machine.
	// +optional
	OwnerRef string `json:"ownerRef,omitempty"`
}

// MachineState is the state of an operation.
type MachineState string

// States of an operation.
const (
	MachineStateProcessing MachineState = vocabulary.StateProcessing
	MachineStateFailed     MachineState = vocabulary.StateFailed
	MachineStateSuccessful MachineState = vocabulary.StateSuccessful
)

// MachineOperationType is the type of an operation.
type MachineOperationType string

// Types of operation. Update is part of the vocabulary but is never written.
const (
	MachineOperationCreate        MachineOperationType = vocabulary.OperationCreate
	MachineOperationUpdate        MachineOperationType = "Update"
	MachineOperationInPlaceUpdate MachineOperationType = vocabulary.OperationInPlaceUpdate
	MachineOperationDrainNode     MachineOperationType = "DrainNode"
	MachineOperationHealthCheck   MachineOperationType = vocabulary.OperationHealthCheck
	MachineOperationDelete        MachineOperationType = vocabulary.OperationDelete
)

// ConditionStatus is the status of a condition of a MachineSet or MachineDeployment.
type ConditionStatus string

// Values of a condition. Unknown means that the value cannot be determined, for example while a deployment is paused.
const (
	ConditionTrue    ConditionStatus = vocabulary.StatusTrue
	ConditionFalse   ConditionStatus = vocabulary.StatusFalse
	ConditionUnknown ConditionStatus = vocabulary.StatusUnknown
)
