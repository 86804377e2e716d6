package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/vocabulary"
)

// Machine is one instance at the provider, and the node of this instance.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=mc
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=".status.currentStatus.phase",description="Current phase of the machine"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp",description="Time since the machine was asked for"
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=".metadata.labels.node",description="Name of the node that the machine became"
// +kubebuilder:printcolumn:name="ProviderID",type=string,JSONPath=".spec.providerID",description="ID of the instance at the provider",priority=1
// +kubebuilder:printcolumn:name="Waits-For",type=string,JSONPath=".status.currentOperation.summary",description="What it waits for, and what happens by itself"
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=".spec.class.name",description="Class of the machine's instance",priority=1
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=".status.currentOperation.since",description="Time since it began to wait",priority=1
// +kubebuilder:printcolumn:name="Deadline",type=string,JSONPath=".status.currentOperation.deadline",description="When something happens by itself",priority=1
type Machine struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// The desired state of the machine.
	// +required
	Spec MachineSpec `json:"spec"`
	// The observed state of the machine.
	// +optional
	Status MachineStatus `json:"status,omitempty,omitzero"`
}

// MachineSpec is the desired state of a machine.
type MachineSpec struct {
	// The MachineClass that defines how instances are created.
	// +required
	// +kubebuilder:validation:XValidation:rule=`has(self.kind) && self.kind != ''`,fieldPath=`.kind`,reason=FieldValueRequired,message=`class.kind is empty; it must name the kind of the class, MachineClass`
	// +kubebuilder:validation:XValidation:rule=`has(self.name) && self.name != ''`,fieldPath=`.name`,reason=FieldValueRequired,message=`class.name is empty; it must name a MachineClass in the same namespace`
	Class ClassSpec `json:"class"`
	// ID of the instance at the provider. The ID is empty until the instance is known, and is written once.
	// +optional
	ProviderID string `json:"providerID,omitempty"`
	// Labels, annotations and taints of the node.
	// +optional
	NodeTemplateSpec NodeTemplateSpec `json:"nodeTemplate,omitempty,omitzero"`
	// Timeouts and health conditions; nil means the defaults for all fields.
	*MachineConfiguration `json:",inline"`
}

// MachineStatus is the observed state of a machine.
type MachineStatus struct {
	// Name of the node; absent while the name is not known, and without a target cluster. The label node also has the
	// name, if the name has at most 63 bytes.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Addresses of the instance; set only without a target cluster, because then no node has the addresses.
	// +optional
	Addresses []corev1.NodeAddress `json:"addresses,omitempty"`
	// Copies of the node's conditions, and conditions of the machine itself:
	// Blocked: something blocks the machine; the reason is the blocker. The condition Blocked exists only while its
	// status is True. ClassReady: class and Secrets can be used. Reasons of ClassReady: ClassFound, ClassNotFound,
	// ClassInvalid, SecretNotFound, SecretInvalid, SecretNotAllowed. InstanceReady: the provider has created the
	// instance. Reasons of InstanceReady: InstanceCreated, Creating, InstanceGone, or the code of the provider.
	// ReplacementDue: the machine must be replaced. Reasons of ReplacementDue: CreationTimeout, HealthTimeout,
	// InstanceGone, NodeDeleted, StaleNode; with the status False, HealthTimeoutExtended or Recovered. Drained: the
	// pods have left the node. Reasons of Drained: Drained, Forced, Skipped; with the status False, Draining, Blocked
	// or Forcing. HealthCheckSucceeded and OwnerRemediated: written by a health check that is not part of Millwright.
	// If both are False, the machine's set replaces the machine.
	// +optional
	Conditions []corev1.NodeCondition `json:"conditions,omitempty"`
	// The last attempted operation and its state.
	// +optional
	LastOperation LastOperation `json:"lastOperation,omitempty,omitzero"`
	// Phase of the machine.
	// +optional
	CurrentStatus CurrentStatus `json:"currentStatus,omitempty,omitzero"`
	// Text that only the provider's driver reads. Millwright passes the text to the driver unchanged.
	// +optional
	LastKnownState string `json:"lastKnownState,omitempty"`
	// The current operation; absent while the machine is idle.
	// +optional
	CurrentOperation *Operation `json:"currentOperation,omitempty"`
	// Times that decide when healthTimeout ends; absent if the node was never unhealthy.
	// +optional
	Health *MachineHealth `json:"health,omitempty"`
	// Time that does not count for creationTimeout; absent if all time counts.
	// +optional
	CreationStopped *CreationStopped `json:"creationStopped,omitempty"`
	// The record that a create call may have been made. If the record is absent and lastOperation.type is set, another
	// controller may have made a create call.
	// +optional
	CreationIntent *CreationIntent `json:"creationIntent,omitempty"`
	// When the node joined for the first time; absent before the join, and on a machine whose node joined under another
	// controller.
	// +optional
	JoinedAt *metav1.Time `json:"joinedAt,omitempty"`
	// Progress of the deletion; absent unless the machine is being deleted.
	// +optional
	Deletion *MachineDeletion `json:"deletion,omitempty"`
	// Result of the last drain of a machine that was not being deleted; absent if there was no such drain.
	// +optional
	Drain *StayingDrain `json:"drain,omitempty"`
}

