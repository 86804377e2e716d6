package class_test

import (
	"millwright/activities/class"
	"millwright/activities/kube"
)

func newActivities(k *kube.Kube) *class.Activities { return &class.Activities{Kube: k} }
