// Package v1alpha1 has the kinds Machine, MachineSet, MachineDeployment, MachineClass, MachineDrainRule and
// RolloutPolicy of the API group machine.sapcloud.io, and their labels, annotations, taints, conditions and reasons.
// Every package that reads or writes an object of these kinds imports v1alpha1: activities, observers, the bridge, the
// command line and the generated clients. The package makes no decisions and no requests. v1alpha1 imports no other
// package of Millwright than vocabulary. Markers define which objects are valid, and the API server enforces the
// markers at admission.
//
// v1alpha1 has the names, JSON keys and meanings of Gardener's machine-controller-manager (MCM), so that objects of
// MCM's users work unchanged. json_test.go lists what Millwright adds, such as status.currentOperation in every status,
// a status on MachineClass, and status.selector for the scale subresource.
//
// +kubebuilder:object:generate=true
// +groupName=machine.sapcloud.io
package v1alpha1
