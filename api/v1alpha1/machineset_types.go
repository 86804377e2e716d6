package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MachineSet keeps a number of machines of one template.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=mcs
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=".spec.replicas",description="Number of machines that are wanted"
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=".status.replicas",description="Number of machines that exist"
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=".status.readyReplicas",description="Number of machines whose node is ready"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp",description="Time since the set was asked for"
// +kubebuilder:printcolumn:name="Waits-For",type=string,JSONPath=".status.currentOperation.summary",description="What it waits for, and what happens by itself"
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=".status.currentOperation.since",description="Time since it began to wait",priority=1
// +kubebuilder:printcolumn:name="Deadline",type=string,JSONPath=".status.currentOperation.deadline",description="When something happens by itself",priority=1
type MachineSet struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// The desired state of the set.
	// +required
	Spec MachineSetSpec `json:"spec"`
	// The observed state of the set.
	// +optional
	Status MachineSetStatus `json:"status,omitempty,omitzero"`
}

// MachineSetSpec is the desired state of a set.
type MachineSetSpec struct {
	// Number of desired machines; 0 if left out.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`
	// Selector of the set's machines. The selector must match the labels of the template.
	// +required
	Selector *metav1.LabelSelector `json:"selector"`
	// Legacy field without effect: the class of the template is used.
	// +optional
	MachineClass ClassSpec `json:"machineClass,omitempty,omitzero"`
	// The template of the set's machines.
	// +required
	Template MachineTemplateSpec `json:"template"`
	// For how many seconds a machine must have been ready before the machine counts as available; 0 by default.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// How many failed machines of the set are preserved automatically; 0 by default.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AutoPreserveFailedMachineMax int32 `json:"autoPreserveFailedMachineMax,omitempty"`
}

// MachineSetStatus is the observed state of a set.
type MachineSetStatus struct {
	// Number of machines that belong to the set, including machines that are being deleted.
	// +optional
	Replicas int32 `json:"replicas"`
	// Number of the set's machines whose labels include all labels of the template.
	// +optional
	FullyLabeledReplicas int32 `json:"fullyLabeledReplicas,omitempty"`
	// Number of machines in phase Running.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`
	// Number of machines that have been ready for minReadySeconds, or that are in phase Available, without a target
	// cluster.
	// +optional
	AvailableReplicas int32 `json:"availableReplicas"`
	// Number of Failed machines that are preserved.
	// +optional
	PreservedFailedReplicas int32 `json:"preservedFailedReplicas,omitempty"`
	// Number of machines that match the current template.
	// +optional
	UpToDateReplicas int32 `json:"upToDateReplicas,omitempty"`
	// The largest number of desired machines since the last time at which the set had no more machines than desired.
	// +optional
	PeakReplicas int32 `json:"peakReplicas,omitempty"`
	// Number of machines beyond peakReplicas, which were created in excess.
	// +optional
	Overshoot int32 `json:"overshoot,omitempty"`
	// Consecutive generations of machines of which none joined; absent if there is no such generation.
	// +optional
	FailedGenerations *FailedGenerations `json:"failedGenerations,omitempty"`
	// The number of desired machines when the set last had no machine to create or to delete. If observedReplicas
	// differs from spec.replicas, the set is about to create or delete machines.
	// +optional
	ObservedReplicas int32 `json:"observedReplicas,omitempty"`
	// Resource version of the machines that this status counts. A cache that is at least as new has all counted
	// machines.
	// +optional
	ObservedMachines string `json:"observedMachines,omitempty"`
	// Generation of the spec to which this status belongs.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions of the set.
	// +optional
	Conditions []MachineSetCondition `json:"machineSetCondition,omitempty"`
	// Legacy field, never written (ADR 0069): the conditions and currentOperation show what the set does.
	// +optional
	LastOperation LastOperation `json:"lastOperation,omitempty,omitzero"`
	// Machines whose last operation failed, except preserved machines.
	// +optional
	FailedMachines []MachineSummary `json:"failedMachines,omitempty"`
	// Number of machines that are preserved because of autoPreserveFailedMachineMax.
	// +optional
	AutoPreserveFailedMachineCount int32 `json:"autoPreserveFailedMachineCount,omitempty"`
	// The selector as text, for kubectl scale, the HorizontalPodAutoscaler and the cluster autoscaler.
	// +optional
	Selector string `json:"selector,omitempty"`
	// The current operation; absent while the set is idle. The operation has no step if only a machine of the set is
	// blocked.
	// +optional
	CurrentOperation *Operation `json:"currentOperation,omitempty"`
}

// FailedGenerations are consecutive generations of machines of which none joined.
type FailedGenerations struct {
	// Number of the failed generations.
	// +required
	Count int32 `json:"count"`
	// When the replacement of the last failed generation began.
	// +required
	LastFailedAt metav1.Time `json:"lastFailedAt"`
}

// MachineSetCondition is a condition of a set.
type MachineSetCondition struct {
	// Type of the condition. Blocked: something blocks the set or one of its machines. The condition Blocked exists
	// only while its status is True. ReplicaFailure: a machine could not be created or deleted. ReplacementHeld: failed
	// machines are not replaced now. Frozen: no machine is created, for safety. Overshoot: the set has more machines than were ever desired. MachinesCreated: False while
	// machines are missing because they could not be created. MachinesReady: all machines are ready. MachinesUpToDate:
	// all machines match the template. ScalingUp: machines are missing, or were never ready. ScalingDown: the set has
	// more machines than desired. Remediating: machines are replaced because they failed or are unhealthy. Deleting:
	// the set is being deleted. Paused: an operator paused the set.
	// +required
	Type MachineSetConditionType `json:"type"`
	// True, False, or Unknown if the status cannot be determined.
	// +required
	Status ConditionStatus `json:"status"`
	// When status last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty,omitzero"`
	// Reason for the status, in one word for programs. The reason of Blocked is the blocker. Reasons of ReplicaFailure:
	// FailedCreate, FailedDelete, or the error of a machine. Reasons of ReplacementHeld: RemediationBackoff,
	// MaxRetryReached. Reason of Frozen: FreezeLabel. Reasons of MachinesCreated:
	// TemplateNotFound, PreflightCheckFailed, ScaleUpStopped, MachineSetInvalid, MachineCreationFailed. Reasons of
	// MachinesReady: Ready, NotReady, ReadyUnknown, NoReplicas. Reasons of MachinesUpToDate: UpToDate, NotUpToDate,
	// UpToDateUnknown, NoReplicas. Reasons of conditions that are False: NotScalingUp, NotScalingDown, NotRemediating,
	// NotDeleting, NotPaused. If the machines could not be listed, the reason is InternalError. The reason of any other
	// condition is its type.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Reason for the status, as a sentence.
	// +optional
	Message string `json:"message,omitempty"`
}

// MachineSetList is a list of machine sets.
//
// +kubebuilder:object:root=true
type MachineSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineSet `json:"items"`
}
