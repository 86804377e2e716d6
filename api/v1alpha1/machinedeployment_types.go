package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// MachineDeployment keeps a number of machines of one template, and replaces or updates the machines when the template
// changes.
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
// +kubebuilder:printcolumn:name="Waits-For",type=string,JSONPath=".status.currentOperation.summary",description="What it waits for, and what happens by itself"
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
	// Number of desired machines; 0 if left out.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`
	// Selector of the deployment's machine sets and machines. The selector must match the labels of the template.
	// +required
	Selector *metav1.LabelSelector `json:"selector"`
	// The template of the deployment's machines.
	// +required
	Template MachineTemplateSpec `json:"template"`
	// How old machines are replaced by new machines; RollingUpdate with maxSurge 1 and maxUnavailable 0 if left out.
	// +optional
	// +kubebuilder:default={type: "RollingUpdate", rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
	Strategy MachineDeploymentStrategy `json:"strategy,omitempty,omitzero"`
	// For how many seconds a machine must have been ready before the machine counts as available; 0 by default.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// How many old machine sets are kept, so that a rollout can be undone; all if left out.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
	// If true, a change of the template is not rolled out. A change of replicas still takes effect.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// Deprecated: requests a rollback to a former revision; cleared after the rollback.
	// +optional
	RollbackTo *RollbackConfig `json:"rollbackTo,omitempty"`
	// For how many seconds a rollout may make no progress before the condition Progressing becomes False; no limit if
	// left out. An automatic rollback follows only if a RolloutPolicy requests automatic rollbacks.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`
	// How many failed machines are preserved automatically; 0 by default.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AutoPreserveFailedMachineMax int32 `json:"autoPreserveFailedMachineMax,omitempty"`
}

// MachineDeploymentStrategy defines how old machines are replaced by new machines.
//
// +kubebuilder:validation:XValidation:rule=`self.type != 'InPlaceUpdate' || has(self.inPlaceUpdate)`,fieldPath=`.inPlaceUpdate`,reason=FieldValueRequired,message=`strategy.type is InPlaceUpdate; it needs the block inPlaceUpdate with orchestrationType Auto or Manual`
// +kubebuilder:validation:XValidation:rule=`self.type != 'InPlaceUpdate' || !has(self.inPlaceUpdate) || has(self.inPlaceUpdate.orchestrationType)`,fieldPath=`.inPlaceUpdate.orchestrationType`,reason=FieldValueRequired,message=`strategy.type is InPlaceUpdate; orchestrationType must be Auto or Manual`
type MachineDeploymentStrategy struct {
	// Recreate: all old machines are deleted before the first new machine is created. RollingUpdate: new machines are
	// created while old machines are deleted, within maxSurge and maxUnavailable. InPlaceUpdate: machines keep instance
	// and name, and an agent updates the software of the node. OnDelete: a new machine is created only after a person
	// has deleted an old machine.
	// +optional
	// +kubebuilder:default=RollingUpdate
	// +kubebuilder:validation:Enum=Recreate;RollingUpdate;InPlaceUpdate;OnDelete
	Type MachineDeploymentStrategyType `json:"type,omitempty"`
	// Bounds for type RollingUpdate; maxSurge 1 and maxUnavailable 0 if left out.
	// +optional
	RollingUpdate *RollingUpdateMachineDeployment `json:"rollingUpdate,omitempty"`
	// Settings for type InPlaceUpdate, for which the field is required.
	// +optional
	InPlaceUpdate *InPlaceUpdateMachineDeployment `json:"inPlaceUpdate,omitempty"`
}

// MachineDeploymentStrategyType names a strategy.
type MachineDeploymentStrategyType string

// Strategies.
const (
	// RecreateMachineDeploymentStrategyType: all old machines are deleted before the first new machine is created.
	RecreateMachineDeploymentStrategyType MachineDeploymentStrategyType = "Recreate"
	// RollingUpdateMachineDeploymentStrategyType: new machines are created while old machines are deleted, within
	// maxSurge and maxUnavailable.
	RollingUpdateMachineDeploymentStrategyType MachineDeploymentStrategyType = "RollingUpdate"
	// InPlaceUpdateMachineDeploymentStrategyType: machines keep instance and name; the software on the node is updated.
	InPlaceUpdateMachineDeploymentStrategyType MachineDeploymentStrategyType = "InPlaceUpdate"
	// OnDeleteMachineDeploymentStrategyType: a new machine is created only after a person has deleted an old machine.
	OnDeleteMachineDeploymentStrategyType MachineDeploymentStrategyType = "OnDelete"
)

