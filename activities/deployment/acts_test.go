package deployment_test

import (
	"millwright/activities/deployment"
	"millwright/activities/kube"
)

func newActivities(k *kube.Kube) *deployment.Activities { return &deployment.Activities{Kube: k} }
