package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MachineDrainRule defines how a drain treats the selected pods on the nodes of the selected machines in its namespace,
// like Cluster API's kind MachineDrainRule. If several rules match a pod, the rule whose name sorts first applies. The
// pod's own label cluster.x-k8s.io/drain overrides all rules.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:printcolumn:name="Behavior",type=string,JSONPath=".spec.drain.behavior",description="What becomes of the pods"
// +kubebuilder:printcolumn:name="Order",type=integer,JSONPath=".spec.drain.order",description="Pods of a lower order go first"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp",description="Time since the rule was created"
type MachineDrainRule struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// The rule: treatment, machines and pods.
	// +required
	Spec MachineDrainRuleSpec `json:"spec"`
}

// MachineDrainRuleSpec is a drain rule: treatment, machines and pods.
type MachineDrainRuleSpec struct {
	// How the pods are treated.
	// +required
	// +kubebuilder:validation:XValidation:rule=`!has(self.order) || self.behavior == 'Drain'`,fieldPath=`.order`,message=`drain.order goes with behavior Drain only`
	Drain MachineDrainRuleDrain `json:"drain"`
	// The machines to which the rule applies: each machine that at least one entry selects. An empty list selects all
	// machines of the namespace.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Machines []MachineDrainRuleMachines `json:"machines,omitempty"`
	// The pods to which the rule applies: each pod that at least one entry selects. An empty list selects all pods.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Pods []MachineDrainRulePods `json:"pods,omitempty"`
}

// MachineDrainRuleDrain is the treatment of pods.
type MachineDrainRuleDrain struct {
	// Drain: the pods are evicted, in their order. Skip: the pods stay. WaitCompleted: the drain waits until the pods
	// end, and does not evict them.
	// +required
	Behavior MachineDrainRuleBehavior `json:"behavior"`
	// Pods of a lower order leave a node before pods of a higher order are evicted; 0 by default.
	// +optional
	Order *int32 `json:"order,omitempty"`
}

// MachineDrainRuleBehavior is a treatment of pods.
//
// +kubebuilder:validation:Enum=Drain;Skip;WaitCompleted
type MachineDrainRuleBehavior string

// The treatments of pods.
const (
	MachineDrainRuleBehaviorDrain         MachineDrainRuleBehavior = "Drain"
	MachineDrainRuleBehaviorSkip          MachineDrainRuleBehavior = "Skip"
	MachineDrainRuleBehaviorWaitCompleted MachineDrainRuleBehavior = "WaitCompleted"
)

// MachineDrainRuleMachines selects machines.
type MachineDrainRuleMachines struct {
	// Selector for the labels of the machines; left out or empty selects all machines.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// MachineDrainRulePods selects the pods that match both selectors.
type MachineDrainRulePods struct {
	// Selector for the labels of the pods; left out or empty selects all pods.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Selector for the labels of the pods' namespace; left out or empty selects all namespaces.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// MachineDrainRuleList is a list of drain rules.
//
// +kubebuilder:object:root=true
type MachineDrainRuleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// The drain rules of the list.
	Items []MachineDrainRule `json:"items"`
}
