package provider

// Method is the name of a method of Provider, for metrics, fault injection and the conformance suite.
type Method string

// The methods of a Provider.
const (
	MethodCreateInstance     Method = "CreateInstance"
	MethodInitializeInstance Method = "InitializeInstance"
	MethodDeleteInstance     Method = "DeleteInstance"
	MethodInstanceStatus     Method = "InstanceStatus"
	MethodListInstances      Method = "ListInstances"
	MethodVolumeIDs          Method = "VolumeIDs"
)

// Methods returns the names of all methods of Provider except Traits, in the order of the interface.
func Methods() []Method {
	return []Method{
		MethodCreateInstance, MethodInitializeInstance, MethodDeleteInstance,
		MethodInstanceStatus, MethodListInstances, MethodVolumeIDs,
	}
}
