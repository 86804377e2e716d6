// Package v1alpha1 has the kinds Machine, MachineSet, MachineDeployment, MachineClass and MachineDrainRule of the API
// group machine.sapcloud.io, and their labels, annotations, taints, conditions and reasons. Every package that reads or
// writes such an object uses it: activities, observers, the bridge, the command line and the generated clients. It
// decides nothing, calls nothing and imports only the vocabulary. Markers say which objects are valid; the API server
// enforces them at admission.
//
// Names, JSON keys and meanings are the public contract of Gardener's machine-controller-manager (MCM), so that its
// users' objects work unchanged. json_test.go lists what Millwright adds, such as status.currentOperation in every
// status, a status on MachineClass, and status.selector behind the scale subresource.
//
// +kubebuilder:object:generate=true
// +groupName=machine.sapcloud.io
package v1alpha1
