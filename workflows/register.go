// Package workflows defines the order of work and its timeouts. Each kind of object has a package. The bridge starts
// and signals one workflow per object. Workflows do not read a cluster, call a cloud or decide: activities do this.
package workflows

import (
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"millwright/workflows/check"
	"millwright/workflows/class"
	"millwright/workflows/deployment"
	"millwright/workflows/drain"
	"millwright/workflows/installation"
	"millwright/workflows/machine"
	"millwright/workflows/orphan"
	"millwright/workflows/run"
	"millwright/workflows/set"
)

// Register registers every workflow with a worker or a replayer.
func Register(r worker.WorkflowRegistry) {
	for kind, function := range map[run.Kind]any{
		run.KindMachine:              machine.Machine,
		run.KindMachineSet:           set.MachineSet,
		run.KindClusterAPISet:        set.ClusterAPISet,
		run.KindMachineDeployment:    deployment.MachineDeployment,
		run.KindClusterAPIDeployment: deployment.ClusterAPIDeployment,
		run.KindMachineClass:         class.MachineClass,
		run.KindDrain:                drain.Drain,
		run.KindClusterAPIDrain:      drain.ClusterAPIDrain,
		run.KindRollout:              deployment.Rollout,
		run.KindClusterAPIRollout:    deployment.ClusterAPIRollout,
		run.KindOrphanCollection:     orphan.Collection,
		run.KindProviderCheck:        check.Provider,
		run.KindInstallation:         installation.Installation,
	} {
		r.RegisterWorkflowWithOptions(function, workflow.RegisterOptions{
			Name:               string(kind),
			VersioningBehavior: workflow.VersioningBehaviorAutoUpgrade,
		})
	}
}
