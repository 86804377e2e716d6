package deployment

import (
	"go.temporal.io/sdk/workflow"

	capi "millwright/activities/capi/deployment"
	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/workflows/run"
)

// apiActivities has the activities for the deployments and sets of one API, and the types of their workflows. An
// activity of type run.LocalActivity may run as a local activity. run.LocalActivity describes the rule.
type apiActivities struct {
	deploymentKind, rolloutKind run.Kind
	resource                    kube.Resource // resource of the deployments in the cache

	decideDeployment   run.LocalActivity[deployment.Input, deployment.Decision]
	reportDeployment   run.LocalActivity[deployment.Report, string]
	finalizeDeployment run.LocalActivity[kube.ReadInput, string]

	// Writes of sets and nodes may run as local activities if they are few. A resize applies only if the set still
	// has the size in the decision, and every worker writes the same node marks.
	changeSets run.LocalActivity[deployment.SetChanges, kube.MinVersions]
	// unset if the deployments of the API do not write nodes
	changeNodes run.LocalActivity[deployment.NodeChanges, kube.MinVersions]

	// unset for an API whose sets replace machines on their own
	grantReplacements             run.LocalActivity[kube.ReadInput, deployment.GrantResult]
	createSet, rollBackDeployment any
	askExtension                  any // nil for an API without extensions that update machines in place
	markMachines, changeMachines  any // nil if the deployments of the API do not write machines
}

// millwrightActivities returns the adapter for deployments of machine.sapcloud.io.
func millwrightActivities() apiActivities {
	a := new(deployment.Activities)
	return apiActivities{
		deploymentKind:     run.KindMachineDeployment,
		rolloutKind:        run.KindRollout,
		resource:           kube.DeploymentsResource,
		decideDeployment:   run.NewLocalActivity(a.DecideDeployment),
		reportDeployment:   run.NewLocalActivity(a.ReportDeployment),
		finalizeDeployment: run.NewLocalActivity(a.FinalizeDeployment),
		changeSets:         run.NewLocalActivity(a.ChangeSets),
		changeNodes:        run.NewLocalActivity(a.ChangeNodes),
		grantReplacements:  run.NewLocalActivity(a.GrantReplacements),
		createSet:          a.CreateSet,
		rollBackDeployment: a.RollBackDeployment,
		markMachines:       a.MarkMachines,
		changeMachines:     a.ChangeMachines,
	}
}

// clusterAPIActivities returns the adapter for deployments of cluster.x-k8s.io. Cluster API's own controllers and the
// sets write the nodes and machines.
func clusterAPIActivities() apiActivities {
	a := new(capi.Activities)
	return apiActivities{
		deploymentKind:     run.KindClusterAPIDeployment,
		rolloutKind:        run.KindClusterAPIRollout,
		resource:           capi.DeploymentsResource,
		decideDeployment:   run.NewLocalActivity(a.DecideClusterAPIDeployment),
		reportDeployment:   run.NewLocalActivity(a.ReportClusterAPIDeployment),
		finalizeDeployment: run.NewLocalActivity(a.FinalizeClusterAPIDeployment),
		changeSets:         run.NewLocalActivity(a.ChangeClusterAPISets),
		createSet:          a.CreateClusterAPISet,
		rollBackDeployment: a.RollBackClusterAPIDeployment,
		askExtension:       a.AskExtension,
	}
}

// rolloutID returns the workflow ID of the rollout to a revision.
func (w *setWriter) rolloutID(ctx workflow.Context, revision int64) string {
	return run.InstallationOfWorkflow(ctx).ID(w.rolloutKind, w.Ref, revision)
}
