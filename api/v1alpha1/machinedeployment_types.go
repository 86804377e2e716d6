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
// +kubebuilder:printcolumn:name="Waits-For",type=string,JSONPath=".status.currentOperation.waitsFor",description="What it waits for, what happens by itself, and the command that changes it"
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=".status.currentOperation.since",description="Time since it began to wait",priority=1
// +kubebuilder:printcolumn:name="Deadline",type=string,JSONPath=".status.currentOperation.deadline",description="When something happens by itself",priority=1
type MachineDeployment struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// The desired state of the deployment.
	// +required
	Spec MachineDeploymentSpec `json:"spec"`
	// The observed state of the deployment.
	// +optional
	Status MachineDeploymentStatus `json:"status,omitempty,omitzero"`
}

// MachineDeploymentSpec is the desired state of a deployment.
type MachineDeploymentSpec struct {
	// Number of machines. Left out means 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`
	// Selects the deployment's machine sets and machines; must match the labels of the template.
	// +required
	Selector *metav1.LabelSelector `json:"selector"`
	// The template of the deployment's machines.
	// +required
	Template MachineTemplateSpec `json:"template"`
	// How old machines are replaced by new ones. Left out means RollingUpdate with maxSurge 1 and maxUnavailable 0.
	// +optional
	// +kubebuilder:default={type: "RollingUpdate", rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
	Strategy MachineDeploymentStrategy `json:"strategy,omitempty,omitzero"`
	// For how many seconds a machine must have been ready before it counts as available. Default 0: at once.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// How many old machine sets are kept, so that a rollout can be undone. Left out means all.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
	// True: a change of the template is not rolled out. Scaling continues.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// Deprecated: requests one return to a former revision; cleared when done.
	// +optional
	RollbackTo *RollbackConfig `json:"rollbackTo,omitempty"`
	// For how many seconds a rollout may make no progress before Progressing becomes False. Left out means without limit.
	// There is no automatic rollback unless a RolloutPolicy requests it.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`
	// How many failed machines are preserved automatically. Default 0: none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AutoPreserveFailedMachineMax int32 `json:"autoPreserveFailedMachineMax,omitempty"`
}

// MachineDeploymentStrategy is how old machines are replaced by new ones.
//
// +kubebuilder:validation:XValidation:rule=`self.type != 'InPlaceUpdate' || has(self.inPlaceUpdate)`,fieldPath=`.inPlaceUpdate`,reason=FieldValueRequired,message=`strategy.type is InPlaceUpdate; it needs the block inPlaceUpdate with orchestrationType Auto or Manual`
// +kubebuilder:validation:XValidation:rule=`self.type != 'InPlaceUpdate' || !has(self.inPlaceUpdate) || has(self.inPlaceUpdate.orchestrationType)`,fieldPath=`.inPlaceUpdate.orchestrationType`,reason=FieldValueRequired,message=`strategy.type is InPlaceUpdate; orchestrationType must be Auto or Manual`
type MachineDeploymentStrategy struct {
	// Recreate: all old machines are deleted before the first new one is created. RollingUpdate: new machines are created
	// while old ones are deleted, within maxSurge and maxUnavailable. InPlaceUpdate: machines keep instance and name, and
	// an agent updates the software of the node. OnDelete: an old machine stays until a person deletes it; then a new one
	// is created.
	// +optional
	// +kubebuilder:default=RollingUpdate
	// +kubebuilder:validation:Enum=Recreate;RollingUpdate;InPlaceUpdate;OnDelete
	Type MachineDeploymentStrategyType `json:"type,omitempty"`
	// Used when type is RollingUpdate. Left out means maxSurge 1 and maxUnavailable 0.
	// +optional
	RollingUpdate *RollingUpdateMachineDeployment `json:"rollingUpdate,omitempty"`
	// Used, and required, when type is InPlaceUpdate.
	// +optional
	InPlaceUpdate *InPlaceUpdateMachineDeployment `json:"inPlaceUpdate,omitempty"`
}

