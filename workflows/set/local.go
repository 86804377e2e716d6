package set

import (
	"millwright/activities/capi"
	"millwright/activities/kube"
	"millwright/activities/set"
	"millwright/workflows/run"
)

// adapter has the activities on the sets and machines of one API. Those of type run.Local may run as local activities:
// see run.Local.
type adapter struct {
	kind     run.Kind
	resource kube.Resource // of the sets

	decide   run.Local[set.Input, set.Decision]
	report   run.Local[set.Report, string]
	finalize run.Local[kube.Read, string]

	release, adopt, keep, unmark, sync, create, remove any // keep is nil if the API has no preservation
	update, move                                       any // nil if the sets of the API do not update machines in place
}

// ofMillwright is for the sets of machine.sapcloud.io.
func ofMillwright() adapter {
	a := new(set.Activities)
	return adapter{
		kind: run.KindMachineSet, resource: kube.SetsResource,
		decide: run.Repeatable(a.DecideSet), report: run.Repeatable(a.ReportSet), finalize: run.Repeatable(a.FinalizeSet),
		release: a.ReleaseMachines, adopt: a.AdoptMachines, keep: a.RequestPreservation, unmark: a.UnmarkMachines,
		sync: a.SyncMachines, create: a.CreateMachines, remove: a.DeleteMachines,
	}
}

// ofClusterAPI is for the sets of cluster.x-k8s.io.
func ofClusterAPI() adapter {
	a := new(capi.Activities)
	return adapter{
		kind:     run.KindClusterAPISet,
		resource: capi.SetsResource,
		decide:   run.Repeatable(a.DecideClusterAPISet),
		report:   run.Repeatable(a.ReportClusterAPISet),
		finalize: run.Repeatable(a.FinalizeClusterAPISet),
		release:  a.ReleaseClusterAPIMachines,
		adopt:    a.AdoptClusterAPIMachines,
		unmark:   a.UnmarkClusterAPIMachines,
		sync:     a.SyncClusterAPIMachines,
		create:   a.CreateClusterAPIMachines,
		remove:   a.DeleteClusterAPIMachines,
		update:   a.UpdateClusterAPIMachines,
		move:     a.MoveClusterAPIMachines,
	}
}
