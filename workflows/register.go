// Package workflows answers in which order and until when things are done: one durable procedure for each kind of object,
// woken by the bridge. It reads no cluster, calls no cloud and decides nothing from facts: activities do.
package workflows

import (
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// Register makes every workflow known to a worker, or to a replayer.
func Register(r worker.WorkflowRegistry) {
	for kind, function := range map[Kind]any{
		KindMachine:           Machine,
		KindMachineSet:        MachineSet,
		KindMachineDeployment: MachineDeployment,
		KindMachineClass:      MachineClass,
		KindDrain:             Drain,
		KindRollout:           Rollout,
		KindOrphanCollection:  OrphanCollection,
	} {
		r.RegisterWorkflowWithOptions(function, workflow.RegisterOptions{
			Name:               string(kind),
			VersioningBehavior: workflow.VersioningBehaviorAutoUpgrade,
		})
	}
}
