package drain

import (
	"millwright/activities/capi"
	"millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/workflows/run"
)

// apiActivities contains the activities for the machines of one API. An activity of type run.LocalActivity may run as a
// local activity (see run.LocalActivity).
type apiActivities struct {
	kind     run.Kind
	resource kube.Resource // resource of the machines in the cache

	decideDrain run.LocalActivity[drain.Input, drain.Decision]
	reportDrain run.LocalActivity[machine.Report, kube.ReportResult]
	evictPods   any

	// Only Cluster API needs the following activities. The drain of a Cluster API machine has no parent workflow, so
	// the drain itself cordons the node, removes the hook and records holds.
	cordonNode run.LocalActivity[kube.ReadInput, kube.MinVersions]
	removeHook run.LocalActivity[capi.HookRelease, string]
	recordHold run.LocalActivity[drain.HoldInput, string]
}

// millwrightActivities returns the adapter for machines of machine.sapcloud.io.
func millwrightActivities() apiActivities {
	a := new(drain.Activities)
	return apiActivities{
		kind: run.KindDrain, resource: kube.MachinesResource,
		decideDrain: run.NewLocalActivity(a.DecideDrain),
		reportDrain: run.NewLocalActivity(new(machine.Activities).ReportMachine),
		evictPods:   a.EvictPods,
	}
}

// clusterAPIActivities returns the adapter for machines of cluster.x-k8s.io.
func clusterAPIActivities() apiActivities {
	a := new(capi.Activities)
	return apiActivities{
		kind: run.KindClusterAPIDrain, resource: capi.MachinesResource,
		decideDrain: run.NewLocalActivity(a.DecideClusterAPIDrain),
		reportDrain: run.NewLocalActivity(a.ReportClusterAPIDrain),
		evictPods:   a.EvictClusterAPIPods,
		cordonNode:  run.NewLocalActivity(a.CordonClusterAPINode),
		removeHook:  run.NewLocalActivity(a.ReleaseClusterAPIHook),
		recordHold:  run.NewLocalActivity(a.HoldClusterAPIDrain),
	}
}
