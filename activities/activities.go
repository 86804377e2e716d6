// Package activities contains the activities that workflows run. Only activities change a cluster or call a provider.
// The activities of each kind of object have their own package. Workflows call the activities of these packages by
// name. An activity either reads objects and returns a decision of package decide, or checks a precondition and makes
// one change. All activities are idempotent. No activity depends on the order of a workflow's steps.
package activities

import (
	"millwright/activities/capi"
	capideployment "millwright/activities/capi/deployment"
	"millwright/activities/class"
	"millwright/activities/deployment"
	"millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/activities/orphan"
	"millwright/activities/request"
	"millwright/activities/set"
	observecapi "millwright/observe/capi"
	capidrain "millwright/observe/capi/drain"
)

// ClusterActivities returns the activities on the clusters, for a worker to register. Each value is a pointer to a
// struct whose exported methods are activities. These activities run on the task queues machines, kubernetes and
// drains. k may be nil if only the names are needed.
func ClusterActivities(k *kube.Kube) []any {
	return []any{
		&class.Activities{Kube: k},
		&deployment.Activities{Kube: k},
		&drain.Activities{Kube: k},
		&machine.Activities{Kube: k},
		&orphan.Activities{Kube: k},
		&request.Activities{Kube: k},
		&set.Activities{Kube: k},
	}
}

// ClusterAPIActivities returns the activities on MachineSets and MachineDeployments of Cluster API. These activities
// run on the same task queues as ClusterActivities. All arguments may be nil if only the names are needed.
func ClusterAPIActivities(k *kube.Kube, api *observecapi.Cache, workloads *capidrain.WorkloadClusters) []any {
	return []any{
		&capi.Activities{Kube: k, Cache: api, WorkloadClusters: workloads},
		&capideployment.Activities{Kube: k, Cache: api},
	}
}
