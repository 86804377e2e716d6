package set

import (
	"millwright/activities/capi"
	"millwright/activities/kube"
	"millwright/activities/set"
	"millwright/workflows/run"
)

// apiActivities contains the activities for the sets and machines of one API. An activity of type run.LocalActivity may
// run as a local activity: see run.LocalActivity.
type apiActivities struct {
	kind     run.Kind
	resource kube.Resource // the cache of the sets

	decideSet   run.LocalActivity[set.Input, set.Decision]
	reportSet   run.LocalActivity[set.Report, string]
	finalizeSet run.LocalActivity[kube.ReadInput, string]

	// preserveMachines is nil if the API has no preservation
	releaseMachines, adoptMachines, preserveMachines, unmarkMachines, syncMachines, createMachines, deleteMachines any
	updateMachines, moveMachines                                                                                   any // nil for an API whose sets do not update machines in place
}

// millwrightActivities returns the adapter for sets of machine.sapcloud.io.
func millwrightActivities() apiActivities {
	a := new(set.Activities)
	return apiActivities{
		kind:     run.KindMachineSet,
		resource: kube.SetsResource,
		decideSet: run.NewLocalActivity(
			a.DecideSet,
		),
		reportSet:        run.NewLocalActivity(a.ReportSet),
		finalizeSet:      run.NewLocalActivity(a.FinalizeSet),
		releaseMachines:  a.ReleaseMachines,
		adoptMachines:    a.AdoptMachines,
		preserveMachines: a.RequestPreservation,
		unmarkMachines:   a.UnmarkMachines,
		syncMachines:     a.SyncMachines,
		createMachines:   a.CreateMachines,
		deleteMachines:   a.DeleteMachines,
	}
}

// clusterAPIActivities returns the adapter for sets of cluster.x-k8s.io.
func clusterAPIActivities() apiActivities {
	a := new(capi.Activities)
	return apiActivities{
		kind:            run.KindClusterAPISet,
		resource:        capi.SetsResource,
		decideSet:       run.NewLocalActivity(a.DecideClusterAPISet),
		reportSet:       run.NewLocalActivity(a.ReportClusterAPISet),
		finalizeSet:     run.NewLocalActivity(a.FinalizeClusterAPISet),
		releaseMachines: a.ReleaseClusterAPIMachines,
		adoptMachines:   a.AdoptClusterAPIMachines,
		unmarkMachines:  a.UnmarkClusterAPIMachines,
		syncMachines:    a.SyncClusterAPIMachines,
		createMachines:  a.CreateClusterAPIMachines,
		deleteMachines:  a.DeleteClusterAPIMachines,
		updateMachines:  a.UpdateClusterAPIMachines,
		moveMachines:    a.MoveClusterAPIMachines,
	}
}
