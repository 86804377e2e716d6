package machine_test

import (
	"millwright/activities/kube"
	"millwright/activities/machine"
)

func newActivities(k *kube.Kube) *machine.Activities { return &machine.Activities{Kube: k} }
