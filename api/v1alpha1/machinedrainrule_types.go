package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MachineDrainRule says how some pods leave the nodes of some machines of its namespace when these are deleted, in the
// manner of Cluster API's kind of that name. Of several rules that match a pod, the first by name counts. The pod's own
// label cluster.x-k8s.io/drain beats them all.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:printcolumn:name="Behavior",type=string,JSONPath=".spec.drain.behavior",description="What becomes of the pods"
// +kubebuilder:printcolumn:name="Order",type=integer,JSONPath=".spec.drain.order",description="Pods of a lower order go first"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp",description="Time since the rule was made"
type MachineDrainRule struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// What the rule says, and of whom.
	// +required
	Spec MachineDrainRuleSpec `json:"spec"`
}

// MachineDrainRuleSpec is what a drain rule says, and of whom.
type MachineDrainRuleSpec struct {
	// What becomes of the pods.
	// +required
	// +kubebuilder:validation:XValidation:rule=`!has(self.order) || self.behavior == 'Drain'`,fieldPath=`.order`,message=`drain.order goes with behavior Drain only`
	Drain MachineDrainRuleDrain `json:"drain"`
	// The machines of whose nodes the rule speaks: those that one entry selects. Empty means all of the namespace.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Machines []MachineDrainRuleMachines `json:"machines,omitempty"`
	// The pods of which the rule speaks: those that one entry selects. Empty means all.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Pods []MachineDrainRulePods `json:"pods,omitempty"`
}

// MachineDrainRuleDrain is what becomes of pods.
type MachineDrainRuleDrain struct {
	// Drain: they are evicted, in their order. Skip: they stay. WaitCompleted: they are waited for, and not evicted.
	// +required
	Behavior MachineDrainRuleBehavior `json:"behavior"`
	// Pods of a lower order leave a node before those of a higher one are evicted. Default 0.
	// +optional
	Order *int32 `json:"order,omitempty"`
}

// MachineDrainRuleBehavior is what becomes of pods.
//
// +kubebuilder:validation:Enum=Drain;Skip;WaitCompleted
type MachineDrainRuleBehavior string

// What may become of pods.
const (
	MachineDrainRuleBehaviorDrain         MachineDrainRuleBehavior = "Drain"
	MachineDrainRuleBehaviorSkip          MachineDrainRuleBehavior = "Skip"
	MachineDrainRuleBehaviorWaitCompleted MachineDrainRuleBehavior = "WaitCompleted"
)

// MachineDrainRuleMachines selects machines.
type MachineDrainRuleMachines struct {
	// By their labels. Left out or empty means all.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// MachineDrainRulePods selects pods: those for which both selectors hold.
type MachineDrainRulePods struct {
	// By their labels. Left out or empty means all.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// By the labels of their namespace. Left out or empty means all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// MachineDrainRuleList is a list of drain rules.
//
// +kubebuilder:object:root=true
type MachineDrainRuleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// The rules.
	Items []MachineDrainRule `json:"items"`
}
