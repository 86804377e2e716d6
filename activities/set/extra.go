package set

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities/kube"
)

// ExtraWrites is a batch of writes that are not part of a scale.Decision.
type ExtraWrites struct {
	Activity string // name of the activity, which takes an ExtraWritesInput
	Why      string
	Objects  []ExtraObject
}

// ExtraObject identifies an object of any kind, with the resourceVersion that was read.
type ExtraObject struct {
	Group, APIVersion, Resource string
	Name, UID, Version          string
	Reason                      string // one word, for a condition
	Why                         string // one sentence, for events and the history
}

// GVR returns the resource of the object.
func (o ExtraObject) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: o.Group, Version: o.APIVersion, Resource: o.Resource}
}

// ExtraWritesInput is the input of the activity of an ExtraWrites.
type ExtraWritesInput struct {
	Set     kube.Ref
	Objects []ExtraObject
}
