package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Machine is one instance at the provider and the node that it becomes.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=mc
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=".status.currentStatus.phase",description="Current phase of the machine"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp",description="Time since the machine was asked for"
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=".metadata.labels.node",description="Name of the node that the machine became"
// +kubebuilder:printcolumn:name="ProviderID",type=string,JSONPath=".spec.providerID",description="ID of the instance at the provider",priority=1
type Machine struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// What the machine shall be.
	// +required
	Spec MachineSpec `json:"spec"`
	// What is known about the machine.
	// +optional
	Status MachineStatus `json:"status,omitempty,omitzero"`
}

// MachineSpec is what a machine shall be.
type MachineSpec struct {
	// The MachineClass that says how instances are made.
	// +required
	// +kubebuilder:validation:XValidation:rule=`has(self.kind) && self.kind != ''`,fieldPath=`.kind`,reason=FieldValueRequired,message=`class.kind is empty; it must name the kind of the class, MachineClass`
	// +kubebuilder:validation:XValidation:rule=`has(self.name) && self.name != ''`,fieldPath=`.name`,reason=FieldValueRequired,message=`class.name is empty; it must name a MachineClass in the same namespace`
	Class ClassSpec `json:"class"`
	// ID of the instance at the provider. Empty until the instance is known; then written once.
	// +optional
	ProviderID string `json:"providerID,omitempty"`
	// What the node shall carry.
	// +optional
	NodeTemplateSpec NodeTemplateSpec `json:"nodeTemplate,omitempty,omitzero"`
	// How patient to be; nil means the defaults everywhere.
	*MachineConfiguration `json:",inline"`
}

// MachineStatus is what is known about a machine.
type MachineStatus struct {
	// Addresses of the instance. Kept only where there is no target cluster whose node would tell.
	// +optional
	Addresses []corev1.NodeAddress `json:"addresses,omitempty"`
	// Conditions of the node, copied, and those of reserved types that tell about the machine itself: ClassReady,
	// InstanceReady, ReplacementDue and Drained.
	// +optional
	Conditions []corev1.NodeCondition `json:"conditions,omitempty"`
	// What was last attempted, and how it went.
	// +optional
	LastOperation LastOperation `json:"lastOperation,omitempty,omitzero"`
	// Phase of the machine.
	// +optional
	CurrentStatus CurrentStatus `json:"currentStatus,omitempty,omitzero"`
	// Text that belongs to the provider's driver; handed back to it unread.
	// +optional
	LastKnownState string `json:"lastKnownState,omitempty"`
	// What is in motion. Absent means calm.
	// +optional
	CurrentOperation *Operation `json:"currentOperation,omitempty"`
	// The health clock. Absent means that the node was never unhealthy.
	// +optional
	Health *MachineHealth `json:"health,omitempty"`
	// Time that does not count for the creation timeout. Absent means none.
	// +optional
	CreationStopped *CreationStopped `json:"creationStopped,omitempty"`
	// How far the deletion has come. Absent while nobody deletes the machine.
	// +optional
	Deletion *MachineDeletion `json:"deletion,omitempty"`
	// What became of the pods of the node when it was emptied last although the machine is to stay. Absent before.
	// +optional
	Drain *StayingDrain `json:"drain,omitempty"`
}

// MachineDeletion is how far the deletion of a machine has come.
type MachineDeletion struct {
	// The stage that is under way. Those before it are over, and are never entered again.
	// +required
	// +kubebuilder:validation:Enum=PreDrainHooks;Drain;Detach;PreTerminateHooks;Instance;Node;Release
	Stage MachineDeletionStage `json:"stage"`
	// Since when it is under way.
	// +required
	Since metav1.Time `json:"since"`
	// What became of the pods of the node. Absent before the drain began.
	// +optional
	Drain *MachineDrain `json:"drain,omitempty"`
}

// MachineDeletionStage is one stage of a deletion.
type MachineDeletionStage string

// The stages of a deletion, in their order.
const (
	// MachineDeletionPreDrainHooks: annotations of that kind have to go before anything is done to the node's pods.
	MachineDeletionPreDrainHooks MachineDeletionStage = "PreDrainHooks"
	// MachineDeletionDrain: the node is cordoned, and its pods go.
	MachineDeletionDrain MachineDeletionStage = "Drain"
	// MachineDeletionDetach: the node's volumes are detached.
	MachineDeletionDetach MachineDeletionStage = "Detach"
	// MachineDeletionPreTerminateHooks: annotations of that kind have to go before the instance is deleted.
	MachineDeletionPreTerminateHooks MachineDeletionStage = "PreTerminateHooks"
	// MachineDeletionInstance: the provider deletes the instance.
	MachineDeletionInstance MachineDeletionStage = "Instance"
	// MachineDeletionNode: the instance is gone; what is left of its node goes, too.
	MachineDeletionNode MachineDeletionStage = "Node"
	// MachineDeletionRelease: the finalizer goes.
	MachineDeletionRelease MachineDeletionStage = "Release"
)

