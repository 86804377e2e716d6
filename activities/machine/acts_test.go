package machine_test

import (
	"millwright/activities/kube"
	"millwright/activities/machine"
)

func acts(k *kube.Kube) *machine.Activities { return &machine.Activities{Kube: k} }
