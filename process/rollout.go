package process

import (
	"github.com/spf13/pflag"

	"millwright/observe/cache"
)

// RolloutFlags choose what a rollout writes to nodes. Worker and bridge need the same RolloutFlags.
type RolloutFlags struct {
	UsesAutoscalerGuard bool
}

// Register adds the flags to a set.
func (f *RolloutFlags) Register(set *pflag.FlagSet) {
	set.BoolVar(
		&f.UsesAutoscalerGuard,
		"autoscaler-scaledown-annotation-during-rollout",
		true,
		"during a rollout, prevent the cluster autoscaler from removing nodes of the MachineDeployment, with the annotation cluster-autoscaler.kubernetes.io/scale-down-disabled; set the same value on worker and bridge",
	)
}

// ApplyToCluster copies the flags into a cluster. Call ApplyToCluster before the caches start.
func (f *RolloutFlags) ApplyToCluster(cluster *cache.Cluster) {
	cluster.WithoutAutoscalerGuard = !f.UsesAutoscalerGuard
}
