package set_test

import (
	"millwright/activities/kube"
	"millwright/activities/set"
)

func newActivities(k *kube.Kube) *set.Activities { return &set.Activities{Kube: k} }
