package drain

import (
	"millwright/activities/capi"
	"millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/workflows/run"
)

// adapter has the activities on the machines of one API. Those of type run.Local may run as local activities: see
// run.Local.
type adapter struct {
	kind     run.Kind
	resource kube.Resource // of the machines

	decide run.Local[drain.Input, drain.Decision]
	report run.Local[machine.Report, kube.Reported]
	evict  any

	// Of Cluster API alone: the drain is no child, and does itself what the workflow of a machine does around a drain.
	cordon  run.Local[kube.Read, kube.MinVersions]
	release run.Local[capi.HookRelease, string]
	halt    run.Local[drain.Holding, string]
}

// ofMillwright is for the machines of machine.sapcloud.io.
func ofMillwright() adapter {
	a := new(drain.Activities)
	return adapter{
		kind: run.KindDrain, resource: kube.MachinesResource,
		decide: run.Repeatable(a.DecideDrain),
		report: run.Repeatable(new(machine.Activities).ReportMachine),
		evict:  a.EvictPods,
	}
}

// ofClusterAPI is for the machines of cluster.x-k8s.io.
func ofClusterAPI() adapter {
	a := new(capi.Activities)
	return adapter{
		kind: run.KindClusterAPIDrain, resource: capi.MachinesResource,
		decide:  run.Repeatable(a.DecideClusterAPIDrain),
		report:  run.Repeatable(a.ReportClusterAPIDrain),
		evict:   a.EvictClusterAPIPods,
		cordon:  run.Repeatable(a.CordonClusterAPINode),
		release: run.Repeatable(a.ReleaseClusterAPIHook),
		halt:    run.Repeatable(a.HoldClusterAPIDrain),
	}
}