// RollingUpdateMachineDeployment bounds a rolling update.
type RollingUpdateMachineDeployment struct {
	UpdateConfiguration `json:",inline"`
}

// InPlaceUpdateMachineDeployment bounds an in-place update and defines who selects the nodes.
type InPlaceUpdateMachineDeployment struct {
	UpdateConfiguration `json:",inline"`
	// Who selects the next nodes: Auto (Millwright) or Manual (a person labels the nodes).
	// +optional
	// +kubebuilder:validation:Enum=Auto;Manual
	OrchestrationType OrchestrationType `json:"orchestrationType,omitempty"`
}

// OrchestrationType defines who selects the nodes of an in-place update.
type OrchestrationType string

// Orchestration types.
const (
	OrchestrationTypeAuto   OrchestrationType = "Auto"
	OrchestrationTypeManual OrchestrationType = "Manual"
)

// UpdateConfiguration bounds how many machines an update may add and remove. If maxSurge and maxUnavailable are both 0,
// maxUnavailable counts as 1, because otherwise no update would be possible.
type UpdateConfiguration struct {
	// How many machines may be missing from replicas during an update: a number, or a percentage of replicas rounded
	// down. A string without % is also a percentage.
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
	// The revision to return to; 0 means the revision before the newest revision.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Revision int64 `json:"revision,omitempty"`
}

// MachineDeploymentStatus is the observed state of a deployment.
type MachineDeploymentStatus struct {
	// Generation of the spec to which this status belongs.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Number of machines that belong to the deployment, including machines that are being deleted.
	// +optional
	Replicas int32 `json:"replicas"`
	// Number of machines with the newest template, including machines that are being deleted.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`
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
	// Number of desired machines that are not available.
	// +optional
	UnavailableReplicas int32 `json:"unavailableReplicas,omitempty"`
	// Granted replacements that are not complete.
	// +optional
	// +listType=map
	// +listMapKey=uid
	Replacements []MachineReplacement `json:"replacements,omitempty"`
	// Progress of the rollout of the newest template; absent before the first rollout.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// Conditions of the deployment.
	// +optional
	Conditions []MachineDeploymentCondition `json:"conditions,omitempty"`
	// Number of times that the name of a new machine set was already in use. The next name includes this number.
	// +optional
	// +nullable
	CollisionCount *int32 `json:"collisionCount,omitempty"`
	// Machines whose last operation failed, except preserved machines.
	// +optional
	FailedMachines []MachineSummary `json:"failedMachines,omitempty"`
	// The selector as text, for kubectl scale, the HorizontalPodAutoscaler and the cluster autoscaler.
	// +optional
	Selector string `json:"selector,omitempty"`
	// The current operation; absent while the deployment is idle. The operation has no step if only a machine of the
	// deployment is blocked.
	// +optional
	CurrentOperation *Operation `json:"currentOperation,omitempty"`
}

// RolloutStatus is the progress of a rollout.
type RolloutStatus struct {
	// The revision that is being rolled out, or was rolled out last.
	// +required
	Revision int64 `json:"revision"`
	// Name of the machine set of this revision.
	// +optional
	Set string `json:"set,omitempty"`
	// Index of the current rollout step, counted from 0; after the last step, the number of steps.
	// +optional
	Step int32 `json:"step,omitempty"`
	// The steps of the policy at the start of the rollout. A rollout keeps its steps, even if the policy is changed or
	// deleted. An empty list means that the rollout has no steps. If the list is absent, an earlier version of
	// Millwright began the rollout, and the present steps of the policy apply.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Steps []RolloutStep `json:"steps,omitzero"`
	// When the step reached its number of machines; absent before that time.
	// +optional
	ReachedAt *metav1.Time `json:"reachedAt,omitempty"`
	// Names of the new machines that failed, if automaticRollback counts failed machines.
	// +optional
	FailedMachines []string `json:"failedMachines,omitempty"`
	// The automaticRollback of the policy when the rollout began. A change or deletion of the policy takes effect in
	// the next rollout. Absent: the rollout does not roll back automatically.
	// +optional
	AutomaticRollback *AutomaticRollback `json:"automaticRollback,omitempty"`
	// Number of retries of the revision.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`
	// When the newest machine of the earlier attempts was created. Only failures of newer machines count. Absent: all
	// failures count.
	// +optional
	FormerMachinesUntil *metav1.Time `json:"formerMachinesUntil,omitempty"`
	// When the rollout was complete for the first time. Absent until then.
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
	// Name of the machine set of the last complete rollout, to which an automatic rollback returns. Absent: not known.
	// +optional
	LastGoodSet string `json:"lastGoodSet,omitempty"`
	// Name of the machine set of the complete rollout before lastGoodSet, to which an automatic rollback returns during
	// the bakeTime. Absent: no earlier rollout was complete.
	// +optional
	FormerGoodSet string `json:"formerGoodSet,omitempty"`
	// Why the machines stay on a former revision although the template is newer. Absent: the machines follow the
	// template.
	// +optional
	Pin *RolloutPin `json:"pin,omitempty"`
	// The turn of the deployment among the deployments of its policy. Absent: the deployment had no turn.
	// +optional
	Turn *RolloutTurn `json:"turn,omitempty"`
}

