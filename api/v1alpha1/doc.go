// Package v1alpha1 has the kinds Machine, MachineSet, MachineDeployment, MachineClass, MachineDrainRule and
// RolloutPolicy of the API group machine.sapcloud.io, and their labels, annotations, taints, conditions and reasons.
// Every package that reads or writes an object of these kinds uses it: activities, observers, the bridge, the command
// line and the generated clients. It decides nothing and calls nothing. Of Millwright's packages, it imports only the
// vocabulary. Markers say which objects are valid; the API server enforces them at admission.
//
// Names, JSON keys and meanings are those of Gardener's machine-controller-manager (MCM), so that objects of MCM's
// users work unchanged. json_test.go lists what Millwright adds, such as status.currentOperation in every status, a
// status on MachineClass, and status.selector for the scale subresource.
//
// +kubebuilder:object:generate=true
// +groupName=machine.sapcloud.io
package v1alpha1