// MachineDeletion is the progress of a machine's deletion.
type MachineDeletion struct {
	// The current stage. Earlier stages are complete and are never entered again. The stages in their order:
	// PreDrainHooks (waits for annotations), Drain (the node is emptied), Detach (waits for volumes), PreTerminateHooks
	// (waits for annotations), Instance (the provider deletes the instance), Node (the Node object is deleted), Release
	// (the finalizer is removed).
	// +required
	// +kubebuilder:validation:Enum=PreDrainHooks;Drain;Detach;PreTerminateHooks;Instance;Node;Release
	Stage MachineDeletionStage `json:"stage"`
	// Start of the current stage.
	// +required
	Since metav1.Time `json:"since"`
	// Whether the machine waits in the queue of drains. When a running drain ends, the next waiting machines continue.
	// +optional
	Queued bool `json:"queued,omitempty"`
	// Progress of the drain; absent before the drain has begun.
	// +optional
	Drain *MachineDrain `json:"drain,omitempty"`
}

// MachineDeletionStage is one stage of a deletion.
type MachineDeletionStage string

// The stages of a deletion, in their order.
const (
	// MachineDeletionPreDrainHooks: the deletion waits until the pre-drain hook annotations are removed, before any pod
	// is evicted.
	MachineDeletionPreDrainHooks MachineDeletionStage = vocabulary.StagePreDrainHooks
	// MachineDeletionDrain: the node is cordoned and drained.
	MachineDeletionDrain MachineDeletionStage = vocabulary.StageDrain
	// MachineDeletionDetach: the deletion waits until the node's volumes are detached.
	MachineDeletionDetach MachineDeletionStage = vocabulary.StageDetachVolumes
	// MachineDeletionPreTerminateHooks: the deletion waits until the pre-terminate hook annotations are removed, before
	// the instance is deleted.
	MachineDeletionPreTerminateHooks MachineDeletionStage = vocabulary.StagePreTerminateHooks
	// MachineDeletionInstance: the provider deletes the instance.
	MachineDeletionInstance MachineDeletionStage = vocabulary.StageDeleteInstance
	// MachineDeletionNode: the instance is gone; its Node object is deleted.
	MachineDeletionNode MachineDeletionStage = vocabulary.StageDeleteNode
	// MachineDeletionRelease: the finalizer is removed.
	MachineDeletionRelease MachineDeletionStage = vocabulary.StageRemoveFinalizer
)

// MachineDrain is the progress of a drain.
type MachineDrain struct {
	// When the drain began to evict pods; drainTimeout counts from this time.
	// +required
	StartedAt metav1.Time `json:"startedAt"`
	// How pods are removed at present. Evict: pods are evicted, and evictions obey disruption budgets. DeleteInOrder:
	// pods are deleted in order, because the node's cluster cannot evict. Delete: all pods are deleted at once, with
	// their own grace periods. Kill: all pods are deleted at once, without a grace period.
	// +optional
	Means string `json:"means,omitempty"`
	// When the drain first removed pods in the present way.
	// +optional
	MeansSince *metav1.Time `json:"meansSince,omitempty"`
	// How the drain ended; empty while the drain runs. Drained: all pods have left. Forced: pods were deleted by force.
	// Skipped: no pod was evicted.
	// +optional
	Result string `json:"result,omitempty"`
	// Pods that were still on the node when the drain ended, as namespace/name; at most 20 pods.
	// +optional
	LeftBehind []string `json:"leftBehind,omitempty"`
}

// StayingDrain is the drain of the node of a machine that is not being deleted.
type StayingDrain struct {
	// Why the node is drained: InPlaceUpdate, because an agent will update it, or Preservation, because the machine has
	// failed and is preserved.
	// +required
	// +kubebuilder:validation:Enum=InPlaceUpdate;Preservation
	Purpose DrainPurpose `json:"purpose"`
	// The time that identifies this drain: the time of the update's step, or the end of the preservation.
	// +required
	Occasion     metav1.Time `json:"occasion"`
	MachineDrain `json:",inline"`
}

// DrainPurpose is why the node of a machine that is not being deleted is drained.
type DrainPurpose string

