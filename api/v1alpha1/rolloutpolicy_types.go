package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// RolloutPolicy defines how the machines of certain MachineDeployments and MachineSets in its namespace are rolled out,
// replaced and deleted. RolloutPolicy is a separate kind, because clients with MCM's types drop every field of
// MachineDeployments and MachineSets that MCM does not know. If several policies match an object, the policy whose name
// sorts first applies. Without a policy, the defaults of the policy's fields apply.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=rop
// +kubebuilder:printcolumn:name="Rollback",type=boolean,JSONPath=".spec.automaticRollback.onProgressDeadline",description="A rollout is rolled back when the progress deadline passes"
// +kubebuilder:printcolumn:name="Max-Replacements",type=string,JSONPath=".spec.maxReplacements",description="Failed machines of a failure domain that are replaced at a time"
// +kubebuilder:printcolumn:name="Turns",type=integer,JSONPath=".spec.turns.maxConcurrent",description="MachineDeployments that are rolled out at a time"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp",description="Time since the policy was created"
type RolloutPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// The objects to which the policy applies, and the rules for these objects.
	// +required
	Spec RolloutPolicySpec `json:"spec"`
}

// RolloutPolicySpec has the objects to which a policy applies, and the rules for these objects.
type RolloutPolicySpec struct {
	// The MachineDeployments, and the MachineSets without a MachineDeployment, to which the policy applies: each object
	// that at least one entry selects. An empty list selects all objects of the namespace.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Targets []RolloutPolicyTarget `json:"targets,omitempty"`
	// How many of the selected MachineDeployments are rolled out at a time. If left out, the MachineDeployments do not
	// wait for each other. The MachineDeployments that the first entry of targets selects come first, then those of the
	// second entry, and so on; those of one entry are in the order of their names. Turns have no effect with the
	// strategy OnDelete. The MachineDeployments of Cluster API are counted apart.
	// +optional
	Turns *RolloutTurns `json:"turns,omitempty"`
	// The steps of a rollout, in order. After the last step, all remaining machines are updated; without steps, a
	// rollout does not pause. Steps have an effect with the strategies RollingUpdate and InPlaceUpdate Auto.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Steps []RolloutStep `json:"steps,omitempty"`
	// When a rollout is rolled back automatically; never if left out. The machines then return to the last complete
	// revision, and the template of the MachineDeployment stays unchanged.
	// +optional
	AutomaticRollback *AutomaticRollback `json:"automaticRollback,omitempty"`
	// When a substitute for a machine that is being deleted may be created. TerminationComplete, the default: when the
	// instance is gone, so that a rollout never has more instances than replicas plus maxSurge. TerminationStarted:
	// when the deletion begins. The policy does not limit substitutes for machines that failed or that others deleted.
	// Outside of a rollout, a larger number of replicas takes effect at once.
	// +optional
	// +kubebuilder:validation:Enum=TerminationComplete;TerminationStarted
	MachineReplacementPolicy MachineReplacementPolicy `json:"machineReplacementPolicy,omitempty"`
	// How many failed machines of one failure domain may be replaced at a time: a number, or a percentage of the
	// domain's machines, rounded up; 1 by default, and 0 means that no machine is replaced.
	// +optional
	// +nullable
	// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 0 && self <= 2147483647 : type(self) == string && self.matches('^[0-9]{1,9}%$')`,messageExpression=`'maxReplacements is ' + (type(self) == string ? '"' + string(self) + '"' : string(self)) + '; allowed is a number of machines from 0 to 2147483647, such as 2, or a percentage of the machines of a failure domain, such as "20%"'`
	MaxReplacements *intstr.IntOrString `json:"maxReplacements,omitempty"`
	// Which of several machines with equal rank are deleted first if there are too many: Newest (the default), Oldest,
	// or Random. The order Random depends only on the names of the machines, so that each computation has the same
	// result.
	// +optional
	// +kubebuilder:validation:Enum=Newest;Oldest;Random
	DeletionOrder DeletionOrder `json:"deletionOrder,omitempty"`
	// How Failed machines, and machines that are marked unhealthy, are replaced.
	// +optional
	Remediation *MachineSetRemediation `json:"remediation,omitempty"`
}

// RolloutTurns limits how many MachineDeployments are rolled out at a time. A MachineDeployment keeps its turn until its
// rollout is complete. After an automatic rollback, no other MachineDeployment begins its rollout until the template of
// the failed one changes, or a person retries its rollout.
type RolloutTurns struct {
	// How many MachineDeployments are rolled out at a time.
	// +required
	// +kubebuilder:validation:Minimum=1
	MaxConcurrent int32 `json:"maxConcurrent"`
	// How long no rollout begins after a rollout is complete; 0 by default.
	// +optional
	PauseBetween *metav1.Duration `json:"pauseBetween,omitempty"`
}

