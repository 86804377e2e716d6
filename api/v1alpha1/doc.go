// Package v1alpha1 is the words users write and read in YAML: the kinds Machine, MachineSet, MachineDeployment and
// MachineClass of the API group machine.sapcloud.io, and the labels, annotations, taints, conditions and reasons around
// them. Everybody who reads or writes such an object uses it: activities, observers, the bridge, the command line and the
// generated clients. It decides nothing, calls nothing and imports nothing of ours; what an object may look like is said
// here by markers and enforced by the API server at admission.
//
// Names, JSON keys and meanings are the public contract of Gardener's machine-controller-manager (MCM), so that its
// users' objects work unchanged. What Millwright adds is few: status.currentOperation on every kind, a status on
// MachineClass, and status.selector behind the scale subresource.
//
// +kubebuilder:object:generate=true
// +groupName=machine.sapcloud.io
package v1alpha1
