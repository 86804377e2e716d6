package drain_test

import (
	"millwright/activities/drain"
	"millwright/activities/kube"
)

func newActivities(k *kube.Kube) *drain.Activities { return &drain.Activities{Kube: k} }
