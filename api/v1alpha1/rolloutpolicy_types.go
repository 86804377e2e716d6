package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// RolloutPolicy says how the machines of certain MachineDeployments and MachineSets in its namespace are rolled out,
// replaced and deleted. It is a kind of its own because clients with MCM's types drop every field of those kinds that
// MCM does not know. If several policies match an object, the first by name applies. Without a policy the defaults of
// its fields apply.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=rop
// +kubebuilder:printcolumn:name="Rollback",type=boolean,JSONPath=".spec.automaticRollback.onProgressDeadline",description="A rollout is rolled back when the progress deadline passes"
// +kubebuilder:printcolumn:name="Max-Replacements",type=string,JSONPath=".spec.maxReplacements",description="Failed machines of a failure domain that are replaced at a time"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp",description="Time since the policy was created"
type RolloutPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// The objects to which the policy applies, and what applies to them.
	// +required
	Spec RolloutPolicySpec `json:"spec"`
}

// RolloutPolicySpec is a policy: the objects to which it applies, and what applies to them.
type RolloutPolicySpec struct {
	// The MachineDeployments, and the MachineSets without a MachineDeployment, to which the policy applies: those that one
	// entry selects. Empty means all of the namespace.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Targets []RolloutPolicyTarget `json:"targets,omitempty"`
	// The steps of a rollout, in order; after the last one all machines are updated. Left out means all at once. Used with
	// the strategies RollingUpdate and InPlaceUpdate Auto.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Steps []RolloutStep `json:"steps,omitempty"`
	// When a rollout is given up automatically and the former template is restored. Left out means never.
	// +optional
	AutomaticRollback *AutomaticRollback `json:"automaticRollback,omitempty"`
	// When the place of a machine that is being deleted becomes free: TerminationComplete, when its instance is gone, so
	// that a rollout never has more instances than replicas plus maxSurge; or TerminationStarted, when its deletion
	// begins. Default TerminationComplete. Substitutes of machines that failed or were deleted by others are not limited
	// by this, and outside of a rollout a larger number of replicas is followed at once.
	// +optional
	// +kubebuilder:validation:Enum=TerminationComplete;TerminationStarted
	MachineReplacementPolicy MachineReplacementPolicy `json:"machineReplacementPolicy,omitempty"`
	// How many failed machines of one failure domain may be replaced at a time: a number, or a percentage of the domain's
	// machines, rounded up. Default 1; 0 means that none is replaced.
	// +optional
	// +nullable
	// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 0 && self <= 2147483647 : type(self) == string && self.matches('^[0-9]{1,9}%$')`,messageExpression=`'maxReplacements is ' + (type(self) == string ? '"' + string(self) + '"' : string(self)) + '; allowed is a number of machines from 0 to 2147483647, such as 2, or a percentage of the machines of a failure domain, such as "20%"'`
	MaxReplacements *intstr.IntOrString `json:"maxReplacements,omitempty"`
	// Which of several machines with equal rank are deleted first when there are too many: Newest, Oldest, or Random,
	// which depends only on the names and always gives the same result. Default Newest.
	// +optional
	// +kubebuilder:validation:Enum=Newest;Oldest;Random
	DeletionOrder DeletionOrder `json:"deletionOrder,omitempty"`
	// How machines are replaced that are Failed or marked unhealthy.
	// +optional
	Remediation *MachineSetRemediation `json:"remediation,omitempty"`
}

// RolloutPolicyTarget selects MachineDeployments and MachineSets: those for which both fields hold.
type RolloutPolicyTarget struct {
	// Name of the object. Left out or empty means any name.
	// +optional
	Name string `json:"name,omitempty"`
	// Selects by the labels of the object. Left out or empty means all.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// RolloutPolicyList is a list of rollout policies.
//
// +kubebuilder:object:root=true
type RolloutPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// The policies.
	Items []RolloutPolicy `json:"items"`
}

// MachineReplacementPolicy is when the place of a machine that is being deleted becomes free.
type MachineReplacementPolicy string

// The policies. Empty means MachineTerminationComplete.
const (
	MachineTerminationComplete MachineReplacementPolicy = "TerminationComplete"
	MachineTerminationStarted  MachineReplacementPolicy = "TerminationStarted"
)

// RolloutStep is one step of a rollout.
//
// +kubebuilder:validation:XValidation:rule=`has(self.wait) != (has(self.approve) && self.approve)`,message=`a step needs either wait, how long the step lasts, or approve: true`
type RolloutStep struct {
	// How many machines have the new template at this step: a number, or a percentage of replicas, rounded up.
	// +required
	// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 0 && self <= 2147483647 : self.endsWith('%')`,message=`allowed is a number of machines from 0 to 2147483647, such as 2, or a percentage of replicas, such as "20%"`
	Replicas intstr.IntOrString `json:"replicas"`
	// How long the step lasts once its machines are available.
	// +optional
	Wait *metav1.Duration `json:"wait,omitempty"`
	// True: it lasts until a person approves it.
	// +optional
	Approve bool `json:"approve,omitempty"`
}

// AutomaticRollback is when a rollout is given up automatically.
type AutomaticRollback struct {
	// True: when progressDeadlineSeconds passes without progress.
	// +optional
	OnProgressDeadline bool `json:"onProgressDeadline,omitempty"`
	// When more new machines than this have failed. Left out means that they are not counted; 0 means that none may fail.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	MaxFailedMachines *int32 `json:"maxFailedMachines,omitempty"`
}

// DeletionOrder is the order of age in which machines with equal rank are deleted.
type DeletionOrder string

// The orders. Empty means Newest.
const (
	DeletionOrderNewest DeletionOrder = "Newest"
	DeletionOrderOldest DeletionOrder = "Oldest"
	DeletionOrderRandom DeletionOrder = "Random"
)

// MachineSetRemediation says how machines are replaced that are Failed or marked unhealthy.
type MachineSetRemediation struct {
	// How many marked machines are replaced at a time: a number, or a percentage of replicas, rounded up. Absent: all of
	// them.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 0 && self <= 2147483647 : type(self) == string && self.matches('^[0-9]{1,9}%$')`,messageExpression=`'maxInFlight is ' + (type(self) == string ? '"' + string(self) + '"' : string(self)) + '; allowed is a number of machines from 0 to 2147483647, such as 2, or a percentage of replicas, such as "20%"'`
	MaxInFlight *intstr.IntOrString `json:"maxInFlight,omitempty"`
	// The least time between the replacements of two consecutive generations of machines that failed before they had
	// joined; it doubles with each further one. Default 1m; 0 means no pause.
	// +optional
	Backoff *metav1.Duration `json:"backoff,omitempty"`
	// The longest such time. Default 1h.
	// +optional
	MaxBackoff *metav1.Duration `json:"maxBackoff,omitempty"`
}
