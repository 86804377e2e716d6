package request_test

import (
	"millwright/activities/kube"
	"millwright/activities/request"
)

func acts(k *kube.Kube) *request.Activities { return &request.Activities{Kube: k} }