// RolloutTurn allows a deployment to roll its template out. A policy limits how many deployments have a turn at a time.
type RolloutTurn struct {
	// When the deployment took its turn.
	// +required
	Since metav1.Time `json:"since"`
	// When the turn ended, because the rollout was complete. Absent: the deployment has its turn.
	// +optional
	EndedAt *metav1.Time `json:"endedAt,omitempty"`
}

// RolloutPin keeps the machines of a deployment on a former revision, after an automatic rollback or at a person's
// request. The pin ends when the template changes, or when a person retries the rollout.
type RolloutPin struct {
	// Name of the machine set that has the machines instead of the template's set.
	// +required
	Set string `json:"set"`
	// Revision of this machine set.
	// +required
	Revision int64 `json:"revision"`
	// When the pin began.
	// +required
	Since metav1.Time `json:"since"`
	// Why the rollout failed. Absent: a person requested the pin.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Who requested the pin, and why. Absent: an automatic rollback.
	// +optional
	RequestedBy string `json:"requestedBy,omitempty"`
}

// MachineDeploymentCondition is a condition of a deployment.
type MachineDeploymentCondition struct {
	// Type of the condition. Available: enough machines are available. Progressing: the rollout progresses or is
	// complete (True), made no progress in time (False), or is stopped (Unknown). Blocked: something blocks the
	// deployment, one of its sets or one of its machines. The condition Blocked exists only while its status is True.
	// ReplicaFailure: a machine could not be created or deleted. Frozen: no machine is created, for safety. Degraded:
	// the machines stay on a former revision. Reconciling: the machines do not match the spec yet. Stalled: the
	// machines will not match the spec unless a person acts. Degraded, Reconciling and Stalled exist only while they
	// are True. SelectorOverlap: another deployment selects the same machines. ClassKindIgnored: class.kind of the
	// template is not MachineClass, and has no effect. ReplacementHeld: failed machines are not replaced now.
	// +required
	Type MachineDeploymentConditionType `json:"type"`
	// True, False, or Unknown if the status cannot be determined.
	// +required
	Status ConditionStatus `json:"status"`
	// When the condition was last confirmed or changed.
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty,omitzero"`
	// When status last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty,omitzero"`
	// Reason for the status, in one word for programs. The reason of Blocked is the blocker. Reasons of Available:
	// MinimumReplicasAvailable, MinimumReplicasUnavailable. Reasons of Progressing: NewMachineSetCreated,
	// FoundNewMachineSet, MachineSetUpdated, NewMachineSetAvailable, ProgressDeadlineExceeded, MachineSetCreateError,
	// DeploymentPaused, DeploymentResumed, RolloutHeld, RolloutWaiting, WaitingForTurn, Invalid. Reasons of Degraded:
	// RolledBack, Pinned. Reasons of Reconciling and Stalled: the reason of Progressing or Degraded, or Scaling.
	// Reasons of ReplicaFailure: FailedCreate, FailedDelete, or the error of a machine. Reasons of Frozen:
	// OverShootingReplicaCount, MachineDeploymentStateSync. The reason of any other condition is its type.
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

// MachineReplacement is a granted replacement, which uses a part of the deployment's replacement budget. The
// replacement is complete when the machine is gone and the machine's substitute has joined.
type MachineReplacement struct {
	// UID of the machine that is replaced.
	// +required
	UID types.UID `json:"uid"`
	// Name of the machine that is replaced.
	// +optional
	Name string `json:"name,omitempty"`
	// Zone of the machine, if the machine's class or node template has a zone. Each zone has its own replacement
	// budget.
	// +optional
	FailureDomain string `json:"failureDomain,omitempty"`
	// Why the machine is replaced: the reason of its condition ReplacementDue, or RequestedByPerson if a person granted
	// the replacement.
	// +optional
	Reason string `json:"reason,omitempty"`
	// When the replacement was granted.
	// +optional
	GrantedAt metav1.Time `json:"grantedAt,omitempty,omitzero"`
}
