package orphan_test

import (
	"millwright/activities/kube"
	"millwright/activities/orphan"
)

func acts(k *kube.Kube) *orphan.Activities { return &orphan.Activities{Kube: k} }
