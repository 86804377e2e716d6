// Package activities has the single steps of workflows. Only activities change a cluster or call a provider. Each kind
// has its own package, whose activities workflows call by name. An activity reads, asks package decide and returns the
// decision, or it checks a precondition, does one thing and returns. Running an activity twice is harmless. No activity
// knows the order of the steps.
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

// ClusterActivities returns the activities on the clusters, for a worker to register: pointers to structs whose
// exported methods are activities. These activities run on the task queues machines, kubernetes and drains. k may be
// nil if only the names are needed.
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
	return []any{&capi.Activities{Kube: k, API: api, Workloads: workloads}, &capideployment.Activities{Kube: k, API: api}}
}
