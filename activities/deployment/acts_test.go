package deployment_test

import (
	"millwright/activities/deployment"
	"millwright/activities/kube"
)

func acts(k *kube.Kube) *deployment.Activities { return &deployment.Activities{Kube: k} }