// StepQueued is the step of a machine whose node waits for its turn to be drained.
const StepQueued = "queued"

// MachineDrain is what became of the pods of a node.
type MachineDrain struct {
	// When the drain began to ask pods to go: the base of drainTimeout.
	// +required
	StartedAt metav1.Time `json:"startedAt"`
	// How pods are made to go by now: Evict, Delete or Kill.
	// +optional
	Means string `json:"means,omitempty"`
	// Since when.
	// +optional
	MeansSince *metav1.Time `json:"meansSince,omitempty"`
	// How the drain ended: Drained, Forced when pods were deleted by force, or Skipped. Empty while it runs.
	// +optional
	Result string `json:"result,omitempty"`
	// Pods that were still there when the drain gave up, as namespace/name; at most 20 of them.
	// +optional
	LeftBehind []string `json:"leftBehind,omitempty"`
}

// StayingDrain is what became of the pods of the node of a machine that is to stay.
type StayingDrain struct {
	// What the node is emptied for.
	// +required
	// +kubebuilder:validation:Enum=InPlaceUpdate;Preservation
	Purpose DrainPurpose `json:"purpose"`
	// Which update, by the time of its step, or which preservation, by its end.
	// +required
	Occasion     metav1.Time `json:"occasion"`
	MachineDrain `json:",inline"`
}

// DrainPurpose is what the node of a machine that is to stay is emptied for.
type DrainPurpose string

// The purposes.
const (
	// DrainForUpdate: its software is to be updated in place.
	DrainForUpdate DrainPurpose = "InPlaceUpdate"
	// DrainForPreservation: the machine has failed, and is kept for people to look at.
	DrainForPreservation DrainPurpose = "Preservation"
)

// MachineHealth is the clock of healthTimeout. It moves only with the node's health, whatever else is written.
type MachineHealth struct {
	// When the node became unhealthy: the base of healthTimeout.
	// +optional
	UnhealthySince metav1.Time `json:"unhealthySince,omitempty,omitzero"`
	// When the node became healthy again. Absent while it is unhealthy.
	// +optional
	RecoveredAt *metav1.Time `json:"recoveredAt,omitempty"`
	// When the provider said that the instance is gone. Absent while nothing is known of that.
	// +optional
	InstanceGoneAt *metav1.Time `json:"instanceGoneAt,omitempty"`
}

// CreationStopped is the time for which a creation waited for a person to mend the machine's spec, its class or its
// credentials.
type CreationStopped struct {
	// Since when it waits now. Absent while it does not.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// How long it waited before, in all.
	// +optional
	Total metav1.Duration `json:"total,omitempty,omitzero"`
}

// CurrentStatus tells the phase of a machine.
type CurrentStatus struct {
	// Where the machine is in its life. Empty means that it was not processed yet.
	// +optional
	Phase MachinePhase `json:"phase,omitempty"`
	// True while a deadline of this phase is running.
	// +optional
	TimeoutActive bool `json:"timeoutActive,omitempty"`
	// When the phase last changed.
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty,omitzero"`
	// Until when the machine is preserved. Absent means that it is not.
	// +optional
	PreserveExpiryTime *metav1.Time `json:"preserveExpiryTime,omitempty"`
}

// MachinePhase is where a machine is in its life. It is reported, counted by sets and deployments, and
// compared with what the node shows.
type MachinePhase string

// Phases of a machine. The empty phase means that the machine was not processed yet.
const (
	// MachinePending: the instance exists; its node has not joined or is not ready yet.
	MachinePending MachinePhase = "Pending"
	// MachineAvailable: the instance exists and there is no target cluster that a node could join.
	MachineAvailable MachinePhase = "Available"
	// MachineRunning: the node has joined and is healthy.
	MachineRunning MachinePhase = "Running"
	// MachineTerminating: the machine is being deleted.
	MachineTerminating MachinePhase = "Terminating"
	// MachineUnknown: the node is unhealthy or missing, and healthTimeout has not passed.
	MachineUnknown MachinePhase = "Unknown"
	// MachineFailed: patience has ended; the set replaces the machine.
	MachineFailed MachinePhase = "Failed"
	// MachineCrashLoopBackOff: creating the instance failed and is tried again.
	MachineCrashLoopBackOff MachinePhase = "CrashLoopBackOff"
	// MachineInPlaceUpdating: the node is drained and its software is being updated.
	MachineInPlaceUpdating MachinePhase = "InPlaceUpdating"
	// MachineInPlaceUpdateSuccessful: the update succeeded; the node is not confirmed healthy yet.
	MachineInPlaceUpdateSuccessful MachinePhase = "InPlaceUpdateSuccessful"
	// MachineInPlaceUpdateFailed: the update failed or took too long.
	MachineInPlaceUpdateFailed MachinePhase = "InPlaceUpdateFailed"
)

// MachineList is a list of machines.
//
// +kubebuilder:object:root=true
type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Machine `json:"items"`
}
