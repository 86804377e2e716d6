package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// MachineDeployment keeps a number of like machines in being and rolls them when their template changes.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=mcd
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=".status.readyReplicas",description="Number of machines whose node is ready"
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=".spec.replicas",description="Number of machines that are wanted"
// +kubebuilder:printcolumn:name="Up-to-date",type=integer,JSONPath=".status.updatedReplicas",description="Number of machines of the newest template"
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=".status.availableReplicas",description="Number of machines that are available"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp",description="Time since the deployment was asked for"
type MachineDeployment struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// What the deployment shall be.
	// +required
	Spec MachineDeploymentSpec `json:"spec"`
	// What is known about the deployment.
	// +optional
	Status MachineDeploymentStatus `json:"status,omitempty,omitzero"`
}

// MachineDeploymentSpec is what a deployment shall be.
type MachineDeploymentSpec struct {
	// Number of machines. Left out means 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`
	// Which machine sets and machines belong to the deployment; it must match the labels of the template.
	// +required
	Selector *metav1.LabelSelector `json:"selector"`
	// The mould of the deployment's machines.
	// +required
	Template MachineTemplateSpec `json:"template"`
	// How old machines give way to new ones. Left out means RollingUpdate with maxSurge 1 and maxUnavailable 0.
	// +optional
	// +kubebuilder:default={type: "RollingUpdate", rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
	Strategy MachineDeploymentStrategy `json:"strategy,omitempty,omitzero"`
	// For how many seconds a machine must have been ready before it counts as available. Default 0: at once.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// How many old machine sets are kept for undoing a rollout. Left out means all.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
	// True: a change of the template is not rolled out. Scaling goes on.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// Deprecated: asks once to return to a former revision; cleared when done.
	// +optional
	RollbackTo *RollbackConfig `json:"rollbackTo,omitempty"`
	// For how many seconds a rollout may stand still before Progressing becomes False. Left out means for ever. Nothing
	// is rolled back by itself, unless spec.rollout.automaticRollback wants it.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`
	// How many failed machines are preserved without being asked. Default 0: none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AutoPreserveFailedMachineMax int32 `json:"autoPreserveFailedMachineMax,omitempty"`
	// How many machines of one failure domain may be replaced at a time because they failed: a number, or a percentage of
	// the domain's machines, rounded up. Default 1; 0 means that none is replaced.
	// +optional
	// +nullable
	// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 0 && self <= 2147483647 : type(self) == string && self.matches('^[0-9]{1,9}%$')`,messageExpression=`'maxReplacements is ' + (type(self) == string ? '"' + string(self) + '"' : string(self)) + '; allowed is a number of machines from 0 to 2147483647, such as 2, or a percentage of the machines of a failure domain, such as "20%"'`
	MaxReplacements *intstr.IntOrString `json:"maxReplacements,omitempty"`
	// Which machines go first when there are too many; see the same field of a machine set. Default Newest.
	// +optional
	// +kubebuilder:validation:Enum=Newest;Oldest;Random
	DeletionOrder DeletionOrder `json:"deletionOrder,omitempty"`
	// How machines are replaced that are marked unhealthy; see the same field of a machine set.
	// +optional
	Remediation *MachineSetRemediation `json:"remediation,omitempty"`
	// How a rollout goes on, beyond the bounds of its strategy.
	// +optional
	Rollout *RolloutPolicy `json:"rollout,omitempty"`
}

// RolloutPolicy says how a rollout goes on, beyond the bounds of its strategy.
type RolloutPolicy struct {
	// The stages of a rollout, in order; after the last one all machines follow. Left out means all at once. Read by the
	// strategies RollingUpdate and InPlaceUpdate Auto.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Steps []RolloutStep `json:"steps,omitempty"`
	// When a rollout gives up by itself and returns to the former template. Left out means never.
	// +optional
	AutomaticRollback *AutomaticRollback `json:"automaticRollback,omitempty"`
	// From when on a machine that goes holds no place any more: TerminationComplete, when its instance is gone, so that a rollout
	// never has more instances than replicas and maxSurge; or TerminationStarted, when its deletion begins. Default
	// TerminationComplete. What is replaced for another reason than the template, because it failed or somebody deleted it, comes on top;
	// and outside of a rollout a larger number is followed at once.
	// +optional
	// +kubebuilder:validation:Enum=TerminationComplete;TerminationStarted
	MachineReplacementPolicy MachineReplacementPolicy `json:"machineReplacementPolicy,omitempty"`
}

// MachineReplacementPolicy is from when on a machine that goes holds no place any more.
type MachineReplacementPolicy string

// The policies. Empty means MachineTerminationComplete.
const (
	MachineTerminationComplete MachineReplacementPolicy = "TerminationComplete"
	MachineTerminationStarted  MachineReplacementPolicy = "TerminationStarted"
)

