package orphan_test

import (
	"millwright/activities/kube"
	"millwright/activities/orphan"
)

func newActivities(k *kube.Kube) *orphan.Activities { return &orphan.Activities{Kube: k} }