// Purposes of the drain of a node whose machine is not being deleted.
const (
	// DrainForUpdate: the node's software will be updated in place.
	DrainForUpdate DrainPurpose = vocabulary.DrainForInPlaceUpdate
	// DrainForPreservation: the machine is Failed and preserved.
	DrainForPreservation DrainPurpose = vocabulary.DrainForPreservation
)

// MachineHealth has the times that decide when healthTimeout ends. The times change only when the node's health
// changes.
type MachineHealth struct {
	// When the node became unhealthy; healthTimeout counts from this time.
	// +optional
	UnhealthySince metav1.Time `json:"unhealthySince,omitempty,omitzero"`
	// When the node became healthy again; absent while the node is unhealthy.
	// +optional
	RecoveredAt *metav1.Time `json:"recoveredAt,omitempty"`
	// When the provider reported that the instance is gone; absent without such a report.
	// +optional
	InstanceGoneAt *metav1.Time `json:"instanceGoneAt,omitempty"`
}

// CreationIntent is the record of the first create call for a machine's instance. The record is written before the
// call.
type CreationIntent struct {
	// ID of the Temporal run that wrote the record; empty if no create call was made.
	// +optional
	RunID string `json:"runID,omitempty"`
	// When the record was written; absent if no create call was made.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
	// True if no attempt so far needed a bootstrap token; false if an attempt needed a token, or if that is not known.
	// +optional
	WithoutToken bool `json:"withoutToken,omitempty"`
}

// CreationStopped is the time for which a creation waited for a person to correct the machine's spec, its class or its
// credentials.
type CreationStopped struct {
	// Start of the present wait; absent while the creation does not wait.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Total length of the earlier waits.
	// +optional
	Total metav1.Duration `json:"total,omitempty,omitzero"`
}

// CurrentStatus is the phase of a machine.
type CurrentStatus struct {
	// Phase of the machine's life. Empty: the machine was not processed yet. Pending: the instance exists, its node has
	// not joined. Available: the instance exists, and there is no target cluster. Running: the node is healthy.
	// Unknown: the node is unhealthy, missing or being deleted. Failed: a timeout has ended, or the instance or the
	// node is gone for good. CrashLoopBackOff: the provider refused to make the instance. Terminating: the machine is
	// being deleted. InPlaceUpdating, InPlaceUpdateSuccessful and InPlaceUpdateFailed: an agent updates the node, has
	// updated it, or has failed.
	// +optional
	Phase MachinePhase `json:"phase,omitempty"`
	// True while a timeout of this phase is running.
	// +optional
	TimeoutActive bool `json:"timeoutActive,omitempty"`
	// When the phase last changed.
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty,omitzero"`
	// When the preservation of the machine ends; absent if the machine is not preserved.
	// +optional
	PreserveExpiryTime *metav1.Time `json:"preserveExpiryTime,omitempty"`
}

// MachinePhase is a phase of a machine's life. The phase is reported to users, counted by sets and deployments, and
// compared with the state of the node.
type MachinePhase string

// Phases of a machine. The empty phase means that the machine was not processed yet.
const (
	// MachinePending: the instance exists; its node has not joined or is not ready yet.
	MachinePending MachinePhase = vocabulary.PhasePending
	// MachineAvailable: the instance exists and there is no target cluster that a node could join.
	MachineAvailable MachinePhase = vocabulary.PhaseAvailable
	// MachineRunning: the node has joined and is healthy.
	MachineRunning MachinePhase = vocabulary.PhaseRunning
	// MachineTerminating: the machine is being deleted.
	MachineTerminating MachinePhase = vocabulary.PhaseTerminating
	// MachineUnknown: the node is unhealthy or missing, and healthTimeout has not passed.
	MachineUnknown MachinePhase = vocabulary.PhaseUnknown
	// MachineFailed: a timeout has ended, or the instance or the node is permanently gone; the set replaces the
	// machine.
	MachineFailed MachinePhase = vocabulary.PhaseFailed
	// MachineCrashLoopBackOff: creating the instance failed and is retried.
	MachineCrashLoopBackOff MachinePhase = vocabulary.PhaseCrashLoopBackOff
	// MachineInPlaceUpdating: the node is drained, and its software is being updated.
	MachineInPlaceUpdating MachinePhase = vocabulary.PhaseInPlaceUpdating
	// MachineInPlaceUpdateSuccessful: the update succeeded; the node is not confirmed healthy yet.
	MachineInPlaceUpdateSuccessful MachinePhase = vocabulary.PhaseInPlaceUpdateSuccessful
	// MachineInPlaceUpdateFailed: the update failed or took too long.
	MachineInPlaceUpdateFailed MachinePhase = vocabulary.PhaseInPlaceUpdateFailed
)

// MachineList is a list of machines.
//
// +kubebuilder:object:root=true
type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Machine `json:"items"`
}