// RolloutStep is one stage of a rollout.
//
// +kubebuilder:validation:XValidation:rule=`has(self.wait) != (has(self.approve) && self.approve)`,message=`a step needs either wait, how long the stage lasts, or approve: true`
type RolloutStep struct {
	// How many machines have the new template at this stage: a number, or a percentage of replicas, rounded up.
	// +required
	// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 0 && self <= 2147483647 : self.endsWith('%')`,message=`allowed is a number of machines from 0 to 2147483647, such as 2, or a percentage of replicas, such as "20%"`
	Replicas intstr.IntOrString `json:"replicas"`
	// How long the stage lasts once its machines are available.
	// +optional
	Wait *metav1.Duration `json:"wait,omitempty"`
	// True: it lasts until a person approves it.
	// +optional
	Approve bool `json:"approve,omitempty"`
}

// AutomaticRollback is when a rollout gives up by itself.
type AutomaticRollback struct {
	// True: when progressDeadlineSeconds passes without progress.
	// +optional
	OnProgressDeadline bool `json:"onProgressDeadline,omitempty"`
	// When more new machines than that have failed. Left out means that they are not counted; 0, that none may fail.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	MaxFailedMachines *int32 `json:"maxFailedMachines,omitempty"`
}

// MachineDeploymentStrategy is how old machines give way to new ones.
//
// +kubebuilder:validation:XValidation:rule=`self.type != 'InPlaceUpdate' || has(self.inPlaceUpdate)`,fieldPath=`.inPlaceUpdate`,reason=FieldValueRequired,message=`strategy.type is InPlaceUpdate; it needs the block inPlaceUpdate with orchestrationType Auto or Manual`
// +kubebuilder:validation:XValidation:rule=`self.type != 'InPlaceUpdate' || !has(self.inPlaceUpdate) || has(self.inPlaceUpdate.orchestrationType)`,fieldPath=`.inPlaceUpdate.orchestrationType`,reason=FieldValueRequired,message=`strategy.type is InPlaceUpdate; orchestrationType must be Auto or Manual`
type MachineDeploymentStrategy struct {
	// Recreate, RollingUpdate, InPlaceUpdate or OnDelete.
	// +optional
	// +kubebuilder:default=RollingUpdate
	// +kubebuilder:validation:Enum=Recreate;RollingUpdate;InPlaceUpdate;OnDelete
	Type MachineDeploymentStrategyType `json:"type,omitempty"`
	// Read when type is RollingUpdate. Left out means maxSurge 1 and maxUnavailable 0.
	// +optional
	RollingUpdate *RollingUpdateMachineDeployment `json:"rollingUpdate,omitempty"`
	// Read when type is InPlaceUpdate, and required then.
	// +optional
	InPlaceUpdate *InPlaceUpdateMachineDeployment `json:"inPlaceUpdate,omitempty"`
}

// MachineDeploymentStrategyType names a strategy.
type MachineDeploymentStrategyType string

// Strategies.
const (
	// RecreateMachineDeploymentStrategyType: all old machines go before the first new one comes.
	RecreateMachineDeploymentStrategyType MachineDeploymentStrategyType = "Recreate"
	// RollingUpdateMachineDeploymentStrategyType: new machines come as old ones go, within maxSurge and maxUnavailable.
	RollingUpdateMachineDeploymentStrategyType MachineDeploymentStrategyType = "RollingUpdate"
	// InPlaceUpdateMachineDeploymentStrategyType: machines keep instance and name; the software on the node is updated.
	InPlaceUpdateMachineDeploymentStrategyType MachineDeploymentStrategyType = "InPlaceUpdate"
	// OnDeleteMachineDeploymentStrategyType: an old machine stays until somebody deletes it; a new one comes in its place.
	OnDeleteMachineDeploymentStrategyType MachineDeploymentStrategyType = "OnDelete"
)

// RollingUpdateMachineDeployment bounds a rolling update.
type RollingUpdateMachineDeployment struct {
	UpdateConfiguration `json:",inline"`
}

// InPlaceUpdateMachineDeployment bounds an in-place update and says who picks the nodes.
type InPlaceUpdateMachineDeployment struct {
	UpdateConfiguration `json:",inline"`
	// Who picks the next nodes: Auto (Millwright) or Manual (a person labels them).
	// +optional
	// +kubebuilder:validation:Enum=Auto;Manual
	OrchestrationType OrchestrationType `json:"orchestrationType,omitempty"`
}

// OrchestrationType says who picks the nodes of an in-place update.
type OrchestrationType string

// Orchestration types.
const (
	OrchestrationTypeAuto   OrchestrationType = "Auto"
	OrchestrationTypeManual OrchestrationType = "Manual"
)

