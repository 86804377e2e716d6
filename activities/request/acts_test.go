package request_test

import (
	"millwright/activities/kube"
	"millwright/activities/request"
)

func newActivities(k *kube.Kube) *request.Activities { return &request.Activities{Kube: k} }
