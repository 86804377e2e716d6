package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// MachineClass defines how a provider creates instances. The fields of a MachineClass are at the top level; there is no
// spec. A change of a MachineClass affects only instances that are created later.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=mcc
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=".provider",description="Provider that creates the instances"
// +kubebuilder:printcolumn:name="Served",type=string,JSONPath=".status.conditions[?(@.type=='Served')].status",description="Whether a worker serves the provider"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=".status.conditions[?(@.type=='Served')].reason",description="Why a worker serves the provider, or why not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp",description="Time since the class was created"
type MachineClass struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// Properties of the nodes of this class. The cluster autoscaler reads these properties to scale from zero.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	NodeTemplate *NodeTemplate `json:"nodeTemplate,omitempty"`
	// The Secret with the provider's credentials; if left out, the credentials are in secretRef. A Secret of another
	// namespace must have the namespace of the class in its annotation machine.sapcloud.io/allowed-class-namespaces.
	// +optional
	CredentialsSecretRef *corev1.SecretReference `json:"credentialsSecretRef,omitempty"`
	// Settings of the provider for new instances; only the provider's driver reads these settings.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	ProviderSpec runtime.RawExtension `json:"providerSpec"`
	// Name of the provider, in upper or lower case: AWS and aws are the same.
	// +optional
	Provider string `json:"provider,omitempty"`
	// The Secret with the user data of instances, and with the credentials if credentialsSecretRef is left out. A
	// Secret of another namespace must have the namespace of the class in its annotation
	// machine.sapcloud.io/allowed-class-namespaces.
	// +optional
	SecretRef *corev1.SecretReference `json:"secretRef,omitempty"`
	// The observed state of the class.
	// +optional
	Status MachineClassStatus `json:"status,omitempty,omitzero"`
}

// NodeTemplate has the properties of the nodes of a class.
type NodeTemplate struct {
	// Resources of the node; cpu, gpu and memory are required, and 0 is allowed.
	// +required
	// +kubebuilder:validation:XValidation:rule=`['cpu', 'gpu', 'memory'].all(k, k in self)`,messageExpression=`'capacity lacks' + ('cpu' in self ? '' : ' cpu') + ('gpu' in self ? '' : ' gpu') + ('memory' in self ? '' : ' memory') + '; it must name cpu, gpu and memory, and 0 is allowed'`
	Capacity corev1.ResourceList `json:"capacity"`
	// Extended resources that are written into the capacity of each node of the class.
	// +optional
	VirtualCapacity corev1.ResourceList `json:"virtualCapacity,omitempty"`
	// The provider's name for this size of instance.
	// +required
	// +kubebuilder:validation:MinLength=1
	InstanceType string `json:"instanceType"`
	// Region of the node.
	// +required
	// +kubebuilder:validation:MinLength=1
	Region string `json:"region"`
	// Zone of the node.
	// +required
	// +kubebuilder:validation:MinLength=1
	Zone string `json:"zone"`
	// Processor architecture of the node, such as amd64.
	// +optional
	Architecture *string `json:"architecture,omitempty"`
}

// MachineClassStatus is the observed state of a class.
type MachineClassStatus struct {
	// Generation of the class to which this status belongs.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions of the class. Served: a worker serves the class's provider. The reason of Served is WorkerPolls, or
	// NoWorker if the status is False.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// The current operation; absent while the class is idle.
	// +optional
	CurrentOperation *Operation `json:"currentOperation,omitempty"`
}

// MachineClassList is a list of machine classes.
//
// +kubebuilder:object:root=true
type MachineClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineClass `json:"items"`
}