// MachineDeploymentStrategyType names a strategy.
type MachineDeploymentStrategyType string

// Strategies.
const (
	// RecreateMachineDeploymentStrategyType: all old machines are deleted before the first new one is created.
	RecreateMachineDeploymentStrategyType MachineDeploymentStrategyType = "Recreate"
	// RollingUpdateMachineDeploymentStrategyType: new machines are created while old ones are deleted, within maxSurge and
	// maxUnavailable.
	RollingUpdateMachineDeploymentStrategyType MachineDeploymentStrategyType = "RollingUpdate"
	// InPlaceUpdateMachineDeploymentStrategyType: machines keep instance and name; the software on the node is updated.
	InPlaceUpdateMachineDeploymentStrategyType MachineDeploymentStrategyType = "InPlaceUpdate"
	// OnDeleteMachineDeploymentStrategyType: an old machine stays until a person deletes it; then a new one is created.
	OnDeleteMachineDeploymentStrategyType MachineDeploymentStrategyType = "OnDelete"
)

// RollingUpdateMachineDeployment bounds a rolling update.
type RollingUpdateMachineDeployment struct {
	UpdateConfiguration `json:",inline"`
}

// InPlaceUpdateMachineDeployment bounds an in-place update and says who selects the nodes.
type InPlaceUpdateMachineDeployment struct {
	UpdateConfiguration `json:",inline"`
	// Who selects the next nodes: Auto (Millwright) or Manual (a person labels them).
	// +optional
	// +kubebuilder:validation:Enum=Auto;Manual
	OrchestrationType OrchestrationType `json:"orchestrationType,omitempty"`
}

// OrchestrationType says who selects the nodes of an in-place update.
type OrchestrationType string

// Orchestration types.
const (
	OrchestrationTypeAuto   OrchestrationType = "Auto"
	OrchestrationTypeManual OrchestrationType = "Manual"
)

// UpdateConfiguration bounds how many machines an update may add and remove. If both are zero, maxUnavailable counts as
// 1; otherwise no update would be possible.
type UpdateConfiguration struct {
	// How many machines may be missing from replicas during an update: a number, or a percentage of replicas rounded down.
	// A string without % is also a percentage.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 0 && self <= 2147483647 : type(self) == string && self.matches('^[0-9]{1,9}%?$')`,messageExpression=`'maxUnavailable is ' + (type(self) == string ? '"' + string(self) + '"' : string(self)) + '; allowed is a number of machines from 0 to 2147483647, such as 2, or a percentage of replicas, such as "20%"'`
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// How many machines may exist above replicas during an update: a number, or a percentage of replicas rounded up. A
	// string without % is also a percentage.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XValidation:rule=`type(self) == int ? self >= 0 && self <= 2147483647 : type(self) == string && self.matches('^[0-9]{1,9}%?$')`,messageExpression=`'maxSurge is ' + (type(self) == string ? '"' + string(self) + '"' : string(self)) + '; allowed is a number of machines from 0 to 2147483647, such as 2, or a percentage of replicas, such as "20%"'`
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
}

// RollbackConfig requests a former revision.
type RollbackConfig struct {
	// The revision to return to. 0 means the one before the newest.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Revision int64 `json:"revision,omitempty"`
}

