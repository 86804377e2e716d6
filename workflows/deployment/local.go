package deployment

import (
	"go.temporal.io/sdk/workflow"

	capi "millwright/activities/capi/deployment"
	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/workflows/run"
)

// adapter has the activities on the deployments and sets of one API, and the kinds of their workflows. Those of type
// run.Local may run as local activities: run.Local says why these.
type adapter struct {
	deployment, rollout run.Kind
	resource            kube.Resource // of the deployments

	decide   run.Local[deployment.Input, deployment.Decision]
	report   run.Local[deployment.Report, string]
	finalize run.Local[kube.Read, string]

	// Writes of sets and nodes, if they are few: a resize changes nothing unless the set has the size that the decision
	// saw, and marks of nodes are the same whichever worker writes them.
	changeSets  run.Local[deployment.SetChanges, kube.MinVersions]
	changeNodes run.Local[deployment.NodeChanges, kube.MinVersions] // not set for an API whose deployments write no nodes

	// not set for an API whose sets replace machines on their own
	grant                run.Local[kube.Read, deployment.Granted]
	create, rollBack     any
	ask                  any // nil for an API without extensions that update machines in place
	mark, changeMachines any // nil for an API whose deployments write no machines
}

// ofMillwright is for the deployments of machine.sapcloud.io.
func ofMillwright() adapter {
	a := new(deployment.Activities)
	return adapter{
		deployment:     run.KindMachineDeployment,
		rollout:        run.KindRollout,
		resource:       kube.DeploymentsResource,
		decide:         run.Repeatable(a.DecideDeployment),
		report:         run.Repeatable(a.ReportDeployment),
		finalize:       run.Repeatable(a.FinalizeDeployment),
		changeSets:     run.Repeatable(a.ChangeSets),
		changeNodes:    run.Repeatable(a.ChangeNodes),
		grant:          run.Repeatable(a.GrantReplacements),
		create:         a.CreateSet,
		rollBack:       a.RollBackDeployment,
		mark:           a.MarkMachines,
		changeMachines: a.ChangeMachines,
	}
}

// ofClusterAPI is for the deployments of cluster.x-k8s.io. Nodes and machines are left to Cluster API's own controllers
// and to the sets.
func ofClusterAPI() adapter {
	a := new(capi.Activities)
	return adapter{
		deployment: run.KindClusterAPIDeployment,
		rollout:    run.KindClusterAPIRollout,
		resource:   capi.DeploymentsResource,
		decide:     run.Repeatable(a.DecideClusterAPIDeployment),
		report:     run.Repeatable(a.ReportClusterAPIDeployment),
		finalize:   run.Repeatable(a.FinalizeClusterAPIDeployment),
		changeSets: run.Repeatable(a.ChangeClusterAPISets),
		create:     a.CreateClusterAPISet,
		rollBack:   a.RollBackClusterAPIDeployment,
		ask:        a.AskExtension,
	}
}

// rolloutID returns the ID of the workflow that rolls a revision out.
func (w *setWriter) rolloutID(ctx workflow.Context, revision int64) string {
	return run.InstallationOf(ctx).ID(w.rollout, w.Ref, revision)
}
