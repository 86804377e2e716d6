package workflowstest

import (
	"millwright/activities/kube"
)

var Ref = kube.Ref{Namespace: "default", Name: "m-1", UID: "uid-1"}