// MachineDeploymentStatus is the observed state of a deployment.
type MachineDeploymentStatus struct {
	// Generation of the spec to which this status belongs.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Number of machines that belong to the deployment, including those that are being deleted.
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
	// Granted replacements that are not complete.
	// +optional
	// +listType=map
	// +listMapKey=uid
	Replacements []MachineReplacement `json:"replacements,omitempty"`
	// Progress of the rollout of the newest template. Absent before the first one.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// Conditions of the deployment.
	// +optional
	Conditions []MachineDeploymentCondition `json:"conditions,omitempty"`
	// How often the name of a new machine set was already in use; part of the next name.
	// +optional
	// +nullable
	CollisionCount *int32 `json:"collisionCount,omitempty"`
	// Machines whose last operation failed, without preserved ones.
	// +optional
	FailedMachines []MachineSummary `json:"failedMachines,omitempty"`
	// The selector as text, for kubectl scale, the HorizontalPodAutoscaler and the cluster autoscaler.
	// +optional
	Selector string `json:"selector,omitempty"`
	// The current operation. Absent means calm. It has no step if only a machine below stands still.
	// +optional
	CurrentOperation *Operation `json:"currentOperation,omitempty"`
}

// RolloutStatus is the progress of a rollout.
type RolloutStatus struct {
	// The revision that is being rolled out, or was rolled out last.
	// +required
	Revision int64 `json:"revision"`
	// The rollout step in force, counted from 0; the number of steps when all are over.
	// +optional
	Step int32 `json:"step,omitempty"`
	// The steps of the policy when the rollout began. A rollout keeps its steps, also if the policy is changed or deleted.
	// Empty: it has none. Absent: an earlier version of Millwright began the rollout, and the steps of the policy apply.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Steps []RolloutStep `json:"steps,omitzero"`
	// When the step had its machines. Absent until then.
	// +optional
	ReachedAt *metav1.Time `json:"reachedAt,omitempty"`
	// New machines that failed, if automaticRollback counts them.
	// +optional
	FailedMachines []string `json:"failedMachines,omitempty"`
}

// MachineDeploymentCondition is a condition of a deployment.
type MachineDeploymentCondition struct {
	// Type of the condition.
	// Available: enough machines are available.
	// Progressing: the rollout progresses or is complete (True), made no progress in time (False), or is stopped
	// (Unknown). Blocked: the deployment, one of its sets or machines stands still. It is there only while it is True.
	// ReplicaFailure: a machine could not be created or deleted.
	// Frozen: no machine is created, for safety.
	// SelectorOverlap: another deployment selects the same machines.
	// ClassKindIgnored: class.kind is not MachineClass, and has no effect.
	// ReplacementHeld: failed machines are not replaced now.
	// +required
	Type MachineDeploymentConditionType `json:"type"`
	// True, False, or Unknown if it cannot be determined.
	// +required
	Status ConditionStatus `json:"status"`
	// When the condition was last confirmed or changed.
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty,omitzero"`
	// When status last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty,omitzero"`
	// Reason for the status, in one word for programs. Of Blocked: what blocks. Of Available: MinimumReplicasAvailable,
	// MinimumReplicasUnavailable. Of Progressing: NewMachineSetCreated, FoundNewMachineSet, MachineSetUpdated,
	// NewMachineSetAvailable, ProgressDeadlineExceeded, MachineSetCreateError, DeploymentPaused, DeploymentResumed,
	// RolloutHeld, RolloutWaiting, Invalid. Of ReplicaFailure: FailedCreate, FailedDelete, or the error of a machine. Of
	// Frozen: OverShootingReplicaCount, MachineDeploymentStateSync. Otherwise the type.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Reason for the status, as a sentence.
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

// MachineReplacement is one use of a deployment's replacement budget. It ends when the machine is gone and its
// substitute has joined.
type MachineReplacement struct {
	// UID of the machine that is replaced.
	// +required
	UID types.UID `json:"uid"`
	// Name of the machine that is replaced.
	// +optional
	Name string `json:"name,omitempty"`
	// Zone of the machine, if its class or node template has one. Each zone has its own budget.
	// +optional
	FailureDomain string `json:"failureDomain,omitempty"`
	// Why the machine is replaced: the reason of its condition ReplacementDue.
	// +optional
	Reason string `json:"reason,omitempty"`
	// When the replacement was granted.
	// +optional
	GrantedAt metav1.Time `json:"grantedAt,omitempty,omitzero"`
}
