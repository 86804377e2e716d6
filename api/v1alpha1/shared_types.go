package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClassSpec names the MachineClass of a machine. The class lives in the machine's namespace.
type ClassSpec struct {
	// APIGroup of the class. Kept for compatibility; empty means machine.sapcloud.io.
	// +optional
	APIGroup string `json:"apiGroup,omitempty"`
	// Kind of the class: MachineClass.
	// +optional
	Kind string `json:"kind,omitempty"`
	// Name of the class.
	// +optional
	Name string `json:"name,omitempty"`
}

// MachineTemplateSpec is the mould of the machines of a set.
type MachineTemplateSpec struct {
	// Labels, annotations and finalizers for the machines. Other fields are accepted and ignored.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// Spec of the machines.
	// +required
	Spec MachineSpec `json:"spec"`
}

// NodeTemplateSpec is what the machine's node shall carry. Keys that were applied once and left the template are removed
// from the node again; foreign keys stay. A change here never replaces a machine.
type NodeTemplateSpec struct {
	// Labels and annotations for the node. Other fields are accepted and ignored.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// Spec for the node; only its taints are used.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec corev1.NodeSpec `json:"spec,omitempty,omitzero"`
}

// MachineConfiguration holds how patient Millwright is with one machine. What is left out follows the defaults in
// defaults.go. A change here never replaces a machine.
type MachineConfiguration struct {
	// How long a node may take to be drained before its pods are deleted by force, as a Go duration. Default 2h; zero
	// means at once.
	// +optional
	// +nullable
	MachineDrainTimeout *metav1.Duration `json:"drainTimeout,omitempty"`
	// How long a node may be unhealthy before its machine is Failed and replaced. Default 10m; zero means at once.
	// +optional
	// +nullable
	MachineHealthTimeout *metav1.Duration `json:"healthTimeout,omitempty"`
	// How long a machine may take from its creation to a joined node before it is Failed. Default 20m; zero means at
	// once. The annotation node.machine.sapcloud.io/effective-creation-timeout beats it.
	// +optional
	// +nullable
	MachineCreationTimeout *metav1.Duration `json:"creationTimeout,omitempty"`
	// How long an in-place update of a node may take before it counts as failed. Default 20m; zero means at once.
	// +optional
	// +nullable
	MachineInPlaceUpdateTimeout *metav1.Duration `json:"inPlaceUpdateTimeout,omitempty"`
	// How long a preserved machine is kept. Default 96h; zero means that it is not kept.
	// +optional
	// +nullable
	MachinePreserveTimeout *metav1.Duration `json:"machinePreserveTimeout,omitempty"`
	// True: an unhealthy machine, or one whose in-place update failed, never becomes Failed by the passing of time.
	// +optional
	DisableHealthTimeout *bool `json:"disableHealthTimeout,omitempty"`
	// How often the eviction of a pod may be refused, 20 seconds each, before the pod is deleted all the same: one more
	// deadline beside drainTimeout. Default none; zero means at once.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxEvictRetries *int32 `json:"maxEvictRetries,omitempty"`
	// Types of node conditions that make a machine unhealthy when True: a comma-separated list, case-sensitive, without
	// spaces. Default KernelDeadlock,ReadonlyFilesystem,DiskPressure,NetworkUnavailable.
	// +optional
	NodeConditions *string `json:"nodeConditions,omitempty"`
}

// LastOperation is what was last attempted on the object, and how it went. It is a report; only its type is
// ever read back, as the mark that a creation was begun.
type LastOperation struct {
	// What happened, in a sentence for people.
	// +optional
	Description string `json:"description,omitempty"`
	// Name of the provider's code when the operation failed, such as ResourceExhausted.
	// +optional
	ErrorCode string `json:"errorCode,omitempty"`
	// When this report was last changed.
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty,omitzero"`
	// Processing, Failed or Successful.
	// +optional
	State MachineState `json:"state,omitempty"`
	// Create, Update, InPlaceUpdate, DrainNode, HealthCheck or Delete.
	// +optional
	Type MachineOperationType `json:"type,omitempty"`
}

// Operation is what is in motion for an object right now. Absent means calm.
type Operation struct {
	// ID of the Temporal workflow that holds the step in flight.
	// +optional
	WorkflowID string `json:"workflowID,omitempty"`
	// Name of the step: create-instance, await-node, delete-machines.
	// +optional
	Step string `json:"step,omitempty"`
	// When this step began.
	// +optional
	Since metav1.Time `json:"since,omitempty,omitzero"`
	// When patience ends and the next, harder step begins. Absent means never.
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`
	// What blocks the step, by its reason; the conditions say it in a sentence. Empty when nothing does.
	// +optional
	LastError string `json:"lastError,omitempty"`
}

// MachineSummary tells of one failed machine in the status of its set and deployment.
type MachineSummary struct {
	// Name of the machine.
	// +optional
	Name string `json:"name,omitempty"`
	// Provider's ID of its instance. Empty while there is none.
	// +optional
	ProviderID string `json:"providerID,omitempty"`
	// What failed.
	// +optional
	LastOperation LastOperation `json:"lastOperation,omitempty,omitzero"`
	// Name of the machine set that owns it.
	// +optional
	OwnerRef string `json:"ownerRef,omitempty"`
}

// MachineState is how an operation stands.
type MachineState string

// States of an operation.
const (
	MachineStateProcessing MachineState = "Processing"
	MachineStateFailed     MachineState = "Failed"
	MachineStateSuccessful MachineState = "Successful"
)

// MachineOperationType is what an operation does.
type MachineOperationType string

// Types of operation. Update is part of the vocabulary but is written by nobody.
const (
	MachineOperationCreate        MachineOperationType = "Create"
	MachineOperationUpdate        MachineOperationType = "Update"
	MachineOperationInPlaceUpdate MachineOperationType = "InPlaceUpdate"
	MachineOperationDrainNode     MachineOperationType = "DrainNode"
	MachineOperationHealthCheck   MachineOperationType = "HealthCheck"
	MachineOperationDelete        MachineOperationType = "Delete"
)

// ConditionStatus says whether a condition of a MachineSet or MachineDeployment holds.
type ConditionStatus string

// Values of a condition. Unknown means that it cannot be said, for example while a deployment is paused.
const (
	ConditionTrue    ConditionStatus = "True"
	ConditionFalse   ConditionStatus = "False"
	ConditionUnknown ConditionStatus = "Unknown"
)