// RolloutPolicyTarget selects the MachineDeployments and MachineSets that match both fields.
type RolloutPolicyTarget struct {
	// Name of the object; left out or empty matches any name.
	// +optional
	Name string `json:"name,omitempty"`
	// Selector for the labels of the object; left out or empty matches any labels.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// RolloutPolicyList is a list of rollout policies.
//
// +kubebuilder:object:root=true
type RolloutPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// The rollout policies of the list.
	Items []RolloutPolicy `json:"items"`
}

// MachineReplacementPolicy defines when a substitute for a machine that is being deleted may be created.
type MachineReplacementPolicy string

// Values of MachineReplacementPolicy; the empty value means MachineTerminationComplete.
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
	// How long the step lasts after its machines are available.
	// +optional
	Wait *metav1.Duration `json:"wait,omitempty"`
	// If true, the step lasts until a person approves the step.
	// +optional
	Approve bool `json:"approve,omitempty"`
}

// AutomaticRollback defines when a rollout is rolled back automatically.
type AutomaticRollback struct {
	// If true, a rollout is rolled back when progressDeadlineSeconds passes without progress.
	// +optional
	OnProgressDeadline bool `json:"onProgressDeadline,omitempty"`
	// A rollout is rolled back when more new machines than this number have failed. If the number is left out, failed
	// machines are not counted; 0 means that no machine may fail.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	MaxFailedMachines *int32 `json:"maxFailedMachines,omitempty"`
	// For how long after the rollout is complete failures of new machines still count. The default 0 means that
	// failures count only until the rollout is complete.
	// +optional
	BakeTime *metav1.Duration `json:"bakeTime,omitempty"`
}

// DeletionOrder is the order of age in which machines with equal rank are deleted.
type DeletionOrder string

// Values of DeletionOrder; the empty value means Newest.
const (
	DeletionOrderNewest DeletionOrder = "Newest"
	DeletionOrderOldest DeletionOrder = "Oldest"
	DeletionOrderRandom DeletionOrder = "Random"
)

// MachineSetRemediation defines how Failed machines, and machines that are marked unhealthy, are replaced.
type MachineSetRemediation struct {
	// How many marked machines are replaced at a time: a number, or a percentage of replicas, rounded up; all marked
	// machines if left out.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 0 && self <= 2147483647 : type(self) == string && self.matches('^[0-9]{1,9}%$')`,messageExpression=`'maxInFlight is ' + (type(self) == string ? '"' + string(self) + '"' : string(self)) + '; allowed is a number of machines from 0 to 2147483647, such as 2, or a percentage of replicas, such as "20%"'`
	MaxInFlight *intstr.IntOrString `json:"maxInFlight,omitempty"`
	// The first back-off between replacements when the new machines also fail before they join; 1m by default for a
	// MachineSet of machine.sapcloud.io, none by default for a MachineSet of Cluster API, and 0 means no back-off. The
	// back-off doubles with each further failed generation of machines. A MachineSet of a MachineDeployment of
	// machine.sapcloud.io has no back-off, because the replacement budget limits its replacements.
	// +optional
	Backoff *metav1.Duration `json:"backoff,omitempty"`
	// The maximum back-off between two generations; 1h by default.
	// +optional
	MaxBackoff *metav1.Duration `json:"maxBackoff,omitempty"`
	// How many further generations of machines are replaced after the first generation in which no machine joined; no
	// limit if left out. After the last retry the MachineSet replaces no machine until one of its new machines joins, a
	// person requests the replacement of a machine, or the template changes.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	MaxRetry *int32 `json:"maxRetry,omitempty"`
	// How many machines a MachineSet may have in excess of replicas while it replaces machines that had joined: a
	// number, or a percentage of the replicas of the MachineSet, rounded up. A machine is then deleted only after its
	// substitute is available. 0 by default: a machine is deleted first.
	// +optional
	// +nullable
	// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 0 && self <= 2147483647 : type(self) == string && self.matches('^[0-9]{1,9}%$')`,messageExpression=`'maxSurge is ' + (type(self) == string ? '"' + string(self) + '"' : string(self)) + '; allowed is a number of machines from 0 to 2147483647, such as 2, or a percentage of replicas, such as "20%"'`
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
}
