package set

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities/kube"
)

// Errand is a batch of writes that are not part of a scale.Decision.
type Errand struct {
	Activity string // its name; its input is an Errands
	Why      string
	Objects  []Object
}

// Object names an object of any kind as it was read.
type Object struct {
	Group, APIVersion, Resource string
	Name, UID, Version          string
	Reason                      string // one word, for a condition
	Why                         string // one sentence, for events and history
}

// GVR returns the resource of the object.
func (o Object) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: o.Group, Version: o.APIVersion, Resource: o.Resource}
}

// Errands is the input of the activity of an Errand.
type Errands struct {
	Set     kube.Ref
	Objects []Object
}
