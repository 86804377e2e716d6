package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// MachineSet keeps a number of like machines in being.
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
type MachineSet struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// What the set shall be.
	// +required
	Spec MachineSetSpec `json:"spec"`
	// What is known about the set.
	// +optional
	Status MachineSetStatus `json:"status,omitempty,omitzero"`
}

// MachineSetSpec is what a set shall be.
type MachineSetSpec struct {
	// Number of machines. Left out means 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`
	// Which machines belong to the set; it must match the labels of the template.
	// +required
	Selector *metav1.LabelSelector `json:"selector"`
	// Legacy; used as a label of metrics only. The class that counts is in the template.
	// +optional
	MachineClass ClassSpec `json:"machineClass,omitempty,omitzero"`
	// The mould of the set's machines.
	// +required
	Template MachineTemplateSpec `json:"template"`
	// For how many seconds a machine must have been ready before it counts as available. Default 0: at once.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// How many failed machines of the set are preserved without being asked. Default 0: none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AutoPreserveFailedMachineMax int32 `json:"autoPreserveFailedMachineMax,omitempty"`
	// Which of the machines that are worth the same go first when there are too many: Newest, Oldest, or Random, which goes by
	// the names and always answers the same. Default Newest.
	// +optional
	// +kubebuilder:validation:Enum=Newest;Oldest;Random
	DeletionOrder DeletionOrder `json:"deletionOrder,omitempty"`
	// How machines are replaced that failed or are marked unhealthy.
	// +optional
	Remediation *MachineSetRemediation `json:"remediation,omitempty"`
}

// DeletionOrder is by which age machines go that are worth the same.
type DeletionOrder string

// The orders. Empty means Newest.
const (
	DeletionOrderNewest DeletionOrder = "Newest"
	DeletionOrderOldest DeletionOrder = "Oldest"
	DeletionOrderRandom DeletionOrder = "Random"
)

// MachineSetRemediation says how machines are replaced that failed or are marked unhealthy.
type MachineSetRemediation struct {
	// How many marked machines are replaced at a time: a number, or a percentage of replicas, rounded up. Absent: all of them.
	// +optional
	MaxInFlight *intstr.IntOrString `json:"maxInFlight,omitempty"`
	// The pause before a second generation of machines in a row is given up that never joined; each further one waits twice as
	// long. Default 1m; 0 means no pause.
	// +optional
	Backoff *metav1.Duration `json:"backoff,omitempty"`
	// The longest such pause. Default 1h.
	// +optional
	MaxBackoff *metav1.Duration `json:"maxBackoff,omitempty"`
}

// MachineSetStatus is what is known about a set.
type MachineSetStatus struct {
	// Number of machines that belong to the set, those that are being deleted included.
	// +optional
	Replicas int32 `json:"replicas"`
	// Of these, the number whose labels include all labels of the template.
	// +optional
	FullyLabeledReplicas int32 `json:"fullyLabeledReplicas,omitempty"`
	// Number of machines in phase Running.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`
	// Number of machines that have been ready for minReadySeconds, or are Available without a target cluster.
	// +optional
	AvailableReplicas int32 `json:"availableReplicas"`
	// Number of Failed machines that are preserved.
	// +optional
	PreservedFailedReplicas int32 `json:"preservedFailedReplicas,omitempty"`
	// Number of machines that are what the current template makes.
	// +optional
	UpToDateReplicas int32 `json:"upToDateReplicas,omitempty"`
	// The most machines that were wanted since the set last had no more of them than that.
	// +optional
	PeakReplicas int32 `json:"peakReplicas,omitempty"`
	// How many machines are beyond peakReplicas: somebody made too many.
	// +optional
	Overshoot int32 `json:"overshoot,omitempty"`
	// Generations of machines in a row that failed before they had joined. Absent when there was none.
	// +optional
	FailedGenerations *FailedGenerations `json:"failedGenerations,omitempty"`
	// The number of machines that was wanted when the set last had nothing more to make or to delete for it. Where it is not
	// spec.replicas, the set is about to.
	// +optional
	ObservedReplicas int32 `json:"observedReplicas,omitempty"`
	// Resource version up to which machines had been read when they were counted. Who has read machines up to there knows all of
	// those that are counted here.
	// +optional
	ObservedMachines string `json:"observedMachines,omitempty"`
	// Generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions of the set.
	// +optional
	Conditions []MachineSetCondition `json:"machineSetCondition,omitempty"`
	// What was last attempted, and how it went.
	// +optional
	LastOperation LastOperation `json:"lastOperation,omitempty,omitzero"`
	// Machines whose last operation failed, preserved ones left out.
	// +optional
	FailedMachines []MachineSummary `json:"failedMachines,omitempty"`
	// Number of machines that are preserved because of autoPreserveFailedMachineMax.
	// +optional
	AutoPreserveFailedMachineCount int32 `json:"autoPreserveFailedMachineCount,omitempty"`
	// The selector as text, for kubectl scale, the HorizontalPodAutoscaler and the cluster autoscaler.
	// +optional
	Selector string `json:"selector,omitempty"`
	// What is in motion. Absent means calm.
	// +optional
	CurrentOperation *Operation `json:"currentOperation,omitempty"`
}

// FailedGenerations are generations of machines in a row of which none joined.
type FailedGenerations struct {
	// How many.
	// +required
	Count int32 `json:"count"`
	// When the last of them was given up.
	// +required
	LastFailedAt metav1.Time `json:"lastFailedAt"`
}

// MachineSetCondition is one statement about a set.
type MachineSetCondition struct {
	// What the statement is about.
	// +required
	Type MachineSetConditionType `json:"type"`
	// Whether it holds: True, False or Unknown.
	// +required
	Status ConditionStatus `json:"status"`
	// When status last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty,omitzero"`
	// Why, in one word for programs.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Why, in a sentence for people.
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
