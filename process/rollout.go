package process

import (
	"flag"

	"millwright/observe"
)

// RolloutFlags say what is done beside a rollout. Worker and bridge must be given the same ones.
type RolloutFlags struct {
	Guard bool
}

// Register adds the flags to a set.
func (f *RolloutFlags) Register(set *flag.FlagSet) {
	set.BoolVar(&f.Guard, "autoscaler-scaledown-annotation-during-rollout", true, "during a rollout, keep the cluster autoscaler off the nodes of the deployment, by the annotation cluster-autoscaler.kubernetes.io/scale-down-disabled")
}

// Apply makes them known to a cluster. Call it before the caches start.
func (f *RolloutFlags) Apply(cluster *observe.Cluster) { cluster.Unguided = !f.Guard }