// UpdateConfiguration bounds how many machines an update may add and take away. Both zero counts as maxUnavailable 1,
// else nothing could ever move.
type UpdateConfiguration struct {
	// How many machines may be missing from replicas during an update: a number, or a percentage of replicas rounded
	// down. A string without % is a percentage too.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 0 && self <= 2147483647 : type(self) == string && self.matches('^[0-9]{1,9}%?$')`,messageExpression=`'maxUnavailable is ' + (type(self) == string ? '"' + string(self) + '"' : string(self)) + '; allowed is a number of machines from 0 to 2147483647, such as 2, or a percentage of replicas, such as "20%"'`
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// How many machines may exist above replicas during an update: a number, or a percentage of replicas rounded up.
	// A string without % is a percentage too.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 0 && self <= 2147483647 : type(self) == string && self.matches('^[0-9]{1,9}%?$')`,messageExpression=`'maxSurge is ' + (type(self) == string ? '"' + string(self) + '"' : string(self)) + '; allowed is a number of machines from 0 to 2147483647, such as 2, or a percentage of replicas, such as "20%"'`
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
}

// RollbackConfig asks for a former revision.
type RollbackConfig struct {
	// The revision to return to. 0 means the one before the newest.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Revision int64 `json:"revision,omitempty"`
}

// MachineDeploymentStatus is what is known about a deployment.
type MachineDeploymentStatus struct {
	// Generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Number of machines that belong to the deployment, those that are being deleted included.
	// +optional
	Replicas int32 `json:"replicas"`
	// Of these, the number that have the newest template.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`
	// Number of machines in phase Running.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`
	// Number of machines that have been ready for minReadySeconds, or are Available without a target cluster.
	// +optional
	AvailableReplicas int32 `json:"availableReplicas"`
	// Number of Failed machines that are preserved.
	// +optional
	PreservedFailedReplicas int32 `json:"preservedFailedReplicas,omitempty"`
	// Number of machines that are wanted but not available.
	// +optional
	UnavailableReplicas int32 `json:"unavailableReplicas,omitempty"`
	// Replacements that were granted and have not come to their end.
	// +optional
	// +listType=map
	// +listMapKey=uid
	Replacements []MachineReplacement `json:"replacements,omitempty"`
	// How far the rollout of the newest template is. Absent before the first one.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// Conditions of the deployment.
	// +optional
	Conditions []MachineDeploymentCondition `json:"conditions,omitempty"`
	// How often the name of a new machine set was taken; part of the next name.
	// +optional
	// +nullable
	CollisionCount *int32 `json:"collisionCount,omitempty"`
	// Machines whose last operation failed, preserved ones left out.
	// +optional
	FailedMachines []MachineSummary `json:"failedMachines,omitempty"`
	// The selector as text, for kubectl scale, the HorizontalPodAutoscaler and the cluster autoscaler.
	// +optional
	Selector string `json:"selector,omitempty"`
	// What is in motion. Absent means calm.
	// +optional
	CurrentOperation *Operation `json:"currentOperation,omitempty"`
}

// RolloutStatus is how far a rollout is.
type RolloutStatus struct {
	// The revision that is being rolled out, or was last.
	// +required
	Revision int64 `json:"revision"`
	// The stage that is in force, counted from 0; the number of stages once all are passed.
	// +optional
	Step int32 `json:"step,omitempty"`
	// When the stage had its machines. Absent while it has not.
	// +optional
	ReachedAt *metav1.Time `json:"reachedAt,omitempty"`
	// New machines that failed, as far as automaticRollback counts them.
	// +optional
	FailedMachines []string `json:"failedMachines,omitempty"`
	// True: an automatic rollback brought this revision. It does not roll back by itself again.
	// +optional
	Automatic bool `json:"automatic,omitempty"`
	// Name of the set whose template an automatic rollback under way brings back. Absent: none is.
	// +optional
	ReturnsTo string `json:"returnsTo,omitempty"`
}

// MachineDeploymentCondition is one statement about a deployment.
type MachineDeploymentCondition struct {
	// What the statement is about.
	// +required
	Type MachineDeploymentConditionType `json:"type"`
	// Whether it holds: True, False or Unknown.
	// +required
	Status ConditionStatus `json:"status"`
	// When the statement was last confirmed or changed.
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty,omitzero"`
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

// MachineDeploymentList is a list of machine deployments.
//
// +kubebuilder:object:root=true
type MachineDeploymentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineDeployment `json:"items"`
}

// MachineReplacement is one use of a deployment's replacement budget. It ends when the machine is gone and the one that
// came for it has joined.
type MachineReplacement struct {
	// UID of the machine that is replaced.
	// +required
	UID types.UID `json:"uid"`
	// Name of the machine that is replaced.
	// +optional
	Name string `json:"name,omitempty"`
	// Zone of the machine, as far as its class or node template tells. Budgets are counted for each.
	// +optional
	FailureDomain string `json:"failureDomain,omitempty"`
	// Why the machine is replaced: the reason of its condition ReplacementDue.
	// +optional
	Reason string `json:"reason,omitempty"`
	// When the replacement was granted.
	// +optional
	GrantedAt metav1.Time `json:"grantedAt,omitempty,omitzero"`
}
